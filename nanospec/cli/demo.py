"""The same prompt twice: the target alone, then speculation. Watch what is accepted, rejected,
replaced, and how fast.

    nanospec demo                               # on the pair that ships
    nanospec demo --step                        # one round at a time, with every coin
    nanospec demo --temperature 0.8 --drafter tree --rule traversal
    nanospec demo --compile                     # several times as fast, after a minute or two
    nanospec demo --draft-model prefix --save docs/demo.svg       # how the README's picture is made
    nanospec demo --html page.html              # the run and its formulas, to play with

What is shown is timed, and then both run twice more, unseen: the numbers are medians of the three.
"""

import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from nanospec.cli import options
from nanospec.cli.bench.measure import Turn, busy, measure_setups
from nanospec.cli.prepared import DEFAULTS, WORDS, Prepared, settled
from nanospec.cli.launch import Parser, command
from nanospec.cli.quantities import cost_of_round, per_second, tokens_of_call
from nanospec.cli.show.page import page_of, run_of
from nanospec.cli.show.steps import WatchedDice, step_text
from nanospec.cli.show.terminal import (WIDE, ShownRound, View, legend, note, save_picture,
                                         table)
from nanospec.errors import RequestError
from nanospec.fast.announce import printable
from nanospec.fast.autotune import weights_of
from nanospec.fast.clock import ClockedDrafter, clocked
from nanospec.files.paths import write_atomically, write_json
from nanospec.generate import generate
from nanospec.judge.texts import Task, judge_texts
from nanospec.methods.index import RULES
from nanospec.methods.settings import GAMMA
from nanospec.speculate import speculate, tokens_of
from nanospec.theory import expected_tokens

CHAIN = 4                       # draft tokens of a chain, where the user asks for no other number
NEW = 128                       # tokens, if the context leaves room, where the user asks for none
TURNS, CAREFUL = 3, 5           # how often both are timed; with --measure
PICTURE_WIDTH = 124             # columns of --save, whatever the window's
FRAME = 0.04                    # seconds between two views
FEW = 16                        # tokens


@command("demo")
def main(argv: Sequence[str]) -> None:
    args, console = parsed(argv), Console()
    demo = Demo(args)
    if args.step:
        return demo.step(console)
    view, method = demo.show(console), demo.method().name

    def shown(console: Console) -> Group:
        return Group(view.panels(console), legend(), view.lanes(console))

    if console.is_terminal:     # something to read while the rest is measured
        console.print(shown(console))
    row = demo.measure(view)
    after = Group(Text(), describe(row, method, demo.how), demo.difference(
        view.plain, tokens_of(it.done for it in view.rounds)))
    typed = shlex.join(["nanospec", "demo", *argv])
    try:                        # files first: a stream may be a pipe that nobody reads any longer
        if args.save:
            save_picture(lambda console: Group(shown(console), after), PICTURE_WIDTH, typed,
                         args.save)
        if args.json:
            write_json(args.json, row)
        if args.html:
            numbers = row | {"method": method, "setting": demo.how, "command": typed}
            page = page_of(run_of(args.prompt, view.plain_seconds, view.rounds, demo.decode,
                                  numbers))
            write_atomically(args.html, lambda file: file.write(page.encode()))
    finally:
        console.print(after if console.is_terminal else Group(shown(console), after))
    if args.html:
        note(f"{args.html} is written: open it in a browser")


def parser() -> Parser:
    made = Parser(prog="nanospec demo", description=__doc__)
    options.add_options(made, DEFAULTS, WORDS | {
        "gamma": f"{CHAIN} of a chain, else {GAMMA}",
        "max_new_tokens": f"{NEW}, or what the context leaves"})
    add = made.add_argument
    add("--step", action="store_true", help="one round at a time, with every coin")
    add("--save", type=options.file(".svg"), metavar="FILE.svg", help="the final view as a picture")
    add("--json", type=options.file(), metavar="FILE", help="the numbers")
    add("--html", type=options.file(".html"), metavar="FILE.html",
        help="a page that replays the run, in a browser")
    return made


def parsed(argv: Sequence[str]) -> Namespace:
    """What was asked for. RequestError for what cannot be."""
    args = parser().parse_args(argv)
    if args.step and (args.save or args.json or args.html):
        raise RequestError("--step measures nothing and draws nothing: it goes without --save, "
                           "--json and --html")
    for option, given in ("--step", args.step), ("--html", args.html):
        if given and (args.rule != "token" or args.compile):
            raise RequestError(f"{option} shows the coins of --rule token, one for each draft "
                               "token that is tried; in a compiled round they cannot be seen")
    return settled(args)


