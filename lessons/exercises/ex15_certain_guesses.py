"""Exercise 15: certain guesses: several tokens to try, and nobody drew them.

difficulty 2 of 5, about 15 minutes, about 5 lines; lesson 15
check: python -m lessons.check 15
"""


def judge(guesses, p_target, dice):
    """Which of several guesses stands, if any, and which token is written.

    guesses: list of ints, copied from somewhere, in the order in which to try them; some may be there twice.
    p_target: (V,) float64 tensor that adds up to 1.  dice: dice.flip(prob) -> bool; dice.pick(weights) -> int.
    A guess x is kept with what is left of p_target(x). If it falls, x is left out, and the others share its part: what
    is left is made a law again. If all fall, the token is drawn from what is left.
    Returns (i, guesses[i]) if guess i is kept, otherwise (None, the token drawn).

    Worked: guesses [0, 1], p_target [.5, .3, .2]: 0 is kept with .5; if it falls, 1 with .3 / .5 = .6; else token 2.
    """
    raise NotImplementedError
