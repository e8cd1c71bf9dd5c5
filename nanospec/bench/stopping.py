"""Draft lengths decided on the way against every fixed one, prompt by prompt, on the same texts with the same luck."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from nanospec.bench.measure import check_texts, measure_costs, settled
from nanospec.bench.prompts import REPETITIVE, held_out_prompts, repetitive_prompts
from nanospec.bench.replay import replay
from nanospec.files.checkpoint import WEIGHTS, load_pair
from nanospec.methods import DRAFTERS, GAMMA, method_of
from nanospec.show.terminal import show_table
from nanospec.speculate import tokens_of

TEXTS = 4               # for each prompt; at temperature 0 there is only one
DYNAMIC = [name for name, way in DRAFTERS.items() if way.dynamic]


def run(temperatures: Sequence[float] = (0.0, 0.8, 1.0), prompts: int = 8, max_new_tokens: int = 128, seed: int = 0,
        weights: Path = WEIGHTS, device: str = "cpu", dtype: str = "auto", threads: int | None = None) -> list[dict]:
    """Tokens for a target step's time by the parts of the rounds, and for each prompt how near they come to the length
    that is best for it.
    """
    target, draft, _ = pair = load_pair(weights, device)
    texts = dict(zip([*map(str, range(1, prompts + 1)), *REPETITIVE],
                     held_out_prompts(pair, prompts) + repetitive_prompts(pair)))
    fixed = [method_of(target, draft, gamma=gamma) for gamma in range(1, GAMMA + 1)]
    check_texts(target, list(texts.values()), max_new_tokens, fixed)
    where = settled(target, draft, dtype, threads)
    costs = measure_costs(target, draft, range(1, GAMMA + 2))
    methods = fixed + [method_of(target, draft, name, costs=(costs.c, costs.v)) for name in DYNAMIC]
    rows, cells = [], []
    for temperature in temperatures:
        tokens, steps = Counter(), defaultdict(float)              # of each prompt and method; steps: of the target
        for name, ids in texts.items():
            for number in range(TEXTS if temperature else 1):
                runs = replay(target, ids, methods, max_new_tokens, seed + number, temperature=temperature)
                for (i, rounds), prompt in product(enumerate(runs), (name, "all")):
                    tokens[prompt, i] += len(tokens_of(rounds))
                    steps[prompt, i] += sum(map(costs.of, rounds))
        for name in [*texts, "all"]:
            paces = [tokens[name, i] / steps[name, i] for i in range(len(methods))]
            best = max(paces[:GAMMA])
            rows.append({"temperature": temperature, "prompt": name, "best_gamma": paces.index(best) + 1,
                         "pace": {method.name: pace for method, pace in zip(methods, paces)}})
            cells.append([f"{temperature:g}", name, f"{paces.index(best) + 1}", f"{best:.2f}",
                          *(f"{pace / best - 1:+.1%}" for pace in paces[GAMMA:])])
    show_table(["T", "prompt", "best gamma", "its gain", *DYNAMIC], cells,
               f"{where}; c = {costs.c:.2f}, v(4) = {costs.v[4]:.2f}, v(9) = {costs.v[9]:.2f}; the same texts for all, "
               f"{TEXTS} for each prompt (1 at T = 0) of {max_new_tokens} tokens",
               [row["prompt"] == "all" for row in rows])
    return rows
