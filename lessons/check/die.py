"""Exercises 1 and 2: a die, and the distance of two laws."""

import torch

from lessons.check.engine import Exercise, wrong
from lessons.check.seen import Failure, Seen, token, values


def law(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


PAIRS = {       # p_target, q_draft
    "worked example": (law(.5, .5), law(.8, .2)),
    "four tokens": (law(.4, .3, .2, .1), law(.1, .2, .3, .4)),
    "the target forbids a token": (law(.5, .3, .2, 0), law(.2, .2, .3, .3)),
    "the draft forbids a token": (law(.3, .4, .2, .1), law(.6, .1, .3, 0)),
    "nothing in common": (law(.7, .3, 0, 0), law(0, 0, .5, .5)),
    "a draft too sure": (law(.6, .3, .1), law(.9, .06, .04)),
    "a certain draft": (law(.2, .3, .5), law(0, 0, 1)),
    "a certain target": (law(0, 1, 0), law(.3, .3, .4)),
}
EQUAL = (law(.2, .3, .5), law(.2, .3, .5))


# 1. pick

WEIGHTS = {"[2, 0, 6]": law(2, 0, 6), "[.1, .2, .3, .4]": law(.1, .2, .3, .4), "[0, 0, 5]": law(0, 0, 5),
           "[3, 1, 4, 1, 5, 10]": law(3, 1, 4, 1, 5, 10)}
STEPS = 240             # places of u between 0 and 1: the ends of all pieces above fall between two of them


def pick_contract(f) -> None:
    token(f.pick(law(1, 1), 0.25), 2, "pick, for weights [1, 1] and u = 0.25,")


def pick_law(f) -> list[Seen]:
    found = []
    for name, weights in WEIGHTS.items():
        def law_of(weights=weights):
            share: dict = {}
            for step in range(STEPS):
                chosen = int(f.pick(weights.clone(), (step + 0.5) / STEPS))
                share[chosen] = share.get(chosen, 0) + 1
            return {key: count / STEPS for key, count in share.items()}         # exact: no piece ends inside a step
        right = {i: w for i, w in enumerate((weights / weights.sum()).tolist()) if w}
        found.append(values(f"weights {name}, u all over 0..1: share of u that gives each index", law_of, right))
    return found


def pick_edges(f) -> list[Seen]:
    return [values("the ends of u", lambda: {
        "[0, 1], u = 0": f.pick(law(0, 1), 0.0), "[1, 0], u = 0.999": f.pick(law(1, 0), 0.999),
        "[0, 3, 0, 1], u = 0": f.pick(law(0, 3, 0, 1), 0.0)},
        {"[0, 1], u = 0": 1, "[1, 0], u = 0.999": 0, "[0, 3, 0, 1], u = 0": 1})]


def first(where) -> int:
    return int(where.nonzero()[0])


PICK = Exercise(
    "ex01_pick.py", ("pick",), pick_contract,
    {"worked number": lambda f: [values("weights [2, 0, 6], u = 0.25", lambda: {"index": f.pick(law(2, 0, 6), 0.25)},
                                        {"index": 2})],
     "exact distribution": pick_law, "edges": pick_edges},
    [wrong("zero-weight-at-zero", "an end exactly at u * total must not be taken: at u = 0 you take a token that has "
          "no weight at all",
           pick=lambda w, u: first(w.cumsum(0) >= u * w.sum())),
     wrong("total-forgotten", "you compare u with the pieces' ends without multiplying it by the total",
           pick=lambda w, u: first(w.cumsum(0) > u)),
     wrong("not-cumulative", "you compare u with each token's own weight, not with where its piece ends",
           pick=lambda w, u: first(w > u * w.sum())),
     wrong("always-the-likeliest", "you always take the likeliest token: that is greedy decoding, not a die",
           pick=lambda w, u: int(w.argmax())),
     wrong("all-alike", "you give every token the same chance, whatever its weight",
           pick=lambda w, u: int(u * len(w))),
     wrong("one-too-early", "you return the piece before the one that u hits",
           pick=lambda w, u: max(0, first(w.cumsum(0) > u * w.sum()) - 1)),
     wrong("weights-softmaxed", "you take a softmax of the weights: they are weights already, not logits",
           pick=lambda w, u: first(w.softmax(0).cumsum(0) > u))],
    ("Lay the weights end to end on a line. Where does each token's piece end?",
     "`cumsum` gives the ends; the last one is the total. Which end is the first beyond u * total?",
     "ends = cumulative sums; take the first index with ends > u * ends[-1]. `nonzero()` lists where that is true."),
    [("nanospec.dice", "Dice.pick", "", "")])


# 2. total variation

def distances(f) -> list[Seen]:
    cases = PAIRS | {"equal": EQUAL}
    return [values("pairs of laws", lambda: {name: f.total_variation(*pair) for name, pair in cases.items()},
                   {name: float(1 - a.minimum(b).sum()) for name, (a, b) in cases.items()})]


def distance_contract(f) -> None:
    found = f.total_variation(law(.5, .5), law(.5, .5))
    if not isinstance(found, (float, int)) and not (isinstance(found, torch.Tensor) and found.numel() == 1):
        raise Failure(f"total_variation must return a number; it returned {found!r:.80}")


TOTAL_VARIATION = Exercise(
    "ex02_total_variation.py", ("total_variation",), distance_contract,
    {"worked number": lambda f: [values("[.5, .5] and [.8, .2]",
                                        lambda: {"distance": f.total_variation(*PAIRS["worked example"])},
                                        {"distance": .3})],
     "eight pairs": distances},
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
EXERCISES = [PICK, TOTAL_VARIATION]
