"""Many requests at once: what speculation gains against how many there are, and how long they wait.

There are twice as many requests as run at once, eight at least. Without --rate all come at the
beginning. With it they come at random, RATE a second on average (a Poisson process), and each
method meets the same arrivals. At temperature 0 all methods write the same texts, so that no draft
is accepted more often by luck.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from torch import Tensor

from nanospec.cli.bench.prompts import held_out_prompts
from nanospec.cli.method_options import check_remember, chosen_drafters, read_pair
from nanospec.cli.quantities import gain_of, per_second, waits_of
from nanospec.cli.show.terminal import ShownTable, show_table
from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.errors import SEEDS, check_request, check_sampling
from nanospec.fast.autotune import autotune
from nanospec.fast.announce import announced
from nanospec.fast.clock import median_seconds
from nanospec.files.checkpoint import WEIGHTS, Pair
from nanospec.files.sources import find_source
from nanospec.methods.index import method_of
from nanospec.methods.lengths.by_load import Costs, WatchedByLoad, nothing_drafted
from nanospec.methods.trees.tree_reader import longest_chain
from nanospec.model import GPT
from nanospec.serving.request import PIECE
from nanospec.serving.server import Server
from nanospec.speculate import ModelDrafter
from nanospec.text import Text

MOST = 6                # draft tokens a round that by-load may choose, and that are timed for it
STEPS = 8               # of a server, that are timed
FEWEST = 8              # requests: what a single one takes is much luck


class NoDraft(Drafter):
    """Plain decoding."""

    most, fixed = 0, True

    def propose(self, text: Text, *_: Any, **more: Any) -> Draft:
        return nothing_drafted(text)


def run(rows: Sequence[int] = (1, 4, 16), rate: float = 0.0,
        drafters: Sequence[str] = ("chain", "by-load"), gamma: int = 4, remember: int = 0,
        max_new_tokens: int = 64, temperature: float = 1.0, seed: int = 0, draft_model: str = "gpt",
        weights: Path | str = WEIGHTS, device: str = "cpu", dtype: str = "auto",
        threads: int | None = None) -> tuple[list[dict], ShownTable]:
    """A line for each number of rows and each method: plain decoding, and these drafters. by-load
    measures beforehand what rounds cost, and goes on measuring. With each number of rows the models
    have the data types, threads and layouts that are fastest for it.
    """
    source = find_source(weights)
    named = chosen_drafters(drafters, source, [draft_model], "--drafters")
    check_remember(named, remember)
    pair = read_pair(source, device, draft_model)
    most = longest_chain(pair.draft_model, MOST)
    prompts = held_out_prompts(pair, max(FEWEST, 2 * max(rows)))
    check_sampling(temperature, None, None, None)
    check_request(pair.target, prompts[0], max(max_new_tokens, (STEPS + 2) * (most + 1)),
                  seed, max([most] + [gamma] * (set(named) != {"by-load"})))
    settings = {"max_new_tokens": max_new_tokens, "temperature": temperature}
    found: list[dict] = []
    where: dict[int, str] = {}
    for count in rows:
        if found:                                       # what is tuned is no longer as it was read
            pair = read_pair(source, device, draft_model)
        where[count] = autotune(pair.target, pair.draft_model, dtype, threads, rows=count)
        methods = [method_of(pair.target, pair.draft_model, name, gamma=gamma, remember=remember)
                   for name in named if name != "by-load"]
        makers: dict[str, Callable[[], Any]] = {"plain": NoDraft}
        makers |= {method.name: method.make for method in methods}
        if "by-load" in named:
            counts = sorted({1, count})                         # it goes on learning
            with announced("measuring what rounds cost", steps=2 * len(counts)) as step:
                believed = round_seconds(pair.target, pair.draft_model, counts, prompts[0], most,
                                         step)
            makers["by-load"] = partial(WatchedByLoad, pair.draft_model, believed, most)
        arrivals = draw_arrivals(max(FEWEST, 2 * count), rate, seed)
        turns: dict[str, list[dict[str, Any]]] = {name: [] for name in makers}
        for turn in range(3):
            with announced(f"serving {len(arrivals)} requests, {count} at once, turn {turn + 1} "
                           "of 3", steps=len(makers)) as step:
                for name, make in makers.items():
                    turns[name].append(served(pair, make(), count, prompts, arrivals, seed,
                                              settings))
                    step()
        for name, runs in turns.items():
            found.append({"rows": count, "rate": rate, "method": name}
                         | {key: None if runs[0][key] is None else median(one[key] for one in runs)
                            for key in runs[0]})
    come = f"{rate:g} requests a second" if rate else "all at once"
    return found, show(found, f"{told(where)}; {len(prompts)} held-out prompts, {max_new_tokens} "
                              f"tokens each, {come}")


def told(where: dict[int, str]) -> str:
    """The settings, each with the numbers of requests that it is for unless it is for all."""
    alike = {words: [count for count in where if where[count] == words] for words in where.values()}
    return "; ".join(f"{', '.join(map(str, counts))} at once: {words}" if len(alike) > 1 else words
                     for words, counts in alike.items())


def round_seconds(target: GPT, draft_model, rows: Sequence[int], ids: list[int],
                  most: int, step: Callable[[], None] = lambda: None) -> Costs:
    """Of a server's steps after `ids`, as measured with these numbers of requests. Of two turns the
    better counts: what disturbs a step only makes it longer. step is called after each.
    """
    def turn(count: int) -> list[float]:
        drafters = [NoDraft(), *(ModelDrafter(draft_model, gamma) for gamma in range(1, most + 1))]
        found = [step_of_server(target, drafter, count, ids) for drafter in drafters]
        step()
        return found

    return Costs({count: list(map(min, turn(count), turn(count))) for count in rows})


def step_of_server(target: GPT, drafter: Drafter, rows: int, ids: list[int]) -> float:
    """Seconds of a step in which `rows` requests write."""
    server = Server(target, drafter, rows, context=target.config.context)
    reading = -(-len(ids) // PIECE)
    for seed in range(rows):
        server.submit(ids, max_new_tokens=(STEPS + 2) * (drafter.most + 1), seed=seed)
    return median_seconds(server.step, target.device, repeats=STEPS, warm_up=reading + 1)


def draw_arrivals(count: int, rate: float, seed: int) -> list[float]:
    """Seconds at which requests come: a Poisson process; all at 0 without a rate."""
    if not rate:
        return [0.0] * count
    dice = Dice([seed])
    dice.refill(count)
    waits: Tensor = -(1 - dice.u[0]).log() / rate
    return waits.cumsum(0).tolist()


def served(pair: Pair, drafter: Drafter, rows: int, prompts: Sequence[list[int]],
           arrivals: Sequence[float], seed: int, settings: dict) -> dict[str, Any]:
    """Serve requests that come at `arrivals`, and say how long they took. seed: of the first one,
    the next of the next. Tokens a second count as long as there are requests for every row: in the
    end rows stand empty, and how many is a matter of how many requests there were.
    """
    server = Server(pair.target, drafter, rows, context=pair.target.config.context)
    first, last, requests, pace = {}, {}, [], 0.0
    began = time.perf_counter()
    while len(last) < len(arrivals):
        now = time.perf_counter() - began
        while len(requests) < len(arrivals) and arrivals[len(requests)] <= now:
            number = len(requests)
            requests.append(server.submit(prompts[number], seed=(seed + number) % SEEDS,
                                          **settings))
        if all(request.done for request in requests):
            time.sleep(max(0.0, arrivals[len(requests)] - now))         # until the next one comes
            continue
        server.step()
        now = time.perf_counter() - began
        for number, request in enumerate(requests):
            if request.error:
                raise request.error
            if request.tokens:
                first.setdefault(number, now)
            if request.done:
                last.setdefault(number, now)
        if len(arrivals) - len(last) >= rows or not pace:
            pace = per_second(sum(len(request.tokens) for request in requests), [now - arrivals[0]])
    begun, ended = ([those[number] for number in range(len(arrivals))] for those in (first, last))
    counts = [len(request.tokens) for request in requests]
    return {"tokens_per_s": pace} | waits_of(arrivals, begun, ended, counts)


def show(found: Sequence[dict], caption: str) -> ShownTable:
    cells = [[str(row["rows"]), row["method"], f"{row['tokens_per_s']:.0f}",
              f"{gain_of(found, row['rows'], row['method']):.2f}",
              *(f"{1e3 * row[key]:.0f}" for key in ("first_p50", "first_p99")),
              *("-" if row[key] is None else f"{1e3 * row[key]:.1f}"
                for key in ("each_p50", "each_p99"))]
             for row in found]
    return show_table(["rows", "", "tokens/s", "over\nplain", "first token, ms\nmedian", "\np99",
                       "each token, ms\nmedian", "\np99"], cells, caption)
