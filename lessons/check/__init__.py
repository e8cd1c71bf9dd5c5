"""Checks of the exercises in lessons/exercises: `python -m lessons.check`."""

from lessons.check import (block, block_coins, certain, die, node_rule, one_token, pace, rollback, stopping, testers,
                           warp)
from lessons.check.engine import Exercise

PARTS = die, one_token, block, rollback, warp, pace, testers, node_rule, block_coins, certain, stopping
EXERCISES: dict[int, Exercise] = {one.number: one for part in PARTS for one in part.EXERCISES}
