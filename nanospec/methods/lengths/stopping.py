"""When to stop drafting: rules for methods/lengths/dynamic.py, which says what a rule may look at.

No rule keeps anything from one request to the next, and no rule has a clock. The same request makes
the same decisions.
Left out: rules that are trained (SpecDec++, DISCO), and thresholds that adapt. AdaEDL's threshold
can be made to follow the acceptance. It gained a little at temperature 0, and was slower than a
fixed length.
"""

from collections.abc import Mapping
from math import prod
from numbers import Integral, Real

import torch
from torch import Tensor

from nanospec.errors import RequestError, check_gamma, check_numbers, quoted
from nanospec.methods.lengths.acceptance_rate import by_sureness, sureness
from nanospec.theory import check_formula, expected_tokens, speedup


class StoppingRule:
    """Goes on for as long as it may, as the chain of speculate.py. A rule says where it differs.

    sure: a number for each draft token of the round so far: the probability that the draft model
    gave to it, before temperature and cuts. The q_draft that these settings make tells
    less: at temperature 0 it is one-hot.
    looks: whether it looks at anything but how many draft tokens there are. If not, these numbers
    are not read from the device, and each is NaN.
    """

    looks = True

    def begin(self) -> None:
        """A new request: forget the last one."""

    def goes_on(self, sure: list[float]) -> bool:
        """Before a call of the draft model: shall there be one?"""
        return True

    def draws(self, own: Tensor) -> Tensor:
        """Between call and draw: shall a token be drawn?

        own (V,): the draft model's distribution, before temperature.
        One bool, on the device of `own`: to look at it here would be to wait for the device.
        """
        return own.new_ones((), dtype=torch.bool)

    def learn(self, sure: list[float], accepted: int, betas: list[float]) -> None:
        """The round is over. betas: sum min(p_target, q_draft) at each place that was judged."""


class Heuristic(StoppingRule):
    """Two more than last time if all were accepted, else one fewer: transformers' schedule."""

    looks = False

    def __init__(self, start: int = 4):
        self.start = check_gamma(start, "start")

    def begin(self) -> None:
        self.length = self.start

    def goes_on(self, sure: list[float]) -> bool:
        return len(sure) < self.length

    def learn(self, sure: list[float], accepted: int, betas: list[float]) -> None:
        self.length = len(sure) + 2 if accepted == len(sure) else max(1, len(sure) - 1)


class Confidence(StoppingRule):
    """Stops after a draft token to which the draft model gave less than `least`. It stays.

    Draft & Verify, Zhang et al. 2023 (arXiv 2309.08168); assistant_confidence_threshold in
    transformers.
    """

    def __init__(self, least: float = 0.2):
        check_numbers(Real, least=least)
        self.least = least

    def goes_on(self, sure: list[float]) -> bool:
        return not sure or sure[-1] >= self.least


class Entropy(StoppingRule):
    """Draws no token where 1 - sqrt(G H) < least. H is the draft model's entropy in nats.

    AdaEDL, Agrawal et al. 2024 (arXiv 2410.18351). The call that told H is paid for, and brings no
    draft token.
    Example: if four tokens are alike, H = 1.39 and 1 - sqrt(.2 H) = .47.
    """

    G = 0.2

    def __init__(self, least: float = 0.1):
        check_numbers(Real, least=least)
        self.least = least

    def draws(self, own: Tensor) -> Tensor:
        return 1 - (self.G * torch.special.entr(own).sum()).sqrt() >= self.least


class Goodput(StoppingRule):
    """Goes on while further draft tokens bring more than their time would bring in other rounds.

    Expected tokens per second decide, as in SmartSpec (Liu et al. 2024, arXiv 2406.14066), but
    token by token. One more draft token counts only if all before it are accepted, as in SpecDec++
    (Huang et al. 2024, arXiv 2405.19715). That chance comes from earlier rounds of the request: the
    acceptance in each of eight classes of sureness. Older rounds weigh less.
    c, v: a draft step, and a call on 2, 3, ... tokens, in target steps, as measured beforehand
    (measure.py). The rule looks ahead as far as v goes. It always drafts the first token: without
    one there is nothing to learn from.

    Example: c = .1, v[m] = 1 + .05 (m - 1), alpha = .75.
    1. The best gamma is 4, and makes 1.91 tokens of a target step.
    2. One more draft token costs .15 steps. In other rounds they would bring .15 x 1.91 = .29
       tokens.
    3. It brings .75 tokens if all before it are accepted. If that chance is above .29 / .75 = .38,
       go on.
    """

    def __init__(self, c: float, v: Mapping[int, float]):
        check_formula(c=c)
        self.c, self.v = c, check_calls(v)

    def begin(self) -> None:
        self.acceptance = by_sureness()
        self._settle()

    def goes_on(self, sure: list[float]) -> bool:
        stand = prod(self.chances[i] for i in sureness(torch.tensor(sure, device="cpu")).tolist())
        tokens = len(sure) + 1                      # what the target has to read already
        return not sure or any(
            stand * (expected_tokens(self.alpha, more) - 1)
            > self.rate * (more * self.c + self.v[tokens + more] - self.v[tokens])
            for more in range(1, max(self.v) - tokens + 1))

    def learn(self, sure: list[float], accepted: int, betas: list[float]) -> None:
        shares = torch.tensor(betas, device="cpu")
        places = torch.tensor(sure[:len(betas)], device="cpu")
        self.acceptance.learn(torch.ones_like(shares), shares, sureness(places))
        self._settle()

    def _settle(self) -> None:
        """chances: the shares. alpha, and rate: tokens of a target step, in rounds of the best
        fixed length.
        """
        self.chances, self.alpha = self.acceptance.share.tolist(), float(self.acceptance.overall)
        self.rate = max(speedup(self.alpha, tokens - 1, self.c, self.v[tokens])
                        for tokens in self.v if tokens > 1)


def check_calls(v: Mapping[int, float]) -> Mapping[int, float]:
    """What calls on 2, 3, ... tokens cost; RequestError if one of them is missing."""
    if isinstance(v, Mapping):
        for tokens, cost in v.items():
            check_numbers(Integral, **{"the tokens of a call": tokens})
            check_formula(**{f"v of {tokens} tokens": cost})
        if max(v, default=1) > 1 and all(tokens in v for tokens in range(2, max(v))):
            return v
    raise RequestError("v must say what calls on 2, 3, 4 and so on tokens cost, got "
                       f"{quoted(v)}")
