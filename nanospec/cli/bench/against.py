"""Beside transformers' `generate` and its assisted generation: the same weights, the same prompts, in turns.

    nanospec bench against --pair FOLDER          # FOLDER/target and FOLDER/draft, Llama checkpoints

transformers comes with the extra `hf`.
Left out: other engines. They are for many requests, and none of them is made for one request on one core.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

from nanospec.cli.bench.measure import measure_costs
from nanospec.cli.bench.questions import Writer
from nanospec.cli.quantities import milliseconds, per_call, per_second
from nanospec.cli.show.terminal import show_table
from nanospec.errors import SEEDS, check_request, check_vocabulary
from nanospec.fast.autotune import Setup, name_of, setups_of, weights_of
from nanospec.fast.clock import announced
from nanospec.files.extra import extra
from nanospec.files.huggingface import load_folder
from nanospec.generate import generate
from nanospec.model import GPT
from nanospec.speculate import ModelDrafter, Round, speculate, tokens_of

PROMPT = 32                                                 # tokens
GLANCE = 8                                                  # tokens that transformers writes to choose a data type


def run(pair: Path, gamma: int = 4, temperature: float = 1.0, max_new_tokens: int = 128, seed: int = 0,
        device: str = "cpu", dtype: str = "auto", threads: int | None = None, compile: bool = False) -> list[dict]:
    """A row for each of five methods, at one gamma and one temperature; compile: ours compiled, too."""
    extra("transformers")                               # missing: refused before anything is read
    target, draft = (load_folder(pair / name, device) for name in ("target", "draft"))
    check_vocabulary(draft, target.config.vocab_size)
    check_request(target, [0] * PROMPT, max_new_tokens, temperature, None, None, seed, gamma + 1)
    setups, where = setups_of(target, draft, dtype, threads, compile)
    with announced("measuring all methods, in turns"):
        rows = compare(setups, pair, gamma, max_new_tokens, temperature, seed=seed, dtype=dtype)
    show_table(["method", "tokens/s", "per call", "ms a call", "sum of parts"],
               [[row["method"], f"{row['tokens_per_s']:.0f}", f"{row['tokens_per_target_call']:.2f}",
                 f"{row['ms_per_call']:.2f}", f"{row['parts_ms']:.2f}" if "parts_ms" in row else ""] for row in rows],
               f"gamma {gamma}, temperature {temperature:g}; ours: {where}")
    return rows


def ours(setup: Setup, gamma: int, new: int, temperature: float) -> dict[str, Writer]:
    """Plain decoding and speculation."""
    target, draft, compiler = setup
    request = {"max_new_tokens": new, "temperature": temperature, "compiler": compiler}
    how = ", compiled" * bool(compiler)
    return {"plain" + how: plain(target, **request),
            "speculative" + how: speculative(
                lambda ids, **its: speculate(target, ModelDrafter(draft, gamma), ids, **its), **request)}


def plain(target: GPT, **request) -> Writer:
    """request: as `generate` takes it."""
    def write(ids: list[int], seed: int) -> tuple[list[int], list[int]]:
        tokens = list(generate(target, ids, seed=seed, **request))
        return tokens, [1] * len(tokens)
    return write


def speculative(run: Callable[..., Iterable[Round]], **request) -> Writer:
    """run: (ids, **request) -> rounds."""
    def write(ids: list[int], seed: int) -> tuple[list[int], list[int]]:
        rounds = list(run(ids, seed=seed, **request))
        return tokens_of(rounds), [len(done.emitted) for done in rounds]
    return write


def hf_model(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """transformers' own reading of a folder."""
    from transformers import AutoModelForCausalLM, logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()


def their_dtype(folder: Path, device: torch.device, dtype: str) -> torch.dtype:
    """The one asked for, or else the one in which transformers' `generate` is faster here, of float32 and bfloat16."""
    if dtype in ("float32", "bfloat16"):
        return getattr(torch, dtype)
    took: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    writers = {kind: hf_writer(hf_model(folder, kind, device), GLANCE, 0.0) for kind in took}
    for _ in range(3):
        for kind, write in writers.items():
            began = perf_counter()
            write([1] * PROMPT, 0)
            took[kind].append(perf_counter() - began)
    return min(took, key=lambda kind: min(took[kind]))


