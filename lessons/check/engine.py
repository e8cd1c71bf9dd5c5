"""The checker's engine: what an exercise is, and how a learner's functions are looked at, part by part.

A part looks at the functions and says what it has seen, as numbers beside the numbers that are right: a distribution
walked path by path, or values. Known mistakes are functions too. When what the learner's functions do is, number for
number, what a known mistake does, then that is what was done wrong.
"""

import ast
import contextlib
import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from lessons.check.guard import Beginning, TooLong, limit
from lessons.check.seen import Failure, Row, Seen, same

ANSWERS = Path(__file__).parent.parent / "answers"
SECONDS = 60            # for one exercise; the slowest right answer takes two

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
    contract, tests: parts that raise Failure or fall silent.  like: (module, name, first words, last words) of lines of
    the library to compare with.  slow_is_right: a rule can be lossless here and fail all the same.
    """

    file: str
    functions: tuple[str, ...]
    contract: Callable[[Functions], None]
    looks: dict[str, Look]
    wrongs: list[Wrong]
    hints: tuple[str, ...]
    like: list[tuple[str, str, str, str]]
    tests: dict[str, Callable[[Functions], str | None]] = field(default_factory=dict)
    slow_is_right: bool = False
    _of_mistakes: dict[tuple[int, str], list[Seen]] = field(default_factory=dict, init=False, repr=False)

    @property
    def number(self) -> int:
        return int(self.file[2:4])

    @property
    def answer(self) -> str:
        """The source of a solution; its docstring says what the exercise is and how much of a job."""
        return (ANSWERS / self.file).read_text(encoding="utf-8")

    def with_mistake(self, mistake: Wrong) -> Functions:
        return Functions(**vars(load(ANSWERS / self.file, self)) | mistake.functions)

    def seen_of(self, mistake: Wrong, part: str) -> list[Seen]:
        """What that part sees of a known mistake. It is always the same, and so looked at once."""
        key = id(mistake), part
        if key not in self._of_mistakes:
            self._of_mistakes[key] = self.looks[part](self.with_mistake(mistake))
        return self._of_mistakes[key]


@dataclass
class Result:
    """passed: the parts that were, each with what it had to say.  failure: of which part, and the text; or None.
    printed: what the learner's functions printed, the beginning of it.
    """

    passed: list[tuple[str, str]]
    failure: tuple[str, str] | None = None
    named: list[str] = field(default_factory=list)
    printed: str = ""


def load(path: Path, exercise: Exercise) -> Functions:
    """The exercise's functions as that file has them."""
    source = path.read_text(encoding="utf-8")
    names = {"__name__": f"exercise_{exercise.number}", "__file__": str(path)}
    exec(compile(source, str(path), "exec"), names)
    missing = [name for name in exercise.functions if not callable(names.get(name))]
    if missing:
        raise Failure(f"{path.name} has no function {missing[0]}")
    return Functions(**{name: names[name] for name in exercise.functions})


def check(exercise: Exercise, path: Path, seconds: float = SECONDS) -> Result:
    """All parts in order, up to the first that fails. seconds: for all of them; 0 is no limit."""
    result, heard = Result([]), Beginning()
    part = "contract"
    try:
        with limit(seconds), contextlib.redirect_stdout(heard):
            functions = load(path, exercise)
            for part, test in {"contract": exercise.contract, **exercise.looks, **exercise.tests}.items():
                found = test(functions)
                if part in exercise.looks:
                    off = next((seen for seen in found if seen.differences()), None)
                    if off:
                        result.failure = part, tell_apart(exercise, path, functions, test, off, result)
                        break
                    cases, paths = len(found), sum(seen.paths for seen in found)
                    found = f"{paths:,} paths walked" if paths else f"{cases} case{'s' * (cases > 1)}"
                result.passed.append((part, found or ""))
    except NotImplementedError:
        result.failure = part, f"nothing there yet: {exercise.functions[0]} raises NotImplementedError"
    except TooLong:
        result.failure = part, (f"still running after {seconds:g} seconds, and stopped. A rule that guesses again and "
                                "again has no longest way, and no walk through it ends.")
    except Failure as failure:
        result.failure = part, str(failure)
    except SyntaxError as error:
        result.failure = part, f"{path.name}, line {error.lineno}: {error.msg}"
    except SystemExit:
        result.failure = part, "it ended the program instead of returning something"
    except Exception as error:
        result.failure = part, f"{type(error).__name__}: {error} ({place(exercise, path, error)})"
    result.printed = heard.getvalue()
    return result


