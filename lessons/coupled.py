"""Drawing with noise that belongs to a place: what *How close a rule can come* and exercise 22 compare with.

A token is drawn from p (V,) as the argmax of log p + g, where g (V,) is Gumbel noise, -log(-log u) with one uniform u
for each token. It is distributed as p (the Gumbel-max trick). Where target and draft model draw with the same g, their
tokens are often the same (Daliri, Musco and Suresh 2024, arXiv 2408.07978).

Write g = -log E. Then E are waiting times of mean 1, and the token drawn is the one with the least E / p. Only the
ratios of the E matter, and E / sum E is uniform on the simplex. With three tokens the simplex is a triangle, and each
distribution cuts it into three polygons, one for each token that it draws there. So a place has finitely many cells of
noise, and a walk can try them all.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nanospec.dice import Dice

TRIANGLE = [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]         # of E_0 and E_1; E_2 is what is missing to 1
NOTHING = 1e-15                                         # an area that is one by rounding alone

Point = tuple[float, float]


def gumbel(seed: int, places: int, V: int) -> Tensor:
    """(places, V): the noise of each place of a text, a function of the seed and of the place alone."""
    dice = Dice([seed])
    dice.refill(places * V)
    return -(-dice.u.view(places, V).log()).log()


def draw(p: Tensor, noise: Tensor) -> int:
    """The token that p (V,) draws with this noise (V,). Example: p [.5, .5] and noise [0, .5] draw token 1."""
    return int((p.log() + noise).argmax())


def agreement(p: Tensor, q: Tensor) -> Tensor:
    """How often p and q (..., V) draw the same token with the same noise: (...).

    Both draw x if E_y >= E_x max(p(y) / p(x), q(y) / q(x)) for all y, which has probability 1 / sum over y of that.
    Example: p [.5, .5], q [.8, .2]: 1 / (1 + 1) + 1 / (1 + 4) = .7.
    """
    ratio = torch.maximum(p[..., None, :] / p[..., None], q[..., None, :] / q[..., None])       # (..., x, y)
    return torch.where((p > 0) & (q > 0), 1 / ratio.sum(-1), 0.0).sum(-1)


def cells(distributions: Sequence[Tensor]) -> tuple[list[float], list[Tensor]]:
    """The cells of noise for three tokens in which each of the distributions (3,) always draws the same token.

    Their probabilities, which add up to 1, and from each cell one noise (3,).
    """
    found = [TRIANGLE]
    for p in distributions:
        found = [part for polygon in found for x in range(3) if area(part := won_by(x, p.tolist(), polygon)) > NOTHING]
    middles = [[sum(at) / len(polygon) for at in zip(*polygon)] for polygon in found]
    return ([2 * area(polygon) for polygon in found],
            [-torch.tensor([a, b, 1 - a - b], dtype=torch.float64).log() for a, b in middles])


def won_by(x: int, p: Sequence[float], polygon: list[Point]) -> list[Point]:
    """The part of a polygon in which E_x p(y) <= E_y p(x) for every y: there p draws x."""
    for y in range(3):
        if y != x:
            polygon = clipped(polygon, [p[x] * (z == y) - p[y] * (z == x) for z in range(3)])
    return polygon


def clipped(polygon: list[Point], weights: Sequence[float]) -> list[Point]:
    """The part of a convex polygon where the sum of weights times E is not negative."""
    def height(a: float, b: float) -> float:
        return weights[0] * a + weights[1] * b + weights[2] * (1 - a - b)

    kept = []
    for one, other in zip(polygon, polygon[1:] + polygon[:1]):
        here, there = height(*one), height(*other)
        if here >= 0:
            kept.append(one)
        if here * there < 0:                            # the edge crosses the line
            share = here / (here - there)
            kept.append((one[0] + share * (other[0] - one[0]), one[1] + share * (other[1] - one[1])))
    return kept


def area(polygon: list[Point]) -> float:
    return abs(sum(a * d - b * c for (a, b), (c, d) in zip(polygon, polygon[1:] + polygon[:1]))) / 2


class WalkedNoise:
    """noise(place) -> (3,): every cell of every place has its turn, and a place that is asked for again has the same.

    dice: for one text, as `kit.OneRow`, those of a walk or others. at(place): the cells of that place.
    """

    def __init__(self, dice: Any, at: Callable[[int], tuple[list[float], list[Tensor]]]):
        self.dice, self.at, self.found = dice, at, {}

    def __call__(self, place: int) -> Tensor:
        if place not in self.found:
            shares, noises = self.at(place)
            self.found[place] = noises[self.dice.pick(shares)]
        return self.found[place].clone()
