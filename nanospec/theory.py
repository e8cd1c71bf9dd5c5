"""What speculation buys, in formulas: Leviathan, Kalman, Matias 2022 (arXiv 2211.17192), section 3.

alpha: expected acceptance; gamma: draft tokens a round; c: one draft step / one target step; v: one
target call on gamma + 1 tokens / one on a single token. The formulas take every position's
acceptance to be alpha, independent of the others. Real text has easy and hard stretches, so a
measured number lies beside the formula, not on it.
"""

from collections.abc import Callable
from math import inf
from numbers import Integral, Real
from typing import Any

from torch import Tensor

from nanospec.errors import RequestError, check_numbers

ROUNDING = 1e-6         # what a measured alpha may have above 1


def acceptance(p_target: Tensor, q_draft: Tensor) -> Tensor:
    """beta = sum min(p_target, q_draft) (..., V) -> (...): how often a draft token from q_draft is
    accepted; 1 - TV. Example: [.5, .5] and [.8, .2] give .7.

    Its mean over the places that are verified is alpha (Definition 3.1, Corollary 3.6).
    """
    return p_target.minimum(q_draft).sum(-1)


def check_formula(gamma: Any = 1, alpha: Any = 1.0, **costs: Any) -> None:
    """RequestError unless gamma is a whole number, 0 or more, alpha a share and each cost a number,
    0 or more. A tensor stands for many and is not looked at, which would wait for the device.
    """
    if (type(gamma) is int and gamma >= 0 and type(alpha) is float and 0 <= alpha <= 1
            and all(type(cost) is float and cost >= 0 for cost in costs.values())):
        return                                          # fast, for drafters that ask in every round
    check_numbers(Integral, gamma=gamma)
    check_numbers(Real, **{name: number for name, number in (costs | {"alpha": alpha}).items()
                           if not isinstance(number, Tensor)})
    if not isinstance(alpha, Tensor) and not 0 <= alpha <= 1 + ROUNDING:
        raise RequestError(f"alpha is a share of the draft tokens, from 0 to 1, got {alpha}")
    for name, number in ({"gamma": gamma} | costs).items():
        if not isinstance(number, Tensor) and not number >= 0:
            raise RequestError(f"{name} must be 0 or more, got {number}")


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens per target call, Eq. 1: (1 - alpha^(gamma+1)) / (1 - alpha).

    Example: expected_tokens(.8, 5) = 3.69. RequestError here and below for numbers that cannot be:
    an alpha above 1, a cost below 0.
    """
    check_formula(gamma, alpha)
    return sum(alpha ** i for i in range(gamma + 1))    # the same sum, and gamma + 1 at alpha = 1


def speedup(alpha: float, gamma: int, c: float, v: float = 1.0) -> float:
    """Plain seconds / speculative seconds: tokens per call / (gamma c + v).

    With v = 1, Theorem 3.8: speedup(.8, 5, 0) = 3.69. The paper's v = 1 says that a target call on
    gamma + 1 tokens costs what a call on one costs. That is about right on a GPU, and wrong on a
    CPU that is already busy: speedup(.8, 4, .2, 1.5) = 1.46, not 1.87.
    """
    check_formula(gamma, alpha, c=c, v=v)
    cost = gamma * c + v
    if not isinstance(cost, Tensor) and not cost > 0:
        raise RequestError("a round costs something: c and v are both 0")
    return expected_tokens(alpha, gamma) / cost


def operations(alpha: float, gamma: int, c: float = 0.0) -> float:
    """Speculative arithmetic / plain arithmetic, of a token: (gamma c + gamma + 1) / tokens per
    call (Theorem 3.11), 1 at least. c: here the operations of a draft step / those of a target
    step on one token.

    Example: operations(.8, 5) = 1.63, beside a speed-up of 3.69: what is rejected was computed.
    """
    check_formula(gamma, alpha, c=c)
    return (gamma * c + gamma + 1) / expected_tokens(alpha, gamma)


def sure_gain(alpha: float, c: float) -> float:
    """If alpha > c, some gamma gains at least this much (Corollary 3.9): (1 + alpha) / (1 + c),
    which is gamma = 1. Example: sure_gain(.6, .05) = 1.52.
    """
    check_formula(alpha=alpha, c=c)
    return (1 + alpha) / (1 + c)


def best_gamma(alpha: float, c: float, v: Callable[[int], float] = lambda tokens: 1.0,
               most: int = 64) -> int:
    """The gamma in 1..most of the greatest speed-up; v(tokens): what a call on so many costs.

    Example: best_gamma(.8, .1) = 6, and 3 where v(m) = 1 + .15 (m - 1).
    """
    check_numbers(Integral, most=most)
    if most < 1:
        raise RequestError(f"most must be 1 or more, got {most}")
    return max(range(1, most + 1), key=lambda gamma: speedup(alpha, gamma, c, v(gamma + 1)))


def break_even(gain: float, gamma: int, c: float, v: float = 1.0) -> float:
    """The alpha at which gamma draft tokens gain this much, v being of a call on gamma + 1; inf if
    no alpha is enough. Example: break_even(1, 4, .1, 1.1) = .34.
    """
    check_formula(gamma, gain=gain)
    low, high = 0.0, 1.0
    if speedup(high, gamma, c, v) < gain:
        return inf
    for _ in range(50):                             # the gain grows with alpha: halve what is left
        middle = (low + high) / 2
        low, high = (middle, high) if speedup(middle, gamma, c, v) < gain else (low, middle)
    return high


def needed(gain: float, tokens: float, most: float, steps: float, c: float, v: float,
           overhead: float = 0.0) -> dict[str, float | None]:
    """What each of tokens, c, v and overhead would have to be for this gain, if the others stayed
    as they are.

    A round makes `steps` draft steps, brings `tokens`, `most` at most, and takes steps c + v +
    overhead target steps; overhead is what it takes beside its calls. tokens must be at least the
    number returned, the others at most. None where no number is enough, because c and overhead
    cannot be below 0, nor v below 1 (or below what they are here).

    Example: 3.36 tokens of 5 with 4 steps, c = .6 and v = 1.2 lose, .93. For 1, it takes 3.6
    tokens, or a c of .54; a v of .96 cannot be.
    """
    check_formula(gain=gain, tokens=tokens, most=most, steps=steps, c=c, v=v)
    check_numbers(Real, overhead=overhead)
    if gain == 0:
        raise RequestError("gain must be more than 0")
    cost = steps * c + v + overhead
    spare = tokens / gain - cost        # target steps that a round may take besides what it takes
    limits = {"c": c + spare / steps if steps else None, "v": v + spare,
              "overhead": overhead + spare}
    least = {"c": 0.0, "v": min(1.0, v), "overhead": min(0.0, overhead)}
    return {"tokens": gain * cost if gain * cost <= most else None,
            **{name: limit if limit is not None and limit >= least[name] else None
               for name, limit in limits.items()}}
