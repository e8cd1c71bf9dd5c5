"""The same prompt twice: the target alone, then speculation. Watch what is accepted, rejected, replaced, and how fast.

    python demo.py                              # on the pair that ships
    python demo.py --step                       # one round at a time, with every coin
    python demo.py --drafter tree --rule traversal
    python demo.py --compile                    # several times as fast, after a minute or two of compiling
    python demo.py --save docs/demo.svg         # this is how the README's picture is made
    python demo.py --html page.html             # the run, its formulas and one node, to play with in a browser
"""

import argparse
import json
import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any

import torch
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from nanospec.bench.measure import alpha_of, best_of_each, measure, measure_costs, setups_of
from nanospec.bench.setting import setting_of, tree_setting
from nanospec.bench.speed import busy
from nanospec.draft_models import LEARNED, DraftModel
from nanospec.errors import NanospecError
from nanospec.fast.autotune import name_of, way_of
from nanospec.fast.clock import ClockedDrafter, clocked
from nanospec.files.checkpoint import WEIGHTS, load_pair
from nanospec.generate import generate
from nanospec.methods import DRAFTERS, GAMMA, RULES, Method, check_fixed, method_of, most_drafted
from nanospec.model import GPT
from nanospec.show import options
from nanospec.show.figures import draw_speedup
from nanospec.show.page import Played, page_of, run_of
from nanospec.show.steps import WatchedDice, step_text
from nanospec.show.terminal import View, legend, printable, refuse, save_picture, side_by_side, table, waiting
from nanospec.speculate import speculate, tokens_of
from nanospec.text import check_request
from nanospec.theory import best_gamma, expected_tokens, speedup

PROMPT = '''class Stack:
    """A last-in, first-out stack."""

    def __init__(self):
        self.items = []

    def push(self, item):
'''
GAMMAS = range(1, 11)           # of --figure, and what is tried where nobody says a gamma
PICTURE_WIDTH = 124             # columns of --save, whatever the window's


def options_of(argv: Sequence[str] | None) -> dict:
    """What was asked for, by name. RequestError for what cannot be."""
    parser = options.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--prompt", type=options.TEXT, default=PROMPT, help="the text to continue")
    add("--draft", choices=["gpt", *LEARNED], default="gpt", metavar="NAME",
        help="the draft model: " + ", ".join(["gpt", *LEARNED]) + "; default: gpt, the small GPT")
    add("--drafter", choices=DRAFTERS, default="chain", metavar="NAME", help="who drafts: " + ", ".join(DRAFTERS))
    add("--rule", choices=RULES, default="token", metavar="NAME",
        help="who decides what is accepted: " + ", ".join(RULES))
    add("--gamma", type=options.GAMMA, metavar="N",
        help=f"draft tokens a round; default: of the chain the best by the formula, else {GAMMA}")
    add("--shape", type=options.GAMMA, nargs="+", metavar="N",
        help="children at every depth of a tree; default: the best for this pair here, measured")
    add("--temperature", type=options.TEMPERATURE, default=0.8, metavar="T", help="0 is greedy; default: 0.8")
    add("--top-k", type=options.COUNT, metavar="N", help="only the N likeliest tokens")
    add("--top-p", type=options.TOP_P, metavar="P", help="only the likeliest tokens, up to a probability of P")
    add("--seed", type=options.SEED, default=0, metavar="N", help="of all random numbers; default: 0")
    add("--max-new-tokens", type=options.COUNT, metavar="N", help="default: 256, or what the context leaves")
    add("--weights", type=options.FOLDER, default=WEIGHTS, metavar="FOLDER",
        help="a pair that train_tiny.py wrote, or Hugging Face folders FOLDER/target and FOLDER/draft")
    add("--device", type=options.device, default=options.HERE, help=f"default: {options.HERE}")
    add("--dtype", choices=["auto", "float32", "bfloat16", "float64"], default="auto",
        help="auto: each model's fastest here, measured")
    add("--compile", action="store_true", help="through torch.compile, where a drafter's drafts have one shape")
    add("--step", action="store_true", help="one round at a time, with every coin")
    add("--save", type=options.file(".svg"), metavar="FILE.svg", help="the final view as a picture")
    add("--figure", type=options.file(".png"), metavar="FILE.png", help="speed-up against gamma, beside the theory")
    add("--json", type=options.file(), metavar="FILE", help="the numbers")
    add("--html", type=options.file(".html"), metavar="FILE.html", help="a page that replays the run, in a browser")
    asked = vars(parser.parse_args(argv))
    coins = "--step" * asked["step"] or "--html" * bool(asked["html"])
    if coins and asked["rule"] != "token":
        parser.error(f"{coins} shows the coins of --rule token: one for each draft token that is tried")
    if asked["step"] and (asked["save"] or asked["figure"] or asked["json"] or asked["html"]):
        parser.error("--step measures nothing and draws nothing: it goes without --save, --figure, --json and --html")
    if asked["compile"]:
        check_fixed([asked["drafter"]], [asked["rule"]], "--compile")
        if coins:
            parser.error(f"{coins} looks at every coin; with --compile nobody sees them")
    if asked["figure"] and asked["drafter"] != "chain":
        parser.error("--figure shows --drafter chain beside the theory, which speaks of nothing else")
    size = DRAFTERS[asked["drafter"]].size
    if asked["gamma"] and size != "gamma" or asked["shape"] and size != "shape":
        parser.error(f"--drafter {asked['drafter']} takes " + {
            "gamma": "--gamma, not --shape", "shape": "--shape, not --gamma", "itself": "neither --gamma nor --shape"
        }[size])
    return asked


