"""A text in the terminal while it is being written: round by round, in colours, never half a
character.

Accepted tokens, replacements and bonus tokens look as in terminal.py. A token that the target wrote
without any draft has no colour. Where no colour can be shown, the text alone is. Left out: lines
are broken by the terminal, wherever they reach its edge.
"""

from collections.abc import Collection

from rich.console import Console

from nanospec.cli.show.terminal import ACCEPTED, BONUS, REPLACEMENT, Decode
from nanospec.fast.announce import printable
from nanospec.speculate import Round

BYTES = 4               # of a character, at most: the tokens that may have to wait for its end


def can_show_colours(console: Console) -> bool:
    """A terminal, unless NO_COLOR asks for none."""
    return console.is_terminal and not console.no_color


class Stream:
    """Prints rounds as they come. silent: tokens that are not shown, those that end a text."""

    def __init__(self, console: Console, decode: Decode, silent: Collection[int] = ()):
        self.console, self.decode, self.silent = console, decode, silent
        self.coloured = can_show_colours(console)
        self.pending: list[int] = []            # tokens that end in the middle of a character

    def take(self, done: Round) -> None:
        """Print what this round has written."""
        drafted = any(parent >= 0 for parent in done.parents)
        last = REPLACEMENT if done.rejected else BONUS if drafted else ""
        for i, token in enumerate(done.emitted):
            if token not in self.silent:
                self.take_token(token, ACCEPTED if i < len(done.path) else last)

    def take_token(self, token: int, style: str) -> None:
        self.pending.append(token)
        for whole in range(len(self.pending), max(0, len(self.pending) - BYTES), -1):
            text = self.decode(self.pending[:whole])
            if not text.endswith("\ufffd") or whole == len(self.pending) - BYTES + 1:
                self.pending = self.pending[whole:]
                return self.write(text, style)

    def end(self) -> None:
        """Print what was held back, and end the line."""
        self.write(self.decode(self.pending) + "\n", "")
        self.pending = []

    def write(self, text: str, style: str) -> None:
        if self.console.is_terminal:
            shown = style if self.coloured and style else None
            self.console.out(printable(text), end="", style=shown, highlight=False)
        else:                                   # rich would make blanks of tabs
            self.console.file.write(text)
            self.console.file.flush()
