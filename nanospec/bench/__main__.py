"""What speculation gains: plain against speculative decoding, in turns, and what a round should cost by its parts.

    python -m nanospec.bench                    # the pair that ships, on texts it was not trained on

Plain decoding, the baseline, runs in the data type, with the threads and the weight layout in which it is fastest here.
"""

import argparse
import json
import sys
from pathlib import Path

import torch

from nanospec.bench.against import compare
from nanospec.files.checkpoint import WEIGHTS, Pair, load_pair
from nanospec.errors import NanospecError
from nanospec.fast.capture import captured
from nanospec.files.huggingface import load_llama
from nanospec.bench.limits import growth, large_pair, roofline, simulated
from nanospec.bench.measure import setting_of
from nanospec.methods import DRAFTERS, RULES, SIZED, method_of
from nanospec.model import GPT
from nanospec.bench.race import every_method, measured, prompts_of, said, stopping
from nanospec.fast.autotune import DTYPES, name_of, settle, way_of
from nanospec.show.figures import draw_simulated, draw_speedup
from nanospec.show.terminal import refuse, show_table
from nanospec.theory import speedup


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m nanospec.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8, 1.0])
    parser.add_argument("--drafters", nargs="+", choices=DRAFTERS, default=["chain"], help="who guesses")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=["token"], help="who decides what is kept")
    parser.add_argument("--gammas", type=int, nargs="+", help="guesses a round; default: 2 3 4 6; with --against, 4")
    parser.add_argument("--shape", type=int, nargs="+", metavar="N",
                        help="children at every depth of a tree; default: the best for this pair here, measured")
    parser.add_argument("--methods", action="store_true",
                        help="every drafter and rule, one table; with --large, also what each would gain at its costs")
    parser.add_argument("--stopping", action="store_true",
                        help="lengths decided on the way against every fixed one, prompt by prompt")
    parser.add_argument("--prompts", type=int, default=8, help="how many held-out texts to continue")
    parser.add_argument("--repetitive", action="store_true",
                        help="continue a table of assertions and a dispatch dictionary instead")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="folder of a pair that train_tiny.py wrote")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["auto", *map(name_of, DTYPES)], default="auto", help="auto: the fastest")
    parser.add_argument("--threads", type=int, help="default: as many as are fastest")
    parser.add_argument("--against", choices=["hf"], help="beside transformers, on --pair; needs the extra 'bench'")
    parser.add_argument("--pair", type=Path, metavar="FOLDER", help="Llama checkpoints FOLDER/target and FOLDER/draft")
    parser.add_argument("--roofline", action="store_true", help="this machine's limits, and how far from them we are")
    parser.add_argument("--growth", action="store_true", help="costs against context and rows")
    parser.add_argument("--large", action="store_true",
                        help="1.1 billion random weights and simulated acceptance: gain against alpha and rows")
    parser.add_argument("--graphs", action="store_true", help="both sides as CUDA graphs; not run on a GPU so far")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the rows")
    parser.add_argument("--figure", type=Path, metavar="FILE.png",
                        help="speed-up against gamma, last temperature and rule; with --large, against alpha")
    args = parser.parse_args()
    if bool(args.against) != bool(args.pair):
        parser.error("--against and --pair belong together")
    if min([args.prompts, *(args.gammas or []), *(args.shape or []),
            *([] if args.threads is None else [args.threads])]) < 1:
        parser.error("--prompts, --threads and every number of --gammas and --shape must be at least 1")
    if args.graphs and not args.device.startswith("cuda"):
        parser.error("--graphs needs a CUDA device")
    if args.graphs and (args.methods or args.drafters != ["chain"]):
        parser.error("--graphs captures the rounds of --drafters chain alone: the shapes of the others vary")
    if args.figure and (args.methods or args.drafters != ["chain"]) and not args.large:
        parser.error("--figure shows --drafters chain beside the theory, which speaks of nothing else")
    try:
        rows = run(args)
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1) + "\n")
    except (NanospecError, OSError) as error:
        return refuse("bench", error)
    return 0


def run(args: argparse.Namespace) -> list[dict]:
    """Load, settle, measure what was asked for, print it; the rows."""
    if args.large and not args.methods:
        return large(args)
    if args.against:
        target, draft = (load_llama(args.pair / name, args.device) for name in ("target", "draft"))
    else:
        target, draft, tokenizer = load_pair(args.weights, args.device)
    settle(target, draft, DTYPES if args.dtype == "auto" else [getattr(torch, args.dtype)],
           [args.threads] if args.threads else [])
    where = (f"{args.device}, {torch.get_num_threads()} threads; target in {way_of(target)}, draft in {way_of(draft)}")
    if args.against:
        return against(args, target, draft, where)
    if args.roofline:
        return limits(target, draft, where)
    if args.growth:
        return costs(target, draft, where)
    work = every_method if args.methods else stopping if args.stopping else speeds
    return work(args, Pair(target, draft, tokenizer), where)


