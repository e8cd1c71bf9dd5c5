"""Exercise 6: which distribution does the token after the accepted ones have?

difficulty 3 of 5, about 15 minutes, about 3 lines; after the lesson *A draft and a bonus*
check: python -m lessons.check 6
"""


def next_weights(accepted, p_target, q_draft):
    """The weights to draw the token after the accepted draft tokens from.

    accepted: int in 0..gamma.  q_draft: (gamma, V) float64; q_draft[i] is the distribution of draft token i.
    p_target: (gamma + 1, V); p_target[i] is the target's distribution at the place of draft token i, and the last one
    belongs to the place after the draft.
    Returns (V,) weights of any total: the residual at the first rejected draft token or, if all were accepted, the
    distribution of the bonus token.

    Worked: gamma = 1, p_target [[.5, .5], [.9, .1]], q_draft [[.8, .2]]: accepted 0 gives [0, .3], and accepted 1
    gives [.9, .1].
    """
    if accepted == len(q_draft):
        return p_target[accepted]
    return (p_target[accepted] - q_draft[accepted]).clamp(min=0)
