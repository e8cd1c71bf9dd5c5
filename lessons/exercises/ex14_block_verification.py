"""Exercise 14: block verification: judge a draft as a whole.

difficulty 4 of 5, about 35 minutes, about 12 lines; after the lesson *Block verification*
check: python -m lessons.check 14
"""

import torch


def weights(ratios):
    """For i = 0, 1, ..., gamma, the probability that the first i draft tokens are all accepted, whatever is drafted
    after them.

    ratios: gamma numbers, p_target(x) / q_draft(x) of each draft token x at its place.  Returns a list of gamma + 1
    numbers: w_0 = 1, and then w_i = min(1, w_(i-1) ratio_i). The minimum is taken at every step, not once at the end.

    Worked: [.5, 2] gives [1, .5, 1]; [4, .25] gives [1, 1, .25]; [] gives [1].
    """
    raise NotImplementedError


def verify_block(drafted, q_draft, p_target, dice):
    """How many of the draft tokens are accepted, and which token follows them: a tuple of two ints.

    drafted: gamma tokens, token i drawn from q_draft[i]; q_draft (gamma, V), float64.  p_target: (gamma + 1, V), the
    target's distribution at the place of each draft token and one further.
    dice: dice.flip(prob) -> bool, dice.pick(weights) -> int.

    The draft may be cut after any token, and each cut has a coin of its own. The longest cut whose coin succeeds is
    made; the cut before the first token can always be made. With the weights w above, what is missing at cut i is
    max(0, w_i p_target - q_draft), of the distributions one place further, and Z is its sum. The threshold of the coin
    after token i is Z / (Z + 1 - w_i), and 1 where that is 0 / 0. After the last token it is w. The next token is
    drawn from what is missing at the cut. After the last token nothing was drafted, and all of p_target is missing.

    Worked: p_target [1/3, 2/3] and q_draft [2/3, 1/3] at every place, drafted [0, 1]: w is 1, .5, 1, so both are
    always accepted. Drafted [0, 0]: w is 1, .5, .25; both are accepted with .25, never one alone, and if none is, the
    next token is 1.
    """
    raise NotImplementedError
