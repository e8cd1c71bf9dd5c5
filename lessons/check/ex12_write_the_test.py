"""Exercise 12: a test that catches bugs and passes the honest."""

from collections.abc import Callable
from functools import lru_cache
from math import prod

from lessons.check import seeds
from lessons.check.answered import truth
from lessons.check.engine import Exercise, wrong
from lessons.check.rounds import IDS, TARGET
from lessons.check.seen import Seen, values
from lessons.kit import OneRow
from nanospec.dice import Dice
from nanospec.proof.tables import DRAFT_MODEL, TABLE
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.proof.zoo import BUGS, CONTROLS
from nanospec.judge.known_bugs import AS_IT_SHIPS, sampler_with

TASK = {"target": TABLE, "draft_model": DRAFT_MODEL, "ids": [1], "new": 3, "gamma": 1, "temperature": 0.7}
MANY = 500              # samples: code that draws this many is slow, not in an endless loop
KNOWN = {bug.name: bug for bug in [AS_IT_SHIPS, *BUGS, *CONTROLS]}
GIVEN = {"as it ships": 1, "no-bonus": 1, "residual-is-target": 0, "row-before": 0, "bonus-from-draft": 0}
DRAWN = {"whole texts, drawn at once": 1, "every pair of tokens right": 0, "each text written backwards": 0,
         "a little off, in all texts": 0, "a little off, in two texts": 0, "a little off, in the two rarest": 0}
LITTLE = 1.001e-5       # total variation
BARS = 0.00002, 0.0001, 0.001, 0.01, 0.05               # of a tolerance, wider than that
OTHERS = DRAWN | {"soft-draft-judged-as-one-hot": 1, "unnormalised-residual": 1, "ratio-flipped": 0,
          "resample-from-last-row": 0, "bonus-unwarped": 0, "draft-dtype-mismatch": 0}


@lru_cache(maxsize=None)
def truth_of(name: str) -> dict:
    if name in DRAWN:                   # many texts: of TABLE's, most have no probability
        return target_distribution(TARGET, IDS, 3)
    return target_distribution(TABLE, [1], 3, temperature=0.7)


def distribution_of(name: str) -> dict:
    """The distribution of a sampler that draws a whole text at once: the truth, or what shares a part of it."""
    right = truth_of(name)
    if "little" in name:                # no text is off by more than 1.6e-6; or two are, by all of it
        draw = seeds.chance(12)
        texts = draw.sample(sorted(right), 26 if "all" in name else 2)
        if "rarest" in name:
            texts = sorted(right, key=right.get)[:2]
        shares = [2, *(draw.uniform(.5, 1) for _ in texts[2::2])]
        moved = dict(zip(texts, (sign * LITTLE * share / sum(shares) for share in shares for sign in (1, -1))))
        return {text: p + moved.get(text, 0.0) for text, p in right.items()}
    if "backwards" in name:
        return {text[::-1]: p for text, p in right.items()}
    if "pair" in name:                  # what is added at x cancels when summed over the token at any one place
        tilt = {text: prod((0.0, 1.0, -1.0)[x] for x in text) for text in right}
        step = min(0.005, *(p for text, p in right.items() if tilt[text] < 0))         # none becomes negative
        return {text: p + step * tilt[text] for text, p in right.items()}
    return right


class Runs:
    """How often the learner's test has run samplers with real dice."""

    sampled = 0


@lru_cache(maxsize=None)
def sampler_of(name: str):
    if name in DRAWN:
        texts, weights = zip(*distribution_of(name).items())

        def run(dice):
            return texts[OneRow(dice).pick(weights)]
    else:
        run = sampler_with(KNOWN[name], **TASK)

    def sampler(dice):
        Runs.sampled += isinstance(dice, Dice)
        return tuple(run(dice))
    return sampler


def too_slow() -> str:
    if Runs.sampled < MANY:
        return ""
    return (f"It had drawn {Runs.sampled:,} samples. A test that samples is slow, and for a small bug "
            "it needs very many: it must tell 1e-5 from nothing. A walk is exact, and takes a moment.")


