"""What speculation gains: plain against speculative decoding, in turns, and what a round should cost by its parts.

    python -m nanospec.bench                    # the pair that ships, on texts it was not trained on

Plain decoding, the baseline, runs in the data type, with the threads and the weight layout in which it is fastest here.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table

from nanospec.data import read_texts, to_ids
from nanospec.errors import NanospecError
from nanospec.generate import generate
from nanospec.against import compare
from nanospec.checkpoint import WEIGHTS, Pair, load_pair
from nanospec.hf import load_llama
from nanospec.model import GPT
from nanospec.settle import DTYPES, name_of, settle, step_seconds, way_of
from nanospec.speculate import ModelDrafter, Round, speculate, tokens_of
from nanospec.show.figures import draw_speedup
from nanospec.show.terminal import refuse
from nanospec.theory import acceptance, speedup

TABLE_WIDTH = 78        # a number cut short would be a wrong one: in a narrower window lines wrap


@dataclass
class Costs:
    """c: a draft step / a target step. v[m]: a target call on m tokens / on one. seconds: of one target step."""

    c: float
    v: dict[int, float]
    seconds: float


def measure_costs(target: GPT, draft: GPT, sizes: Iterable[int], context: int = 256, **settings) -> Costs:
    seconds = step_seconds(target, 1, context, **settings)
    v = {m: step_seconds(target, m, context, **settings) / seconds for m in sizes}
    return Costs(step_seconds(draft, 1, context, **settings) / seconds, v, seconds)


def alpha_of(rounds: Iterable[Round]) -> float:
    """Mean of sum min(p_target, q_draft) over the drafted places that were judged: up to the first that fell."""
    betas = []
    for one in rounds:
        judged = min(one.kept + 1, len(one.drafted))
        betas += acceptance(one.p_target[:judged], one.q_draft[:judged]).tolist()
    return sum(betas) / len(betas)


def measure_alpha(target: GPT, draft: GPT, prompts: Iterable[Sequence[int]], gamma: int = 4, **settings) -> float:
    """alpha along speculative texts that continue `prompts`, one seed each."""
    rounds = []
    for seed, ids in enumerate(prompts):
        rounds += speculate(target, ModelDrafter(draft), ids, gamma, seed=seed, **settings)
    return alpha_of(rounds)


def timed(steps: Iterable) -> tuple[list, list[float]]:
    """What an iterator yields, and the seconds it took for each; the first one's include reading the prompt."""
    out, seconds, began = [], [], perf_counter()
    for one in steps:
        seconds.append(perf_counter() - began)
        out.append(one)
        began = perf_counter()
    return out, seconds


def measure(target: GPT, draft: GPT, prompts: Sequence[Sequence[int]], gamma: int, repeats: int = 3, seed: int = 0,
            max_new_tokens: int = 128, stop: Sequence[int] = (), **law) -> tuple[dict, list[Round]]:
    """One row of numbers for one gamma, and the rounds behind it.

    Plain and speculative runs alternate, prompt by prompt, so that both meet the same machine; a repeat is the same
    seeds and so the same work; speeds are medians over repeats, prompts read included. `overhead` is what a round
    takes over its parts, gamma draft steps and one verification, each measured alone.
    """
    request = law | {"max_new_tokens": max_new_tokens, "stop": stop}
    plain, fast, round_seconds = [], [], []
    for _ in range(repeats):
        count, spent, rounds = [0, 0], [0.0, 0.0], []
        for number, ids in enumerate(prompts):
            tokens, seconds = timed(generate(target, ids, seed=seed + number, **request))
            count[0], spent[0] = count[0] + len(tokens), spent[0] + sum(seconds)
            ours, seconds = timed(speculate(target, ModelDrafter(draft), ids, gamma, seed=seed + number, **request))
            count[1], spent[1] = count[1] + len(tokens_of(ours)), spent[1] + sum(seconds)
            rounds += ours
            round_seconds += seconds[1:]
        plain.append(count[0] / spent[0])
        fast.append(count[1] / spent[1])
    context = max(len(ids) for ids in prompts) + max_new_tokens // 2        # half-way, where a call costs the mean
    costs, alpha = measure_costs(target, draft, [gamma + 1], context, **law), alpha_of(rounds)
    v, parts = costs.v[gamma + 1], costs.seconds * (gamma * costs.c + costs.v[gamma + 1])
    row = {"device": str(target.device), "dtype": name_of(target.dtype), "gamma": gamma,
           "temperature": law.get("temperature", 1.0), "baseline_tokens_per_s": median(plain),
           "tokens_per_s": median(fast), "speedup": median(fast) / median(plain),
           "predicted_speedup": speedup(alpha, gamma, costs.c, v), "alpha": alpha, "c": costs.c, "v": v,
           "tokens_per_target_call": sum(one.kept + 1 for one in rounds) / len(rounds), "rounds": len(rounds),
           "accepted": sum(one.kept for one in rounds), "drafted": gamma * len(rounds),
           "overhead": median(round_seconds or [parts]) / parts}
    return row, rounds


