"""Exercise 13: several draft tokens for one place, tried one after the other.

difficulty 3 of 5, about 25 minutes, about 6 lines; after the lesson *Several futures*
check: python -m lessons.check 13
"""


def node_rule(children, p_target, dice):
    """Which of several draft tokens is accepted, and the token that comes out. That token is distributed as p_target,
    whatever was drafted.

    children: a list of (x, q_draft) in the order of drawing; x is an int, drawn from q_draft, (V,) float64. Each child
    has a q_draft of its own: the same for all if they were drawn independently, or without the tokens drawn before if
    they were drawn without replacement. The list may be empty.
    p_target: (V,) float64.  dice: dice.flip(prob) -> bool; dice.pick(weights) -> int, for weights (V,) of any total.
    Returns (i, x) for the accepted child, counted from 0. If none is accepted, (None, token) with a token drawn.

    A single child is accepted or replaced, as in exercise 3. With more, the distribution that would be drawn from after
    a rejection is the one that the next child is judged by. After a rejection something is always left.

    Worked: p_target [.2, .8], children (0, [.5, .5]) and (1, [.5, .5]): (0, 0) with .4, otherwise (1, 1). If both are
    token 0, (0, 0) with .4, otherwise (None, 1).
    """
    for i, (x, q_draft) in enumerate(children):
        if dice.flip(min(1, p_target[x] / q_draft[x])):
            return i, x
        left = (p_target - q_draft).clamp(min=0)
        p_target = left / left.sum()
    return None, dice.pick(p_target)
