"""What takes a while is announced on the error stream, with a bar where its end is known."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import perf_counter

STILL = 2.5             # seconds between two signs of life
BAR = 20                # characters
_going_on: list[Event] = []             # what is announced now, the innermost last


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
    terminal, began, ended = sys.stderr.isatty(), perf_counter(), Event()
    clear, done = "\r\033[K" if terminal else "", 0

    def say(more: str = "") -> None:
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
        print(clear, end="", file=sys.stderr, flush=True)
