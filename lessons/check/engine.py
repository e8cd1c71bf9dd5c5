"""The checker's engine: what an exercise is, and how a learner's functions are looked at, part by part.

A part looks at the functions and says what it has seen, as numbers beside the numbers that are right: a distribution
walked path by path, or values. Known mistakes are functions too. When what the learner's functions do is, number for
number, what a known mistake does, then that is what was done wrong; see naming.py.
"""

import contextlib
import inspect
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import torch

from lessons.check import envelope, naming
from lessons.check.catalogue import ANSWERS, Entry, read
from lessons.check.clock import PATIENCE, Beginning, Clock, TooLong
from lessons.check.seen import Failure, Row, Seen, told, unwritten

CHANGED = "changed-in-place"
IN_PLACE = ("it changes in place what it is given: {}. The answers are right, and the caller has lost the old values: "
            f"make new tensors or lists, such as p - q instead of p -= q ({CHANGED})")
SECONDS = 20            # of CPU time, for the learner's code in one exercise; the slowest right answer takes one

Functions = SimpleNamespace                             # an exercise's functions, by name
Look = Callable[[Functions], list[Seen]]


@dataclass
class Wrong:
    """A known mistake: its name, in one sentence what was done wrong, the functions that do it, and with which throw
    of the dice: "pick" or "flip".
    """

    name: str
    said: str
    functions: dict[str, Callable]
    throw: str


def wrong(name: str, said: str, throw: str = "pick", **functions: Callable) -> Wrong:
    return Wrong(name, said, functions, throw)


@dataclass
class Exercise(Entry):
    """looks: parts that compare numbers, by name, in order.  contract, tests: parts that raise Failure or fall silent.
    like: (module, name, first words, last words) of lines of the library to compare with.  speed: the look that counts
    speed where "exact distribution" walks, if a rule can be lossless here and fail all the same.  too_slow: the message
    for code that was stopped, or "".  optional: functions that need not be there.  may_change: arguments that may be
    changed in place, as "tokens of commit".
    """

    functions: tuple[str, ...]
    contract: Callable[[Functions], None]
    looks: dict[str, Look]
    wrongs: list[Wrong]
    hints: tuple[str, ...]
    like: list[tuple[str, str, str, str]]
    tests: dict[str, Callable[[Functions], str | None]] = field(default_factory=dict)
    speed: str = ""
    too_slow: Callable[[], str] = str
    optional: tuple[str, ...] = ()
    may_change: tuple[str, ...] = ()
    _made: dict = field(default_factory=dict, init=False, repr=False)      # once: right functions, sights of mistakes

    @property
    def throws(self) -> bool:
        """Is one of its functions handed the dice?"""
        return any("dice" in inspect.signature(function).parameters for function in self.right().values())

    def right(self) -> dict[str, Callable]:
        """The functions of the answer. A class's copy has them where a mistake is made in one of several."""
        if (source := envelope.opened().get(envelope.RIGHT + self.file, self.answer)) not in self._made:
            found = vars(find_functions(source, ANSWERS / self.file, self, Clock()))
            self._made[source] = {name: inspect.unwrap(function) for name, function in found.items()}
        return self._made[source]

    def with_mistake(self, mistake: Wrong) -> Functions:
        return Functions(**self.right() | mistake.functions)

    def seen_of(self, mistake: Wrong, part: str) -> list[Seen]:
        """What that part sees of a known mistake. It is always the same, and so looked at once."""
        key = id(mistake), part
        if key not in self._made:
            with float64_of_lists():                        # as a learner's functions are looked at
                self._made[key] = self.looks[part](self.with_mistake(mistake))
        return self._made[key]


@dataclass
class Result:
    """passed: the parts that were, each with what it had to say.  failure: of which part, and the text; or None.
    named: the known mistakes.  stopped: "time" if the code did not end, "busy" if the machine had no time for it.
    printed: what the learner's functions printed, the beginning of it.  slow: only speed is lost.
    """

    passed: list[tuple[str, str]]
    failure: tuple[str, str] | None = None
    named: list[str] = field(default_factory=list)
    stopped: str = ""
    printed: str = ""
    slow: bool = False


def load(path: Path, exercise: Exercise, clock: Clock) -> Functions:
    """The exercise's functions as that file has them, each on the clock."""
    return find_functions(read(path), path, exercise, clock)


