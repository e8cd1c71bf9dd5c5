"""The checker's engine: what an exercise is, and how a learner's functions are looked at, part by part.

A part looks at the functions and says what it has seen, as numbers beside the numbers that are right: a law walked
path by path, or values. Known mistakes are functions too. When what the learner's functions do is, number for number,
what a known mistake does, then that is what was done wrong.
"""

import ast
import sys
import traceback
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import torch

from lessons.kit import OneRow
from nanospec.dice import Dice
from nanospec.proof.exact import walk
from nanospec.proof.stats import goodness_of_fit

TOLERANCE = 1e-12       # of right and wrong
SAME = 1e-9             # of one wrong law and another
ROWS = 10               # of a table of differences
ANSWERS = Path(__file__).parent.parent / "answers"


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
        kind = ("outcome", "target") if self.paths else ("", "right")
        lines = [self.title, f"    {kind[0]:<28}{kind[1]:>12}{'yours':>12}{'difference':>12}"]
        for key in sorted(off, key=lambda key: -abs(off[key]))[:ROWS]:
            lines.append(f"    {str(key):<28}{self.expected.get(key, 0.0):>12.6g}{self.got.get(key, 0.0):>12.6g}"
                         f"{off[key]:>+12.3g}")
        if len(off) > ROWS:
            lines.append(f"    ... and {len(off) - ROWS} more")
        if self.paths:
            lines.append(f"    total variation {sum(map(abs, off.values())) / 2:.3g}, {self.paths:,} paths walked")
        return "\n".join(lines)


Functions = SimpleNamespace                             # an exercise's functions, by name
Look = Callable[[Functions], list[Seen]]


@dataclass
class Wrong:
    """A known mistake: its name, in one sentence what was done wrong, the functions that do it, and with which throw
    of the dice: "pick" or "flip".
    """

    name: str
    said: str
    functions: dict[str, Callable]
    throw: str


def wrong(name: str, said: str, throw: str = "pick", **functions: Callable) -> Wrong:
    return Wrong(name, said, functions, throw)


@dataclass
class Exercise:
    """file: its name, in exercises/ and in answers/.  looks: parts that compare numbers, by name, in order.
    contract, tests: parts that raise Failure or fall silent.  like: (module, name) of the lines to compare with.
    """

    file: str
    functions: tuple[str, ...]
    contract: Callable[[Functions], None]
    looks: dict[str, Look]
    wrongs: list[Wrong]
    hints: tuple[str, ...]
    like: list[tuple[str, str]]
    tests: dict[str, Callable[[Functions], str | None]] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return int(self.file[2:4])

    def with_mistake(self, mistake: Wrong) -> Functions:
        return Functions(**vars(load(ANSWERS / self.file, self)) | mistake.functions)


@dataclass
class Result:
    """passed: the parts that were, each with what it had to say.  failure: of which part, and the text; or None."""

    passed: list[tuple[str, str]]
    failure: tuple[str, str] | None = None
    named: list[str] = field(default_factory=list)


class Row(OneRow):
    """Dice that remember from which line of which file they were last thrown."""

    thrown_at: dict[tuple[str, str], int] = {}

    def pick(self, weights) -> int:
        Row.thrown_at["pick", sys._getframe(1).f_code.co_filename] = sys._getframe(1).f_lineno
        try:
            weights = torch.as_tensor(weights, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError):
            raise Failure(f"dice.pick takes a tensor of weights, got {weights!r:.80}") from None
        if weights.dim() != 1 or not bool((weights >= 0).all()) or not bool(weights.sum() > 0):
            raise Failure(f"dice.pick takes a (V,) tensor of weights, none negative, not all 0; got {weights!r:.120}")
        return super().pick(weights)

    def flip(self, prob) -> bool:
        Row.thrown_at["flip", sys._getframe(1).f_code.co_filename] = sys._getframe(1).f_lineno
        if not float(prob) >= 0:
            raise Failure(f"dice.flip takes a probability, got {prob!r:.80}")
        return super().flip(prob)


def load(path: Path, exercise: Exercise) -> Functions:
    """The exercise's functions as that file has them."""
    source = path.read_text(encoding="utf-8")
    names = {"__name__": f"exercise_{exercise.number}", "__file__": str(path)}
    exec(compile(source, str(path), "exec"), names)
    missing = [name for name in exercise.functions if not callable(names.get(name))]
    if missing:
        raise Failure(f"{path.name} has no function {missing[0]}")
    return Functions(**{name: names[name] for name in exercise.functions})


def look(title: str, play: Callable, expected: dict) -> Seen:
    """Walk play(dice), which returns an outcome, and put its law beside the expected one."""
    try:
        law, paths = walk(lambda dice: play(Row(dice)))
    except NotImplementedError:
        raise
    except Exception as error:
        return fell_over(title, error)
    return Seen(title, law, {key: p for key, p in expected.items() if p > 0}, paths)


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


