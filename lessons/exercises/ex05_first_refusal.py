"""Exercise 5: how many guesses of a block stand?

difficulty 2 of 5, about 10 minutes, about 1 line; lesson 7
check: python -m lessons.check 5
"""


def kept(survives):
    """The number of guesses before the first that fell, for every row.

    survives: (B, gamma) bool tensor, how each guess's coin fell.  Returns (B,) int64, each in 0..gamma. Whatever
    comes after the first refusal was guessed for a text that no longer exists, and does not count.

    Worked: [True, False, True] gives 1; [False, True, True] gives 0; [True, True, True] gives 3.
    """
    raise NotImplementedError
