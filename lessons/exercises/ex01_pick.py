"""Exercise 1: throw the die.

difficulty 1 of 5, about 10 minutes, about 2 lines; after the lesson *A distribution is a die*
check: python -m lessons.check 1
"""

import torch


def pick(weights, u):
    """The token that the number u stands for.

    weights: (V,) float64 tensor of non-negative numbers with any positive total.  u: a number, 0 <= u < 1.
    Returns an int: the first index whose cumulative weight exceeds u times the total.

    Worked: weights [2, 0, 6] and u = 0.25 give 2. The pieces end at 2, 2 and 8, and 8 is the first end above 0.25 * 8.
    """
    raise NotImplementedError