def tell_apart(exercise: Exercise, path: Path, functions: Functions, test: Look, off: Seen, result: Result) -> str:
    """The numbers, the mistake by name or where to look, and whether anything but speed is lost."""
    mistakes = named(exercise, seen_by(exercise, functions))
    result.named = [mistake.name for mistake in mistakes]
    lines = [str(off)]
    lines += [f"{mistake.said} ({mistake.name}; {place(exercise, path, off.error, mistake.throw, off.title)})"
              for mistake in mistakes]
    if not mistakes:
        lines.append(f"not a mistake known here; look at {place(exercise, path, off.error, title=off.title)}")
    asks = any("dice" in inspect.signature(function).parameters for function in vars(functions).values())
    if asks and not any(file == str(path) for _, file in Row.thrown_at):
        lines.append("it never throws the dice it is given: all chance must come from dice.flip and dice.pick")
    lossless = exercise.looks.get("exact distribution")
    if exercise.slow_is_right and test != lossless and not any(seen.differences() for seen in lossless(functions)):
        lines.append("Averaged over all guesses, the distribution of the text is right all the same: what is lost is "
                     "speed, not truth.")
    return "\n".join(lines)


def seen_by(exercise: Exercise, functions: Functions) -> dict[str, list[Seen]]:
    """What every part sees of these functions."""
    theirs = {}
    for part, test in exercise.looks.items():
        with contextlib.suppress(NotImplementedError):      # of several functions one may not be written yet
            theirs[part] = test(functions)
    return theirs


def named(exercise: Exercise, theirs: dict[str, list[Seen]]) -> list[Wrong]:
    """The known mistakes that look, number for number, like what was seen, wherever that is wrong; of several, the one
    that does so everywhere, if there is one.
    """
    def alike(part: str, mistake: Wrong) -> bool:
        return all(same(a.got, b.got) for a, b in zip(theirs[part], exercise.seen_of(mistake, part)))

    cheap_first = sorted(theirs, key=lambda part: sum(seen.paths for seen in theirs[part]))
    wrong_in = [part for part in cheap_first if any(seen.differences() for seen in theirs[part])]
    left = [mistake for mistake in exercise.wrongs if all(alike(part, mistake) for part in wrong_in)]
    if len(left) > 1:
        left = [mistake for mistake in left if all(alike(part, mistake) for part in cheap_first)] or left
    return left


def place(exercise: Exercise, path: Path, error: BaseException | None = None, throw: str = "pick",
          title: str = "") -> str:
    """The line of the learner's file to look at: where it fell, where it last threw the dice, or what it returns."""
    if error is not None:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        if lines:
            return f"{path.name}, line {lines[-1]}"
    about = [name for name in exercise.functions if title.startswith(name)] or exercise.functions
    functions = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                 if isinstance(node, ast.FunctionDef) and node.name in about]
    throws = any(argument.arg == "dice" for function in functions for argument in function.args.args)
    for kind in (throw, "pick", "flip") if throws else ():
        if (kind, str(path)) in Row.thrown_at:
            return f"{path.name}, line {Row.thrown_at[kind, str(path)]}"
    returns = [node.lineno for function in functions for node in ast.walk(function) if isinstance(node, ast.Return)]
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
