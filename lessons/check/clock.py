"""Running a learner's functions: they may not end, they may change what they are given, and they may print.

What counts is the CPU time of the learner's own functions. The checker's work is not on this clock, nor are imports,
nor the time for which a busy machine lets the program wait.
"""

import builtins
import contextlib
import functools
import inspect
import io
import signal
import threading
import time
from collections.abc import Callable

import torch

from nanospec.errors import BRIEFLY

PRINTED = 1_000         # bytes of what they print
TICK = 0.05             # CPU seconds between two looks at the clock
PATIENCE = 5            # wall seconds in the learner's code for each CPU second that is allowed
OWN_WORK = 30           # CPU seconds that the checker itself may take for one file; it takes three
COMPARED = 1_000        # calls of a function after which its arguments are looked at
SHOWN = 60              # characters of an argument


class Kept(io.BytesIO):
    """Keeps the first few lines that are written to it: a function is called thousands of times."""

    def write(self, data) -> int:
        super().write(data[:max(0, PRINTED - self.tell())])
        return len(data)


class Beginning(io.TextIOWrapper):
    """Kept as stdout is: with a buffer for bytes."""

    def __init__(self):
        self.kept = Kept()
        super().__init__(self.kept, "utf-8", "replace", "\n", write_through=True)

    def close(self) -> None:
        """A learner may close it; what was heard is read all the same."""

    def getvalue(self) -> str:
        return self.kept.getvalue().decode(errors="replace")


class TooLong(BaseException):
    """Not an Exception: what falls over inside a walk is looked at, what does not end must end it.

    waited: the wall clock has passed, and the learner's code had little of the CPU.
    """

    def __init__(self, waited: bool = False):
        self.waited = waited


class Clock:
    """CPU seconds that the learner's code has had; from `seconds` on it raises TooLong. 0 is never.

    passed: by the clock on the wall.
    """

    def __init__(self, seconds: float = 0):
        self.seconds, self.spent, self.passed, self.depth = seconds, 0.0, 0.0, 0
        self.began, self.began_on_wall = 0.0, 0.0
        self.inside = False                     # the learner's code is being run, on the clock or off it
        self.imported: list[str] = []           # by the learner's code
        self.changed: set[str] = set()          # arguments that were changed in place: "p_target of residual"

    @property
    def now(self) -> float:
        return self.spent + (time.process_time() - self.began if self.depth else 0.0)

    def start(self) -> None:
        self.began, self.began_on_wall = time.process_time(), time.monotonic()

    def halt(self) -> None:
        self.spent += time.process_time() - self.began
        self.passed += time.monotonic() - self.began_on_wall

    def __enter__(self) -> None:
        if self.seconds and self.spent > self.seconds:
            raise TooLong
        if self.depth == 0:
            self.start()
            self.inside = True
        self.depth += 1

    def __exit__(self, *_) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.halt()
            self.inside = False

    @contextlib.contextmanager
    def stopped(self):
        """Off the clock for a while, inside the learner's code."""
        depth, self.depth = self.depth, 0
        if depth:
            self.halt()
        try:
            yield
        finally:
            self.start()
            self.depth = depth

    @contextlib.contextmanager
    def limits(self):
        """Raises TooLong inside, where the system has such alarms and this is the main thread. A value's own repr or an
        error's own text is asked for off the clock, and may not end either: so the whole has a limit, too.
        """
        main = threading.current_thread() is threading.main_thread()
        if not self.seconds or not main or not hasattr(signal, "setitimer"):
            yield
            return

        begun = time.process_time()

        def tick(*_):
            if self.depth and self.now > self.seconds or time.process_time() - begun > self.seconds + OWN_WORK:
                raise TooLong

        def ring(*_):
            passed = self.passed + time.monotonic() - self.began_on_wall
            if self.depth and passed > PATIENCE * self.seconds + 1:
                raise TooLong(waited=True)
        before = signal.signal(signal.SIGPROF, tick), signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_PROF, TICK, TICK)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE * self.seconds + 1, TICK)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before):
                signal.signal(number, handler)

    def names(self) -> dict:
        """The built-in names for the learner's module: an import is not on the clock."""
        def off_the_clock(name, globals=None, locals=None, fromlist=(), level=0):
            self.imported += [name, *(f"{name}.{part}" for part in fromlist or ())]
            with self.stopped():
                return builtins.__import__(name, globals, locals, fromlist, level)
        return {**vars(builtins), "__import__": off_the_clock}

    def timed(self, name: str, function: Callable) -> Callable:
        """The learner's function of that name, on the clock. It gets copies of tensors and lists: it may change them.

        What it raises carries the call: error.call = "pick([1.0, 1.0], 0.25)".
        """
        calls, names = 0, list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def call(*args, **named):
            nonlocal calls
            calls += 1
            given = [copied(arg) for arg in args]
            try:
                with self:
                    return function(*given, **named)
            except Exception as error:
                if not hasattr(error, "call"):
                    error.call = f"{name}({', '.join(map(shown, args))})"
                raise
            finally:
                if calls <= COMPARED:
                    self.changed |= {f"{names[min(i, len(names) - 1)]} of {name}"
                                     for i, (before, after) in enumerate(zip(args, given)) if differs(before, after)}
        return call


def copied(value):
    """Tensors, and lists and pairs of them, as new ones; all else as it is."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    return dict(value) if type(value) is dict else value


def differs(before, after) -> bool:
    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
        if before.dtype == after.dtype and before.equal(after):         # most often, and at once
            return False
        return before.shape != after.shape or not bool(((before == after) | before.isnan() & after.isnan()).all())
    if type(before) is not type(after):
        return True
    if type(before) in (list, tuple):
        return len(before) != len(after) or any(map(differs, before, after))
    # What is no number and no text, as a function, is handed over as it is.
    return before is not after and before != after if isinstance(before, (dict, int, float, str)) else False


def shown(value, levels: int = 4) -> str:
    """An argument as one would type it, short; of what holds others so many levels."""
    if isinstance(value, torch.Tensor):
        value = torch.round(value, decimals=4).tolist() if value.is_floating_point() else value.tolist()
    elif type(value) in (list, tuple):
        inner = ", ".join(shown(one, levels - 1) for one in value) if levels else "..."
        return (f"[{inner}]" if type(value) is list else f"({inner})")[:2 * SHOWN]
    elif callable(value) or hasattr(value, "flip"):
        return getattr(value, "__name__", "dice" if hasattr(value, "flip") else "...")
    text = BRIEFLY.repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."
