"""Rounds that nobody played, for tests of what is printed: no two of their numbers that must be told apart are equal.
And a clock that a test winds.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch

from nanospec.speculate import Round


def chain(betas: Sequence[float], accepted: int, cut: int | None = None, steps: int | None = None) -> Round:
    """A chain of as many draft tokens as betas: how often each is accepted. Its text may be cut at fewer tokens.

    Tokens are the letters a, b, c, ... of a round, and z is the last one. steps: if it took other than one for each.
    """
    tokens = [0, *range(ord("a"), ord("a") + len(betas))]
    p_target = torch.tensor([[1.0, 0]] * len(tokens), dtype=torch.float64)
    q_draft = torch.tensor([[0.0, 0], *([beta, 1 - beta] for beta in betas)], dtype=torch.float64)
    return Round(tokens, list(range(-1, len(betas))), list(range(1, accepted + 1)), ord("z"),
                 [*tokens[1:accepted + 1], ord("z")][:cut], p_target, q_draft, len(betas) if steps is None else steps)


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
    return "".join(map(chr, ids))
