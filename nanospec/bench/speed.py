"""Plain against speculative decoding on the pair that ships, in turns, and what a round should cost by its parts.

What stands in the columns of the table:

    alpha           how often a draft token is accepted
    c               the time of a draft step / of a target call on one token
    v               the time of a target call on a whole draft / on one token
    per call        tokens for each target call
    plain, fast     tokens a second: the target alone, and speculation
    speed-up        the second over the first; below 1, speculation has lost
    theory          the speed-up that alpha, c and v predict
    overhead        the time of a round / the sum of its parts, each measured alone
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from nanospec.bench.measure import BUSY, Costs, Setup, best_of_each, check_texts, measure, setups_of
from nanospec.bench.prompts import prompts_of
from nanospec.bench.setting import setting_of, tree_setting
from nanospec.draft_models import DraftModel
from nanospec.errors import RequestError
from nanospec.fast.capture import captured
from nanospec.files.checkpoint import WEIGHTS, load_pair
from nanospec.files.tokenizer_json import AnyTokenizer
from nanospec.methods import DRAFTERS, Method, check_fixed, method_of
from nanospec.model import GPT
from nanospec.show.figures import draw_speedup
from nanospec.show.terminal import show_table
from nanospec.speculate import tokens_of
from nanospec.theory import speedup

COLUMNS = {"T": ("temperature", "g"), "drafter": ("drafter", "s"), "gamma": ("gamma", "d"), "rule": ("rule", "s"),
           "alpha": ("alpha", ".2f"), "c": ("c", ".3f"), "v": ("v", ".2f"),
           "per\ncall": ("tokens_per_target_call", ".2f"), "plain\nper s": ("baseline_tokens_per_s", ",.0f"),
           "fast\nper s": ("tokens_per_s", ",.0f"), "speed-up": ("speedup", ".2f"),
           "theory": ("predicted_speedup", ".2f"), "over-\nhead": ("overhead", ".2f")}      # 80 characters


def run(temperatures: Sequence[float] = (0.0, 0.8, 1.0), drafters: Sequence[str] = ("chain",),
        rules: Sequence[str] = ("token",), gammas: Sequence[int] = (2, 3, 4), shape: Sequence[int] | None = None,
        prompts: int = 8, repetitive: bool = False, max_new_tokens: int = 128, seed: int = 0, weights: Path = WEIGHTS,
        draft: str = "gpt", device: str = "cpu", dtype: str = "auto", threads: int | None = None, graphs: bool = False,
        compile: bool = False, figure: Path | None = None) -> list[dict]:
    """One row for each temperature and method; its `text` is what was written behind all prompts together.

    compile: each method runs eagerly and compiled, and a row is the faster one's, over the faster baseline.
    """
    if graphs and not device.startswith("cuda"):
        raise RequestError("--graphs needs a CUDA device")
    for option in ["--graphs"] * graphs + ["--compile"] * compile:
        check_fixed(drafters, rules, option)
    if figure and list(drafters) != ["chain"]:
        raise RequestError("--figure shows --drafters chain beside the theory, which speaks of nothing else")
    if shape and all(DRAFTERS[name].size != "shape" for name in drafters):
        raise RequestError("--shape is a tree's, and none of --drafters drafts one of a given shape")
    given = tree_setting(shape)
    pair = load_pair(weights, device, draft=draft)
    texts, said = prompts_of(pair, prompts, repetitive)

    def methods(target: GPT, draft: DraftModel, **setting) -> list[Method]:
        return [method_of(target, draft, drafter, rule, gamma=gamma, **setting) for drafter in drafters
                for gamma in (gammas if DRAFTERS[drafter].size == "gamma" else gammas[:1]) for rule in rules]

    check_texts(pair.target, texts, max_new_tokens, methods(pair.target, pair.draft, **given))
    ways, where = setups_of(pair.target, pair.draft, dtype, threads, compile)
    if graphs:
        ways[0] = pair.target, pair.draft, captured
    rows = []
    for temperature in temperatures:
        setting = setting_of(pair.target, pair.draft, texts, drafters, given, max(gammas), temperature=temperature)
        rows += measured(ways, pair.tokenizer, texts, partial(methods, **setting), temperature, max_new_tokens, seed)
    show(rows, f"{where}; {said}, {max_new_tokens} tokens each")
    if figure:
        last = [row for row in rows if row["temperature"] == temperatures[-1] and row["rule"] == rules[-1]]
        draw_speedup(gammas, measured=[row["speedup"] for row in last],
                     predicted=[row["predicted_speedup"] for row in last],
                     ideal=[speedup(row["alpha"], row["gamma"], row["c"]) for row in last], path=figure,
                     title=f"{device}, T = {temperatures[-1]:g}, {said}")
    return rows


def measured(ways: Sequence[Setup], tokenizer: AnyTokenizer, prompts: Sequence[list[int]],
             methods: Callable[..., list[Method]], temperature: float, max_new_tokens: int, seed: int,
             large: Costs | None = None) -> list[dict]:
    """The methods' rows, each with the text it wrote and, given the costs of a large pair, what it would gain there.

    Of two ways, a row is the best of both.
    """
    found = []
    for target, draft, capture in ways:
        run = partial(measure, target, draft, methods=methods(target, draft))
        if not capture:                                                         # else there is a turn for it
            run(prompts=prompts[:1], repeats=1, max_new_tokens=min(16, max_new_tokens))                 # warm up
        found.append(run(prompts=prompts, seed=seed, temperature=temperature, max_new_tokens=max_new_tokens,
                         capture=capture))
    return [row | {"text": tokenizer.decode(tokens_of(rounds))}
            | ({"speedup_large": large.speedup(rounds)} if large else {})
            for row, rounds in best_of_each(found)]


def show(rows: Sequence[dict], caption: str) -> None:
    """A table; at each temperature the best row is bold."""
    cells, best = [], []
    columns: dict[str, tuple[str, str]] = {}
    both = "tokens_per_s_compiled" in rows[0]
    for name, (key, form) in COLUMNS.items():
        if both and key in ("predicted_speedup", "overhead"):                            # they would not fit
            continue
        ways = ("eager", "compiled") if key + "_compiled" in rows[0] else ()
        columns |= {f"{name}\n{way}": (f"{key}_{way}", form) for way in ways} or {name: (key, form)}
    for row in rows:
        best.append(row["speedup"] == max(r["speedup"] for r in rows if r["temperature"] == row["temperature"]))
        cells.append([format(row[key], form) + " lost" * (key == "speedup" and row[key] < 1)
                      for key, form in columns.values()])
    show_table(columns, cells, caption + busy(rows), best)


def busy(rows: Sequence[dict]) -> str:
    """A warning, where other work on the machine has spoilt the figures."""
    return any(row["busy"] for row in rows) * (
        f"\nThis machine is busy: plain decoding's speed differed more than {BUSY:g} times between repeats. Measure "
        "again.")
