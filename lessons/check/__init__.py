"""Checks of the exercises in lessons/exercises: `python -m lessons.check`. One file here for each file there."""

from importlib import import_module
from pathlib import Path

from lessons.check.engine import Exercise

FILES = sorted(Path(__file__).parent.glob("ex[0-9][0-9]_*.py"))
EXERCISES: dict[int, Exercise] = {int(path.name[2:4]): import_module(f"lessons.check.{path.stem}").EXERCISE
                                  for path in FILES}
