"""What an engine has counted of its speculation, in one form: rounds, draft tokens, and how many of
them were accepted, in all and by place.

Whatever comes from a stranger's file is checked here: numbers that cannot be, or that do not fit
together, are refused by the line that has them.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from nanospec.errors import MOST_NODES, RequestError, quoted

ROUGH = .02             # what a sum of printed shares may be off by
DIGITS = .0005          # what one may be off by: it has three digits


@dataclass(frozen=True)
class Counters:
    """engine: who printed it. length: tokens of a round, with the bonus token. rate: accepted of
    all draft tokens. curve: of each place, in how many of the drafts it was accepted with all
    places before it. drafts, drafted: how many drafts, and draft tokens. notes: what else to know.
    None and (): not printed.
    """

    engine: str
    length: float | None = None
    rate: float | None = None
    curve: tuple[float, ...] = ()
    drafts: float | None = None
    drafted: float | None = None
    notes: tuple[str, ...] = ()


class Window(NamedTuple):
    """What one line counts. drafts: None where it cannot be computed."""

    drafts: float | None
    drafted: float
    accepted: float
    shares: list[float]


def parse_count(text: str, at: str) -> float:
    try:
        value = float(text.rstrip(".,"))
        if 0 <= value < 1e15:
            return value
    except ValueError:
        pass
    raise RequestError(f"{at}: {quoted(text)} is no count")


def check_curve(curve: Sequence[float], at: str) -> None:
    if len(curve) >= MOST_NODES:
        raise RequestError(f"{at}: a draft has at most {MOST_NODES - 1} tokens here")
    if any(after > before + ROUGH for before, after in zip([1.0, *curve], curve)):
        raise RequestError(f"{at}: a place is accepted more often than the one before it, so these "
                           "are not shares of all drafts")


def summed(kind: str, windows: Sequence[Window], notes: Sequence[str]) -> Counters:
    """All windows together. Places that a line leaves out were never accepted: llama.cpp lists
    them up to the last one that was.
    """
    windows = [window for window in windows if window.drafted]      # some say that nothing was
    drafted = sum(window.drafted for window in windows)
    accepted = sum(window.accepted for window in windows)
    if not drafted:
        raise RequestError(f"{kind} counts no draft token")
    if accepted > drafted:
        raise RequestError(f"{kind} has {accepted:g} accepted of {drafted:g} draft tokens")
    engine, rate = kind.split("'")[0], accepted / drafted
    known = [window.drafts for window in windows if window.drafts is not None]
    if len(known) < len(windows) or not sum(known):
        return Counters(engine, rate=rate, drafted=drafted,
                        notes=("How many drafts there were is not said, so no length is known.",))
    drafts = sum(known)
    places = max([math.ceil(drafted / drafts - ROUGH), *(len(window.shares) for window in windows)])
    curve = [sum(count * window.shares[i] for count, window in zip(known, windows)
                 if i < len(window.shares)) / drafts for i in range(min(places, MOST_NODES))]
    printed = all(window.shares or not window.accepted for window in windows)
    return Counters(engine, 1 + accepted / drafts, rate, tuple(curve) if printed else (), drafts,
                    drafted, tuple(notes))


def of_list(path: Path, data: bytes, gamma: int, bonus: str) -> Counters:
    words = data.translate(None, b"[]").replace(b",", b" ").split()
    if not words or not all(word.isdigit() and len(word) < 5 for word in words):
        raise RequestError(f"{path} has neither metrics of vLLM nor lines of vLLM's, SGLang's or "
                           "llama.cpp's log about drafts, and is no list of whole numbers")
    lengths = [int(word) for word in words]
    if not gamma:
        raise RequestError(f"{path} is a list, which does not say how long drafts were: --gamma N")
    if not bonus and min(lengths) > 0:
        raise RequestError(f"{path} has no 0: does it count the bonus token? --bonus with, or "
                           "--bonus without")
    lengths = [length - (bonus == "with") for length in lengths]
    if min(lengths) < 0 or max(lengths) > gamma:
        raise RequestError(f"{path}: {max(lengths)} accepted draft tokens at most and "
                           f"{min(lengths)} at least, where --gamma is {gamma}")
    drafts, accepted = len(lengths), sum(lengths)
    tally = Counter(lengths)
    judged = accumulate(tally[place] for place in range(gamma, 0, -1))
    curve = [at_least / drafts for at_least in judged]
    return Counters("a list", 1 + accepted / drafts, accepted / (drafts * gamma),
                    tuple(curve[::-1]), drafts, drafts * gamma,
                    ("Every draft is taken to have had gamma tokens.",))
