"""Exercise 1: throw the die."""

from functools import lru_cache

import torch

from lessons.check import pairs, seeds
from lessons.check.answered import token
from lessons.check.clock import shown
from lessons.check.engine import Exercise, wrong
from lessons.check.pairs import vector
from lessons.check.seen import Failure, Seen, values

WEIGHTS = {"[2, 0, 6]": vector(2, 0, 6), "[.1, .2, .3, .4]": vector(.1, .2, .3, .4), "[0, 0, 5]": vector(0, 0, 5),
           "[3, 1, 4, 1, 10, 5]": vector(3, 1, 4, 1, 10, 5)}
STEPS = 240             # places of u between 0 and 1: the ends of all pieces above fall between two of them
IGNORED = "u changes nothing: the token must be the one whose piece of the line u hits, and all chance is in u"


def picked(f, weights, u: float) -> int:
    return token(f.pick(weights, u), len(weights), f"pick, for weights {shown(weights)} and u = {u:.9g},")


def contract(f) -> None:
    if len({picked(f, vector(1, 1), 0.25) for _ in range(40)}) > 1:
        raise Failure("the same weights and the same u give now one token, now another: the token must follow from "
                      "these two, so draw no random number of your own, and keep nothing (u-ignored)", "u-ignored")


def worked(f) -> list[Seen]:
    return [values("weights [2, 0, 6], u = 0.25", lambda: {"index": picked(f, vector(2, 0, 6), 0.25)}, {"index": 2})]


def exact(f) -> list[Seen]:
    found = []
    for name, weights in WEIGHTS.items():
        def shares(weights=weights):
            share = dict.fromkeys(range(len(weights)), 0)
            for step in range(STEPS):
                share[picked(f, weights, (step + 0.5) / STEPS)] += 1
            return {key: count / STEPS for key, count in share.items()}         # exact: no piece ends inside a step
        right = dict(enumerate((weights / weights.sum()).tolist()))
        found.append(values(f"weights {name}, u all over 0..1: share of u that gives each index", shares, right))
    return found


EDGES = {       # weights, u -> index. Where u hits an end the total is a power of two, so that no rounding decides
    ((0, 1), 0.0): 1, ((1, 0), 0.999): 0, ((0, 3, 0, 1), 0.0): 1, ((0, 3, 0, 1), 0.75): 3, ((1e-15, 1), 0.0): 0,
    ((5,), 0.0): 0, ((5,), 0.9): 0, ((1, 3), 0.25): 1, ((2, 0, 6), 1 - 2.0 ** -53): 2,
    ((4, 4, 0, 0), 1 - 2.0 ** -53): 1,
    ((1, 1e-9), 1 - 1e-10): 1, ((1, 1e-10), 1 - 1e-11): 1, ((1, 1e-9), 1 - 1e-8): 0, ((1, 3e-12, 1), 0.5): 1,
    ((1e-12, 3e-12), 0.2): 0, ((1e-12, 3e-12), 0.3): 1, ((1e-300, 3e-300), 0.3): 1, ((1e300, 3e300), 0.2): 0,
    ((1e12, 1, 1e12), 0.5): 1, ((1e12, 1, 1e12), 0.51): 2, ((16777216, 1, 1, 16777214), 0.5 + 2.0 ** -26): 1}


def edges(f) -> list[Seen]:
    """The ends of u, and of the pieces."""
    return [values(f"weights {list(weights)}, u = {u!r}", lambda weights=weights, u=u: {
        "index": picked(f, vector(*weights), u)}, {"index": index}) for (weights, u), index in EDGES.items()]


@lru_cache(maxsize=None)
def drawn_cases() -> list[tuple]:
    """weights, u, index: close to both ends of each piece and in its middle, further off than any rounding."""
    draw, found = seeds.chance(1), []
    for size, zeros in ((1, 0), (2, 0), (3, 1), (4, 0), (7, 3), (40, 10), (300, 0)):
        weights = pairs.weights(draw, size, zeros) * 10 ** draw.uniform(-9, 9)
        ends = (weights.cumsum(0) / weights.sum()).tolist()
        for index in draw.sample(range(size), min(size, 6)):
            low, high = ends[index - 1] if index else 0.0, ends[index]
            if weights[index] > 0:
                found += [(weights, low + share * (high - low), index) for share in (1e-6, draw.random(), 1 - 1e-6)]
    return found


