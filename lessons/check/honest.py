"""Was it the learner's own code that passed? What a file may have changed, read or started instead of solving it.

This is no wall against malice. The code runs as you do, in the process that judges it, and Python hides nothing from
it: who means to can find the checks in memory. What is seen here is what people try first.
"""

import os
import re
import sys

import torch

from lessons.check import EXERCISES
from lessons.check.clock import Clock

AN_ANSWER = re.compile(r"answers[/\\](__pycache__[/\\])?ex\d\d_")
PROCESSES = ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "subprocess.Popen",
             "os.kill", "os.killpg")


class Watch:
    """Python's audit hook, in a process that judges one file. found: what the file has done, each as ("answers" or
    "process", in words).
    """

    def __init__(self, clock: Clock):
        self.clock, self.found = clock, []
        sys.addaudithook(self._hook)

    def first(self) -> tuple[str, str] | None:
        """The first thing it has done."""
        checks = [name for name in self.clock.imported if re.match(r"lessons\.(check|answers)\b", name)]
        return next(iter([*self.found, *(("answers", f"it imports {name}") for name in checks)]), None)

    def _hook(self, event: str, args: tuple) -> None:
        if not self.clock.inside:                       # the checker reads answers too, and plants mistakes in them
            return
        if event == "open":
            if isinstance(args[0], (str, bytes)) and AN_ANSWER.search(os.fsdecode(os.path.realpath(args[0]))):
                self._reject("answers", "it reads the answers")
        elif event in PROCESSES and self.clock.depth:   # an import may ask the system something
            self._reject("process", "it starts another program, or ends one")

    def _reject(self, part: str, said: str) -> None:
        self.found.append((part, said))
        raise PermissionError(said)


def fingerprint() -> dict:
    """Every name of the library, the checks, torch and the built-ins: what it stands for, and a function's code."""
    found: dict = {}
    for name, module in list(sys.modules.items()):
        ours = name.split(".")[0] in ("nanospec", "lessons")
        if module is None or not (ours or name in ("torch", "builtins")):
            continue
        for key, thing in list(vars(module).items()):
            if key.startswith("__"):
                continue
            found[name, key] = thing, code_of(thing)
            if isinstance(thing, type) and ours or thing is torch.Tensor:
                found.update({(name, key, method): (function, code_of(function))
                              for method, function in list(vars(thing).items()) if callable(function)})
    for number, exercise in EXERCISES.items():
        found["parts", number] = exercise.contract, (*exercise.looks.items(), *exercise.tests.items())
    return found


def code_of(thing) -> tuple:
    """What a function does, and does if an argument is left out."""
    return tuple(getattr(thing, name, None) for name in ("__code__", "__defaults__", "__kwdefaults__"))


def changed(before: dict, now: dict) -> bool:
    """A name that stands for something else, or a method that was not there. (Modules may have been imported since.)"""
    return any(key not in now or now[key][0] is not thing or now[key][1] != more
               for key, (thing, more) in before.items()) or any(
        len(key) == 3 and key not in before and key[:2] in before for key in now)
