"""Speculation in the terminal, drawn with rich from the rounds themselves.

Every mark is a colour and something besides: kept is green and plain, refused red and struck through, its replacement
amber and underlined, the bonus token blue and bold.
"""

from collections.abc import Callable, Iterable, Sequence

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nanospec.speculate import Round

KEPT, REFUSED, REPLACED, BONUS = "green", "red strike", "yellow underline", "bold blue"
TABLE_WIDTH = 100       # of numbers: one cut short would be a wrong one, so in a narrower window lines wrap
Decode = Callable[[list[int]], str]


# A model may write any byte. What would move the cursor, colour the screen or break an SVG becomes its picture.
CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {
    code: 0xFFFD for code in range(127, 160)}


def printable(text: str) -> str:
    return text.translate(CONTROLS)


def visible(text: str) -> str:
    """Blank space one can see: a refused newline must not break the line, a refused space must show its strike."""
    text = text.replace("\n", "⏎")
    return text if text.strip() else text.replace(" ", "␣")


def round_text(one: Round, decode: Decode, marked: bool = True) -> Text:
    """One round's tokens in place. What was drafted after a refusal was never judged, and is not shown.

    marked: False where no style can be shown (a pipe, a file): then the text alone, without the refused.
    """
    if not marked:
        return Text(decode(one.emitted))
    out = Text().append(decode(one.emitted[:one.kept]), KEPT)
    if len(one.emitted) > one.kept:
        for i, token in enumerate(one.refused):             # several in a tree: all that stood behind the last kept
            out.append("|" * (i > 0), "dim").append(visible(decode([token])), REFUSED)
        out.append(decode([one.token]), REPLACED if one.refused else BONUS)
    return out


def legend() -> Text:
    return Text.assemble(("kept", KEPT), "   ", ("refused", REFUSED), "   ", ("replacement", REPLACED), "   ",
                         ("bonus", BONUS))


def side_by_side(console: Console) -> bool:
    return console.width >= 110


class View:
    """Two panels, the target alone and speculation, side by side where the window is wide enough."""

    def __init__(self, prompt: str, decode: Decode):
        self.prompt, self.decode = prompt, decode
        self.plain: list[int] = []
        self.plain_seconds: list[float] = []        # one for each token
        self.rounds: list[Round] = []
        self.round_seconds: list[float] = []

    def take_token(self, token: int, seconds: float) -> None:
        self.plain.append(token)
        self.plain_seconds.append(seconds)

    def take_round(self, one: Round, seconds: float) -> None:
        self.rounds.append(one)
        self.round_seconds.append(seconds)

    def panels(self, console: Console, lines: int | None = None) -> RenderableType:
        """Both panels for this console; `lines` cuts each to its last so many, for a window of limited height."""
        wide = side_by_side(console)
        width = console.width // 2 if wide else console.width
        fast, slow = Text().append(self.prompt, "dim"), Text().append(self.prompt, "dim")
        for one in self.rounds:
            fast.append_text(round_text(one, self.decode, marked=console.is_terminal))
        slow.append(self.decode(self.plain))
        written = sum(len(one.emitted) for one in self.rounds)
        both = []
        for title, text, tokens, calls, seconds in (
                ("the target alone", slow, len(self.plain), len(self.plain), sum(self.plain_seconds)),
                ("speculative", fast, written, len(self.rounds), sum(self.round_seconds))):
            if lines:
                text = Text("\n").join(text.wrap(console, width - 4)[-lines:])
            told = "waiting"
            if calls:
                told = f"{tokens / calls:.2f} tokens per target call · {tokens / seconds:,.0f} tokens/s"
            both.append(Panel(text, title=title, subtitle=told, width=width, border_style="dim"))
        return Columns(both, padding=0, expand=True) if wide else Group(*both)

    def lanes(self, console: Console, calls: int = 8) -> Text:
        """`calls` plain target calls and what speculation did meanwhile, on one axis of wall-clock time; nothing
        where the window leaves no room for an axis."""
        width = min(console.width, 120) - 32
        plain = self.plain_seconds[1:]                              # the first token's includes reading the prompt
        if not plain or width < 16:
            return Text()
        span = sum(plain[:calls])
        out = Text().append(f"{span * 1e3:.0f} ms, after the prompt was read\n", "dim")
        rows = (("the target alone", [(0.0, 0, seconds, 1) for seconds in plain], ""),
                ("speculative", [(r.draft_seconds, r.steps, r.verify_seconds, len(r.emitted))
                                 for r in self.rounds[1:]], "yellow"))
        for name, steps, colour in rows:
            line, spent, tokens = Text(), 0.0, 0
            for draft, ticks, verify, emitted in steps:
                if spent + draft + verify > span * 1.001:
                    break
                drafted_until, until = (round(width * (spent + part) / span) for part in (draft, draft + verify))
                line.append(("'" * ticks)[:drafted_until - len(line)].ljust(drafted_until - len(line)), colour)
                line.append("▬" * (until - len(line) - 1) + " ", "cyan")
                spent, tokens = spent + draft + verify, tokens + emitted
            line.append(" " * (width - len(line)))
            out.append(f"{name:17}").append_text(line).append(f" {tokens:3} tokens\n")
        return out.append("' a draft step, ▬ a target call", "dim")


def table(rows: Iterable[tuple[str, str, str]]) -> Table:
    """(quantity, value, what it is)."""
    out = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    out.add_column(style="bold")
    out.add_column(justify="right")
    out.add_column(style="dim")
    for row in rows:
        out.add_row(*row)
    return out


def show_table(columns: Iterable[str], cells: Sequence[Sequence[str]], caption: str, bold: Sequence[bool] = ()) -> None:
    """Numbers under the names of their columns; the first column is words if it is "" or "method"."""
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name in ("", "method") else "right")
    for i, row in enumerate(cells):
        table.add_row(*row, style="bold" if bold and bold[i] else "")
    Console(width=max(Console().width, TABLE_WIDTH)).print(table)


def refuse(script: str, error: Exception) -> int:
    """One line on the error stream, however long it is; and the exit status."""
    Console(stderr=True).print(f"{script}: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    return 2
