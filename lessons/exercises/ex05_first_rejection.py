"""Exercise 5: how many draft tokens are accepted?

difficulty 2 of 5, about 10 minutes, about 1 line; after the lesson *A draft and a bonus*
check: python -m lessons.check 5
"""

import torch


def accepted(coins):
    """The number of draft tokens before the first rejection, for every row.

    coins: (B, gamma) bool tensor with the outcome of each draft token's coin; True means accept.
    Returns (B,) int64, each in 0..gamma. Tokens after the first rejection were drafted for a text that no longer
    exists, so they do not count.

    Worked: [True, False, True] gives 1; [False, True, True] gives 0; [True, True, True] gives 3.
    """
    raise NotImplementedError
