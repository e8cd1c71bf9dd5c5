"""Which known mistake is it, in which line? And is anything but speed lost?"""

from __future__ import annotations

import ast
import contextlib
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from lessons.check.catalogue import read
from lessons.check.clock import TooLong
from lessons.check.pairs import BY_A_HAIR
from lessons.check.seen import NOISE, Failure, Row, Seen, same

OWN_RANDOMNESS = "own-random-numbers"
DRAWS = {"rand", "randn", "randint", "rand_like", "randperm", "random", "uniform", "multinomial", "bernoulli", "normal",
         "choice", "default_rng", "RandomState", "Categorical", "OneHotCategorical", "gumbel_softmax"}
DRAWN_BY_TENSORS = {"multinomial", "bernoulli", "bernoulli_", "uniform_", "random_", "exponential_"}

if TYPE_CHECKING:
    from lessons.check.engine import Exercise, Functions, Result, Wrong


def tell_apart(exercise: Exercise, path: Path, functions: Functions, part: str, theirs: dict[str, list[Seen]],
               result: Result) -> str:
    """The numbers, the mistake by name or where to look, and whether anything but speed is lost.

    part: the first that failed.  theirs: what it and those before it have seen; the others are looked at here.
    """
    off = next(seen for seen in theirs[part] if seen.differences())
    thrown = dict(Row.thrown_at)
    look_further(exercise, functions, theirs)
    mistakes = named(exercise, theirs)
    further = "" if mistakes else "; it is not the only mistake"
    mistakes = mistakes or named_in_case(exercise, theirs, part, off) or named_by_verdict(exercise, theirs, part, off)
    own = own_randomness(path) if exercise.throws else ""
    lines = [str(off)]
    if own:
        result.named = [OWN_RANDOMNESS]
        lines.append(f"random numbers of your own, {own}: all chance must come from dice.flip and dice.pick, or "
                     "nobody can "
                     f"tell what your rule does ({OWN_RANDOMNESS})")
    elif mistakes:
        result.named = list(dict.fromkeys(mistake.name for mistake in mistakes))
        lines += dict.fromkeys(f"{mistake.said} ({mistake.name}; "
                               f"{place(exercise, path, off.error, mistake.throw, off.title)}{further})"
                               for mistake in mistakes)
    elif isinstance(off.error, Failure) and off.error.name:
        result.named = [off.error.name]
        lines.append(f"look at {place(exercise, path, off.error, title=off.title)}")
    else:
        lines.append(f"not a mistake known here; look at {place(exercise, path, off.error, title=off.title)}")
        loud = [seen.greatest() for found in theirs.values() for seen in found if BY_A_HAIR not in seen.title]
        if 0 < max(loud) < NOISE:                       # what divides by next to nothing makes noise loud
            result.named = ["nearly-right"]
            lines.append("Nearly right: nothing is off by more than a millionth. A little number added somewhere, such "
                         "as 1e-8, may do that, a threshold, or a float32: leave it out. What would be divided by 0 "
                         "needs an answer of its own. (nearly-right)")
    if exercise.throws and not any(file == str(path) for _, file in thrown):
        lines.append("it never throws the dice it is given: all chance must come from dice.flip and dice.pick")
    if not own and only_slow(exercise, theirs):         # a walk sees one throw of its own numbers, and proves nothing
        result.slow = True
        given = exercise.speed.startswith("accepted as")            # the draft tokens: of one alone it is not right
        average = "Averaged over all draft tokens, t" if given else "T"
        lines.append(f"{average}he distribution of the text is right all the same: what is lost is speed, not truth.")
    return "\n".join(lines)


def only_slow(exercise: Exercise, theirs: dict[str, list[Seen]]) -> bool:
    """Walked, of this very answer: the distribution is right, and it is slower than it can be."""
    exact, speed = (theirs.get(part, []) for part in ("exact distribution", exercise.speed))
    return bool(exact) and not any(seen.differences() for seen in exact) and any(
        seen.error is None and seen.differences() for seen in speed)


def look_further(exercise: Exercise, functions: Functions, theirs: dict[str, list[Seen]]) -> None:
    """What the other parts see of these functions. One may be unwritten, fall or not end: the rest must do."""
    with contextlib.suppress(TooLong):
        for part, test in exercise.looks.items():
            if part not in theirs:
                with contextlib.suppress(Exception):
                    theirs[part] = test(functions)


def named(exercise: Exercise, theirs: dict[str, list[Seen]]) -> list[Wrong]:
    """The known mistakes that look, number for number, like what was seen everywhere. With two functions one may be
    right here that is wrong there: then wherever something is wrong, and of several, the one that does so everywhere.
    """
    wrong_in = [part for part in cheap_first(theirs) if any(seen.differences() for seen in theirs[part])]
    left = [mistake for mistake in exercise.wrongs if all(
        alike(exercise, theirs, part, mistake)
        for part in (cheap_first(theirs) if len(exercise.functions) == 1 else wrong_in))]
    if len(left) > 1:
        left = [mistake for mistake in left
                if all(alike(exercise, theirs, part, mistake) for part in cheap_first(theirs))] or left
    return left


