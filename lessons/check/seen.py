"""Looking: what a learner's function did, as numbers beside the right ones. Paths are walked, values compared."""

import math
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

import torch

from lessons.kit import OneRow
from nanospec.dice import Dice
from nanospec.errors import one_line
from nanospec.proof.stats import goodness_of_fit
from nanospec.proof.walk import WalkingDice, walk

TOLERANCE = 1e-12       # of right and wrong
SAME = 1e-9             # of one wrong distribution and another
SHARE = 0.05            # and they are not the same if they differ by more than this share of the error
NOISE = 1e-6            # lines that are off by less are not printed beside one that is off by a hundred times as much
LINES = 10              # of a table of differences


class Failure(Exception):
    """What is wrong, in words for the learner. name: of a known mistake, if it is one."""

    def __init__(self, said: str, name: str = ""):
        super().__init__(said)
        self.name = name


@dataclass
class Seen:
    """One case. got, expected: outcome -> probability if paths were walked, else name -> value."""

    title: str
    got: dict[Hashable, float]
    expected: dict[Hashable, float]
    paths: int = 0
    error: Exception | None = None
    secret: bool = False        # what is right is for the learner to find
    tolerance: float = TOLERANCE        # more where a right way to compute it loses digits

    def differences(self) -> dict[Hashable, float]:
        """Outcome -> yours - right, where these are not the same; in the order of the tokens."""
        found = {}
        for key in [*self.expected, *(key for key in self.got if key not in self.expected)]:
            off = difference(self.got.get(key, 0.0), self.expected.get(key, 0.0))
            if not abs(off) <= self.tolerance:          # a nan is a difference
                found[key] = off
        return found

    def greatest(self) -> float:
        """The greatest difference that is a number; 0 if there is none."""
        return max((abs(off) for off in self.differences().values() if math.isfinite(off)), default=0.0)

    def shown(self, value: float | None) -> str:
        """What is not there: of outcomes it has probability 0, of values there is none."""
        if value is None and not self.paths:
            return "none"
        return f"{value if value and abs(value) > self.tolerance else 0:.6g}"

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.title}: it fell over\n    {told(self.error)}"
        off = self.differences()
        if self.secret:
            return f"{self.title}\n    not so: {', '.join(map(str, off))}"
        finite = {key: value for key, value in off.items() if math.isfinite(value)}
        loud = {key: value for key, value in finite.items() if abs(value) >= NOISE or self.greatest() < 100 * NOISE}
        greatest_first = sorted(loud, key=lambda key: -abs(loud[key]))
        keys = [key for key in off if key in greatest_first[:LINES]]
        lines = [self.title]
        if keys:
            lines.append(f"    {'outcome' * bool(self.paths):<28} {'right':>12} {'yours':>12} {'difference':>12}")
        for key in keys:
            right, yours = (self.shown(found.get(key)) for found in (self.expected, self.got))
            both = bool(self.paths) or key in self.expected and key in self.got
            lines.append(f"    {str(key):<28} {right:>12} {yours:>12} {f'{off[key]:+.3g}' * both:>12}".rstrip())
        if len(loud) > len(keys):
            lines.append(f"    ... and {len(loud) - len(keys)} more")
        if len(off) > len(finite):
            lost = [str(key) for key in off if key not in finite]
            more = ", ..." * (len(lost) > LINES // 2)
            lines.append(f"    no number (nan, inf): {', '.join(lost[:LINES // 2])}{more}")
        if self.paths:
            lines.append(f"    total variation {sum(map(abs, finite.values())) / 2:.3g}, {self.paths:,} "
                         f"path{'s' * (self.paths > 1)} walked")
        return "\n".join(lines)


class Row(OneRow):
    """Dice that remember from which line of which file they were last thrown. A walk's are thrown with plain numbers:
    nearly all the time of a check goes into walks.
    """

    thrown_at: dict[tuple[str, str], int] = {}
    first: tuple = ()           # what was thrown first: the weights of a pick, or "flip"

    def pick(self, weights) -> int:
        Row.thrown_at["pick", sys._getframe(1).f_code.co_filename] = sys._getframe(1).f_lineno
        try:
            weights = torch.as_tensor(weights, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError):
            raise Failure(f"dice.pick takes a tensor of weights, got {weights!r:.80}") from None
        listed = weights.tolist() if weights.dim() == 1 else []
        self.first = self.first or ("pick", listed)
        if not min(listed, default=-1) >= 0 or not sum(listed) > 0:
            name = "negative-weights" if min(listed, default=0) < 0 else ""
            raise Failure("dice.pick takes a (V,) tensor of weights, none negative, not all 0; got "
                          f"{weights!r:.60}{f' ({name})' * bool(name)}", name)
        return self.dice.choose(listed) if isinstance(self.dice, WalkingDice) else super().pick(weights)

    def flip(self, prob) -> bool:
        Row.thrown_at["flip", sys._getframe(1).f_code.co_filename] = sys._getframe(1).f_lineno
        odds = float(prob)
        self.first = self.first or ("flip", odds)
        if not odds >= 0:
            name = "negative-probability" if odds < 0 else ""
            raise Failure(f"dice.flip takes a probability, got {prob!r:.80}{f' ({name})' * bool(name)}", name)
        if isinstance(self.dice, WalkingDice):
            return bool(self.dice.choose([1 - min(odds, 1.0), min(odds, 1.0)]))
        return super().flip(prob)


def not_drawn_again(row: Row, q_draft: torch.Tensor) -> None:
    """x is handed in. What looks like *sample and match* from outside may draw an x of its own: the dice tell."""
    if row.first == ("pick", q_draft.tolist()):
        raise Failure("you draw a draft token of your own from q_draft: x has been drawn from it already, and it is x "
                      "that is accepted or replaced (x-drawn-again)", "x-drawn-again")


def look(title: str, play: Callable, expected: dict) -> Seen:
    """Walk play(dice), which returns an outcome, and put its distribution beside the expected one."""
    try:
        found, paths = walk(lambda dice: play(Row(dice)))
    except Exception as error:
        return fell_over(title, error)
    return Seen(title, found, expected, paths)


def part_of(whole: Seen, title: str, part: Callable, expected: dict) -> Seen:
    """Of outcomes that have been walked already, some part of each."""
    if whole.error is not None:
        return replace(whole, title=title)
    found: dict = {}
    for outcome, weight in whole.got.items():
        found[part(outcome)] = found.get(part(outcome), 0.0) + weight
    return Seen(title, found, expected, whole.paths)


def values(title: str, got: Callable[[], dict], expected: dict, tolerance: float = TOLERANCE) -> Seen:
    """Values by name, beside the right ones."""
    try:
        return Seen(title, {key: float(value) for key, value in got().items()}, expected, tolerance=tolerance)
    except Exception as error:
        return fell_over(title, error)


def fell_over(title: str, error: Exception) -> Seen:
    """An error is an outcome like any other: a known mistake may fall over in the same way. Unwritten code is none."""
    if unwritten(error):
        raise error
    kind = str(error)[:160] if isinstance(error, Failure) else type(error).__name__
    return Seen(title, {kind: 1.0}, {"no error": 1.0}, error=error)


def unwritten(error: Exception) -> bool:
    """A stub's `raise NotImplementedError`. What torch has no code for raises it with a text."""
    return isinstance(error, NotImplementedError) and not error.args


AMBIGUOUS = "Boolean value of Tensor with more than one value"         # torch's words


def told(error: Exception) -> str:
    """An error in a few lines, with the call of the learner's function that raised it."""
    if isinstance(error, Failure):
        return str(error).splitlines()[0][:160]
    call = getattr(error, "call", "")
    kind, said = type(error).__name__, one_line(error)[:160]
    more = ("\n    A tensor of several numbers was taken for one, as by Python's max, min, if or and. Torch's own go "
            "through all of its numbers: t.clamp(min=0), torch.minimum, torch.where." if AMBIGUOUS in said else "")
    return kind + f": {said}" * (said != kind) + (f"\n    in {call}" if call else "") + more


def fits(draw: Callable[[Row], Hashable], expected: dict, samples: int = 3_000) -> str:
    """Real dice: a right function fails this once in 10,000 sets of seeds, and the seeds are fixed."""
    counts: dict = {}
    for seed in range(samples):
        outcome = draw(Row(Dice([seed])))
        counts[outcome] = counts.get(outcome, 0) + 1
    fit = goodness_of_fit(counts, expected)
    if fit.p_value < 1e-4:
        raise Failure(f"{samples:,} samples with real dice do not fit (p = {fit.p_value:.2g}), although the walk does: "
                      "does it keep something between calls, or draw from anything but the dice?")
    return f"{samples:,} samples, p = {fit.p_value:.2g}"


def difference(a: float, b: float) -> float:
    """a - b; 0 also where both are the same infinity."""
    return 0.0 if a == b else a - b


def same(one: Seen, other: Seen) -> bool:
    """Wrong in the same places, and by the same numbers: to SAME, and to a share of how wrong it is, so that an epsilon
    of 1e-9 is told from one of 1e-10.
    """
    def close(key: Hashable) -> bool:
        a, b = one.got.get(key, 0.0), other.got.get(key, 0.0)
        if a == b or a != a and b != b:
            return True
        off = abs(difference(a, one.expected.get(key, 0.0)))
        return abs(a - b) <= max(one.tolerance, min(SAME, SHARE * off))
    return all(close(key) for key in one.got.keys() | other.got.keys())
