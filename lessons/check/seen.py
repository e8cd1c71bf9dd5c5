"""Looking: what a learner's function did, as numbers beside the right ones. Paths are walked, values compared."""

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch

from lessons.kit import OneRow
from nanospec.dice import Dice
from nanospec.proof.stats import goodness_of_fit
from nanospec.proof.walk import walk

TOLERANCE = 1e-12       # of right and wrong
SAME = 1e-9             # of one wrong distribution and another
ROWS = 10               # of a table of differences


class Failure(Exception):
    """What is wrong, in words for the learner."""


@dataclass
class Seen:
    """One case. got, expected: outcome -> probability if paths were walked, else name -> value."""

    title: str
    got: dict[Hashable, float]
    expected: dict[Hashable, float]
    paths: int = 0
    error: Exception | None = None
    secret: bool = False        # what is right is for the learner to find

    def differences(self) -> dict[Hashable, float]:
        found = {}
        for key in [*self.expected, *(key for key in self.got if key not in self.expected)]:
            off = self.got.get(key, 0.0) - self.expected.get(key, 0.0)
            if not abs(off) <= TOLERANCE:               # a nan is a difference
                found[key] = off
        return found

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.title}: it fell over\n    {next(iter(self.got))}"
        off = self.differences()
        if self.secret:
            return f"{self.title}\n    not so: {', '.join(map(str, off))}"
        lines = [self.title, f"    {'outcome' * bool(self.paths):<28} {'right':>12} {'yours':>12} {'difference':>12}"]
        for key in sorted(off, key=lambda key: -abs(off[key]))[:ROWS]:
            right, yours = (value if value != value or abs(value) > TOLERANCE else 0.0
                            for value in (self.expected.get(key, 0.0), self.got.get(key, 0.0)))
            lines.append(f"    {str(key):<28} {right:>12.6g} {yours:>12.6g} {off[key]:>+12.3g}")
        if len(off) > ROWS:
            lines.append(f"    ... and {len(off) - ROWS} more")
        if self.paths:
            lines.append(f"    total variation {sum(map(abs, off.values())) / 2:.3g}, {self.paths:,} "
                         f"path{'s' * (self.paths > 1)} walked")
        return "\n".join(lines)


class Row(OneRow):
    """Dice that remember from which line of which file they were last thrown."""

    thrown_at: dict[tuple[str, str], int] = {}

    def pick(self, weights) -> int:
        Row.thrown_at["pick", sys._getframe(1).f_code.co_filename] = sys._getframe(1).f_lineno
        try:
            weights = torch.as_tensor(weights, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError):
            raise Failure(f"dice.pick takes a tensor of weights, got {weights!r:.80}") from None
        listed = weights.tolist() if weights.dim() == 1 else []
        if not min(listed, default=-1) >= 0 or not sum(listed) > 0:
            raise Failure(f"dice.pick takes a (V,) tensor of weights, none negative, not all 0; got {weights!r:.120}")
        return super().pick(weights)

    def flip(self, prob) -> bool:
        Row.thrown_at["flip", sys._getframe(1).f_code.co_filename] = sys._getframe(1).f_lineno
        if not float(prob) >= 0:
            raise Failure(f"dice.flip takes a probability, got {prob!r:.80}")
        return super().flip(prob)


def look(title: str, play: Callable, expected: dict) -> Seen:
    """Walk play(dice), which returns an outcome, and put its distribution beside the expected one."""
    try:
        found, paths = walk(lambda dice: play(Row(dice)))
    except NotImplementedError:
        raise
    except Exception as error:
        return fell_over(title, error)
    return Seen(title, found, {key: p for key, p in expected.items() if p > 0}, paths)


def values(title: str, got: Callable[[], dict], expected: dict) -> Seen:
    """Values by name, beside the right ones."""
    try:
        return Seen(title, {key: float(value) for key, value in got().items()}, expected)
    except NotImplementedError:
        raise
    except Exception as error:
        return fell_over(title, error)


def fell_over(title: str, error: Exception) -> Seen:
    """An error is an outcome like any other: a known mistake may fall over in the same way."""
    kind = "" if isinstance(error, Failure) else f"{type(error).__name__}: "
    return Seen(title, {(kind + (str(error).splitlines() or [""])[0])[:160]: 1.0}, {"no error": 1.0}, error=error)


def token(value, vocab_size: int, what: str) -> int:
    """The learner's answer as an int in 0..vocab_size - 1."""
    if isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_floating_point():
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocab_size:
        raise Failure(f"{what} must return a token, an int in 0..{vocab_size - 1}; it returned {value!r:.80}")
    return value


def weights_like(value, shape: tuple[int, ...], what: str) -> torch.Tensor:
    """The learner's answer as weights of that shape."""
    if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape:
        got = f"a tensor {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"{value!r:.80}"
        raise Failure(f"{what} must return a tensor {shape}; it returned {got}")
    return value.double()


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


def same(one: dict, other: dict) -> bool:
    def close(a: float, b: float) -> bool:
        return abs(a - b) <= SAME or a != a and b != b or a == b
    return all(close(one.get(key, 0.0), other.get(key, 0.0)) for key in one.keys() | other.keys())
