"""What every command begins with, and how it ends where it cannot go on: without a traceback.

Ctrl-C ends a command with status 130, also in the seconds in which torch is being imported. An
interruption that falls into an import is not raised there: compiled modules make other errors of
it, or print it and go on. Nothing has been made yet that would have to be put away, so the process
ends on the spot.

A reader that has gone (`| head -1`) ends it with status 141, as the shell says of a signal, and a
full disk with 2 and a line. Streams that are closed from the beginning lead nowhere. What the
encoding of stdout lacks is written as "?".
"""

import argparse
import atexit
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from types import FrameType
from typing import Any

from nanospec.errors import NanospecError, RequestError, one_line

IMPORT = "<frozen importlib._bootstrap>"
READER_GONE = 128 + 13      # the number of SIGPIPE, which some systems lack
# Options that other programs have, and that are refused by their names.
LEFT_OUT = ("--logit-bias", "--repetition-penalty", "--repeat-penalty", "--presence-penalty",
            "--frequency-penalty")
RENAMED = {"--draft": "--draft-model", "--drafts": "--draft-models"}


def quiet() -> None:
    """From now on. Only for a process that is a command: the library touches no stream and no
    signal. Where interruptions are ignored, or handled already, nothing changes about them.
    """
    for number in 0, 1, 2:
        try:
            os.fstat(number)
        except OSError:             # else the next file that is opened would stand for this stream
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(0, closefd=False)
    sys.stdout = output(sys.stdout, 1, "replace")
    sys.stderr = output(sys.stderr, 2, "backslashreplace")
    atexit.register(written_to_the_end)
    for name in "COLUMNS", "LINES":
        if os.environ.get(name) == "0":     # not known, as Python has it; rich would print nothing
            del os.environ[name]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)
        sys.unraisablehook, sys.excepthook = unraisable, uncaught


def command(name: str) -> Callable[[Callable[..., int | None]], Callable[..., int]]:
    """Of main(argv), or main() for the command line's: what it ends with is its own status, or 0;
    2, after one line on the error stream, if it refuses; 130 if Ctrl-C ends it.
    """
    def wrapped(main: Callable[..., int | None]) -> Callable[..., int]:
        @wraps(main)
        def run(argv: Sequence[str] | None = None) -> int:
            try:
                return main(argv) or 0
            except (NanospecError, OSError) as error:       # by words, for the whole would be cut
                print(f"{name}:", *map(one_line, str(error).split()), file=sys.stderr)
                return 2
            except KeyboardInterrupt:
                return 130
        return run
    return wrapped


class Parser(argparse.ArgumentParser):
    """Raises what is wrong as a RequestError, instead of printing its usage and leaving. Its
    description keeps its lines.
    """

    def __init__(self, **more: Any):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **more)

    def error(self, message: str):
        for name in LEFT_OUT:
            if name in message:
                message = (f"{name} is left out here: a distribution is made of logits by "
                           "temperature, top-k, top-p and min-p alone")
                message += " (for code, docs/METHODS.md has Penalised)" * ("penalty" in name)
        for old, new in RENAMED.items():
            if f" {old} " in f"{message} ":
                message = f"{old} is called {new} now"
        raise RequestError(message)


class Output(io.TextIOWrapper):
    """stdout or stderr. Once something could not be written, the rest leads nowhere; and of stdout,
    which is what the command is for, SystemExit is raised. It is no OSError, so that no command
    takes it for trouble with a file. status: that of the command, once stdout could not be written.
    """

    status = 0

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self.lost(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self.lost(error)

    def lost(self, error: OSError) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        if self is sys.stdout:
            self.status = READER_GONE if isinstance(error, BrokenPipeError) else 2
            if self.status != READER_GONE:
                print(f"standard output could not be written: {error.strerror}", file=sys.stderr)
            raise SystemExit(self.status)


def output(stream: Any, number: int, errors: str) -> Any:
    """An Output for a stream of this process; any other, a test's or notebook's, stays as it is."""
    if stream is None:                          # it was closed
        return open(number, "w", errors=errors, closefd=False)
    began_with: Any = sys.__stdout__ if number == 1 else sys.__stderr__
    if stream is not began_with:
        return stream
    stream.flush()
    return Output(stream.buffer, stream.encoding, errors, line_buffering=stream.line_buffering,
                  write_through=stream.write_through)


def written_to_the_end() -> None:
    """What is in memory at the end may not be written either, and Python's status is 0 then."""
    with suppress(SystemExit):
        sys.stdout.flush()
    if isinstance(sys.stdout, Output) and sys.stdout.status:
        os._exit(sys.stdout.status)


def interrupted(number: int, frame: FrameType | None) -> None:
    """The handler: raises KeyboardInterrupt, which a command catches, but not within an import."""
    while frame:
        if frame.f_code.co_filename == IMPORT:
            leave()
        frame = frame.f_back
    raise KeyboardInterrupt


@contextmanager
def signals() -> Iterator[list[int]]:
    """Within it, SIGINT and SIGTERM end nothing: they are listed, for what can stop by itself."""
    got: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: got.append(number))
              for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield got
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def unraisable(what: "sys.UnraisableHookArgs") -> None:
    """An interruption that fell into a finalizer would be printed, and forgotten."""
    if isinstance(what.exc_value, KeyboardInterrupt):
        leave()
    sys.__unraisablehook__(what)


def uncaught(kind: type[BaseException], error: BaseException, traceback) -> None:
    """One that came before a command could catch it, or after."""
    if issubclass(kind, KeyboardInterrupt):
        leave()
    sys.__excepthook__(kind, error, traceback)


def leave() -> None:
    with suppress(RuntimeError, SystemExit):    # within a write no other can begin
        if sys.stdout.isatty():
            sys.stdout.write("\x1b[?25h")       # a bar may have hidden the cursor
        sys.stdout.flush()
    os._exit(130)