class Demo:
    """One prompt, one pair, one drafter and rule. What cannot be done is refused before anything is measured."""

    def __init__(self, prompt: str, draft: str, drafter: str, rule: str, gamma: int | None, shape: Sequence[int] | None,
                 temperature: float, top_k: int | None, top_p: float | None, seed: int, max_new_tokens: int | None,
                 weights: Path, device: str, dtype: str, compile: bool):
        self.prompt, self.drafter, self.rule, self.device, self.seed = prompt, drafter, rule, device, seed
        self.setting = tree_setting(shape)
        self.target, self.draft, self.tokenizer = load_pair(weights, device, draft=draft)
        self.ids = self.tokenizer.begin + self.tokenizer.encode(prompt)
        new = max_new_tokens or max(1, min(256, self.target.config.context - len(self.ids)))
        self.sampling: dict = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        self.request: dict = self.sampling | {"max_new_tokens": new, "seed": seed, "stop": self.tokenizer.ends}
        most = most_drafted(drafter, self.draft, GAMMAS[-1] if drafter == "chain" else GAMMA)
        self.gammas = GAMMAS[:most]
        widest = max(gamma or most, most if drafter == "chain" else 1)         # --figure shows all of them
        check_request(self.target, self.ids, new, **self.sampling, rows=self.method(widest).gamma + 1)
        self.runs, _ = setups_of(self.target, self.draft, dtype, None, compile)
        self.setting = setting_of(self.target, self.draft, [self.ids], [drafter], self.setting, widest, **self.sampling)
        self.gamma = gamma or (self.best() if drafter == "chain" else most)

    def method(self, gamma: int, target: GPT | None = None, draft: DraftModel | None = None) -> Method:
        return method_of(target or self.target, draft or self.draft, self.drafter, self.rule, gamma=gamma,
                         **self.setting)

    def best(self) -> int:
        """The best gamma by the formula, with alpha and the costs measured in a short run."""
        most = self.gammas[-1]
        rounds = list(self.method(min(4, most)).run(self.ids, **self.request))
        costs = measure_costs(self.target, self.draft, range(2, most + 2), len(self.ids), **self.sampling)
        return best_gamma(alpha_of(rounds), costs.c, costs.v.__getitem__, most)

    def decode(self, ids: list[int]) -> str:
        return printable(self.tokenizer.decode(ids))

    def ways(self) -> str:
        """How both models run, in words."""
        threads, ways = torch.get_num_threads(), [way_of(model) for model in self.runs[-1][:2]]
        return f"{self.device}, {ways[0]}" + f", draft in {ways[1]}" * (ways[0] != ways[1]) + (
            f", {threads} thread{'s' * (threads > 1)}")

    def warm_up(self) -> None:
        target, draft, capture = self.runs[-1]
        list(self.method(self.gamma, target, draft).run(self.ids, **self.request, capture=capture))
        list(generate(target, self.ids, **self.request, capture=capture))

    def show(self, console: Console) -> tuple[View, dict]:
        """Both runs, live where there is a terminal to watch; and the row of numbers that is measured behind them."""
        view, seen = View(self.prompt, self.decode), perf_counter()
        lines = max(3, console.height - 4 if side_by_side(console) else console.height // 2 - 4)
        target, draft, capture = self.runs[-1]
        drafter: Any = self.method(self.gamma, target, draft).make()
        drafter = drafter if capture else ClockedDrafter(drafter)               # no clock can be compiled
        plain: Iterator = clocked(generate(target, self.ids, **self.request, capture=capture))
        fast: Iterator = clocked(speculate(target, drafter, self.ids, rule=RULES[self.rule], **self.request,
                                           capture=capture))
        with Live(console=console, auto_refresh=False, transient=True) as live:
            for steps in plain, fast:
                for step, seconds in steps:
                    if steps is plain:
                        view.take_token(step, seconds)
                    else:
                        view.take_round(step, seconds, 0.0 if capture else drafter.seconds)
                    if console.is_terminal and perf_counter() - seen > 0.04:
                        live.update(view.panels(console, lines), refresh=True)
                        seen = perf_counter()
            live.update(Group(view.panels(console, lines), Text("measuring both, three times more", "dim")),
                        refresh=console.is_terminal)
            row, = self.measure([self.gamma])
        return view, row

    def step(self, console: Console) -> None:
        """Round by round; waits for the Enter key where there is a keyboard."""
        dice = WatchedDice([self.seed], self.device)
        for number, done in enumerate(self.method(self.gamma).run(self.ids, **self.request, dice=dice), 1):
            console.print(step_text(number, done, dice.coins, self.decode))
            if sys.stdin.isatty():
                try:
                    console.input("[dim]Enter: next round, Ctrl-D: enough[/] ")
                except EOFError:
                    return

    def page(self, plain_seconds: Sequence[float], numbers: dict) -> str:
        """The same run once more, with every coin and the seconds of both models, as a page for a browser."""
        dice, drafter = WatchedDice([self.seed], self.device), ClockedDrafter(self.method(self.gamma).make())
        run = speculate(self.target, drafter, self.ids, **self.request, dice=dice)
        played = [Played(done, dice.coins, drafter.seconds, whole - drafter.seconds) for done, whole in clocked(run)]
        return page_of(run_of(self.prompt, plain_seconds, played, self.decode, numbers | {"ways": self.ways()}))

    def measure(self, gammas: Sequence[int]) -> list[dict]:
        """A row of numbers for each gamma."""
        found = [measure(target, draft, [self.ids], [self.method(gamma, target, draft) for gamma in gammas],
                         **self.request, capture=capture) for target, draft, capture in self.runs]
        return [row | {"text": self.tokenizer.decode(tokens_of(rounds))} for row, rounds in best_of_each(found)]

    def difference(self, plain: list[int], fast: list[int]) -> Text:
        """Why the two texts differ, or that they do not. At temperature 0 they must agree up to rounding; where they
        do not, how close the call was.
        """
        temperature = self.sampling["temperature"]
        at = next((i for i, (a, b) in enumerate(zip(plain, fast)) if a != b), None)
        if at is None:
            return Text(f"Temperature {temperature:g}: both texts are the same, token for token.", "dim")
        if temperature:
            return Text("The two texts differ because each was drawn with coins of its own. Their distribution is the "
                        "same.", "dim")
        target = self.runs[-1][0]                           # who wrote them
        with torch.inference_mode():
            logits = target(torch.tensor([self.ids + plain[:at]], device=self.device))[0, -1].float()
        top = logits.topk(2)
        first, second = (repr(self.decode([token])) for token in top.indices.tolist())
        gap, name = (top.values[0] - top.values[1]).item(), name_of(target.dtype)
        step = torch.finfo(target.dtype).eps * 2.0 ** (math.frexp(top.values[0].item())[1] - 1)
        verdict = "rounding decides there" if gap <= 4 * step else "more than rounding explains: please report"
        return Text(f"Temperature 0: the texts part at new token {at}, {self.decode([plain[at]])!r} alone and "
                    f"{self.decode([fast[at]])!r} speculating. The target's two best there, {first} and {second}, lie "
                    f"{gap:.2g} apart in logits, where {name} has steps of {step:.2g}: {verdict}.", "yellow")

    def figure(self, path: Path) -> None:
        rows = self.measure(self.gammas)
        draw_speedup(self.gammas, measured=[row["speedup"] for row in rows],
                     predicted=[row["predicted_speedup"] for row in rows],
                     ideal=[speedup(row["alpha"], row["gamma"], row["c"]) for row in rows], path=path,
                     title=f"{self.device}, T = {self.sampling['temperature']:g}: "
                           f"α = {mean(row['alpha'] for row in rows):.2f}, c = {median(row['c'] for row in rows):.2f}")


def describe(row: dict, name: str, ways: str) -> Group:
    """The table at the end, and in plain words whether it was worth it."""
    def eager(key: str) -> str:
        return f"; compiled, and {row[key + '_eager']:,.0f} eagerly" if key + "_eager" in row else ""

    faster, brings, chain = row["speedup"], row["tokens_per_target_call"], row["drafter"] == "chain"
    counts = f"{row['accepted']} of {row['drafted']} draft tokens accepted"
    if chain:
        counts = f"{expected_tokens(row['alpha'], row['gamma']):.2f} by Eq. 1; " + counts
    size, steps = f"{row['drafted'] / row['rounds'] + 1:.3g}", "gamma" if chain else f"{row['steps']:.3g}"
    rows = [("alpha", f"{row['alpha']:.3f}", "mean of sum min(p_target, q_draft) where the draft was judged"),
            ("c", f"{row['c']:.3f}", "one draft step / one target step"),
            ("v", f"{row['v']:.3f}", f"one target call on {size} tokens / on one"),
            ("tokens per target call", f"{brings:.2f}", counts),
            ("tokens/s, target alone", f"{row['baseline_tokens_per_s']:,.0f}", ways + eager("baseline_tokens_per_s")),
            ("tokens/s, speculative", f"{row['tokens_per_s']:,.0f}",
             f"{name}, temperature {row['temperature']:g}" + eager("tokens_per_s")),
            ("speed-up", f"{faster:.2f}",
             f"{row['predicted_speedup']:.2f} predicted: tokens per call / ({steps} c + v)")]
    if faster > 1:
        verdict = f"Speculation wins here: {faster:.2f} times as fast."
    else:
        verdict = (f"Speculation loses here: {1 / faster:.2f} times slower. A round takes as long as "
                   f"{brings / faster:.2f} tokens of the target alone and brings {brings:.2f}.")
    return Group(table(rows), Text(verdict, "bold").append(busy([row]), "yellow"))


def run(console: Console, step: bool, save: Path | None, figure: Path | None, json_file: Path | None,
        html: Path | None, command: str, **asked) -> None:
    with waiting(console, "measuring what is fastest here"):
        demo = Demo(**asked)
        if not step:
            demo.warm_up()
    if step:
        return demo.step(console)
    view, row = demo.show(console)
    rest = Group(Text(), describe(row, demo.method(demo.gamma).name, demo.ways()),
                 demo.difference(view.plain, tokens_of(view.rounds)))

    def final(console: Console) -> Group:
        return Group(view.panels(console), legend(), view.lanes(console), rest)

    console.print(final(console))
    if save:
        named = f" --draft {asked['draft']}" * (asked["draft"] != "gpt")
        save_picture(final, PICTURE_WIDTH, "python demo.py" + named, save)
    if figure:
        demo.figure(figure)
    if json_file:
        json_file.write_text(json.dumps(row, indent=1) + "\n")
    if html:
        numbers = row | {"method": demo.method(demo.gamma).name, "command": command}
        html.write_text(demo.page(view.plain_seconds, numbers), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    try:
        asked, words = options_of(argv), sys.argv[1:] if argv is None else argv
        run(Console(), json_file=asked.pop("json"), command=shlex.join(["python", "demo.py", *words]), **asked)
    except (NanospecError, OSError) as error:
        return refuse("demo", error)
    except KeyboardInterrupt:
        return 130
    return 0