def by_seed(f) -> list[Seen]:
    cases = {f"{len(weights)} weights, total {float(weights.sum()):.3g}, u = {u:.9g}": (weights, u, index)
             for weights, u, index in drawn_cases()}
    return [values("index: weights drawn by a seed, u near the ends of a piece and between them", lambda: {
        name: picked(f, weights, u) for name, (weights, u, _) in cases.items()},
        {name: index for name, (*_, index) in cases.items()})]


def first(where) -> int:
    return int(where.nonzero()[0])


def in_order(order):
    """A die as good, with its pieces in another order."""
    def pick(w, u):
        places = order(w)
        return int(places[first(w[places].cumsum(0) > u * w.sum())])
    return pick


def float32(w, u):
    ends = w.float().cumsum(0)
    return first(ends > u * ends[-1])


EXERCISE = Exercise(
    "ex01_pick.py", ("pick",), contract,
    {"worked number": worked, "exact distribution": exact, "edges": edges, "many weights": by_seed},
    [wrong("zero-weight-at-zero", "an end exactly at u * total must not be taken: at u = 0 you take a token that has "
           "no weight at all",
           pick=lambda w, u: first(w.cumsum(0) >= u * w.sum())),
     wrong("epsilon-at-the-end", "you add a little number to u * total, and a token with less weight than that is "
           "never drawn: compare with >, and add nothing", pick=lambda w, u: first(w.cumsum(0) > u * w.sum() + 1e-12)),
     wrong("total-forgotten", "you compare u with the pieces' ends without multiplying it by the total",
           pick=lambda w, u: first(w.cumsum(0) > u)),
     wrong("not-cumulative", "you compare u with each token's own weight, not with where its piece ends",
           pick=lambda w, u: first(w > u * w.sum())),
     wrong("always-the-likeliest", "you always take the likeliest token: that is greedy decoding, not a die",
           pick=lambda w, u: int(w.argmax())),
     *(wrong("another-order", "as a die it is as good: every token has its share. But the same u must give the same "
             "token everywhere, so lay the pieces in the order in which they were given", pick=in_order(order))
       for order in (lambda w: w.argsort(descending=True), lambda w: w.argsort(),
                     lambda w: torch.arange(len(w)).flip(0))),
     wrong("float32", "you compute in float32, which has seven digits: a token of little weight is never drawn, and "
           "a u "
           "next to 1 finds no token at all", pick=float32),
     wrong("u-ignored", IGNORED, pick=lambda w, u: first(w > 0)),
     wrong("u-ignored", IGNORED, pick=lambda w, u: 0),
     wrong("u-ignored", IGNORED, pick=lambda w, u: len(w) - 1),
     wrong("all-alike", "you give every token the same chance, whatever its weight",
           pick=lambda w, u: int(u * len(w))),
     wrong("one-too-late", "you return the piece after the one that u hits",
           pick=lambda w, u: min(len(w) - 1, first(w.cumsum(0) > u * w.sum()) + 1)),
     wrong("place-in-the-sorted-list", "you sort the weights and return a place in the sorted list; a token is its "
           "place in the list that you were given",
           pick=lambda w, u: first(w.sort(descending=True).values.cumsum(0) > u * w.sum())),
     wrong("not-cumulative", "you compare u with each token's own weight, not with where its piece ends",
           pick=lambda w, u: next((i for i, one in enumerate(w) if one > u * w.sum()), len(w) - 1)),
     wrong("one-too-early", "you return the piece before the one that u hits",
           pick=lambda w, u: max(0, first(w.cumsum(0) > u * w.sum()) - 1)),
     wrong("weights-softmaxed", "you take a softmax of the weights: they are weights already, not logits",
           pick=lambda w, u: first(w.softmax(0).cumsum(0) > u))],
    ("Lay the weights end to end on a line. Where does each token's piece end?",
     "`cumsum` gives the ends; the last one is the total. Which end is the first beyond u * total?",
     "ends = cumulative sums; take the first index with ends > u * ends[-1]. `nonzero()` lists where that is true."),
    [("nanospec.dice", "Dice.pick", "", "")])
