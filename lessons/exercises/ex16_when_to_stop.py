"""Exercise 16: when to stop: eight rules that end a draft early, who leaves the text as it was?

difficulty 3 of 5, about 30 minutes, 8 verdicts; lesson 16
check: python -m lessons.check 16
"""

from collections import namedtuple

import torch

TEXTS = [(), (0,), (1,), (2,)]                  # behind no token, and behind each first one
P_TARGET = dict(zip(TEXTS, torch.tensor([[.5, .3, .2], [.2, .2, .6], [.4, .5, .1], [.3, .3, .4]], dtype=torch.float64)))
Q_DRAFT = dict(zip(TEXTS, torch.tensor([[.3, .2, .5], [.6, .2, .2], [.3, .1, .6], [.2, .7, .1]], dtype=torch.float64)))
END = 1
Guess = namedtuple("Guess", "x q stands")       # the token, its probability in Q_DRAFT, and how its coin will fall


def rule_played(rule, dice):
    """The first two tokens of a text whose first round is drafted by `rule`; the target writes what is missing."""
    def laws(chain):
        before = tuple(one.x for one in chain)
        return P_TARGET[before], Q_DRAFT[before]

    def guess(chain):
        p_target, q_draft = laws(chain)
        x = dice.pick(q_draft)
        return Guess(x, float(q_draft[x]), dice.flip(p_target[x] / q_draft[x]))

    text, chain = (), rule(laws, guess)
    for place, one in enumerate(chain):
        p_target, q_draft = laws(chain[:place])
        if not one.stands:
            text += (dice.pick((p_target - q_draft).clamp(min=0)),)
            break
        text += (one.x,)
    while len(text) < 2:
        text += (dice.pick(P_TARGET[text]),)
    return text


def rule_a(laws, guess):
    chain = []
    while len(chain) < 2 and torch.minimum(*laws(chain)).sum() > 0.55:
        chain.append(guess(chain))
    return chain


def rule_b(laws, guess):
    first = guess([])
    return [first, guess([first])] if first.q > 0.25 else [first]


def rule_c(laws, guess):
    chain = []
    while len(chain) < 2 and (one := guess(chain)).q > 0.25:
        chain.append(one)
    return chain


def rule_d(laws, guess):
    first = guess([])
    return [first, guess([first])] if first.stands else [first]


def rule_e(laws, guess):
    first = guess([])
    second = guess([first])
    return [first, second] if second.stands else [first]


def rule_f(laws, guess):
    first = guess([])
    second = guess([first])
    return [first, second] if first.q > 0.25 else [first]


def rule_g(laws, guess):
    first = guess([])
    second = guess([first])
    return [first, second] if first.q * second.q > 0.08 else [first]


def rule_h(laws, guess):
    chain = []
    while len(chain) < 2 and (one := guess(chain)).x != END:
        chain.append(one)
    return chain


def verdicts():
    """Which of these rules leave the law of the text as it is, and how far off are the others?

    Each returns the guesses that are handed to the target: none, one or two. laws(chain) are p_target and q_draft
    behind the guesses in `chain`; guess(chain) draws one more behind them, and throws its coin at once.

    Returns {"rule_a": (verdict, distance), ...} for all eight: verdict is "exact" or "wrong"; distance is the total
    variation between the law of the two tokens that rule_played(rule, dice) writes and the target's, to three decimals,
    0 for the exact ones. The verdicts can be had without a number, from what each rule looks at; for the distances let
    nanospec.proof.walk.walk play, with lessons.kit.OneRow for its dice.
    """
    raise NotImplementedError
