"""At a learner's desk: what a check has found, a hint, an answer after a pass, and the same again at every save."""

import ast
import importlib
import inspect
import os
import textwrap
import time
from os import _exit

from rich.console import Console

from lessons.check import EXERCISES, progress
from lessons.check.catalogue import HANDED_OUT, command, read
from lessons.check.engine import Exercise, Result, check
from nanospec.cli.show.terminal import printable

LOOK_AGAIN = 0.5        # seconds between looks at the file
SHOWN = 8               # lines of what a function prints


def looked_at(exercise: Exercise) -> Result:
    """Checked, and remembered as solved or tried."""
    try:
        text = read(exercise.path)
    except FileNotFoundError:
        return Result([], ("contract", f"{exercise.path} is not there: {command()} --reset {exercise.number} brings it "
                                       "back"))
    except OSError as error:
        return Result([], ("contract", f"{exercise.path}: {error.strerror}"))
    own = os.getpid()
    result = check(exercise, exercise.path)
    if os.getpid() != own:                      # a fork of the learner's: one verdict is enough
        _exit(1)
    progress.remember(exercise, text, result.failure is None)
    return result


def tell(exercise: Exercise, console: Console) -> int:
    """The parts, one a line; of the first that failed, why; after a pass, what to compare with."""
    console.print(f"exercise {exercise.number}: {exercise.title}", style="bold")
    console.print(f"{exercise.path}; {exercise.size}", style="dim", markup=False, soft_wrap=True)
    result = looked_at(exercise)
    for part, said in result.passed:
        console.print(f"  [green]ok[/]      {part:<36}[dim]{said}[/]", soft_wrap=True)
    if result.failure:
        part, why = result.failure
        console.print(f"  [red]not yet[/] {part}")
        for line in printable(why).splitlines():           # tables stay as they are, sentences are wrapped
            if not line.startswith(" "):
                line = wrapped(line, console)
            console.print(textwrap.indent(line, "          "), markup=False, style="yellow", soft_wrap=True)
        show_printed(result, console)
        console.print(f"a hint: {command()} {exercise.number} --hint", style="dim", markup=False, soft_wrap=True)
        console.print(progress.bar(), style="dim")
        return 1
    show_printed(result, console)
    console.print("solved.", style="bold green", end=" ")
    console.print("Compare with the library:")
    for where in exercise.like:
        show_lines(*where, console)
    if not HANDED_OUT:
        console.print(f"another solution: {command()} {exercise.number} --answer", style="dim", markup=False,
                      soft_wrap=True)
    console.print(progress.bar(), style="dim")
    return 0


def wrapped(line: str, console: Console) -> str:
    return textwrap.fill(line, max(40, console.width - 12), break_on_hyphens=False)


def show_printed(result: Result, console: Console) -> None:
    """What the learner's functions have printed."""
    if result.printed:
        lines = printable(result.printed).splitlines()
        console.print("  it printed:", style="dim")
        for line in lines[:SHOWN] + ["..."] * (len(lines) > SHOWN):
            console.print(" " * 10 + line, markup=False, soft_wrap=True)


def show_lines(module: str, name: str, first: str, last: str, console: Console) -> None:
    """A function of the library, from the line that holds `first` to the one that holds `last`."""
    try:
        thing = importlib.import_module(module)
    except ModuleNotFoundError:                             # tests, where the package alone is
        console.print(f"  {module.replace('.', '/')}.py, which is in the whole project", style="dim")
        return
    for part in name.split("."):
        thing = getattr(thing, part)
    lines, number = inspect.getsourcelines(inspect.unwrap(thing))
    function = ast.parse(textwrap.dedent("".join(lines))).body[0]
    after = function.body[1].lineno - 1 if ast.get_docstring(function) else 1
    begin = next((i for i, line in enumerate(lines) if i >= after and first and first in line), 0)
    end = next((i for i, line in enumerate(lines) if i >= begin and last and last in line), len(lines) - 1)
    console.print(f"  {module.replace('.', '/')}.py, line {number + begin}", style="dim")
    console.print(textwrap.indent(textwrap.dedent("".join(lines[begin:end + 1])), "    "), markup=False, soft_wrap=True)


def hint(exercise: Exercise, console: Console) -> int:
    """One hint more every time, remembered beside the exercises."""
    seen = progress.one_more_hint(exercise, len(exercise.hints))
    console.print(f"exercise {exercise.number}: {exercise.title}", style="bold")
    for number, text in enumerate(exercise.hints[:seen], 1):
        console.print(f"hint {number} of {len(exercise.hints)}: {text}", markup=False)
    return 0


def answer(exercise: Exercise, console: Console) -> int:
    if looked_at(exercise).failure:
        console.print(f"Exercise {exercise.number} is not solved yet: first yours, then this one. "
                      f"A hint: {command()} {exercise.number} --hint", markup=False)
        return 1
    console.print(exercise.answer, markup=False)
    return 0


def watch(exercise: Exercise | None, console: Console) -> int:
    """Tell whenever the file is saved; after a pass go on to the next that is not solved, round to the first."""
    seen = None
    try:
        while exercise is not None:
            now = exercise.path.stat().st_mtime if exercise.path.exists() else 0.0
            if (exercise.number, now) != seen:
                seen = exercise.number, now
                console.rule(time.strftime("%H:%M:%S"))
                if tell(exercise, console) == 0:
                    exercise = following(exercise)
                    continue
            time.sleep(LOOK_AGAIN)
    except KeyboardInterrupt:
        return 130
    console.print("All solved.", style="bold green")
    return 0


def following(exercise: Exercise) -> Exercise | None:
    """The next that is not solved, round to the first."""
    states = progress.states()
    order = [number for number in states if number > exercise.number] + [*states]
    number = next((number for number in order if states[number] != progress.SOLVED), None)
    return None if number is None else EXERCISES[number]
