"""Exercise 21: a cascade: the text is written by a mixture of draft model and target, exactly.

difficulty 3 of 5, about 25 minutes, about 12 lines; after the lesson *Mixing on purpose*
check: python -m lessons.check 21
"""

import torch


def mixture(p_target, q_draft, a):
    """The mixture pi (V,) at one place, by a deferral rule that decides for every token.

    p_target, q_draft: (V,) float64 tensors, the target's and the draft model's distribution.  a: a threshold.

    A token x is *deferred* where q_draft(x) is less than the greatest p_target minus a. Where the draft model would
    write a deferred token, the target writes instead: any token, by p_target. All other tokens stay with the draft
    model. So pi(x) = what it may keep of x + p_target(x) times its total weight of deferred tokens.

    Worked: p_target [.2, .7, .1], q_draft [.6, .3, .1], a = .2. The greatest p_target is .7, so tokens 1 and 2 are
    deferred, which have .4 together. pi is [.6 + .2 * .4, .7 * .4, .1 * .4] = [.68, .28, .04].
    """
    raise NotImplementedError


def one_round(drafted, q_draft, p_target, a, dice):
    """The tokens that one round writes, a list of ints, so that the text is distributed as pi at every place.

    drafted: gamma tokens, token i drawn from q_draft[i]; q_draft (gamma, V), float64.  p_target: (gamma + 1, V), the
    target's distribution at the place of each draft token and one further.  a: the threshold.
    dice: dice.flip(prob) -> bool, dice.pick(weights) -> int.

    This is ordinary speculation towards pi: draft tokens are accepted as often as possible, and the first rejected one
    is replaced. What can be written after the last draft token if all are accepted? pi needs both distributions.
    Worked: with the numbers above, drafted [0] is always accepted. Drafted [1] is accepted with .28 / .3, and otherwise
    replaced by 0.
    """
    raise NotImplementedError
