"""Exercise 3: accept the draft token or replace it. The heart of speculative decoding.

difficulty 2 of 5, about 20 minutes, about 4 lines; after the lesson *Accept or replace*
check: python -m lessons.check 3
"""

import torch


def accept_or_replace(x, p_target, q_draft, dice):
    """A token with the distribution p_target, made from a draft token x with the distribution q_draft.

    x: int, drawn from q_draft.  p_target, q_draft: (V,) float64 tensors that add up to 1.
    dice: dice.flip(prob) -> bool; dice.pick(weights) -> int, in proportion to weights (V,) of any total.
    Returns an int: x if it is accepted, with probability min(1, p_target(x) / q_draft(x)). If x is rejected, a token
    drawn from what the draft model left uncovered, max(0, p_target - q_draft).

    Worked: p_target [.5, .5], q_draft [.8, .2], x = 0: accepted with probability .625; if rejected, always token 1.
    """
    raise NotImplementedError
