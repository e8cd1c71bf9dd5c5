"""Exercise 9: what speculation buys, and how far to draft ahead.

difficulty 2 of 5, about 20 minutes, about 4 lines; after the lesson *How fast*
check: python -m lessons.check 9
"""

import torch


def expected_tokens(alpha, gamma):
    """Tokens per target call if every draft token is accepted with probability alpha, up to the first rejection.

    alpha: in 0..1, both included.  gamma: draft tokens.  The replacement or the bonus token counts.

    Worked: alpha .8, gamma 5 give 3.69; alpha 1, gamma 4 give 5.
    """
    raise NotImplementedError


def best_gamma(alpha, c, v, most):
    """The gamma in 1..most with the greatest speed-up: tokens per target call over what a round costs.

    c: the time of a draft step in target steps, that is, divided by the time of a target call on one token.
    v: a function; v(m) is the time of a target call on m tokens, in the same unit.
    A round takes gamma draft steps and one target call on gamma + 1 tokens.

    Worked: alpha .8, c .1: 6 if v(m) is always 1, but 3 if v(m) = 1 + .15 (m - 1).
    """
    raise NotImplementedError
