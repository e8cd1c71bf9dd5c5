"""Why is acceptance low? What the places of a draft say of a drafter that nobody has looked into.

An engine counts at each place how many of its drafts were accepted up to there. Divided by the
share of the place before, that is how often a draft token is accepted once its round has come so
far. A healthy draft model has about the same number at each place, so that the curve falls by one
factor. A fault often has another shape. A shape is named only where the counts can tell it from
chance: the bounds below are Wilson's, for rounds that are independent. Those of one text resemble
one another, so be slower to believe what rests on a few hundred rounds.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from nanospec.cli.counters import Counters
from nanospec.theory import break_even

SURE = 2.6              # standard deviations: a bound is wrong once in 200 times
FEWEST = 50             # drafts that must have come to a place
FULL = .97              # of the longest draft's length: a mean length below it means shorter drafts
NONE = .1               # a place is hardly ever accepted, if surely less often
ALL, SURELY = .99, .95  # or always, if more often, and surely more often
APART = .1              # between places: what is more is a difference, and what is less none
# Shape -> what it means, and what to look at first.
SHAPES = {
    "1.00 everywhere": (
        "The draft model is the target or nearly, or the text repeats itself, or nobody verifies. "
        "The counters cannot tell these apart.",
        "whether the text is the target's own: nanospec judge"),
    "near 0 from the first place on": (
        "Most often draft and target do not go on from the same text, or the draft model is not "
        "what it should be: another tokenizer or chat template, a shift by one place, weights "
        "that were not loaded, hidden states of other layers. Copies look so where nothing repeats "
        "itself.",
        "whether the draft model alone goes on sensibly after the same token ids"),
    "near 0 from the second place on": (
        "The first draft token is accepted more often than the second, which hardly ever is. Most "
        "often the drafter does not read its own draft tokens (cache, position or hidden state not "
        "moved on), or its model was made for one token.",
        "what the drafter's second step reads"),
    "a cliff at one place": (
        "Places before it are accepted alike, and there acceptance breaks off. Most often more "
        "draft tokens are asked for than the drafter was trained for, or a limit of its cache, "
        "positions or window lies there.",
        "how many tokens the draft model was made for; a draft that ends before the cliff costs "
        "nothing"),
    "low at the first place alone": (
        "Most drafts fail at once, and those that do not go on: drafts that copy are like this. "
        "Of a draft model it may mean that some requests or passages are drafted well and others "
        "not at all, or that its first step reads something wrong.",
        "acceptance of each request by itself; then what the first step reads"),
    "worse from place to place": (
        "The further from the text, the less the drafter knows: it goes on from draft tokens and "
        "states of its own, on which it may not have been trained, or predicts all places at once.",
        "shorter drafts, then training on the drafter's own steps"),
    "falls by the same factor at each place": (
        "No place stands out, so nothing points to a fault of the draft loop: this is how often "
        "the two models agree on this text at these settings.",
        "temperature, whether draft tokens are drawn or the likeliest, and texts like yours in the "
        "draft model's training"),
}
UNEVEN = ("Places differ in a way that is none of the shapes known here.",
          "the numbers given the places before")
VARIED = ("Drafts were of different lengths, so the curve falls also where they ended, and the "
          "counters do not say how often. Its first place is right, the others are at least what "
          "stands there.", "the same with drafts of one length")


class Place(NamedTuple):
    """How often a draft token is accepted if its round comes so far, and two sure bounds."""

    share: float
    low: float
    high: float
    reached: float


def places_of(curve: Sequence[float], drafts: float) -> list[Place]:
    """Example: of 200 drafts, .5 and .25 are twice .5, of 200 and of 100 rounds."""
    found = []
    for before, share in zip([1.0, *curve], curve):
        given, reached = share / before if before else 0.0, drafts * before
        found.append(Place(given, *wilson(min(given, 1.0), reached), reached))
    return found


def wilson(share: float, count: float) -> tuple[float, float]:
    """Bounds of a probability (Wilson 1927). Example: (.41, .59) for .5 of 200."""
    if count <= 0:
        return 0.0, 1.0
    z2 = SURE ** 2 / count
    middle = (share + z2 / 2) / (1 + z2)
    wide = SURE * math.sqrt(share * (1 - share) / count + z2 / (4 * count)) / (1 + z2)
    return middle - wide, middle + wide


def is_full(counters: Counters) -> bool:
    """Whether all drafts had all places."""
    places = len(counters.curve)
    return bool(counters.drafts and counters.drafted
                and counters.drafted >= FULL * counters.drafts * places)


def shape_of(counters: Counters) -> tuple[str, int]:
    """A name of SHAPES, and the place, from 1, where it shows; "uneven" and "varied" for what has
    no shape, "" where the counts are too few or by no place.
    """
    places = [place for place in places_of(counters.curve, counters.drafts or 0)
              if place.reached >= FEWEST]
    if not places:
        return "", 0
    first, full = places[0], is_full(counters)
    if full and min((place.low for place in places[1:]), default=0) > first.high + APART:
        return "low at the first place alone", 1
    if first.high < NONE:
        return "near 0 from the first place on", 1
    rate, drafted = counters.rate or 0, counters.drafted or 0
    both = places if full else [Place(rate, *wilson(rate, drafted), 0)]
    if all(place.share > ALL and place.low > SURELY for place in both):
        return "1.00 everywhere", 0
    if not full:
        return "varied", 0
    for at in range(1, len(places)):
        before = [place.share for place in places[:at]]
        if places[at].high < places[at - 1].low / 2 and min(before) > .7 * max(before):
            second = at == 1 and places[at].high < NONE
            return ("near 0 from the second place on" if second else "a cliff at one place"), at + 1
    return slope_of(places), 0


def slope_of(places: Sequence[Place]) -> str:
    """Of places without a break."""
    first, last = places[0], places[-1]
    if len(places) > 1 and last.high < first.low - APART:
        return "worse from place to place"
    sure = [place for place in places if place.high - place.low < 2 * APART]
    if len(sure) < 2 or all(place.share > ALL for place in sure):
        return ""                                   # or accepted always, by too few drafts to say
    apart = max(place.low for place in sure) - min(place.high for place in sure)
    return "falls by the same factor at each place" if apart < APART else "uneven"


def curve_of(counters: Counters, gamma: int) -> tuple[float, ...]:
    """Of all drafts at their full length: the counters' own, or, where there is none, that of the
    one alpha that brings this length by Eq. 1. () if neither is known, or from too few drafts.
    """
    if counters.curve:
        return counters.curve if is_full(counters) and (counters.drafts or 0) >= FEWEST else ()
    if not (gamma and counters.length):
        return ()
    alpha = break_even(counters.length, gamma, 0)
    return tuple(alpha ** place for place in range(1, gamma + 1))


def best_length(curve: Sequence[float], c: float) -> tuple[int, float]:
    """The number of draft tokens that gains most, 0 for none, and its speed-up if a call on a draft
    takes no longer than one on a token. Example: of .5 and .25, c = .2 gains 1.25 with 1.
    """
    gains = [(1 + sum(curve[:gamma])) / (1 + gamma * c) for gamma in range(len(curve) + 1)]
    best = max(range(len(gains)), key=gains.__getitem__)
    return best, gains[best]
