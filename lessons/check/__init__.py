"""Checks of the exercises in lessons/exercises: `python -m lessons.check`. One file here for each file there.

`EXERCISES`, number -> Exercise, is made when it is first asked for: it needs torch, and a list of titles does not.
"""

from importlib import import_module
from pathlib import Path

FILES = sorted(Path(__file__).parent.glob("ex[0-9][0-9]_*.py"))


def __getattr__(name: str):
    if name != "EXERCISES":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    found = {int(path.name[2:4]): import_module(f"lessons.check.{path.stem}").EXERCISE for path in FILES}
    globals()["EXERCISES"] = found
    return found
