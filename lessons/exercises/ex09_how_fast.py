"""Exercise 9: what speculation buys, and how far to guess ahead.

difficulty 2 of 5, about 20 minutes, about 4 lines; lesson 9
check: python -m lessons.check 9
"""


def expected_tokens(alpha, gamma):
    """Tokens per target call if every guess is kept with probability alpha, up to the first that falls.

    alpha: in 0..1, both included.  gamma: guesses.  The replacement or the bonus token counts.

    Worked: alpha .8, gamma 5 give 3.69; alpha 1, gamma 4 give 5.
    """
    raise NotImplementedError


def best_gamma(alpha, c, v, most):
    """The gamma in 1..most with the greatest speed-up: tokens per target call over what a round costs.

    c: seconds of a draft step / of a target step.  v: a function, v(m) = seconds of a target call on m tokens / on
    one.  A round is gamma draft steps and one target call on gamma + 1 tokens.

    Worked: alpha .8, c .1: 6 if v(m) is always 1, but 3 if v(m) = 1 + .15 (m - 1).
    """
    raise NotImplementedError
