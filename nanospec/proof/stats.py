"""What samples can tell about a distribution, and what they cannot: Pearson's chi-square with both
of its error rates.

A walk knows a distribution. Samples only suggest one. So every verdict here comes with two numbers:
how often it calls a right sampler wrong, and how far off a distribution must be before the test
sees it.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nanospec.errors import RequestError

FEWEST = 5.0    # expected samples in a cell; rarer outcomes are pooled, as Cochran advised (1954)
STRANGE = 10        # so many right samples are expected to be as strange as what is rare
NEVER = 1e-300      # divides in the place of a probability of 0: what is forbidden is the strangest
SEED = 2 * 10 ** 9  # of right samples that are drawn here: no one else's


def chi_square_tail(x: float, df: int) -> float:
    """P(chi-square with df degrees of freedom > x). Example: x = 3.841, df = 1 gives .05."""
    return torch.special.gammaincc(_double(df / 2), _double(x / 2)).item()


def chi_square_bar(df: int, false_alarm: float) -> float:
    """The x that a chi-square with df degrees of freedom exceeds with probability `false_alarm`."""
    return _solve(lambda x: chi_square_tail(x, df) - false_alarm)


def miss_rate(noncentrality: float, df: int, bar: float) -> float:
    """P(a noncentral chi-square stays below `bar`).

    It is a mixture of central chi-squares of df + 2j degrees of freedom; j is Poisson, of mean
    noncentrality / 2.
    """
    half = noncentrality / 2
    j = torch.arange(int(half + 12 * math.sqrt(half + 1)) + 20, dtype=torch.float64)
    poisson = (torch.special.xlogy(j, _double(half)) - half - torch.lgamma(j + 1)).exp()
    return (poisson * torch.special.gammainc(df / 2 + j, _double(bar / 2))).sum().item()


def smallest_visible(df: int, samples: float, false_alarm: float, miss: float) -> float:
    """The least total variation d such that a distribution at d or further is missed with
    probability `miss` at most.

    Claim: this holds for every wrong distribution p' of df + 1 cells at distance d from p.
    Proof.
    1. The noncentrality of N samples from p' is N sum (p' - p)^2 / p.
    2. It is at least N (sum |p' - p|)^2, by Cauchy-Schwarz, because p adds up to 1.
    3. The sum is 2 d. So the noncentrality is at least 4 N d^2, whatever p' is.
    4. The miss rate falls when the noncentrality grows. So solve for the noncentrality, and d
       follows.
    With df = 0 every deviation is an impossible outcome, and one such sample is enough.
    """
    if df == 0:
        return 1 - miss ** (1 / samples)
    return math.sqrt(_noncentrality(df, false_alarm, miss) / (4 * samples))


@lru_cache(maxsize=256)
def _noncentrality(df: int, false_alarm: float, miss: float) -> float:
    """The one that is missed with probability `miss`: the same for any number of samples."""
    bar = chi_square_bar(df, false_alarm)
    return _solve(lambda lam: miss_rate(lam, df, bar) - miss)


class Off(NamedTuple):
    """An outcome, the probability that it should have, and the one that was found."""

    outcome: Hashable
    expected: float
    found: float


@dataclass
class Fit:
    """The verdict of `goodness_of_fit`.

    p_value: how often right samples look at least so strange
    df: cells - 1
    pooled: the probability of all outcomes that are too rare to be counted one by one
    samples: how many there were
    worst: the outcome that is most off, for its probability; a forbidden one before all others
    cells: (expected, seen) of each, where the distribution is known and no outcome was forbidden
    """

    p_value: float
    df: int
    pooled: float
    samples: float
    worst: Off = field(default=Off((), 0.0, 0.0), compare=False)
    cells: tuple[tuple[float, int], ...] = field(default=(), compare=False, repr=False)

    def visible(self, false_alarm: float, miss: float) -> float:
        """The smallest total variation that is missed with probability `miss` at most.

        A change among pooled outcomes is not seen at all. So all of their probability is added.
        """
        return min(1.0, smallest_visible(self.df, self.samples, false_alarm, miss) + self.pooled)


def goodness_of_fit(counts: Mapping[Any, int], truth: Mapping[Any, float]) -> Fit:
    """Do samples, counted by outcome, follow `truth`? An outcome that it forbids gives p_value 0.

    Raises RequestError if there are no samples, or if `truth` does not add up to 1.
    """
    if not abs(sum(truth.values()) - 1) < 1e-4:
        raise RequestError(f"a distribution adds up to 1, this one to {sum(truth.values()):.4g}")
    samples = sum(counts.values())
    if not samples:
        raise RequestError("no samples to judge")
    worst = max((Off(outcome, truth.get(outcome, 0.0), counts.get(outcome, 0) / samples)
                 for outcome in {**truth, **counts}),
                key=lambda off: (off.found - off.expected) ** 2 / max(off.expected, NEVER))
    impossible = worst.found > 0 and not worst.expected > 0
    cells: list[tuple[float, int]] = []
    rest, pooled = 0.0, 0
    for outcome, probability in sorted(truth.items(), key=lambda item: item[1]):
        expected, seen = samples * probability, counts.get(outcome, 0)
        if expected < FEWEST or 0 < rest < FEWEST:          # what is pooled must fill a cell itself
            rest += expected
            pooled += seen
        else:
            cells.append((expected, seen))
    cells += [(rest, pooled)] if rest > 0 else []
    df = len(cells) - 1
    p_value = 0.0 if impossible else chi_square_tail(_statistic(cells), df) if df else 1.0
    return Fit(p_value, df, rest / samples, samples, worst, () if impossible else tuple(cells))


def settled(fit: Fit, bar: float) -> Fit:
    """The fit, with a p-value that may be compared with `bar`.

    The chi-square is only about right: far out, and where few samples are expected in some cells,
    right samples are strange several times as often as it has it. So where it lies below `bar`,
    right samples are drawn, M times, and their statistics decide (Barnard 1963).
    Claim: right samples have a settled p-value below `bar` with probability `bar` at most, over
    both draws.
    Proof. Let k of the M be at least as strange. It lies below `bar` only if (k + 1) / (M + 1)
    does. The found and the drawn statistics are M + 1 draws from one distribution, so each is
    equally likely to be the j-th strangest, and the found one is among the first k + 1 < bar (M +
    1) of them with a probability below `bar`.
    """
    if fit.p_value >= bar or not fit.cells:
        return fit
    found, (expected, _) = _statistic(fit.cells), zip(*fit.cells)
    drawn = _of_right_samples(expected, math.ceil(STRANGE / bar))
    p_value = (int((drawn >= found - 1e-9 * found).sum()) + 1) / (len(drawn) + 1)
    return replace(fit, p_value=p_value) if p_value >= bar else fit


@lru_cache(maxsize=16)
def _of_right_samples(expected: Sequence[float], count: int) -> np.ndarray:
    """The statistics (count,) of right samples, as many each as are expected."""
    samples, chance = sum(expected), np.random.default_rng(SEED)
    seen = chance.multinomial(round(samples), np.array(expected) / samples, count)
    return _statistic(zip(expected, seen.T))


def _statistic(cells: Iterable[tuple[float, Any]]) -> Any:
    """Pearson's, of (expected, seen) for each cell."""
    return sum((seen - expected) ** 2 / expected for expected, seen in cells)


def two_samples(counts: Mapping[Any, int], others: Mapping[Any, int]) -> Fit:
    """Are two samples of N each from one distribution? Pearson's chi-square of homogeneity.

    worst: expected is the share among `others`.
    Claim 1: its statistic is twice the one of `counts` against the mean of both samples.
    Proof. Let an outcome be seen a and b times, m = (a + b) / 2. Both are |a - b| / 2 away from m.
    So the two samples add 2 (a - m)^2 / m together, which is (a - b)^2 / (a + b).
    Claim 2: it sees what `goodness_of_fit` sees with N / 2 samples. So Fit.samples is N / 2.
    Proof. Let them come from p and p', at distance d. The noncentrality is N sum (p - p')^2 / (p +
    p'). It is at least N (sum |p - p'|)^2 / 2, by Cauchy-Schwarz, because p + p' adds up to 2. That
    is 4 (N / 2) d^2.
    RequestError if there are no samples, or not as many of both.
    """
    samples = sum(counts.values())
    if not samples or samples != sum(others.values()):
        raise RequestError(f"two samples of one size are compared, got {samples} and "
                           f"{sum(others.values())}")
    mean = {outcome: (counts.get(outcome, 0) + others.get(outcome, 0)) / 2 / samples
            for outcome in {**counts, **others}}
    fit = goodness_of_fit(counts, mean)
    most_off, _, found = fit.worst
    df = max(fit.df, 1)                 # where all are the same, a second outcome would be a cell
    return Fit(chi_square_tail(2 * _statistic(fit.cells), df), df, fit.pooled, samples / 2,
               Off(most_off, others.get(most_off, 0) / samples, found))


def pit(token: Tensor, p_target: Tensor, score: Tensor, u: Tensor) -> Tensor:
    """Randomised probability integral transform (Smith 1985): a number per token, all comparable.

    token (N,), p_target (N, V), score (N, V), u (N,) uniform -> (N,).
    Order a distribution's tokens by their score. The number is the probability of all tokens below
    the drawn one, plus u times its own probability (together with tokens of the same score).
    Claim: if each token was drawn from its distribution, the numbers are uniform on [0, 1), and
    independent.
    Proof. Lay the probabilities end to end, in the order of the scores. The draw takes a piece of
    the line with the probability of its length. Then u takes a point of that piece. So every point
    of the line is equally likely. The order decides what can be seen. Take a bug that favours what
    the draft model favours. It stands out in the order of q_draft - p_target, and may hide in the
    order of the ids.
    """
    own = score.gather(-1, token[:, None])
    below, tied = (p_target.double().masked_fill(~where, 0).sum(-1)
                   for where in (score < own, score == own))
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
