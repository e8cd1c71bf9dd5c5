"""Exercise 6: which law does the token after the kept ones have?

difficulty 3 of 5, about 15 minutes, about 3 lines; lesson 7
check: python -m lessons.check 6
"""


def next_weights(kept, p_target, q_draft):
    """What to draw the token behind the kept guesses from.

    kept: int in 0..gamma.  q_draft: (gamma, V) float64, row i the law of guess i.  p_target: (gamma + 1, V), row i the
    target's law at the place of guess i; the last row is one place further.  Returns (V,) weights of any total: the
    residual at the first refused guess, or, if all were kept, the bonus token's law.

    Worked: gamma = 1, p_target [[.5, .5], [.9, .1]], q_draft [[.8, .2]]: kept 0 gives [0, .3], kept 1 gives [.9, .1].
    """
    raise NotImplementedError
