"""The same prompt twice: the target alone, then speculation. Watch what is kept, refused, replaced, and how fast.

    python demo.py                              # on the pair that ships
    python demo.py --temperature 0 --gamma 6
    python demo.py --step                       # one round at a time, with every coin
    python demo.py --drafter tree --rule traversal
    python demo.py --save demo.svg --figure speedup.png --json demo.json
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from statistics import mean, median
from time import perf_counter

import torch
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from nanospec.files.checkpoint import WEIGHTS, load_pair
from nanospec.errors import NanospecError
from nanospec.generate import generate
from nanospec.bench.measure import alpha_of, measure, measure_costs, setting_of
from nanospec.methods import DRAFTERS, GUESSES, RULES, SHAPED, SIZED, Method, method_of
from nanospec.fast.autotune import DTYPES, name_of, settle, way_of
from nanospec.show.figures import draw_speedup
from nanospec.show.steps import WatchedDice, step_text
from nanospec.show.terminal import View, legend, printable, refuse, side_by_side, table
from nanospec.speculate import tokens_of
from nanospec.theory import best_gamma, expected_tokens, speedup

PROMPT = '''class Stack:
    """A last-in, first-out stack."""

    def __init__(self):
        self.items = []

    def push(self, item):
'''
GAMMAS = range(1, 11)           # of --figure
PICTURE_WIDTH = 124             # columns of --save, whatever the window's


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompt", default=PROMPT, help="the text to continue")
    parser.add_argument("--drafter", choices=DRAFTERS, default="chain", help="who guesses")
    parser.add_argument("--rule", choices=RULES, default="token", help="who decides what is kept")
    parser.add_argument("--gamma", type=int, help="guesses a round; default: of the chain, the best by the formula")
    parser.add_argument("--shape", type=int, nargs="+", metavar="N",
                        help="children at every depth of a tree; default: the best for this pair here, measured")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 is greedy; 1 the model as it is")
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-new-tokens", type=int, help="default: 256, or what the context leaves")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="folder of a pair that train_tiny.py wrote")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16", "float64"], default="auto",
                        help="auto: each model's fastest here, measured")
    parser.add_argument("--step", action="store_true", help="one round at a time, with every coin")
    parser.add_argument("--save", type=Path, metavar="FILE.svg", help="the final view as a picture")
    parser.add_argument("--figure", type=Path, metavar="FILE.png", help="speed-up against gamma, beside the theory")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the numbers")
    args = parser.parse_args()
    if args.step and args.rule != "token":
        parser.error("--step shows the coins of --rule token: one for each guess that is tried, and what falls is gone")
    if args.figure and args.drafter != "chain":
        parser.error("--figure shows --drafter chain beside the theory, which speaks of nothing else")
    if args.gamma is not None and args.drafter in SIZED or args.shape and args.drafter not in SHAPED:
        parser.error(f"{' and '.join(SHAPED)} take a --shape, lookahead has a size of its own, the others take --gamma")
    if args.shape and min(args.shape) < 1:
        parser.error("--shape needs at least one child at every depth")
    if args.max_new_tokens is not None and args.max_new_tokens < 1:
        parser.error("--max-new-tokens must be at least 1")
    return args


class Demo:
    """One prompt, one pair, one setting."""

    def __init__(self, args: argparse.Namespace, console: Console):
        self.args, self.console = args, console
        self.pair = load_pair(args.weights, args.device)
        self.target, self.draft, _ = self.pair
        settle(self.target, self.draft, DTYPES if args.dtype == "auto" else [getattr(torch, args.dtype)])
        self.ids = [self.pair.tokenizer.end_of_text] + self.pair.tokenizer.encode(args.prompt)
        self.law = {"temperature": args.temperature, "top_k": args.top_k, "top_p": args.top_p}
        new = args.max_new_tokens or max(1, min(256, self.target.config.context - len(self.ids)))
        self.settings = self.law | {"max_new_tokens": new, "seed": args.seed,
                                    "stop": {self.pair.tokenizer.end_of_text}}

    def decode(self, ids: list[int]) -> str:
        return printable(self.pair.tokenizer.decode(ids))

    def plain(self):
        return generate(self.target, self.ids, **self.settings)

    def method(self, gamma: int) -> Method:
        return method_of(self.target, self.draft, self.args.drafter, self.args.rule, gamma=gamma, **self.setting)

    def fast(self, method: Method, **more):
        return method.run(self.ids, **self.settings, **more)

    def choose(self) -> Method:
        """What was asked for; else of a tree the best shape, and of a chain the best gamma by the formula, with alpha
        and the costs measured in a short run.
        """
        args = self.args
        gamma = (None if args.drafter == "chain" else GUESSES) if args.gamma is None else args.gamma
        self.setting = setting_of(self.target, self.draft, [self.ids], [args.drafter], args.shape,
                                  max(GAMMAS[-1], gamma or 0), **self.law)
        if gamma is not None:
            return self.method(gamma)
        rounds = list(self.fast(self.method(4)))
        costs = measure_costs(self.target, self.draft, range(2, GAMMAS[-1] + 2), len(self.ids), **self.law)
        return self.method(best_gamma(alpha_of(rounds), costs.c, costs.v.__getitem__, GAMMAS[-1]))

    def show(self, method: Method) -> View:
        """Both runs, live where there is a terminal to watch."""
        view = View(self.args.prompt, self.decode)
        lines = max(3, self.console.height - 4 if side_by_side(self.console) else self.console.height // 2 - 4)
        seen = perf_counter()
        with Live(console=self.console, auto_refresh=False, transient=True) as live:
            for steps, take in ((self.plain(), view.take_token), (self.fast(method), view.take_round)):
                began = perf_counter()
                for one in steps:
                    take(one, perf_counter() - began)
                    if self.console.is_terminal and perf_counter() - seen > 0.04:
                        live.update(view.panels(self.console, lines), refresh=True)
                        seen = perf_counter()
                    began = perf_counter()
        return view

    def step(self, method: Method) -> None:
        """Round by round; waits for the Enter key where there is a keyboard."""
        dice = WatchedDice([self.args.seed], self.args.device)
        for number, one in enumerate(self.fast(method, dice=dice), 1):
            self.console.print(step_text(number, one, dice.coins, self.decode))
            if sys.stdin.isatty():
                try:
                    self.console.input("[dim]Enter: next round, Ctrl-D: enough[/] ")
                except EOFError:
                    return

    def measure(self, methods: Sequence[Method]) -> list[dict]:
        """The rows of numbers; --json writes the first."""
        both = measure(self.target, self.draft, [self.ids], methods, **self.settings)
        for row, rounds in both:
            del row["overhead"]                             # of interest over many prompts: python -m nanospec.bench
            row["text"] = self.pair.tokenizer.decode(tokens_of(rounds))
        return [row for row, _ in both]

    def describe(self, row: dict, name: str) -> Group:
        """The table at the end, and in plain words whether it was worth it."""
        ways = way_of(self.target) + f", draft in {way_of(self.draft)}" * (way_of(self.target) != way_of(self.draft))
        faster, threads, chain = row["speedup"], torch.get_num_threads(), row["drafter"] == "chain"
        counts = f"{row['accepted']} of {row['drafted']} drafted tokens kept"
        if chain:
            counts = f"{expected_tokens(row['alpha'], row['gamma']):.2f} by Eq. 1; " + counts
        size, steps = f"{row['drafted'] / row['rounds'] + 1:.3g}", "gamma" if chain else f"{row['steps']:.3g}"
        rows = [("alpha", f"{row['alpha']:.3f}", "mean of sum min(p_target, q_draft) where the draft was judged"),
                ("c", f"{row['c']:.3f}", "one draft step / one target step"),
                ("v", f"{row['v']:.3f}", f"one target call on {size} tokens / on one"),
                ("tokens per target call", f"{row['tokens_per_target_call']:.2f}", counts),
                ("tokens/s, target alone", f"{row['baseline_tokens_per_s']:,.0f}",
                 f"{self.args.device}, {ways}, {threads} thread{'s' * (threads > 1)}"),
                ("tokens/s, speculative", f"{row['tokens_per_s']:,.0f}",
                 f"{name}, temperature {row['temperature']:g}"),
                ("speed-up", f"{faster:.2f}",
                 f"{row['predicted_speedup']:.2f} predicted: tokens per call / ({steps} c + v)")]
        if faster > 1:
            verdict = Text(f"Speculation wins here: {faster:.2f} times as fast.", "bold")
        else:
            brings = row["tokens_per_target_call"]
            verdict = Text(f"Speculation loses here: {1 / faster:.2f} times slower. A round takes as long as "
                           f"{brings / faster:.2f} tokens of the target alone and brings {brings:.2f}.", "bold")
        return Group(table(rows), verdict)

    def difference(self, plain: list[int], fast: list[int]) -> Text:
        """At temperature 0 both texts must agree; where they do not, how close the call was."""
        at = next((i for i, (a, b) in enumerate(zip(plain, fast)) if a != b), None)
        if at is None:
            return Text("Temperature 0: both texts are the same, token for token.", "dim")
        with torch.inference_mode():
            logits = self.target(torch.tensor([self.ids + plain[:at]], device=self.args.device))[0, -1].float()
        top = logits.topk(2)
        first, second = (repr(self.decode([token])) for token in top.indices.tolist())
        gap, name = (top.values[0] - top.values[1]).item(), name_of(self.target.dtype)
        step = torch.finfo(self.target.dtype).eps * 2 ** math.floor(math.log2(top.values[0].abs().item()))
        verdict = "rounding decides there" if gap <= 4 * step else "more than rounding explains: please report"
        return Text(f"Temperature 0: the texts part at new token {at}, {self.decode([plain[at]])!r} alone and "
                    f"{self.decode([fast[at]])!r} speculating. The target's two best there, {first} and {second}, lie "
                    f"{gap:.2g} apart in logits, where {name} has steps of {step:.2g}: {verdict}.", "yellow")

    def figure(self, path: Path) -> None:
        rows = self.measure([self.method(gamma) for gamma in GAMMAS])
        draw_speedup(GAMMAS, measured=[row["speedup"] for row in rows],
                     predicted=[row["predicted_speedup"] for row in rows],
                     ideal=[speedup(row["alpha"], row["gamma"], row["c"]) for row in rows], path=path,
                     title=f"{self.args.device}, T = {self.args.temperature:g}: "
                           f"α = {mean(row['alpha'] for row in rows):.2f}, c = {median(row['c'] for row in rows):.2f}")


def main() -> int:
    args = parse()
    try:
        return run(args, Console())
    except (NanospecError, OSError) as error:
        return refuse("demo", error)


def run(args: argparse.Namespace, console: Console) -> int:
    demo = Demo(args, console)
    method = demo.choose()
    if args.step:
        demo.step(method)
        return 0
    list(demo.fast(method))                                 # warm up
    list(demo.plain())
    view = demo.show(method)
    row, = demo.measure([method])
    rest = [view.lanes(console), Text(), demo.describe(row, method.name)]
    if args.temperature == 0:
        rest.append(demo.difference(view.plain, tokens_of(view.rounds)))
    console.print(Group(view.panels(console), legend(), *rest))
    if args.save:
        picture = Console(record=True, width=PICTURE_WIDTH, file=StringIO(), force_terminal=True,
                          color_system="truecolor", no_color=False)
        picture.print(Group(view.panels(picture), legend(), view.lanes(picture), *rest[1:]))
        picture.save_svg(str(args.save), title="python demo.py")
    if args.figure:
        demo.figure(args.figure)
    if args.json:
        args.json.write_text(json.dumps(row, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
