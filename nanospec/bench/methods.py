"""Every drafter and rule beside every other: tokens per target call and speed-up, in one table."""

from collections.abc import Sequence
from pathlib import Path

from nanospec.bench.large import large_pair
from nanospec.bench.measure import check_texts, measure_costs, settled
from nanospec.bench.prompts import prompts_of
from nanospec.bench.setting import setting_of, tree_setting
from nanospec.bench.speed import busy, measured
from nanospec.errors import RequestError
from nanospec.files.checkpoint import WEIGHTS, load_pair
from nanospec.methods import DRAFTERS, GAMMA, Method, method_of, most_drafted
from nanospec.show.terminal import show_table

LARGEST = 17            # rows of a call of the large pair
EVERY = [("chain", "token", 3), ("chain", "token", 4), ("chain", "block", 4), ("chain", "block", 5),
         *((drafter, "token", GAMMA) for drafter in DRAFTERS if drafter != "chain"), ("tree", "traversal", GAMMA),
         ("goodput", "block", GAMMA)]


def run(temperatures: Sequence[float] = (0.0, 0.8, 1.0), large: bool = False, shape: Sequence[int] | None = None,
        prompts: int = 8, repetitive: bool = False, max_new_tokens: int = 128, seed: int = 0, weights: Path = WEIGHTS,
        draft: str = "gpt", device: str = "cpu", dtype: str = "auto", threads: int | None = None) -> list[dict]:
    """EVERY method that goes with the draft model, at every temperature.

    large: also what the same rounds would gain at the costs of a large pair.
    """
    given = tree_setting(shape)
    if large and len(given.get("topology", [])) > LARGEST:
        raise RequestError(f"--large goes with a --shape of at most {LARGEST - 1} draft tokens")
    pair = load_pair(weights, device, draft=draft)
    every = list(dict.fromkeys((drafter, rule, most_drafted(drafter, pair.draft, gamma)) for drafter, rule, gamma
                               in EVERY if draft == "gpt" or drafter != "stack"))       # its middle model is a GPT
    texts, said = prompts_of(pair, prompts, repetitive)

    def methods(**setting) -> list[Method]:
        return [method_of(pair.target, pair.draft, drafter, rule, gamma=gamma, **setting)
                for drafter, rule, gamma in every]

    check_texts(pair.target, texts, max_new_tokens, methods(**given))
    where, rows = settled(pair.target, pair.draft, dtype, threads), []
    costs = measure_costs(*large_pair(device), range(1, LARGEST + 1), turns=5) if large else None
    for temperature in temperatures:
        setting = setting_of(pair.target, pair.draft, texts, DRAFTERS, given, temperature=temperature)
        rows += measured([(pair.target, pair.draft, None)], pair.tokenizer, texts, lambda *_: methods(**setting),
                         temperature, max_new_tokens, seed, costs)
    at_large = f"; large: at c = {costs.c:.2f}, v(5) = {costs.v[5]:.2f}, v(9) = {costs.v[9]:.2f}" if costs else ""
    show(rows, every, temperatures, f"{where}; {said}, {max_new_tokens} tokens each{at_large}")
    return rows


def show(rows: Sequence[dict], every: Sequence[tuple], temperatures: Sequence[float], caption: str) -> None:
    """A line for each method, a group of columns for each temperature."""
    keys = {"per call": "tokens_per_target_call", "speed-up": "speedup"}
    keys |= {"large": "speedup_large"} if "speedup_large" in rows[0] else {}
    cells = []
    for i, (drafter, rule, _) in enumerate(every):
        of_method = rows[i::len(every)]
        gammas = "/".join(str(gamma) for gamma in dict.fromkeys(row["gamma"] for row in of_method))
        cells.append([f"{drafter} {gammas}" + f", {rule}" * (rule != "token"),
                      *(f"{row[key]:.2f}" for row in of_method for key in keys.values())])
    columns = ["method"] + [f"T {temperature:g}\n{name}" for temperature in temperatures for name in keys]
    show_table(columns, cells, caption + busy(rows))
