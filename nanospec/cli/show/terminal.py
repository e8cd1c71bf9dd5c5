"""Speculation in the terminal, drawn with rich from the rounds themselves.

Every mark is a colour and something besides: accepted is green and plain, rejected red and struck
through, its replacement amber and underlined, the bonus token blue and bold.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from rich.columns import Columns
from rich.console import CONSOLE_SVG_FORMAT, Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from nanospec.cli.quantities import per_second
from nanospec.files.paths import write_atomically
from nanospec.fast.announce import printable
from nanospec.speculate import Round

ACCEPTED, REJECTED, REPLACEMENT, BONUS = "green", "red strike", "yellow underline", "bold blue"
WIDE = 110              # columns of a window, from which on two panels stand side by side
TABLE_WIDTH = 100       # of numbers: one cut short would be wrong, so narrower windows wrap lines
Decode = Callable[[list[int]], str]

# rich's loads fonts from a network
SVG = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.S)


def visible(text: str) -> str:
    """Blank space that one can see: a rejected newline breaks no line, a space has its strike."""
    text = printable(text).replace("\n", "⏎").replace("\t", "⇥")
    return text if text.strip() else text.replace(" ", "␣")


def round_text(done: Round, decode: Decode, marked: bool = True) -> Text:
    """One round's tokens in place. What was drafted after a rejected token was never judged, and is
    not shown.

    marked: False where no style can be shown (a pipe, a file): then the text alone, without the
    rejected tokens.
    """
    if not marked:
        return Text(printable(decode(done.emitted)))
    accepted = len(done.path)
    out = Text().append(printable(decode(done.emitted[:accepted])), ACCEPTED)
    if len(done.emitted) > accepted:
        for i, token in enumerate(done.rejected):   # several in a tree, after the last accepted one
            out.append("|" * (i > 0), "dim").append(visible(decode([token])), REJECTED)
        out.append(printable(decode([done.token])), REPLACEMENT if done.rejected else BONUS)
    return out


def legend(rejected: bool = True) -> Text:
    styles = {"accepted": ACCEPTED, "rejected": REJECTED, "replacement": REPLACEMENT,
              "bonus": BONUS}
    return Text("   ").join(Text(word, style) for word, style in styles.items()
                            if rejected or word != "rejected")


class ShownRound(NamedTuple):
    """A round, its coins if somebody watched, and the seconds of drafting and of the rest."""

    done: Round
    coins: Sequence[tuple[float, float]]        # as WatchedDice of steps.py has them
    drafting: float
    rest: float


class View:
    """Two panels, the target alone and speculation, side by side where there is room."""

    def __init__(self, prompt: str, decode: Decode):
        self.prompt, self.decode = printable(prompt), decode
        self.plain: list[int] = []
        self.plain_seconds: list[float] = []                # one for each token
        self.rounds: list[ShownRound] = []

    def panels(self, console: Console, lines: int | None = None) -> RenderableType:
        """Both panels; `lines` cuts each to its last lines, for a window of limited height."""
        wide = console.width >= WIDE
        width = console.width // 2 if wide else console.width
        slow, fast = Text().append(self.prompt, "dim"), Text().append(self.prompt, "dim")
        slow.append(printable(self.decode(self.plain)))
        for it in self.rounds:
            fast.append_text(round_text(it.done, self.decode, marked=console.is_terminal))

        def panel(title: str, text: Text, tokens: int, seconds: list[float]) -> Panel:
            subtitle = "waiting"
            if seconds:
                subtitle = (f"{tokens / len(seconds):.2f} tokens per target call · "
                            f"{per_second(tokens, seconds):,.0f} tokens/s")
            if lines:
                text = Text("\n").join(text.wrap(console, width - 4)[-lines:])
            return Panel(text, title=title, subtitle=subtitle, width=width, border_style="dim")

        both = [panel("the target alone", slow, len(self.plain), self.plain_seconds),
                panel("speculative", fast, sum(len(it.done.emitted) for it in self.rounds),
                      [it.drafting + it.rest for it in self.rounds])]
        return Columns(both, padding=0, expand=True) if wide else Group(*both)

    def lanes(self, console: Console, calls: int = 8) -> Text:
        """`calls` plain target calls and what speculation did meanwhile, on one axis of wall-clock
        time; nothing where the window leaves no room for an axis.
        """
        width = min(console.width, 120) - 32
        plain = self.plain_seconds[1:]                      # the first one reads the prompt, too
        if not plain or width < 16:
            return Text()
        span = sum(plain[:calls])
        out = Text().append(f"{1e3 * span:.0f} ms, after the prompt was read\n", "dim")
        rounds = [(drafting, done.steps, rest, len(done.emitted))
                  for done, _, drafting, rest in self.rounds[1:]]
        for name, steps, colour in (
                ("the target alone", [(0.0, 0, seconds, 1) for seconds in plain], ""),
                ("speculative", rounds, "yellow")):
            line, spent, tokens = Text(), 0.0, 0
            for drafting, ticks, rest, emitted in steps:
                if spent + drafting + rest > span * 1.001:
                    break
                drafted = round(width * (spent + drafting) / span) - len(line)
                line.append(("'" * ticks)[:drafted].ljust(drafted), colour)
                spent, tokens = spent + drafting + rest, tokens + emitted
                line.append("▬" * (round(width * spent / span) - len(line) - 1) + " ", "cyan")
            line.append(" " * (width - len(line)))
            out.append(f"{name:17}").append_text(line).append(f" {tokens:3} tokens\n")
        compiled = self.rounds and not any(it.drafting for it in self.rounds)
        return out.append("▬ a target call, or a whole round" if compiled else
                          "' a draft step, ▬ a target call", "dim")


def table(lines: Iterable[tuple[str, str, str]]) -> Table:
    """(quantity, value, what it is)."""
    out = Table(Column(style="bold"), Column(justify="right"), Column(style="dim"), box=None,
                show_header=False, padding=(0, 2, 0, 0))
    for line in lines:
        out.add_row(*line)
    return out


class ShownTable(NamedTuple):
    """What has been shown, as it can be printed. bold: for each line, or none."""

    columns: Sequence[str]
    cells: Sequence[Sequence[str]]
    caption: str
    bold: Sequence[bool]


def show_table(columns: Iterable[str], cells: Sequence[Sequence[str]], caption: str,
               bold: Sequence[bool] = ()) -> ShownTable:
    """Numbers under their columns' names; the first column is words if it is "" or "method"."""
    columns, console = tuple(columns), Console()
    cells, caption = [[printable(cell) for cell in row] for row in cells], printable(caption)
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in ("", "method") else "right")
    for i, row in enumerate(cells):
        table.add_row(*map(Text, row), style="bold" if bold and bold[i] else "")
    # On a terminal that calls itself dumb, rich goes by a width only if it has a height, too.
    Console(width=max(console.width, TABLE_WIDTH), height=console.height).print(table)
    console.print(Text(caption, "table.caption"))
    return ShownTable(columns, cells, caption, bold)


def save_picture(draw: Callable[[Console], RenderableType], width: int, title: str,
                 path: Path) -> None:
    """What `draw` makes of a console of this width, as an SVG that needs nothing but itself."""
    # The height counts for nothing, and is there as in `show_table`.
    console = Console(record=True, width=width, height=1, file=StringIO(), force_terminal=True)
    console.print(draw(console))
    picture = console.export_svg(title=printable(title), code_format=SVG)
    write_atomically(path, lambda file: file.write(picture.encode()))


def note(line: str) -> None:
    """What the user should know, on the error stream; a line where that is no terminal."""
    console = Console(stderr=True)
    console.print(Text(printable(line), "dim"), soft_wrap=not console.is_terminal)
