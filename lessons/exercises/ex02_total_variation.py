"""Exercise 2: how far apart are two distributions?

difficulty 1 of 5, about 5 minutes, about 1 line; after the lesson *A distribution is a die*
check: python -m lessons.check 2
"""

import torch


def total_variation(one, other):
    """The probability that would have to be moved to turn one distribution into the other.

    one, other: (V,) float64 tensors that add up to 1.  Returns a float in 0..1.

    Worked: [.5, .5] and [.8, .2] give .3. Equal distributions give 0, and those without a token in common give 1.
    """
    raise NotImplementedError
