"""Exercise 2: how far apart are two distributions?"""

import torch
import torch.nn.functional as F

from lessons.check import seeds
from lessons.check.answered import number
from lessons.check.engine import Exercise, wrong
from lessons.check.pairs import PAIRS, drawn, normal, vector
from lessons.check.seen import Seen, values

KL = ("that is the Kullback-Leibler divergence, which adds p log(p / q): it is no distance, and it is infinite where q "
      "is 0; total variation adds |p - q|")


def distance_of(f, one, other) -> float:
    return number(f.total_variation(one, other), "total_variation")


def contract(f) -> None:
    distance_of(f, vector(.5, .5), vector(.5, .5))


def worked(f) -> list[Seen]:
    return [values("[.5, .5] and [.8, .2]", lambda: {"distance": distance_of(f, *PAIRS["worked example"])},
                   {"distance": .3})]


def exact(f) -> list[Seen]:
    draw = seeds.chance(2)
    cases = PAIRS | {"equal": (vector(.2, .3, .5), vector(.2, .3, .5)),
                     "sevenths and thirteenths": (normal(vector(1, 2, 4)), normal(vector(2, 9, 2))),
                     "two hundred tokens": drawn(draw, 200, 20)}
    return [values("pairs of distributions", lambda: {name: distance_of(f, *pair) for name, pair in cases.items()},
                   {name: float(1 - a.minimum(b).sum()) for name, (a, b) in cases.items()})]


def terms(a, b):
    """p log p / q of every token, 0 where p is 0."""
    return torch.special.xlogy(a, a) - torch.special.xlogy(a, b)


DIVERGENCES = [lambda a, b: terms(a, b).sum(), lambda a, b: terms(b, a).sum(),
               lambda a, b: (a * (a / b).log()).sum(), lambda a, b: (b * (b / a).log()).sum(),
               lambda a, b: F.kl_div(b.log(), a, reduction="sum"), lambda a, b: F.kl_div(a.log(), b, reduction="sum"),
               lambda a, b: terms(a, b).sum() / torch.tensor(2.0).log(), lambda a, b: torch.where(
                   (a > 0) & (b > 0), a * (a / b).log(), 0).sum()]

SQUARES = [lambda s: s.sum().sqrt(), lambda s: s.sum(), lambda s: s.sum() / 2, lambda s: s.mean(),
           lambda s: s.mean() / 2,
           lambda s: s.sum().sqrt() / 2, lambda s: (s.sum() / 2).sqrt(), lambda s: s.mean().sqrt(),
           lambda s: s.mean().sqrt() / 2]


def dot(a, b):
    return (a * b).sum()


PRODUCTS = [lambda a, b: 1 - dot(a, b), lambda a, b: dot(a, b), lambda a, b: 1 - dot(a, b) / (a.norm() * b.norm())]
ROOTS = [lambda a, b: (a.sqrt() - b.sqrt()).norm() / 2 ** .5, lambda a, b: (a.sqrt() - b.sqrt()).norm(),
         lambda a, b: 1 - (a * b).sqrt().sum(), lambda a, b: (a.sqrt() - b.sqrt()).abs().sum() / 2,
         lambda a, b: (a.sqrt() - b.sqrt()).abs().sum()]

EXERCISE = Exercise(
    "ex02_total_variation.py", ("total_variation",), contract,
    {"worked number": worked, "pairs": exact},
    [wrong("not-halved", "you count every moved piece twice, where it leaves and where it arrives: take half the sum",
           total_variation=lambda a, b: (a - b).abs().sum()),
     wrong("greatest-difference", "you take the greatest difference; all of them count",
           total_variation=lambda a, b: (a - b).abs().max()),
     wrong("greatest-difference", "you take half of the greatest difference; all of them count",
           total_variation=lambda a, b: (a - b).abs().max() / 2),
     wrong("signs-kept", "you add differences with their signs, and they cancel",
           total_variation=lambda a, b: (a - b).sum() / 2),
     *(wrong("squares", "you square the differences; total variation adds absolute differences",
             total_variation=lambda a, b, made=made: made((a - b).square())) for made in SQUARES),
     *(wrong("mean", "you take the mean of the differences; it is a sum, and half of it",
             total_variation=lambda a, b, share=share: (a - b).abs().mean() * share) for share in (1, .5)),
     *(wrong("rounded", "you round the distance: the caller may, and here every digit counts",
             total_variation=lambda a, b, digits=digits: round(float((a - b).abs().sum() / 2), digits))
       for digits in range(1, 9)),
     *(wrong("hellinger", "that is of the Hellinger distance's kind, of square roots; total variation adds |p - q|",
             total_variation=distance) for distance in ROOTS),
     *(wrong("dot-product", "you multiply the two distributions token by token: of equal ones this does not give 0, "
             "unless they are certain; total variation adds |p - q|", total_variation=product)
       for product in PRODUCTS[:2]),
     wrong("cosine", "that is the angle between the two, as of vectors: total variation adds |p - q|",
           total_variation=PRODUCTS[2]),
     wrong("of-cumulative-sums", "you compare cumulative sums: that depends on the order of the tokens, and a "
           "distance of "
           "distributions over tokens does not", total_variation=lambda a, b: (a.cumsum(0) - b.cumsum(0)).abs().max()),
     wrong("float32", "you compute in float32, which has seven digits: keep the float64 that you are given",
           total_variation=lambda a, b: (a.float() - b.float()).abs().sum() / 2),
     wrong("tokens-counted", "you count the tokens whose probabilities differ: by how much they do is asked",
           total_variation=lambda a, b: (a != b).double().mean()),
     wrong("jensen-shannon", "that is the Jensen-Shannon divergence; total variation adds |p - q|",
           total_variation=lambda a, b: (terms(a, (a + b) / 2).sum() + terms(b, (a + b) / 2).sum()) / 2),
     wrong("overlap", "that is what the distributions have in common, 1 minus their distance",
           total_variation=lambda a, b: a.minimum(b).sum()),
     *(wrong("kullback-leibler", KL, total_variation=divergence) for divergence in DIVERGENCES)],
    ("If you pour one bar chart into the other, how much must be moved?",
     "Every unit that is moved makes two differences smaller.",
     "half of the sum of |one - other|"),
    [("nanospec.proof.walk", "distance", "", "")])
