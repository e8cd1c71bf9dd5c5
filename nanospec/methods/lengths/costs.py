"""What a round costs, by how many texts there are and how many tokens are drafted: measured once,
then again and again.

A table that was measured in the seconds before is soon wrong: prompts are as long as they are, and
others use the machine. A drafter that decides by costs should look at what the rounds really take.
"""

from collections.abc import Callable
from time import perf_counter

import numpy as np
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.methods.lengths.by_load import ByLoad
from nanospec.text import Text

NEWS = 0.2          # what the last round weighs
WORST = 2.0         # a round counts as at most this many times what is known
FADE = 0.005        # what is not tried seems cheaper with every round, so that it is tried again


class Costs:
    """costs(rows, gamma): seconds of a round.

    table: rows -> seconds of 0, 1, 2, ... draft tokens; between two numbers of rows, on a line.
    """

    def __init__(self, table: dict[int, list[float]]):
        self.table = {rows: list(seconds) for rows, seconds in table.items()}

    def __call__(self, rows: int, gamma: int) -> float:
        known = sorted(self.table)
        return float(np.interp(rows, known, [self.table[number][gamma] for number in known]))

    def saw(self, rows: int, gamma: int, seconds: float) -> None:
        """What a round took. What drafts less is now believed to be a little cheaper: it was not
        tried for a while. (What drafts more is not tried for trying's sake: after a silence a draft
        model has much to read.)
        """
        if rows not in self.table:
            longest = len(next(iter(self.table.values())))
            self.table[rows] = [self(rows, other) for other in range(longest)]
        known = self.table[rows][gamma]
        self.table[rows][gamma] = known + NEWS * (min(seconds, WORST * known) - known)
        self.table[rows][:gamma] = [(1 - FADE) * less for less in self.table[rows][:gamma]]


class WatchedByLoad(ByLoad):
    """Times its rounds, from the draft to what is told of its end.

    Not those in which it reads what it has missed.
    """

    seconds: Costs

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        missed, self.began = self.new, perf_counter()
        draft = super().propose(text, sampling, dice, kv_length, lag)
        self.usual = not missed or not self.gamma
        return draft

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None) -> None:
        super().commit(draft, path, count, p_target, hidden)
        float(self.judged)              # waits for the device: the clock is to see what it has done
        if self.usual:
            self.seconds.saw(len(count), self.gamma, perf_counter() - self.began)