class Demo(Prepared):
    """One prompt, one pair, one drafter and rule, as they were chosen. The last setup is shown."""

    def __init__(self, args: Namespace):
        super().__init__(args, NEW, CHAIN if args.drafter == "chain" else GAMMA)

    def decode(self, ids: list[int]) -> str:
        return printable(self.tokenizer.decode(ids))

    def step(self, console: Console) -> None:
        """Round by round; waits for the Enter key where there is a keyboard."""
        dice = WatchedDice([self.args.seed], self.args.device)
        rounds = self.method().run(self.ids, **self.request, dice=dice)
        for number, done in enumerate(rounds, 1):
            console.print(step_text(number, done, dice.coins, self.decode))
            if sys.stdin.isatty():
                try:
                    console.input("[dim]Enter: next round, Ctrl-D: enough[/] ")
                except EOFError:
                    return

    def measure(self, view: View) -> dict:
        """The numbers of both: what was watched is the first of the turns."""
        seen = Turn(per_second(len(view.plain), view.plain_seconds),
                    [[[it.done for it in view.rounds]]],
                    [[[it.drafting + it.rest for it in view.rounds]]])
        row, = measure_setups(self.setups, self.tokenizer, [self.ids],
                              lambda *pair: [self.method(*pair)],
                              repeats=CAREFUL if self.args.measure else TURNS,
                              seen=None if len(self.setups) > 1 else seen,
                              what="measuring both again", **self.request)
        return row

    def show(self, console: Console) -> View:
        """Both runs, live where there is a terminal, and every coin if there will be a page. A few
        rounds before them, unseen, read the weights into the processor's caches.
        """
        view, drawn = View(self.args.prompt, self.decode), perf_counter()
        lines = max(3, console.height - 4 if console.width >= WIDE else console.height // 2 - 4)
        target, draft_model, compiler = self.setups[-1]
        drafter: Any = self.method(target, draft_model).make()
        if not compiler:                                        # no clock can be compiled
            drafter = ClockedDrafter(drafter)
        dice = WatchedDice([self.args.seed], self.args.device) if self.args.html else None
        request = self.request | {"compiler": compiler}
        few = min(FEW, request["max_new_tokens"])
        list(self.method(target, draft_model).run(self.ids, **request | {"max_new_tokens": few}))
        with Live(console=console, auto_refresh=False, transient=True) as live:
            def redraw() -> None:
                nonlocal drawn
                if console.is_terminal and perf_counter() - drawn > FRAME:
                    live.update(view.panels(console, lines), refresh=True)
                    drawn = perf_counter()

            for token, seconds in clocked(generate(target, self.ids, **request)):
                view.plain.append(token)
                view.plain_seconds.append(seconds)
                redraw()
            rounds = speculate(target, drafter, self.ids, **request, rule=RULES[self.args.rule],
                               dice=dice)
            for done, seconds in clocked(rounds):
                drafting = 0.0 if compiler else drafter.seconds
                view.rounds.append(ShownRound(done, dice.coins if dice else (), drafting,
                                              seconds - drafting))
                redraw()
        return view

    def difference(self, plain: list[int], fast: list[int]) -> Text:
        """Why the two texts differ, or that they do not. At temperature 0 they must agree up to
        rounding; where they do not, judge/texts.py says whether it was that.
        """
        temperature = self.args.temperature
        if plain[:len(fast)] == fast[:len(plain)]:
            return Text(f"Temperature {temperature:g}: both texts are the same, token for token.",
                        "dim")
        if temperature:
            return Text("The two texts differ because each was drawn with random numbers of its "
                        "own. Their distribution is the same.", "dim")
        target = self.setups[-1].target                     # it wrote them
        judged = judge_texts(target, self.tokenizer, [Task(self.ids, plain, fast)],
                             weights_of(target))
        return Text(f"Temperature 0, A alone and B speculating: {judged.line(1, judged.each[0])}.\n"
                    f"{judged.verdict}", "yellow")


def describe(row: dict, name: str, how: str) -> Group:
    """The table at the end, and in plain words whether it was worth it."""
    def eager(key: str) -> str:
        speed = row.get(key + "_eager")
        return f"; compiled, and {speed:,.0f} eagerly" if speed else ""

    faster, brings, chain = row["speedup"], row["acceptance_length"], row["drafter"] == "chain"
    counts = f"{row['accepted']} of {row['drafted']} draft tokens accepted"
    if chain:
        counts = f"{expected_tokens(row['alpha'], row['gamma']):.2f} by Eq. 1; " + counts
    size, steps = f"{tokens_of_call(row):.3g}", "gamma" if chain else f"{row['steps']:.3g}"
    lines = [("alpha", f"{row['alpha']:.3f}",
              "mean of sum min(p_target, q_draft) where a draft token was judged"),
             ("c", f"{row['c']:.3f}", "one draft step / one target step"),
             ("v", f"{row['v']:.3f}", f"one target call on {size} tokens / on one"),
             ("tokens per target call", f"{brings:.2f}", counts),
             ("tokens/s, target alone", f"{row['baseline_tokens_per_s']:,.0f}",
              how + eager("baseline_tokens_per_s")),
             ("tokens/s, speculative", f"{row['tokens_per_s']:,.0f}",
              f"{name}, temperature {row['temperature']:g}" + eager("tokens_per_s")),
             ("speed-up", f"{faster:.2f}",
              f"{row['predicted_speedup']:.2f} predicted: tokens per call / ({steps} c + v)")]
    if faster > 1:
        verdict = f"Speculation wins here: {faster:.2f} times as fast."
    else:
        verdict = (f"Speculation loses here: {1 / faster:.2f} times slower. A round takes as long "
                   f"as {cost_of_round(row):.2f} tokens of the target alone and brings "
                   f"{brings:.2f}. `nanospec why` names what to change first.")
    return Group(table(lines), Text(verdict, "bold").append(busy([row]), "yellow"))