def held_out_prompts(pair: Pair, count: int, tokens: int = 64) -> list[list[int]]:
    """Beginnings cut from `count` places of the standard library's held-out files on this machine."""
    ids = to_ids(read_texts()[1], pair.tokenizer).tolist()
    return [ids[i:i + tokens] for i in range(0, len(ids) - tokens, len(ids) // count)][:count]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m nanospec.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8, 1.0])
    parser.add_argument("--gammas", type=int, nargs="+", help="default: 2 3 4 6; with --against, 4")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="folder of a pair that train_tiny.py wrote")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["auto", *map(name_of, DTYPES)], default="auto", help="auto: the fastest")
    parser.add_argument("--threads", type=int, help="default: as many as are fastest")
    parser.add_argument("--against", choices=["hf"], help="compare with transformers on --pair; needs the extra 'bench'")
    parser.add_argument("--pair", type=Path, metavar="FOLDER", help="Llama checkpoints FOLDER/target and FOLDER/draft")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the rows")
    parser.add_argument("--figure", type=Path, metavar="FILE.png", help="speed-up against gamma, last temperature")
    args = parser.parse_args()
    if bool(args.against) != bool(args.pair):
        parser.error("--against and --pair belong together")
    try:
        return compare_with_hf(args) if args.against else run(args)
    except (NanospecError, OSError) as error:
        return refuse("bench", error)


def ways(args: argparse.Namespace) -> dict:
    """What --dtype and --threads leave to `settle`."""
    return {"dtypes": DTYPES if args.dtype == "auto" else [getattr(torch, args.dtype)],
            "threads": [args.threads] if args.threads else []}


def compare_with_hf(args: argparse.Namespace) -> int:
    """At one gamma and one temperature."""
    target, draft = (load_llama(args.pair / name, args.device) for name in ("target", "draft"))
    settle(target, draft, **ways(args))
    rows = compare(target, draft, args.pair, (args.gammas or [4])[0], args.max_new_tokens, args.temperatures[-1],
                   seed=args.seed)
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), caption_justify="left", caption=(
        f"{args.device}, {torch.get_num_threads()} threads; ours: target in {way_of(target)}, draft in {way_of(draft)}"))
    table.add_column("method")
    for name in ("tokens/s", "per call", "ms a call", "its parts"):
        table.add_column(name, justify="right")
    for row in rows:
        parts = f"{row['parts_ms']:.2f}" if "parts_ms" in row else ""
        table.add_row(row["method"], f"{row['tokens_per_s']:.0f}", f"{row['tokens_per_target_call']:.2f}",
                      f"{row['ms_per_call']:.2f}", parts)
    Console(width=max(Console().width, TABLE_WIDTH)).print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def run(args: argparse.Namespace) -> int:
    pair = load_pair(args.weights, args.device)
    prompts = held_out_prompts(pair, args.prompts)
    target, draft, _ = pair
    settle(target, draft, **ways(args))
    gammas = args.gammas or [2, 3, 4, 6]
    measure(target, draft, prompts[:1], 4, repeats=1)                           # warm up
    rows = [measure(target, draft, prompts, gamma, seed=args.seed, max_new_tokens=args.max_new_tokens,
                    temperature=temperature)[0] | {"method": "speculative"}
            for temperature in args.temperatures for gamma in gammas]
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), caption_justify="left", caption=(
        f"{args.device}, {torch.get_num_threads()} threads, target in {way_of(target)}, draft in "
        f"{way_of(draft)}; {len(prompts)} held-out prompts, {args.max_new_tokens} tokens each"))
    columns = {"T": ("temperature", "g"), "gamma": ("gamma", "d"), "alpha": ("alpha", ".2f"), "c": ("c", ".3f"),
               "v": ("v", ".2f"), "per call": ("tokens_per_target_call", ".2f"),
               "plain/s": ("baseline_tokens_per_s", ",.0f"), "fast/s": ("tokens_per_s", ",.0f"),
               "speed-up": ("speedup", ".2f"), "formula": ("predicted_speedup", ".2f"), "overhead": ("overhead", ".2f")}
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        best = row["speedup"] == max(r["speedup"] for r in rows if r["temperature"] == row["temperature"])
        cells = [format(row[key], form) + " lost" * (key == "speedup" and row[key] < 1)
                 for key, form in columns.values()]
        table.add_row(*cells, style="bold" if best else "")
    Console(width=max(Console().width, TABLE_WIDTH)).print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    if args.figure:
        last = [row for row in rows if row["temperature"] == args.temperatures[-1]]
        draw_speedup(gammas, measured=[row["speedup"] for row in last],
                     predicted=[row["predicted_speedup"] for row in last],
                     ideal=[speedup(row["alpha"], row["gamma"], row["c"]) for row in last], path=args.figure,
                     title=f"{args.device}, T = {args.temperatures[-1]:g}, {len(prompts)} held-out prompts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
