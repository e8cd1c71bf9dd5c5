"""What a terminal is shown: what takes a while is announced on the error stream, with a bar where
its end is known, and words that may come from a stranger are made safe.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import perf_counter

STILL = 2.5             # seconds between two signs of life
BAR = 20                # characters
_going_on: list[Event] = []             # what is announced now, the innermost last
_unseen = Event()                       # set while somebody types
# A model may write any byte, and so may a user. These move the cursor, colour the screen, turn the
# direction of writing, or are forbidden in XML: the controls but newline and tab, overrides of
# direction, half characters, no characters.
UNSAFE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
                    "\ufffe\uffff]")


def printable(text: str) -> str:
    """What is unsafe becomes its picture if it has one, as ESC has ␛, else U+FFFD."""
    def picture(found: re.Match) -> str:
        return chr(0x2400 + ord(found[0])) if found[0] < " " else "\ufffd"
    return UNSAFE.sub(picture, text)


@contextmanager
def announced(what: str, at_once: bool = True, steps: int = 0) -> Iterator[Callable[[], None]]:
    """Say on stderr what takes a while, before it begins, and every STILL seconds that it goes on.
    A terminal takes the line back at the end. A file or a notebook keeps every line, so there each
    pause is twice the one before. Not at_once: it is said only if it takes that long.

    steps: of how many equal steps it consists, for a bar. Yields a function to be called after each
    of them.
    A thread says so, but of nested ones that of the innermost alone. It needs 50 microseconds each
    time, which moves no median.
    """
    what = printable(what)
    terminal, began, ended = sys.stderr.isatty(), perf_counter(), Event()
    clear, done = "\r\033[K" if terminal else "", 0

    def say(more: str = "") -> None:
        if _unseen.is_set():
            return
        end = "" if terminal else "\n"
        full = done * BAR // steps if steps else 0
        bar = f" [{'#' * full}{'.' * (BAR - full)}]" * bool(steps)
        print(f"{clear}{what} ...{bar}{more}", end=end, file=sys.stderr, flush=True)

    def step() -> None:
        nonlocal done
        done += 1
        if terminal and (at_once or perf_counter() - began > STILL):
            say()

    def go_on() -> None:
        pause = STILL
        while not ended.wait(pause):
            if _going_on[-1] is ended:
                say(f" {perf_counter() - began:.0f} s")
            pause *= 1 if terminal else 2

    if at_once:
        say()
    _going_on.append(ended)
    thread = Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield step
    finally:
        ended.set()
        thread.join()
        _going_on.remove(ended)
        if not _unseen.is_set():
            print(clear, end="", file=sys.stderr, flush=True)


@contextmanager
def unseen() -> Iterator[None]:
    """Within it nothing is announced, not by other threads either. What still goes on at its end is
    seen from then on.
    """
    _unseen.set()
    try:
        yield
    finally:
        _unseen.clear()
