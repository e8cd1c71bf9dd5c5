"""Every draft model of a pair beside every other, and the ways to draft without one: costs, acceptance, gains."""

from collections.abc import Sequence
from pathlib import Path

from nanospec.bench.measure import check_texts, setups_of
from nanospec.bench.prompts import prompts_of
from nanospec.bench.speed import busy, measured
from nanospec.draft_models import LEARNED
from nanospec.files.checkpoint import WEIGHTS, load_pair
from nanospec.methods import Method, method_of
from nanospec.model import GPT
from nanospec.show.figures import draw_field
from nanospec.show.terminal import show_table

HOW = [("chain", "token"), ("chain", "block"), ("dynamic-tree", "token")]
WITHOUT = ["lookup", "suffix-tree", "lookahead"]        # they need no draft model


def run(drafts: Sequence[str] = (), temperatures: Sequence[float] = (0.0, 1.0), gammas: Sequence[int] = (4,),
        prompts: int = 6, repetitive: bool = False, max_new_tokens: int = 128, seed: int = 0, weights: Path = WEIGHTS,
        device: str = "cpu", dtype: str = "auto", threads: int | None = None, compile: bool = False,
        figure: Path | None = None) -> list[dict]:
    """One row for each draft model, temperature, method and gamma. drafts: by default all that `weights` holds.

    Those without a draft model run beside the first one, with its plain decoding, and draft 8 tokens.
    """
    drafts = drafts or ["gpt", *(name for name in LEARNED if (weights / f"{name}.pt").exists())]
    pairs = {name: load_pair(weights, device, draft=name) for name in drafts}

    def methods(target: GPT, draft) -> list[Method]:
        return [method_of(target, draft, *how, gamma=gamma) for how in HOW for gamma in gammas]

    def with_copiers(target: GPT, draft) -> list[Method]:
        return methods(target, draft) + [method_of(target, draft, name) for name in WITHOUT]

    rows, where = [], ""
    for name, pair in pairs.items():
        texts, said = prompts_of(pair, prompts, repetitive)
        these = with_copiers if name == drafts[0] and not compile else methods             # theirs have many shapes
        check_texts(pair.target, texts, max_new_tokens, these(pair.target, pair.draft))
        ways, where = setups_of(pair.target, pair.draft, dtype, threads, compile)
        for temperature in temperatures:
            rows += [row | {"draft": "none" if row["drafter"] in WITHOUT else name}
                     for row in measured(ways, pair.tokenizer, texts, these, temperature, max_new_tokens, seed)]
    if figure:
        draw_field(rows, f"{where.split(';')[0]}; {said}", figure)
    show(rows, f"{where}; {said}, {max_new_tokens} tokens each")
    return rows


def show(rows: Sequence[dict], caption: str) -> None:
    """A line for each draft model and method, a group of columns for each temperature."""
    temperatures = list(dict.fromkeys(row["temperature"] for row in rows))
    lines: dict[tuple, list[str]] = {}
    for row in rows:
        name = f"{row['drafter']} {row['gamma']}" + f", {row['rule']}" * (row["rule"] != "token")
        cells = lines.setdefault((row["draft"], name), ["" if row["draft"] == "none" else f"{row['c']:.3f}"])
        cells += [f"{row['alpha']:.2f}", f"{row['tokens_per_target_call']:.2f}", f"{row['speedup']:.2f}"]
    columns = ["", "method", "c"] + [f"T {temperature:g}\n{name}" for temperature in temperatures
                                     for name in ("alpha", "per call", "speed-up")]
    show_table(columns, [[*of, *cells] for of, cells in lines.items()], caption + busy(rows))
