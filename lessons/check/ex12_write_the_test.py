"""Exercise 12: a test that catches bugs and passes the honest."""

from functools import lru_cache

from lessons.check.answered import truth
from lessons.check.engine import Exercise, wrong
from lessons.check.seen import Seen, values
from nanospec.dice import Dice
from nanospec.proof.tables import DRAFT, TABLE
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.proof.zoo import BUGS, CONTROLS
from nanospec.proof.zoo.samplers import AS_IT_SHIPS, sampler_with

TASK = {"target": TABLE, "draft": DRAFT, "ids": [1], "new": 3, "gamma": 1, "temperature": 0.7}
MANY = 500              # samples from one sampler: code that draws this many is slow, not in an endless loop
KNOWN = {bug.name: bug for bug in [AS_IT_SHIPS, *BUGS, *CONTROLS]}
GIVEN = {"as it ships": 1, "no-bonus": 1, "residual-is-target": 0, "row-before": 0, "bonus-from-draft": 0}
OTHERS = {"soft-draft-judged-as-one-hot": 1, "unnormalised-residual": 1, "ratio-flipped": 0,
          "resample-from-last-row": 0, "bonus-unwarped": 0, "draft-dtype-mismatch": 0}


@lru_cache(maxsize=None)
def of_the_target() -> dict:
    return target_distribution(TABLE, [1], 3, temperature=0.7)


class Runs:
    """How often the learner's test has run a sampler with real dice, since it was last called."""

    sampled = 0


@lru_cache(maxsize=None)
def sampler_of(name: str):
    run = sampler_with(KNOWN[name], **TASK)

    def sampler(dice):
        Runs.sampled += isinstance(dice, Dice)
        return tuple(run(dice))
    return sampler


def too_slow() -> str:
    if Runs.sampled < MANY:
        return ""
    return (f"It had drawn {Runs.sampled:,} samples from one sampler. A test that samples is slow, and for a small bug "
            "it needs very many: it must tell 1e-5 from nothing. A walk is exact, and takes a moment.")


def said(f, name: str) -> bool:
    Runs.sampled = 0
    return truth(f.is_exact(sampler_of(name), of_the_target()), "is_exact")


def judged(title: str, samplers: dict[str, int]):
    def look(f) -> list[Seen]:
        return [values(f"{title}: 1 if is_exact says yes", lambda: {name: said(f, name) for name in samplers},
                       {name: float(right) for name, right in samplers.items()})]
    return look


def contract(f) -> None:
    said(f, AS_IT_SHIPS.name)


def by_samples(bar: float, samples: int):
    def is_exact(sampler, truth) -> bool:
        seen: dict = {}
        for seed in range(samples):
            outcome = tuple(sampler(Dice([seed])))
            seen[outcome] = seen.get(outcome, 0.0) + 1 / samples
        return distance(seen, truth)[1] < bar
    return is_exact


@lru_cache(maxsize=None)
def walked(sampler) -> dict:
    """For the known mistakes: most of them walk, and all walk the same samplers."""
    return walk(sampler)[0]


def first_only(sampler, truth) -> bool:
    def first(whole: dict) -> dict:
        short: dict = {}
        for tokens, weight in whole.items():
            short[tokens[0]] = short.get(tokens[0], 0.0) + weight
        return short
    return distance(first(walked(sampler)), first(truth))[0] < 1e-9


EXERCISE = Exercise(
    "ex12_write_the_test.py", ("is_exact",), contract,
    {"three bugs, two honest": judged("samplers that you were told of", GIVEN),
     "others": judged("samplers that you were not told of", OTHERS)},
    [wrong("always-yes", "your test passes everything: a test must be seen to fail",
           is_exact=lambda sampler, truth: True),
     wrong("always-no", "your test fails everything, the honest as well: is the tolerance 0, or the comparison exact?",
           is_exact=lambda sampler, truth: False),
     wrong("first-token-only", "you look at the first token only; many bugs leave it perfect and spoil the second",
           is_exact=first_only),
     wrong("bar-too-wide", "your tolerance is wider than the bug: the smallest here is 1e-5 off",
           is_exact=lambda sampler, truth: distance(walked(sampler), truth)[1] < 0.05),
     wrong("bar-too-wide", "your tolerance is wider than the bug: the smallest here is 1e-5 off",
           is_exact=lambda sampler, truth: distance(walked(sampler), truth)[1] < 0.001),
     wrong("exact-equality", "you compare floats for equality: honest samplers add up in another order, and differ "
           "in the last digit", is_exact=lambda sampler, truth: walked(sampler) == truth),
     wrong("support-only", "you look at which texts come out, not at how often",
           is_exact=lambda sampler, truth: set(walked(sampler)) == {key for key, p in truth.items() if p > 0}),
     wrong("too-few-samples", "you sample, and a few hundred samples wander further off than the smaller bugs are: "
           "walk", is_exact=by_samples(0.2, 60))],
    ("How would you know the distribution of a sampler without drawing a single sample?",
     "walk(sampler) runs it once for every way its dice can fall, and adds up.",
     "found, paths = walk(sampler); compare found with truth by distance(...), whose first number is the greatest "
     "error of any outcome; a walk is right to about 1e-12"),
    [("tests.proof.compare", "rounds", "", "")], too_slow=too_slow)
