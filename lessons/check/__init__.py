"""Checks of the exercises in lessons/exercises: `python -m lessons.check`."""

from lessons.check import block, die, one_token, pace, rollback, testers, warp
from lessons.check.engine import Exercise

EXERCISES: dict[int, Exercise] = {
    one.number: one for part in (die, one_token, block, rollback, warp, pace, testers) for one in part.EXERCISES}