def law_like(value, shape: tuple[int, ...], what: str) -> torch.Tensor:
    """The learner's answer as weights of that shape."""
    if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape:
        got = f"a tensor {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"{value!r:.80}"
        raise Failure(f"{what} must return a tensor {shape}; it returned {got}")
    return value.double()


def fits(draw: Callable[[Row], Hashable], law: dict, samples: int = 3_000) -> str:
    """Real dice: a right function fails this once in 10,000 sets of seeds, and the seeds are fixed."""
    counts: dict = {}
    for seed in range(samples):
        outcome = draw(Row(Dice([seed])))
        counts[outcome] = counts.get(outcome, 0) + 1
    fit = goodness_of_fit(counts, law)
    if fit.p_value < 1e-4:
        raise Failure(f"{samples:,} samples with real dice do not fit the law (p = {fit.p_value:.2g}), although the "
                      "walk does: does it keep something between calls, or draw from anything but the dice?")
    return f"{samples:,} samples, p = {fit.p_value:.2g}"


def check(exercise: Exercise, path: Path) -> Result:
    """All parts in order, up to the first that fails."""
    result, part = Result([]), "contract"
    try:
        functions = load(path, exercise)
        for part, test in {"contract": exercise.contract, **exercise.looks, **exercise.tests}.items():
            found = test(functions)
            if part in exercise.looks:
                off = next((seen for seen in found if seen.differences()), None)
                if off:
                    mistakes = named(exercise, functions)
                    result.named = [mistake.name for mistake in mistakes]
                    said = "".join(f"\n{mistake.said} ({mistake.name}; "
                          f"{place(exercise, path, off.error, mistake.throw)})"
                                   for mistake in mistakes)
                    lossless = exercise.looks.get("exact distribution")
                    if lossless not in (None, test) and not any(seen.differences() for seen in lossless(functions)):
                        said += "\nThe text's law is right all the same: what is lost is speed, not truth."
                    result.failure = part, str(off) + (said or f"\nnot a mistake known here; look at "
                          f"{place(exercise, path, off.error)}")
                    return result
                found = f"{sum(seen.paths for seen in found):,} paths" if found[0].paths else f"{len(found)} cases"
            result.passed.append((part, found or ""))
    except NotImplementedError:
        result.failure = part, f"nothing there yet: {exercise.functions[0]} raises NotImplementedError"
    except Failure as failure:
        result.failure = part, str(failure)
    except SyntaxError as error:
        result.failure = part, f"{path.name}, line {error.lineno}: {error.msg}"
    except (Exception, SystemExit) as error:
        result.failure = part, f"{type(error).__name__}: {error} ({place(exercise, path, error)})"
    return result


def named(exercise: Exercise, functions: Functions) -> list[Wrong]:
    """The known mistakes that do, number for number and in every part, what these functions do."""
    theirs, left = {test: test(functions) for test in exercise.looks.values()}, exercise.wrongs
    for test in sorted(theirs, key=lambda test: sum(seen.paths for seen in theirs[test])):      # walks come last
        left = [mistake for mistake in left if all(
            same(a.got, b.got) for a, b in zip(theirs[test], test(exercise.with_mistake(mistake))))]
    return left


def same(one: dict, other: dict) -> bool:
    def close(a: float, b: float) -> bool:
        return abs(a - b) <= SAME or a != a and b != b or a == b
    return all(close(one.get(key, 0.0), other.get(key, 0.0)) for key in one.keys() | other.keys())


def place(exercise: Exercise, path: Path, error: BaseException | None = None, throw: str = "pick") -> str:
    """The line of the learner's file to look at: where it fell, where it last threw the dice, or what it returns."""
    if error is not None:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        if lines:
            return f"{path.name}, line {lines[-1]}"
    for one in (throw, "pick", "flip"):
        if (one, str(path)) in Row.thrown_at:
            return f"{path.name}, line {Row.thrown_at[one, str(path)]}"
    functions = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                 if isinstance(node, ast.FunctionDef) and node.name in exercise.functions]
    returns = [node.lineno for one in functions for node in ast.walk(one) if isinstance(node, ast.Return)]
    return f"{path.name}, line {max(returns, default=1)}"


def folder_of_exercises() -> Path:
    """Where a learner writes: as a path to be printed, short."""
    folder = Path(__file__).parent.parent / "exercises"
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def stub(answer: str) -> str:
    """An answer's source with `raise NotImplementedError` for every body."""
    lines, tree = answer.splitlines(), ast.parse(answer)
    for node in reversed([node for node in tree.body if isinstance(node, ast.FunctionDef)]):
        if node.name.startswith("rule_"):               # shown, not asked for
            continue
        first = node.body[1] if ast.get_docstring(node) else node.body[0]
        lines[first.lineno - 1:node.end_lineno] = ["    raise NotImplementedError"]
    return "\n".join(lines) + "\n"
