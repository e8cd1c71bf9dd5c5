"""Many ways to speculate beside each other: every method, and every way to know when to stop. Parts of bench.py."""

import argparse
from collections.abc import Sequence

from nanospec.files.checkpoint import Pair
from nanospec.fast.capture import captured
from nanospec.bench.limits import large_pair
from nanospec.bench.measure import (REPETITIVE, Costs, held_out_prompts, measure, measure_costs, repetitive_prompts,
                              setting_of)
from nanospec.methods import DRAFTERS, DYNAMIC, GUESSES, Method, method_of
from nanospec.bench.replay import replay
from nanospec.show.terminal import show_table
from nanospec.speculate import tokens_of

LARGEST = 17            # rows of a call, in --methods
TEXTS = 4               # of --stopping, for each prompt
EVERY = [("chain", "token", 3), ("chain", "token", 4), ("chain", "block", 4), ("chain", "block", 5),
         *((drafter, "token", GUESSES) for drafter in DRAFTERS[1:]), ("tree", "traversal", GUESSES),   # who, how, most
         ("goodput", "block", GUESSES)]


def every_method(args: argparse.Namespace, pair: Pair, where: str) -> list[dict]:
    """EVERY method at every temperature, tokens per target call and speed-up; with --large a third column."""
    prompts, rows, large = prompts_of(args, pair), [], None
    if args.large:
        large = measure_costs(*large_pair(args.device), range(1, LARGEST + 1), repeats=5)
    for temperature in args.temperatures:
        setting = setting_of(pair.target, pair.draft, prompts, DRAFTERS, args.shape, temperature=temperature)
        methods = [method_of(pair.target, pair.draft, drafter, rule, gamma=gamma, **setting)
                   for drafter, rule, gamma in EVERY]
        rows += measured(args, pair, prompts, methods, temperature, large)
    keys = ["tokens_per_target_call", "speedup", *(["speedup_large"] if large else [])]
    names = ["per call", "speed-up", *(["large"] if large else [])]
    cells = []
    for i, (drafter, rule, _) in enumerate(EVERY):
        of_one = rows[i::len(EVERY)]
        guesses = "/".join(str(gamma) for gamma in dict.fromkeys(row["gamma"] for row in of_one))
        cells.append([f"{drafter} {guesses}" + f", {rule}" * (rule != "token"),
                      *(f"{row[key]:.2f}" for row in of_one for key in keys)])
    columns = ["method"] + [f"T {temperature:g}\n{name}" for temperature in args.temperatures for name in names]
    at_large = f"; large: at c = {large.c:.2f}, v(5) = {large.v[5]:.2f}, v(9) = {large.v[9]:.2f}" if large else ""
    show_table(columns, cells, f"{where}; {said(args)}, {args.max_new_tokens} tokens each{at_large}")
    return rows


def stopping(args: argparse.Namespace, pair: Pair, where: str) -> list[dict]:
    """Every length, fixed or decided on the way, on the same texts with the same luck: tokens for a target step's time
    by the parts of the rounds, and for each prompt how near they come to the length that is best for it.
    """
    prompts, rows = held_out_prompts(pair, args.prompts) + repetitive_prompts(pair), []
    names = [*map(str, range(1, args.prompts + 1)), *REPETITIVE]
    costs = measure_costs(pair.target, pair.draft, range(1, GUESSES + 2))
    fixed = [method_of(pair.target, pair.draft, gamma=gamma) for gamma in range(1, GUESSES + 1)]
    dynamic = [method_of(pair.target, pair.draft, name, costs=(costs.c, costs.v)) for name in DYNAMIC]
    cells, methods = [], fixed + dynamic
    for temperature in args.temperatures:
        total, of_prompts = [[] for _ in methods], []
        for name, ids in zip(names, prompts):
            mine = [[] for _ in methods]
            for seed in range(args.seed, args.seed + (TEXTS if temperature else 1)):
                runs = replay(pair.target, ids, methods, args.max_new_tokens, seed, temperature=temperature)
                mine = [one + more for one, more in zip(mine, runs)]
            of_prompts.append((name, mine))
            total = [one + more for one, more in zip(total, mine)]
        for name, runs in of_prompts + [("all", total)]:
            paces = [costs.speedup(rounds) for rounds in runs]
            best = max(paces[:GUESSES])
            row = {"temperature": temperature, "prompt": name, "best_gamma": paces.index(best) + 1,
                   "pace": {one.name: pace for one, pace in zip(methods, paces)}}
            rows.append(row)
            cells.append([f"{temperature:g}", name, f"{row['best_gamma']}", f"{best:.2f}",
                          *(f"{pace / best - 1:+.1%}" for pace in paces[GUESSES:])])
    show_table(["T", "prompt", "best gamma", "its gain", *DYNAMIC], cells,
               f"{where}; c = {costs.c:.2f}, v(4) = {costs.v[4]:.2f}, v(9) = {costs.v[9]:.2f}; the same texts for all, "
               f"{TEXTS} for each prompt (1 at T = 0) of {args.max_new_tokens} tokens",
               [row["prompt"] == "all" for row in rows])
    return rows


def measured(args: argparse.Namespace, pair: Pair, prompts: Sequence[list[int]], methods: Sequence[Method],
             temperature: float, large: Costs | None = None) -> list[dict]:
    """Their rows, each with the text it wrote and, given the costs of a large pair, what it would gain there."""
    measure(pair.target, pair.draft, prompts[:1], methods, repeats=1, max_new_tokens=16)            # warm up
    both = measure(pair.target, pair.draft, prompts, methods, seed=args.seed, temperature=temperature,
                   max_new_tokens=args.max_new_tokens, capture=captured if args.graphs else None)
    return [row | {"text": pair.tokenizer.decode(tokens_of(rounds))}
            | ({"speedup_large": large.speedup(rounds)} if large else {}) for row, rounds in both]


def prompts_of(args: argparse.Namespace, pair: Pair) -> list[list[int]]:
    return repetitive_prompts(pair) if args.repetitive else held_out_prompts(pair, args.prompts)


def said(args: argparse.Namespace) -> str:
    return "2 repetitive prompts" if args.repetitive else f"{args.prompts} held-out prompts"
