"""When to stop drafting: rules for drafters/dynamic.py, which says what they may look at.

None keeps anything from one request to the next, and none has a clock: the same request makes the same decisions.
Left out: rules that are trained (SpecDec++, DISCO), and thresholds that adapt: AdaEDL's, made to follow the acceptance,
gained a little at temperature 0 and stayed behind a fixed length.
"""

from bisect import bisect
from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from nanospec.errors import RequestError
from nanospec.theory import expected_tokens, speedup


class Fixed:
    """Goes on for as long as it may: the chain of speculate.py. The other rules say where they differ.

    sure: the probability that the draft gave to each draft token of the round so far, before temperature, top-k and
    top-p. The q_draft that a token was drawn from says less: at temperature 0 it is one-hot.
    """

    def begin(self) -> None:
        """A new request: forget the last one."""

    def goes_on(self, sure: list[float]) -> bool:
        """Before a call of the draft: shall there be one?"""
        return True

    def draws(self, own: Tensor) -> bool:
        """Between call and draw: own (V,) is the draft's distribution there, before temperature. False: stop."""
        return True

    def learn(self, sure: list[float], accepted: int, betas: list[float]) -> None:
        """The round is over: how many were accepted, and sum min(p_target, q_draft) at the places that were judged."""


class Heuristic(Fixed):
    """Two more than last time if all were accepted, else one fewer: the schedule of that name in transformers."""

    def __init__(self, start: int = 4):
        self.start = start

    def begin(self) -> None:
        self.length = self.start

    def goes_on(self, sure: list[float]) -> bool:
        return len(sure) < self.length

    def learn(self, sure: list[float], accepted: int, betas: list[float]) -> None:
        self.length = len(sure) + 2 if accepted == len(sure) else max(1, len(sure) - 1)


class Confidence(Fixed):
    """Stops behind a token that the draft held for less likely than `least`, and keeps it: Draft & Verify, Zhang et al.
    2023 (arXiv 2309.08168); assistant_confidence_threshold in transformers."""

    def __init__(self, least: float = 0.2):
        self.least = least

    def goes_on(self, sure: list[float]) -> bool:
        return not sure or sure[-1] >= self.least


class Entropy(Fixed):
    """Draws no token where the draft is undecided: where 1 - sqrt(g H) < least, H being its entropy in nats.

    AdaEDL, Agrawal et al. 2024 (arXiv 2410.18351). The call that told H is paid for and yields nothing. Example: if
    four tokens are alike, H = 1.39 and 1 - sqrt(.2 H) = .47.
    """

    def __init__(self, least: float = 0.1, g: float = 0.2):
        self.least, self.g = least, g

    def draws(self, own: Tensor) -> bool:
        return 1 - (self.g * torch.special.entr(own).sum().item()) ** 0.5 >= self.least


class Goodput(Fixed):
    """Goes on while further draft tokens bring more than their time would bring if spent on other rounds.

    Expected tokens per second decide, as in SmartSpec (Liu et al. 2024, arXiv 2406.14066), but token by token. One more
    counts as often as all before it are accepted, as in SpecDec++ (Huang et al. 2024, arXiv 2405.19715). How often that
    is comes from the acceptance seen so far, in eight classes of sureness, older rounds weighing less.
    c, v: a draft step, and a call on 2, 3, ... tokens, in target steps, as measured beforehand (measure.py). It looks
    ahead as far as v goes. The first token is always drafted: without one there is nothing to learn from.

    Example: c = .1, v[m] = 1 + .05 (m - 1), alpha = .75. Rounds of 4 are best and make 1.91 tokens a step; one draft
    token more costs .15 steps, worth .29 tokens, and brings .75 if all before it are accepted: if that is likelier than
    .38, go on.
    """

    EDGES = [i / 8 for i in range(1, 8)]        # of the classes
    TRUST = 4.0                                 # each begins as if so many had been judged, and (1 + sure) / 2 accepted
    MEMORY = 0.98                               # what a round still weighs when the next one is over

    def __init__(self, c: float, v: Mapping[int, float]):
        if max(v, default=1) < 2 or any(tokens not in v for tokens in range(2, max(v) + 1)):
            raise RequestError(f"v must say what calls on 2, 3, 4 and so on tokens cost, got {sorted(v)}")
        self.c, self.v = c, v

    def begin(self) -> None:
        self.judged = [self.TRUST] * 8
        self.accepted = [self.TRUST * (1 + (i + 0.5) / 8) / 2 for i in range(8)]
        self._settle()

    def goes_on(self, sure: list[float]) -> bool:
        stand = prod(self.accepted[i] / self.judged[i] for i in self._classes(sure))
        rows = len(sure) + 1                                            # what the target has to read already
        return not sure or any(
            stand * (expected_tokens(self.alpha, more) - 1)
            > self.rate * (more * self.c + self.v[rows + more] - self.v[rows])
            for more in range(1, max(self.v) - rows + 1))

    def learn(self, sure: list[float], accepted: int, betas: list[float]) -> None:
        self.judged, self.accepted = ([self.MEMORY * part for part in sums] for sums in (self.judged, self.accepted))
        for i, beta in zip(self._classes(sure), betas):
            self.judged[i] += 1
            self.accepted[i] += beta
        self._settle()

    def _classes(self, sure: list[float]) -> list[int]:
        return [bisect(self.EDGES, own) for own in sure]

    def _settle(self) -> None:
        """alpha, and the tokens that rounds of the best fixed length would then make of a target step."""
        self.alpha = sum(self.accepted) / sum(self.judged)
        self.rate = max(speedup(self.alpha, tokens - 1, self.c, self.v[tokens]) for tokens in self.v if tokens > 1)