def said(f, name: str) -> bool:
    return truth(f.is_exact(sampler_of(name), truth_of(name)), "is_exact")


def judged(title: str, samplers: dict[str, int]):
    def look(f) -> list[Seen]:
        return [values(f"{title}: 1 if is_exact says yes", lambda: {name: said(f, name) for name in samplers},
                       {name: float(right) for name, right in samplers.items()})]
    return look


def contract(f) -> None:
    Runs.sampled = 0
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


def by(*parts: Callable):
    """A test that compares parts of the texts, each with its probability."""
    def of(whole: dict, part: Callable) -> dict:
        short: dict = {}
        for text, weight in whole.items():
            short[part(text)] = short.get(part(text), 0.0) + weight
        return short

    def is_exact(sampler, truth) -> bool:
        return all(distance(of(walked(sampler), part), of(truth, part))[0] < 1e-9 for part in parts)
    return is_exact


def greatest_only(sampler, truth) -> bool:
    return abs(max(walked(sampler).values()) - max(truth.values())) < 1e-9


def tokens_only(sampler, truth) -> bool:
    """How often each token comes, wherever it stands."""
    def of(whole: dict) -> list[float]:
        return [sum(p * text.count(x) for text, p in whole.items()) for x in range(4)]
    return all(abs(a - b) < 1e-9 for a, b in zip(of(walked(sampler)), of(truth)))


EXERCISE = Exercise(
    "ex12_write_the_test.py", ("is_exact",), contract,
    {"three bugs, two honest": judged("samplers that you were told of", GIVEN),
     "others": judged("samplers that you were not told of", OTHERS)},
    [wrong("always-yes", "your test passes all that it was tried on: a test must be seen to fail",
           is_exact=lambda sampler, truth: True),
     wrong("always-no", "your test fails all that it was tried on, the honest as well: is the tolerance 0, or the "
           "comparison exact?",
           is_exact=lambda sampler, truth: False),
     wrong("answer-inverted", "you say True to the wrong samplers: it is right where the distance is small",
           is_exact=lambda sampler, truth: distance(walked(sampler), truth)[0] > 1e-9),
     wrong("first-token-only", "you look at the first token only; many bugs leave it perfect and spoil the second",
           is_exact=by(lambda text: text[0])),
     wrong("part-of-the-text-only", "you compare a part of each text, such as single tokens or pairs: all parts can be "
           "right where the whole is wrong; compare the probability of every whole text",
           is_exact=by(*(lambda text, i=i: text[i] for i in range(3)))),
     *(wrong("summary-only", "you compare probabilities without the texts that they belong to, or tokens without their "
             "order; compare the probability of every text", is_exact=test)
       for test in (by(lambda text: tuple(sorted(text))), greatest_only, tokens_only)),
     *(wrong("bar-too-wide", "your tolerance is wider than the bug: the smallest total variation here is 1e-5, and "
             "over "
             "many texts no single one is off by that much", is_exact=lambda sampler, truth, bar=bar, of=of: distance(
                 walked(sampler), truth)[of] < bar) for of, bars in (
                     (0, (0.000002, 0.00001)), (0, BARS), (1, BARS)) for bar in bars),
     wrong("exact-equality", "you compare floats for equality, or nearly so: honest samplers add up in another order, "
           "and differ in the last digits", is_exact=lambda sampler, truth: walked(sampler) == truth),
     wrong("support-only", "you look at which texts come out, not at how often",
           is_exact=lambda sampler, truth: set(walked(sampler)) == {key for key, p in truth.items() if p > 0}),
     wrong("too-few-samples", "you sample, and a few hundred samples wander further off than the smaller bugs are: "
           "walk", is_exact=by_samples(0.2, 60))],
    ("How would you know the distribution of a sampler without drawing a single sample?",
     "walk(sampler) runs it once for every way its dice can fall, and adds up.",
     "found, paths = walk(sampler); compare found with truth by distance(...), whose first number is the greatest "
     "error of any outcome; a walk is right to about 1e-12"),
    [("tests.proof.compare", "rounds", "", "")], too_slow=too_slow)
