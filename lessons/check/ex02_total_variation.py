"""Exercise 2: how far apart are two distributions?"""

import torch

from lessons.check.engine import Exercise, wrong
from lessons.check.pairs import PAIRS, vector
from lessons.check.seen import Failure, Seen, values


def contract(f) -> None:
    found = f.total_variation(vector(.5, .5), vector(.5, .5))
    if not isinstance(found, (float, int)) and not (isinstance(found, torch.Tensor) and found.numel() == 1):
        raise Failure(f"total_variation must return a number; it returned {found!r:.80}")


def worked(f) -> list[Seen]:
    return [values("[.5, .5] and [.8, .2]", lambda: {"distance": f.total_variation(*PAIRS["worked example"])},
                   {"distance": .3})]


def exact(f) -> list[Seen]:
    cases = PAIRS | {"equal": (vector(.2, .3, .5), vector(.2, .3, .5))}
    return [values("pairs of laws", lambda: {name: f.total_variation(*pair) for name, pair in cases.items()},
                   {name: float(1 - a.minimum(b).sum()) for name, (a, b) in cases.items()})]


EXERCISE = Exercise(
    "ex02_total_variation.py", ("total_variation",), contract,
    {"worked number": worked, "nine pairs": exact},
    [wrong("not-halved", "you count every moved piece twice, where it leaves and where it arrives: take half the sum",
           total_variation=lambda a, b: (a - b).abs().sum()),
     wrong("greatest-difference", "you take the greatest difference; all of them count",
           total_variation=lambda a, b: (a - b).abs().max()),
     wrong("signs-kept", "you add differences with their signs, and they cancel",
           total_variation=lambda a, b: (a - b).sum() / 2),
     wrong("squares", "you take the Euclidean distance; total variation adds absolute differences",
           total_variation=lambda a, b: (a - b).square().sum().sqrt()),
     wrong("mean", "you take the mean of the differences; it is a sum",
           total_variation=lambda a, b: (a - b).abs().mean()),
     wrong("overlap", "that is what the laws have in common, 1 minus their distance",
           total_variation=lambda a, b: a.minimum(b).sum())],
    ("If you pour one bar chart into the other, how much must be moved?",
     "Every unit that is moved makes two differences smaller.",
     "half of the sum of |one - other|"),
    [("nanospec.proof.walk", "distance", "", "")])
