"""Pairs of distributions, p_target and q_draft, that several exercises ask about."""

from random import Random

from torch import Tensor, float64, int64, tensor

from lessons.check import seeds


def vector(*numbers: float) -> Tensor:
    """(V,), float64: a distribution, or weights of any total."""
    return tensor(numbers, dtype=float64)


def normal(weights: Tensor) -> Tensor:
    """Weights that add up to 1."""
    return weights / weights.sum()


def without(weights: Tensor, tokens: list[int]) -> Tensor:
    """Weights, 0 at those tokens."""
    return weights.index_fill(0, tensor(tokens, dtype=int64), 0)


def weights(draw: Random, size: int, zeros: int = 0) -> Tensor:
    """(size,) float64: from 1e-4 to 1, with so many zeros among them."""
    found = [0.0] * zeros + [10 ** draw.uniform(-4, 0) for _ in range(size - zeros)]
    draw.shuffle(found)
    return vector(*found)


def distribution(draw: Random, size: int, zeros: int = 0) -> Tensor:
    return normal(weights(draw, size, zeros))


def drawn(draw: Random, size: int, zeros: int = 0) -> tuple[Tensor, Tensor]:
    """p_target and q_draft, with so many zeros each."""
    return distribution(draw, size, zeros), distribution(draw, size, zeros)


def short(numbers: Tensor | list) -> list:
    """For a title: four digits."""
    return [float(f"{x:.4g}") for x in (numbers.tolist() if isinstance(numbers, Tensor) else numbers)]


HAIR = 2.0 ** -36       # 1.5e-11: little, and more than a right answer may be off
HALVES = vector(.5, .25, .125, .125)                        # with these a hair is exact, however little
BY_A_HAIR = "a hair apart"

PAIRS = {       # p_target, q_draft
    "worked example": (vector(.5, .5), vector(.8, .2)),
    "four tokens": (vector(.4, .3, .2, .1), vector(.1, .2, .3, .4)),
    "the target forbids a token": (vector(.5, .3, .2, 0), vector(.2, .2, .3, .3)),
    "the draft model forbids a token": (vector(.3, .4, .2, .1), vector(.6, .1, .3, 0)),
    "nothing in common": (vector(.7, .3, 0, 0), vector(0, 0, .5, .5)),
    "a draft model too sure": (vector(.6, .3, .1), vector(.9, .06, .04)),
    "a certain draft model": (vector(.2, .3, .5), vector(0, 0, 1)),
    "a certain target": (vector(0, 1, 0), vector(.3, .3, .4)),
    BY_A_HAIR: (vector(.4 + HAIR, .3, .2, .1 - HAIR), vector(.4, .3, .2, .1)),
    f"{BY_A_HAIR}, and less": (HALVES + 2.0 ** -50 * vector(1, -1, 0, 0), HALVES),
    "one token": (vector(1), vector(1)),
    "a draft token in a million": (vector(.9, 1e-7, .1 - 1e-7), vector(.01, .98, .01)),
} | {f"drawn by a seed, {size} tokens": drawn(seeds.chance(0), size, zeros) for size, zeros in (
    (2, 0), (4, 0), (5, 1), (6, 2))}

GUARDS = (.3, .1, .03, .01, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-12)         # of what people take for nothing left
EPSILONS = (1e-3, 1e-4, 1e-5, 1e-6, 1.1920929e-07, 1e-7, 1e-8, 1e-9, 1e-10)       # which people add to what may be 0
