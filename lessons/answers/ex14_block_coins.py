"""Exercise 14: judge a block as a whole.

difficulty 4 of 5, about 35 minutes, about 12 lines; lesson 14
check: python -m lessons.check 14
"""


def weights(ratios):
    """For i = 0, 1, ..., gamma, how likely the first i guesses are to stay all of them, whatever is guessed behind.

    ratios: gamma numbers, p_target(x) / q_draft(x) of each guess x in its place.  Returns a list of gamma + 1 numbers:
    w_0 = 1, and then w_i = min(1, w_(i-1) ratio_i). The minimum is taken at every step, not once at the end.

    Worked: [.5, 2] gives [1, .5, 1]; [4, .25] gives [1, 1, .25]; [] gives [1].
    """
    found = [1.0]
    for ratio in ratios:
        found.append(min(1.0, found[-1] * ratio))
    return found


def block(drafted, q_draft, p_target, dice):
    """How many of the guesses stay, and which token follows them: a tuple of two ints.

    drafted: gamma tokens, each drawn from its row of q_draft (gamma, V), float64.  p_target: (gamma + 1, V), the
    target's law at the place of each guess and one further.  dice: dice.flip(prob) -> bool, dice.pick(weights) -> int.

    The draft may be cut behind any guess. A coin for each cut says whether it stands, whatever the others say; the
    longest that stands is made, and before the first guess one can always be made. With the weights w above, let owed
    be max(0, w_i p_target - q_draft) of the laws one place further, and Z its sum. The coin behind guess i is
    Z / (Z + 1 - w_i), 1 where that is 0 / 0; behind the last guess it is w. The token is drawn from what is owed at the
    cut; behind the last guess nobody guessed, and all of p_target is.

    Worked: p_target [1/3, 2/3] and q_draft [2/3, 1/3] at every place, drafted [0, 1]: w is 1, .5, 1, so both stay,
    always. Drafted [0, 0]: w is 1, .5, .25; both stay with .25, never one alone, and behind none comes a 1.
    """
    w = weights([p[x] / q[x] for x, p, q in zip(drafted, p_target, q_draft)])
    gamma = len(drafted)
    if dice.flip(w[gamma]):
        return gamma, dice.pick(p_target[gamma])
    for i in range(gamma - 1, -1, -1):
        owed = (w[i] * p_target[i] - q_draft[i]).clamp(min=0)
        if i == 0 or dice.flip(owed.sum() / (owed.sum() + 1 - w[i])):
            return i, dice.pick(owed)
