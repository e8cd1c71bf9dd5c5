"""A text in the terminal while it is being written: round by round, in colours, never half a
character.

Accepted tokens, replacements and bonus tokens look as in terminal.py. A token that the target wrote
without any draft has no colour. Words are not cut at the end of a line. Where no colour can be
shown, the text alone is.
"""

import re
from collections.abc import Collection

from rich.cells import cell_len
from rich.console import Console

from nanospec.cli.show.terminal import ACCEPTED, BONUS, REPLACEMENT, Decode, printable
from nanospec.speculate import Round

LONGEST = 16            # cells of a word that are held back until it ends: some scripts have no blanks
BYTES = 4               # of a character, at most: the tokens that may have to wait for a character's end


class Stream:
    """Prints rounds as they come. silent: tokens that are not shown, those that end a text."""

    def __init__(self, console: Console, decode: Decode, silent: Collection[int] = ()):
        self.console, self.decode, self.silent = console, decode, silent
        self.coloured = can_show_colours(console)
        self.pending: list[int] = []                    # tokens that end in the middle of a character
        self.word: list[tuple[str, str]] = []           # the parts of a word that may go on, and their styles
        self.blank, self.column = "", 0

    def take(self, done: Round) -> None:
        """Print what this round has written."""
        drafted = any(parent >= 0 for parent in done.parents)
        for i, token in enumerate(done.emitted):
            last = REPLACEMENT if done.rejected else BONUS if drafted else ""
            self.take_token(token, ACCEPTED if i < len(done.path) else last)

    def take_token(self, token: int, style: str) -> None:
        if token in self.silent:
            return
        self.pending.append(token)
        for whole in range(len(self.pending), max(0, len(self.pending) - BYTES), -1):
            text = self.decode(self.pending[:whole])
            if not text.endswith("\ufffd") or whole == len(self.pending) - BYTES + 1:
                self.pending = self.pending[whole:]
                return self._put(text, style)

    def end(self) -> None:
        """Print what was held back, and end the line."""
        if self.pending:
            self._put(self.decode(self.pending), "")
            self.pending = []
        self._flush()
        self._write("\n", "")

    def _put(self, text: str, style: str) -> None:
        if not self.console.is_terminal:                # a file or a pipe gets the text as it was written, tabs and all
            return self._write(text, "")
        text = printable(text)
        for part in re.findall(r"\n|[^\S\n]+|\S+", text):
            if part.isspace():
                self._flush()
                self.blank += part
                if part == "\n":
                    self._write(self.blank, "")
                    self.blank, self.column = "", 0
            else:
                self.word.append((part, style))
                if self._width > LONGEST:
                    self._flush()

    @property
    def _width(self) -> int:
        return sum(cell_len(part) for part, _ in self.word)

    def _flush(self) -> None:
        """The word that is held back, on a new line where it does not fit on this one."""
        if not self.word:
            return
        width, column = self.console.width, self.column + cell_len(self.blank) + self._width
        if self.column and self.blank and column > width:
            self._write("\n", "")
            self.blank, column = "", self._width
        self._write(self.blank, "")
        for part, style in self.word:
            self._write(part, style)
        self.column = column if column <= width else column % width or width        # the terminal breaks long ones
        self.blank, self.word = "", []

    def _write(self, text: str, style: str) -> None:
        if not self.console.is_terminal:                # rich would make blanks of tabs
            self.console.file.write(text)
            self.console.file.flush()
        elif text:
            self.console.out(text, end="", style=style if self.coloured and style else None, highlight=False)


def can_show_colours(console: Console) -> bool:
    """A terminal, unless NO_COLOR asks for none."""
    return console.is_terminal and not console.no_color
