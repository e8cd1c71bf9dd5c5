"""Checks of the exercises in lessons/exercises: `python -m lessons.check`."""

from lessons.check import block, one_token, pace, testers
from lessons.check.engine import Exercise

EXERCISES: dict[int, Exercise] = {
    one.number: one for part in (one_token, block, pace, testers) for one in part.EXERCISES}
