"""Checks of the exercises in lessons/exercises: `python -m lessons.check`. One file here for each file there.

`EXERCISES`, number -> Exercise, is made when it is first asked for: it needs torch, and a list of titles does not.
"""

from importlib import import_module


def __getattr__(name: str):
    if name != "EXERCISES":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from lessons.check.catalogue import ENTRIES             # not above: `python -m check` looks for it elsewhere
    found = {number: import_module(f"lessons.check.{entry.file.removesuffix('.py')}").EXERCISE
             for number, entry in ENTRIES.items()}
    globals()["EXERCISES"] = found
    return found
