"""Exercise 15: certain drafts: several tokens to try that were not drawn from a distribution.

difficulty 2 of 5, about 15 minutes, about 5 lines; after the lesson *Copying from the past*
check: python -m lessons.check 15
"""


def judge(drafted, p_target, dice):
    """Which of several draft tokens for one place is accepted, if any, and which token is written.

    drafted: list of ints, copied from somewhere, in the order in which to try them. A token may occur twice.
    p_target: (V,) float64 tensor that adds up to 1.  dice: dice.flip(prob) -> bool; dice.pick(weights) -> int.
    A draft token x is accepted with what is left of p_target(x). If it is rejected, x is removed, and what is left is
    scaled to add up to 1 again. If all are rejected, the token is drawn from what is left.
    Returns (i, drafted[i]) if draft token i is accepted, otherwise (None, the token drawn). Of two equal draft tokens,
    only the first can be accepted.

    Worked: drafted [0, 1], p_target [.5, .3, .2]: 0 is accepted with .5. If it is rejected, 1 is accepted with
    .3 / .5 = .6. Otherwise token 2 is drawn.
    """
    left = p_target.clone()
    for i, x in enumerate(drafted):
        if dice.flip(left[x]):
            return i, x
        left[x] = 0
        left = left / left.sum()
    return None, dice.pick(left)
