"""Somebody at a keyboard: typed lines, Ctrl-C meanwhile. Or a pipe, which has only lines."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nanospec.errors import RequestError

LONGEST = 1_000_000     # characters of a line


def lines(prompt: str) -> Iterator[str]:
    """The lines that are typed after `prompt`, or those of a pipe, without blanks around them; none
    that is empty. The mark that some systems write at the beginning of a pipe is no part of the
    first line.

    Ctrl-C throws away what was typed so far, Ctrl-D ends the lines.
    """
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="replace")         # bytes that are no UTF-8
    found = typed(prompt) if sys.stdin.isatty() else piped()
    yield from filter(None, map(str.strip, found))


def piped() -> Iterator[str]:
    """RequestError for a line that is longer than any model reads, as /dev/zero's."""
    for number, line in enumerate(iter(lambda: sys.stdin.readline(LONGEST + 1), "")):
        if len(line) > LONGEST:
            raise RequestError(f"a line of more than {LONGEST:,} characters")
        yield line if number else line.removeprefix("\ufeff")


def typed(prompt: str) -> Iterator[str]:
    with suppress(ImportError):
        import readline             # noqa: F401  lines can be edited, and earlier ones come back
    while True:
        try:
            yield input(prompt)
        except EOFError:
            return print()
        except KeyboardInterrupt:
            print()


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Ctrl-C is put on a list, so that nothing is torn apart. Pressed a second time it is a
    KeyboardInterrupt.

    Only where somebody sits at a keyboard: in a pipe it is one at once.
    """
    pressed: list[int] = []
    if not sys.stdin.isatty():
        yield pressed
        return

    def press(number: int, frame: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
