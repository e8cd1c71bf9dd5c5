"""Ctrl-C ends a command with status 130 and without a traceback, also in the seconds in which torch is being imported.

An interruption that falls into an import is not raised there: compiled modules make other errors of it, or print it
and go on. Nothing has been made yet that would have to be put away, so the process ends on the spot.
"""

import os
import signal
import sys
from types import FrameType

IMPORT = "<frozen importlib._bootstrap>"


def quiet_interrupts() -> None:
    """From now on. Only for a process that is a command: the library touches no signal. Where interruptions are
    ignored, or handled already, nothing changes.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)
        sys.unraisablehook, sys.excepthook = unraisable, uncaught


def interrupted(number: int, frame: FrameType | None) -> None:
    """The handler: raises KeyboardInterrupt, which a command catches, but not within an import."""
    while frame:
        if frame.f_code.co_filename == IMPORT:
            leave()
        frame = frame.f_back
    raise KeyboardInterrupt


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
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[?25h")       # a bar may have hidden the cursor
    sys.stdout.flush()
    os._exit(130)
