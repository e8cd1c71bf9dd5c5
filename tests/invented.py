"""Rounds that nobody played, for tests of what is printed: no two of their numbers that must be told apart are equal.
And a clock that a test winds.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch

from nanospec.speculate import Round


VOCABULARY, LAST = 8, 7         # draft tokens are 1, 2, 3, ... of a round, and what follows them is 7


def chain(betas: Sequence[float], accepted: int, cut: int | None = None, steps: int | None = None) -> Round:
    """A chain of as many draft tokens as betas, each drawn with certainty and accepted with its beta; what else the
    target may write there is LAST. The text may be cut at fewer tokens. steps: if it took other than one for each.
    """
    n = len(betas)
    p_target, q_draft = torch.zeros(n + 1, VOCABULARY), torch.zeros(n + 1, VOCABULARY)
    p_target[n, LAST] = 1
    for i, beta in enumerate(betas):
        p_target[i, i + 1], p_target[i, LAST], q_draft[i + 1, i + 1] = beta, 1 - beta, 1
    return Round(list(range(n + 1)), list(range(-1, n)), list(range(1, accepted + 1)), LAST,
                 [*range(1, accepted + 1), LAST][:cut], p_target, q_draft, n if steps is None else steps)


# 3, 1, 4 and 2 tokens in four calls: 2.5 for each. 9 draft tokens, 7 accepted and 8 judged. The last round is cut
# from 3 tokens to 2. Places judged: .5 .25 of the first round's; .125 of the second's; .75 .875 .625; 1.0 .375.
ROUNDS = [chain([.5, .25], 2), chain([.125, .9], 0), chain([.75, .875, .625], 3), chain([1.0, .375], 2, cut=2)]
EMITTED, ALPHAS = 10, [.59375, .5, .625]            # (.5 + .125 + .75 + 1) / 4, (.25 + .875 + .375) / 3, .625 / 1
ALPHA = 4.5 / 8


class Clock:
    """clock() is the time; it moves when it is wound, and stands still otherwise."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wind(self, seconds: float) -> None:
        self.now += seconds

    def during(self, items: Iterable, seconds: Iterable[float]) -> Iterator:
        """The items, each of which takes its seconds."""
        for item, took in zip(items, seconds, strict=True):
            self.wind(took)
            yield item


def letters(ids: Sequence[int]) -> str:
    """Draft tokens are a, b, c, ...; what follows them is z."""
    return "".join("_abcdefz"[i] for i in ids)
