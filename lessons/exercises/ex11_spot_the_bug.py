"""Exercise 11: spot the bug: which of six rules are exact, and how far off are the others?

difficulty 3 of 5, about 30 minutes, 6 verdicts; after the lesson *How to test a sampler*
check: python -m lessons.check 11
"""

import torch

P_TARGET = torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=torch.float64)
Q_DRAFT = torch.tensor([0.2, 0.2, 0.3, 0.3], dtype=torch.float64)


def rule_a(x, p_target, q_draft, dice):
    if dice.flip(min(1, p_target[x] / q_draft[x])):
        return x
    return dice.pick(p_target)


def rule_b(x, p_target, q_draft, dice):
    return dice.pick(p_target)


def rule_c(x, p_target, q_draft, dice):
    if dice.flip(min(1, p_target[x] / q_draft[x])):
        return x
    return dice.pick(torch.relu(p_target - q_draft) * 12)


def rule_d(x, p_target, q_draft, dice):
    if dice.flip(min(1, p_target[x] / (0.8 * q_draft[x]))):
        return x
    return dice.pick((p_target - q_draft).clamp(min=0))


def rule_e(x, p_target, q_draft, dice):
    y = dice.pick(p_target)
    return x if x == y else y


def rule_f(x, p_target, q_draft, dice):
    if dice.flip(p_target[x]):
        return x
    without = p_target.clone()
    without[x] = 0
    return dice.pick(without)


def verdicts():
    """A verdict on each rule, for a draft token x drawn from Q_DRAFT and the target's distribution P_TARGET.

    Returns {"rule_a": (verdict, distance), ...} for all six. The verdict is one of three words.
    "exact": the target's distribution, and the draft token is accepted as often as possible.
    "slow": the target's distribution, but the draft token is accepted less often than possible.
    "wrong": a different distribution.
    distance: the total variation between the rule's distribution and P_TARGET to three decimals, 0 unless it is wrong.
    You may find the verdicts by hand, or with nanospec.proof.walk.walk and lessons.kit.OneRow, which turns its dice
    into pick and flip for one text.
    """
    raise NotImplementedError