def cheap_first(theirs: dict[str, list[Seen]]) -> list[str]:
    return sorted(theirs, key=lambda part: sum(seen.paths for seen in theirs[part]))


def named_in_case(exercise: Exercise, theirs: dict[str, list[Seen]], part: str, off: Seen) -> list[Wrong]:
    """Of two mistakes at once: the one that explains the first case that is wrong, if it is the only one that does. It
    also explains half of the cases in which it is wrong, and is wrong in none that is right here.

    Not by whole numbers: small ones are alike by accident.
    """
    telling = [value for key in off.differences() if (value := off.got.get(key, 0.0)) % 1 or value != value]
    if off.error is not None or not telling:
        return []
    at = theirs[part].index(off)
    left = [mistake for mistake in exercise.wrongs
            if explains(exercise, theirs, mistake) and same(off, exercise.seen_of(mistake, part)[at])]
    return left[:1] if len({mistake.name for mistake in left}) == 1 else []


def explains(exercise: Exercise, theirs: dict[str, list[Seen]], mistake: Wrong) -> bool:
    """All cases in which that mistake is wrong are wrong here, and half of them by the same numbers. Where it has cases
    with three numbers off or more, these are counted alone: of two, such as p and 1 - p, one is alike by accident.
    """
    alike = []
    for part in cheap_first(theirs):
        for yours, its in zip(theirs[part], exercise.seen_of(mistake, part)):
            if off := its.differences():
                if not yours.differences():
                    return False
                alike.append((len(off) > 2, same(yours, its)))
    telling = [is_same for many, is_same in alike if many] or [is_same for _, is_same in alike]
    return 2 * sum(telling) >= len(telling)


def named_by_verdict(exercise: Exercise, theirs: dict[str, list[Seen]], part: str, off: Seen) -> list[Wrong]:
    """Of several wrong verdicts: the mistakes that explain some of them each. Of two that explain the same verdict the
    one that explains more.
    """
    if not off.secret:
        return []
    at, found = theirs[part].index(off), {}
    for mistake in exercise.wrongs:
        case = exercise.seen_of(mistake, part)[at]
        keys = frozenset(case.differences())
        if keys and all(case.got.get(key) == off.got.get(key) for key in keys):
            found[keys] = mistake
    return [mistake for keys, mistake in found.items() if not any(keys < more for more in found)]


def alike(exercise: Exercise, theirs: dict[str, list[Seen]], part: str, mistake: Wrong) -> bool:
    return all(same(a, b) for a, b in zip(theirs[part], exercise.seen_of(mistake, part)))


def place(exercise: Exercise, path: Path, error: BaseException | None = None, throw: str = "pick",
          title: str = "") -> str:
    """The lines of the learner's file to look at: where it fell, where it last threw the dice, or the function."""
    if error is not None:
        lines = [number for frame, number in traceback.walk_tb(error.__traceback__)
                 if frame.f_code.co_filename == str(path)]
        if lines:
            return f"{path.name}, line {lines[-1]}"
    try:
        tree = ast.parse(read(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):     # no plain file, no text, too deep
        return path.name
    about = [name for name in exercise.functions if title.startswith(name)] or exercise.functions
    functions = [node for node in ast.walk(tree)
                 if isinstance(node, ast.FunctionDef) and node.name in about]
    throws = any(argument.arg == "dice" for function in functions for argument in function.args.args)
    for kind in (throw, "pick", "flip") if throws else ():
        if (kind, str(path)) in Row.thrown_at:
            return f"{path.name}, line {Row.thrown_at[kind, str(path)]}"
    bodies = [function.body[bool(ast.get_docstring(function)):] or function.body for function in functions]
    first = min((body[0].lineno for body in bodies), default=1)
    last = max((body[-1].end_lineno for body in bodies), default=1)
    return f"{path.name}, line {first}" if first == last else f"{path.name}, lines {first} to {last}"


def own_randomness(path: Path) -> str:
    """Where the file draws random numbers that are not the dice's: "torch.rand in line 7"; "" if it does not. What runs
    only if the file is a program does not count.
    """
    tree, names = ast.parse(read(path)), {}
    tree.body = [node for node in tree.body if not (isinstance(node, ast.If) and "__name__" in ast.unparse(node.test))]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(name.asname or name.name).split(".")[0]: name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            root, last = called.split(".")[0], called.split(".")[-1]
            module = names.get(root, "").split(".")[0]
            drawing = last in DRAWN_BY_TENSORS or module in ("torch", "numpy") and last in DRAWS
            if drawing or module in ("random", "secrets"):
                return f"{called} in line {node.lineno}"
    return ""
