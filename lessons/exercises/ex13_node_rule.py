"""Exercise 13: several draft tokens for one place, tried one after the other.

difficulty 3 of 5, about 25 minutes, about 6 lines; after the lesson *Several futures*
check: python -m lessons.check 13
"""

import torch


def node_rule(children, p_target, dice):
    """Which of several draft tokens is accepted, and the token that comes out: its distribution is p_target, whatever
    was drafted.

    children: a list of (x, q_draft), in the order in which they were drawn: x an int, drawn from q_draft, (V,) float64.
    Each has a distribution of its own: the same for all, if they were drawn independently; without the tokens drawn
    before, if none was to come twice. The list may be empty.
    p_target: (V,) float64.  dice: dice.flip(prob) -> bool; dice.pick(weights) -> int, for weights (V,) of any total.
    Returns (i, x) of the child that is accepted, counted from 0. If none is, (None, token), the token being drawn.

    One child is accepted or replaced, as in exercise 3. With more, what would have to be drawn after a rejection is
    what the next one is judged by. Behind a rejection something is always left.

    Worked: p_target [.2, .8], children (0, [.5, .5]) and (1, [.5, .5]): (0, 0) with .4, otherwise (1, 1). If both drew
    token 0, (0, 0) with .4, otherwise (None, 1).
    """
    raise NotImplementedError
