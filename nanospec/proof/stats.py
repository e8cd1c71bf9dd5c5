"""What samples can tell about a distribution, and what they cannot: Pearson's chi-square with both of its error rates.

A walk knows a distribution; samples only suggest one. So every verdict here says how often it accuses the innocent, and
how far off a distribution must be before it is seen.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nanospec.errors import RequestError

FEWEST = 5.0        # expected samples in a cell; rarer outcomes are pooled, as Cochran advised (1954)


def chi_square_tail(x: float, df: int) -> float:
    """P(chi-square with df degrees of freedom > x). Example: x = 3.841, df = 1 gives .05."""
    return torch.special.gammaincc(_double(df / 2), _double(x / 2)).item()


def chi_square_bar(df: int, false_alarm: float) -> float:
    """The x that a chi-square with df degrees of freedom exceeds with probability `false_alarm`."""
    return _solve(lambda x: chi_square_tail(x, df) - false_alarm)


def miss_rate(noncentrality: float, df: int, bar: float) -> float:
    """P(a noncentral chi-square stays below `bar`): central ones of df + 2j, j a Poisson of mean noncentrality / 2."""
    half = noncentrality / 2
    j = torch.arange(int(half + 12 * math.sqrt(half + 1)) + 20, dtype=torch.float64)
    poisson = (j * math.log(half) - half - torch.lgamma(j + 1)).exp() if half > 0 else (j == 0).double()
    return (poisson * torch.special.gammainc(df / 2 + j, _double(bar / 2))).sum().item()


def smallest_visible(df: int, samples: int, false_alarm: float, miss: float) -> float:
    """The total variation from which on a wrong distribution of df + 1 cells is missed with probability `miss` at most.

    For any distribution at distance d the noncentrality N sum (p' - p)^2 / p is at least 4 N d^2 (Cauchy-Schwarz), so
    this holds whatever it is. With df = 0 every deviation is an impossible outcome, and one is enough.
    """
    if df == 0:
        return 1 - miss ** (1 / samples)
    bar = chi_square_bar(df, false_alarm)
    return math.sqrt(_solve(lambda lam: miss_rate(lam, df, bar) - miss) / (4 * samples))


@dataclass
class Fit:
    """p_value: how often right samples look at least so strange;  df: cells - 1;  pooled: the probability of all
    outcomes too rare to be counted one by one;  samples: their number."""

    p_value: float
    df: int
    pooled: float
    samples: int

    def visible(self, false_alarm: float, miss: float) -> float:
        """The smallest total variation that is missed with probability `miss` at most: pooled outcomes may hide as
        much as they hold."""
        return min(1.0, smallest_visible(self.df, self.samples, false_alarm, miss) + self.pooled)


def goodness_of_fit(counts: Mapping[Hashable, int], truth: Mapping[Hashable, float]) -> Fit:
    """Do samples, counted by outcome, follow the distribution `truth`? An outcome that it forbids gives p_value 0.

    RequestError if there are none.
    """
    samples = sum(counts.values())
    if not samples:
        raise RequestError("no samples: nothing can be said")
    impossible = any(not truth.get(outcome, 0.0) > 0 for outcome, count in counts.items() if count)
    cells, rest = [], [0.0, 0]
    for outcome, probability in sorted(truth.items(), key=lambda item: item[1]):
        expected, seen = samples * probability, counts.get(outcome, 0)
        if expected < FEWEST or 0 < rest[0] < FEWEST:      # what is pooled must fill a cell itself
            rest[0] += expected
            rest[1] += seen
        elif probability > 0:
            cells.append((expected, seen))
    pooled = rest[0] / samples
    cells += [tuple(rest)] if rest[0] > 0 else []
    statistic = sum((seen - expected) ** 2 / expected for expected, seen in cells)
    df = len(cells) - 1
    p_value = 0.0 if impossible else chi_square_tail(statistic, df) if df else 1.0
    return Fit(p_value, df, pooled, samples)


def pit(token: Tensor, p_target: Tensor, score: Tensor, u: Tensor) -> Tensor:
    """Randomised probability integral transform (Smith 1985): uniform on [0, 1), independently, if each token was
    drawn from its row.

    token (N,), p_target (N, V), score (N, V), u (N,) uniform -> (N,): the mass of all tokens of a lower score than
    this one, plus u times its own (with those that tie). The order decides what can be seen: a bug that favours what
    the draft favours stands out in the order of q_draft - p_target, and is invisible in the order of the ids.
    """
    own = score.gather(-1, token[:, None])
    below, tied = (p_target.double().masked_fill(~where, 0).sum(-1) for where in (score < own, score == own))
    return (below + u * tied) / p_target.double().sum(-1)


def _double(x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def _solve(falling) -> float:
    """The zero of a falling function on x > 0."""
    low, high = 0.0, 1.0
    while falling(high) > 0:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return high