def find_functions(source: str | bytes, path: Path, exercise: Exercise, clock: Clock) -> Functions:
    """Of bytes Python knows the mark of UTF-8, the ends of lines, the coding."""
    names = {"__name__": f"exercise_{exercise.number}", "__file__": str(path), "__builtins__": clock.names()}
    with clock:
        exec(compile(source, str(path), "exec"), names)
    missing = [name for name in exercise.functions if not callable(names.get(name))]
    if missing:
        raise Failure(f"{path.name} has no function {missing[0]}")
    there = [name for name in exercise.optional if callable(names.get(name))]
    return Functions(**{name: clock.timed(name, names[name]) for name in [*exercise.functions, *there]})


def check(exercise: Exercise, path: Path, clock: Clock | None = None) -> Result:
    """All parts in order, up to the first that fails. clock: how long the code in that file may take."""
    result, heard, clock = Result([]), Beginning(), clock or Clock(SECONDS)
    part, theirs = "contract", {}
    Row.thrown_at.clear()
    try:
        with (clock.limits(), patch.multiple(sys, stdout=heard, stderr=heard, __stdout__=heard, __stderr__=heard),
              float64_of_lists(), one_seed()):
            try:
                functions = load(path, exercise, clock)
                for part, test in {"contract": exercise.contract, **exercise.looks, **exercise.tests}.items():
                    found = test(functions)
                    if part in exercise.looks:
                        theirs[part] = found
                        if any(seen.differences() for seen in found):
                            result.failure = part, naming.tell_apart(exercise, path, functions, part, theirs, result)
                            break
                        cases, paths = len(found), sum(seen.paths for seen in found)
                        found = f"{paths:,} paths walked" if paths else f"{cases} case{'s' * (cases > 1)}"
                    result.passed.append((part, found or ""))
                changed = sorted(clock.changed.difference(exercise.may_change))
                if changed and result.failure is None:
                    result.failure, result.named = ("what it is given", IN_PLACE.format(", ".join(changed))), [CHANGED]
            except Exception as error:                  # here, since its text may be made by the learner's code
                result.failure, result.named = in_words(error, exercise, path, part), named(error)
    except TooLong as end:
        where = naming.place(exercise, path, end, title="")
        result.stopped, said = stopped(end, clock, exercise, where)
        result.failure = part, said
    except KeyboardInterrupt:
        raise
    except BaseException as end:
        result.failure = part, f"it ended the program instead of returning something ({type(end).__name__})"
    result.printed = heard.getvalue()
    return result


def named(error: Exception) -> list[str]:
    return [error.name] if isinstance(error, Failure) and error.name else []


def in_words(error: Exception, exercise: Exercise, path: Path, part: str) -> tuple[str, str]:
    """The part that failed, and what the learner is told."""
    if isinstance(error, Failure):
        return part, str(error)
    if isinstance(error, SyntaxError):
        return "syntax", path.name + f", line {error.lineno}" * bool(error.lineno) + f": {error.msg}"
    if isinstance(error, MemoryError):
        return part, f"it asks for more memory than there is, or is nested deeper than Python can read ({path.name})"
    if unwritten(error):
        called = getattr(error, "call", path.name).split("(")[0]
        return part, f"nothing there yet: {called} raises NotImplementedError"
    return part, f"{told(error)} ({naming.place(exercise, path, error)})"


@contextlib.contextmanager
def float64_of_lists():
    """torch.tensor([.5]) is float64, as what a learner is given: code that computes with lists is exact, too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def one_seed():
    """Code that draws random numbers of its own, where it may not, is told the same at each check."""
    before, of_numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(of_numpy)


def stopped(end: TooLong, clock: Clock, exercise: Exercise, where: str) -> tuple[str, str]:
    """"time" or "busy", and the sentence: for a machine without time, for a slow test, for what does not end."""
    if end.waited:
        return "busy", ("It was not judged: try again. Either this machine is busy with something else, or your code "
                        f"waits (sleep, input). It was stopped at {where}, after {PATIENCE * clock.seconds + 1:g} "
                        f"seconds by the clock on the wall, and had the processor for only {clock.now:.1f} of them.")
    said = exercise.too_slow() or "It may be an endless loop."
    if exercise.throws:
        said += (" A rule that proposes again and again until something is accepted has no longest path, so no walk of "
                 "it ends.")
    return "time", f"stopped after {clock.seconds:g} seconds of processor time in your code, at {where}. {said}"