def speeds(args: argparse.Namespace, pair: Pair, where: str) -> list[dict]:
    """One row for each temperature and method; its `text` is what was written behind all prompts together."""
    gammas, rows = args.gammas or [2, 3, 4, 6], []
    prompts = prompts_of(args, pair)
    for temperature in args.temperatures:
        setting = setting_of(pair.target, pair.draft, prompts, args.drafters, args.shape, max(gammas),
                             temperature=temperature)
        methods = [method_of(pair.target, pair.draft, drafter, rule, gamma=gamma, **setting)
                   for drafter in args.drafters for gamma in (gammas[:1] if drafter in SIZED else gammas)
                   for rule in args.rules]
        rows += measured(args, pair, prompts, methods, temperature)
    columns = {"T": ("temperature", "g"), "drafter": ("drafter", "s"), "gamma": ("gamma", "d"), "rule": ("rule", "s"),
               "alpha": ("alpha", ".2f"), "c": ("c", ".3f"), "v": ("v", ".2f"),
               "per call": ("tokens_per_target_call", ".2f"), "plain/s": ("baseline_tokens_per_s", ",.0f"),
               "fast/s": ("tokens_per_s", ",.0f"), "speed-up": ("speedup", ".2f"),
               "formula": ("predicted_speedup", ".2f"), "overhead": ("overhead", ".2f")}
    cells, best = [], []
    for row in rows:
        best.append(row["speedup"] == max(r["speedup"] for r in rows if r["temperature"] == row["temperature"]))
        cells.append([format(row[key], form) + " lost" * (key == "speedup" and row[key] < 1)
                      for key, form in columns.values()])
    show_table(columns, cells, f"{where}; {said(args)}, {args.max_new_tokens} tokens each", best)
    if args.figure:
        last = [row for row in rows if row["temperature"] == args.temperatures[-1] and row["rule"] == args.rules[-1]]
        draw_speedup(gammas, measured=[row["speedup"] for row in last],
                     predicted=[row["predicted_speedup"] for row in last],
                     ideal=[speedup(row["alpha"], row["gamma"], row["c"]) for row in last], path=args.figure,
                     title=f"{args.device}, T = {args.temperatures[-1]:g}, {said(args)}")
    return rows


def against(args: argparse.Namespace, target: GPT, draft: GPT, where: str) -> list[dict]:
    """At one gamma and one temperature."""
    rows = compare(target, draft, args.pair, (args.gammas or [4])[0], args.max_new_tokens, args.temperatures[-1],
                   seed=args.seed)
    show_table(["method", "tokens/s", "per call", "ms a call", "sum of parts"],
         [[row["method"], f"{row['tokens_per_s']:.0f}", f"{row['tokens_per_target_call']:.2f}",
           f"{row['ms_per_call']:.2f}", f"{row['parts_ms']:.2f}" if "parts_ms" in row else ""] for row in rows],
         f"gamma {rows[0]['gamma']}, temperature {rows[0]['temperature']:g}; ours: {where}")
    return rows


def limits(target: GPT, draft: GPT, where: str) -> list[dict]:
    found = roofline(target, draft)
    cells = [[name, f"{1e3 * floor:.2f}", f"{1e3 * took:.2f}", f"{took / floor:.1f}"]
             for (name, floor), took in zip(found["floor_seconds"].items(), found["seconds"].values())]
    show_table(["", "floor, ms", "takes, ms", "times the floor"], cells,
         f"{where}; gamma {found['gamma']}. The target's weights are {found['bytes'] / 1e6:.1f} MB; so many bytes are "
         f"read at {found['bandwidth'] / 1e9:.0f} GB/s, 512 MiB at {found['bandwidth_of_512_MiB'] / 1e9:.0f}; "
         f"matrices are multiplied at {found['matrix_rate'] / 1e12:.2f} TFLOP/s")
    return [found]


def costs(target: GPT, draft: GPT, where: str) -> list[dict]:
    rows = growth(target, draft)
    show_table(["rows", "context", "plain step, ms", "round by its parts, ms", "round / plain"],
         [[str(row["rows"]), f"{row['context']:,}", f"{1e3 * row['plain']:.2f}", f"{1e3 * row['round']:.2f}",
           f"{row['round'] / row['plain']:.2f}"] for row in rows], f"{where}; gamma 4")
    return rows


def large(args: argparse.Namespace) -> list[dict]:
    torch.set_num_threads(args.threads or torch.get_num_threads())
    target, draft = large_pair(args.device)
    near = roofline(target, draft)
    rows = simulated(target, draft, gammas=args.gammas or (2, 4, 8), capture=captured if args.graphs else None)
    alphas = sorted({row["alpha"] for row in rows})
    gains = {(row["rows"], row["gamma"], row["alpha"]): f"{row['speedup']:.2f}" for row in rows}
    lines = [row for row in rows if row["alpha"] == alphas[-1]]
    show_table(["rows", "gamma", "plain, ms", "round, ms", *(f"alpha {alpha:g}" for alpha in alphas)],
         [[str(row["rows"]), str(row["gamma"]), f"{1e3 * row['plain']:.1f}", f"{1e3 * row['round']:.1f}",
           *(gains[row["rows"], row["gamma"], alpha] for alpha in alphas)] for row in lines],
         f"{args.device}, {torch.get_num_threads()} threads, {way_of(target)}; speed-up over plain decoding. A plain "
         f"step reads {near['bytes'] / 1e9:.2f} GB, {near['bytes'] / near['seconds']['target step'] / 1e9:.0f} GB/s; "
         f"measured for so many bytes: {near['bandwidth'] / 1e9:.0f}")
    if args.figure:
        draw_simulated(rows, f"{args.device}: 1.1 billion random weights, simulated acceptance", args.figure)
    return [near, *rows]


if __name__ == "__main__":
    sys.exit(main())