class Counted:
    """A streamer, as transformers has them, which counts: first the prompt's tokens, then those of each call."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def put(self, tokens: torch.Tensor) -> None:
        self.counts.append(tokens.numel())

    def end(self) -> None:
        return


def hf_writer(model: Any, new: int, temperature: float, **more) -> Writer:
    """transformers' `generate`. more: what else it takes."""
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {
        "do_sample": False}

    def write(ids: list[int], seed: int) -> tuple[list[int], list[int]]:
        counted = Counted()
        torch.manual_seed(seed)
        prompt = torch.tensor([ids], device=model.device)
        with torch.inference_mode():
            text = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=new, pad_token_id=0,
                                  streamer=counted, **sampling, **more)
        return text[0, len(ids):].tolist(), counted.counts[1:]
    return write


def hf_runs(folder: Path, gamma: int, new: int, temperature: float, dtype: torch.dtype,
            device: torch.device) -> dict[str, Writer]:
    """generate; assisted with gamma draft tokens every round; assisted as the library sets it."""
    target, constant, default = (hf_model(folder / name, dtype, device) for name in ("target", "draft", "draft"))
    settings = constant.generation_config
    settings.num_assistant_tokens, settings.num_assistant_tokens_schedule = gamma, "constant"
    settings.assistant_confidence_threshold = 0.0
    return {"hf generate": hf_writer(target, new, temperature),
            "hf assisted": hf_writer(target, new, temperature, assistant_model=constant),
            "hf assisted defaults": hf_writer(target, new, temperature, assistant_model=default)}


def in_turns(writers: dict[str, Writer], prompts: Sequence[list[int]], repeats: int, seed: int) -> list[dict]:
    """One row a method: medians over repeats, every method once in each. The first prompt is the warm-up."""
    speeds = {name: [] for name in writers}
    totals = {name: [0, 0, 0.0] for name in writers}
    for write in writers.values():
        write(prompts[0], seed)
    for _ in range(repeats):
        for name, write in writers.items():
            tokens = calls = 0
            began = perf_counter()
            for number, ids in enumerate(prompts):
                wrote, called = write(ids, (seed + number) % SEEDS)
                tokens, calls = tokens + len(wrote), calls + len(called)
            seconds = perf_counter() - began
            speeds[name].append(per_second(tokens, [seconds]))
            totals[name] = [a + b for a, b in zip(totals[name], (tokens, calls, seconds))]
    return [{"method": name, "tokens_per_s": median(speeds[name]), "tokens_per_target_call": per_call(tokens, calls),
             "ms_per_call": milliseconds(seconds / calls)} for name, (tokens, calls, seconds) in totals.items()]


def compare(setups: Sequence[Setup], folder: Path, gamma: int = 4, new: int = 128, temperature: float = 1.0,
            prompts: int = 4, repeats: int = 5, seed: int = 0, dtype: str = "auto") -> list[dict]:
    """Rows of all methods. A row's `parts_ms`: what its round takes by its parts, each measured alone in the models of
    the first setup, which runs eagerly: one target step, or gamma draft steps and one verification.
    dtype: of theirs, as for `their_dtype`.
    """
    target, draft, _ = setups[0]
    some = torch.arange(PROMPT) * 37
    texts = [((some + 101 * i) % (target.config.vocab_size - 1) + 1).tolist() for i in range(prompts)]
    writers = {name: write for setup in setups for name, write in ours(setup, gamma, new, temperature).items()}
    theirs = their_dtype(folder / "target", target.device, dtype)
    writers |= hf_runs(folder, gamma, new, temperature, theirs, target.device)
    rows = in_turns(writers, texts, repeats, seed)
    costs = measure_costs(target, draft, [gamma + 1], PROMPT + new // 2, temperature=temperature)
    parts = {"plain": costs.seconds, "speculative": costs.parts(gamma)}
    common = {"dtype": weights_of(target), "their_dtype": name_of(theirs), "threads": torch.get_num_threads(),
              "gamma": gamma, "temperature": temperature}
    return [row | common | ({"parts_ms": milliseconds(parts[row["method"]])} if row["method"] in parts else {})
            for row in rows]
