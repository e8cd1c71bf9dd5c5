"""Exercises, one idea each: you write a function in lessons/exercises, this says whether it is right.

    python -m lessons.check                 # the first that is not solved yet
    python -m lessons.check 3               # number 3
    python -m lessons.check 3 --watch       # again whenever you save
"""

import argparse
import ast
import importlib
import inspect
import sys
import textwrap
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import torch
from rich.console import Console

from lessons.check import EXERCISES
from lessons.check.engine import Exercise, Result, check, folder_of_exercises, stub
from lessons.check.grade import grade, write_result

LOOK_AGAIN = 0.5        # seconds between looks at the file
WIDTH = 96
SHOWN = 8               # lines of what a function prints


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lessons.check", description=__doc__.splitlines()[0])
    parser.add_argument("number", type=int, nargs="?", choices=sorted(EXERCISES), metavar="n",
                        help=f"1 to {max(EXERCISES)}")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="all exercises, and which are solved")
    what.add_argument("--hint", action="store_true", help="the next hint: say it again for one more")
    what.add_argument("--watch", action="store_true", help="check again whenever the file is saved")
    what.add_argument("--answer", action="store_true", help="a solution, once yours has passed")
    what.add_argument("--reset", type=int, nargs="?", const=0, choices=[0, *EXERCISES], metavar="N",
                      help="exercise N as it was; yours is kept beside it")
    what.add_argument("--grade", type=Path, metavar="FOLDER", help="every folder in it is a student's: a table")
    parser.add_argument("--seconds", type=float, default=60, help="with --grade: for one exercise")
    parser.add_argument("--result", nargs=2, help=argparse.SUPPRESS)       # what --grade runs, once for every exercise
    args = parser.parse_args(argv)
    torch.set_num_threads(1)                                                # small tensors gain nothing from more
    console = Console(width=max(Console().width, WIDTH), highlight=False)
    if args.result:
        return write_result(EXERCISES[args.number], *map(Path, args.result))
    if args.grade:
        if not args.grade.is_dir():
            print(f"lessons.check: {args.grade} is no folder", file=sys.stderr)
            return 2
        return grade(args.grade, args.seconds, console)
    if args.reset is not None:
        if not args.reset and not args.number:
            parser.error("--reset: which one?")
        return reset(EXERCISES[args.reset or args.number], console)
    if args.list:
        return list_all(console)
    exercise = EXERCISES[args.number] if args.number else first_unsolved(console)
    if exercise is None:
        console.print("All solved.", style="bold green")
        return 0
    if args.hint:
        return hint(exercise, console)
    if args.answer:
        return answer(exercise, console)
    return watch(exercise, console) if args.watch else tell(exercise, console)


def path_of(exercise: Exercise) -> Path:
    return folder_of_exercises() / exercise.file


def looked_at(exercise: Exercise) -> Result:
    if not path_of(exercise).exists():
        return Result([], ("contract", f"{path_of(exercise)} is not there: python -m lessons.check --reset "
                                       f"{exercise.number} brings it back"))
    return check(exercise, path_of(exercise))


def first_unsolved(console: Console) -> Exercise | None:
    for exercise in EXERCISES.values():
        if looked_at(exercise).failure:
            return exercise
        console.print(f"exercise {exercise.number:>2}  solved  {title(exercise)}", style="dim")
    return None


def title(exercise: Exercise) -> str:
    """The first line of its file, without the number."""
    return head(exercise)[0].split(": ", 1)[1]


def size(exercise: Exercise) -> str:
    """difficulty, minutes, lines; lesson."""
    return head(exercise)[2]


def head(exercise: Exercise) -> list[str]:
    return ast.get_docstring(ast.parse(exercise.answer)).splitlines()


def tell(exercise: Exercise, console: Console) -> int:
    """The parts, one a line; of the first that failed, why; after a pass, what to compare with."""
    console.print(f"exercise {exercise.number}: {title(exercise)}", style="bold")
    console.print(f"{path_of(exercise)}; {size(exercise)}", style="dim")
    result = looked_at(exercise)
    for part, said in result.passed:
        console.print(f"  [green]ok[/]      {part:<32}[dim]{said}[/]")
    if result.failure:
        part, why = result.failure
        console.print(f"  [red]not yet[/] {part}")
        for line in why.splitlines():           # tables stay as they are, sentences are wrapped
            if not line.startswith(" "):
                line = textwrap.fill(line, max(40, console.width - 12), break_on_hyphens=False)
            console.print(textwrap.indent(line, "          "), markup=False, style="yellow", soft_wrap=True)
        show_printed(result, console)
        console.print(f"a hint: python -m lessons.check {exercise.number} --hint", style="dim", soft_wrap=True)
        return 1
    show_printed(result, console)
    console.print("solved.", style="bold green", end=" ")
    console.print("Compare with the library:" if exercise.like else "The library has nothing of the kind yet.")
    for where in exercise.like:
        show_lines(*where, console)
    console.print(f"another solution: python -m lessons.check {exercise.number} --answer", style="dim", soft_wrap=True)
    return 0


def show_printed(result: Result, console: Console) -> None:
    if result.printed:
        lines = result.printed.splitlines()
        console.print("  it printed:", style="dim")
        for line in lines[:SHOWN] + ["..."] * (len(lines) > SHOWN):
            console.print(" " * 10 + line, markup=False, soft_wrap=True)


def show_lines(module: str, name: str, first: str, last: str, console: Console) -> None:
    """A function of the library, from the line that holds `first` to the one that holds `last`."""
    thing = importlib.import_module(module)
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
    seen_file = folder_of_exercises() / ".hints"
    seen = dict(line.split() for line in seen_file.read_text().splitlines()) if seen_file.exists() else {}
    count = min(int(seen.get(str(exercise.number), 0)) + 1, len(exercise.hints))
    seen_file.write_text("".join(f"{key} {value}\n" for key, value in (seen | {str(exercise.number): count}).items()))
    console.print(f"exercise {exercise.number}: {title(exercise)}", style="bold")
    for number, text in enumerate(exercise.hints[:count], 1):
        console.print(f"hint {number} of {len(exercise.hints)}: {text}", markup=False)
    return 0


def answer(exercise: Exercise, console: Console) -> int:
    if looked_at(exercise).failure:
        console.print(f"Exercise {exercise.number} is not solved yet: first yours, then this one. "
                      f"A hint: python -m lessons.check {exercise.number} --hint")
        return 1
    console.print(exercise.answer, markup=False)
    return 0


def reset(exercise: Exercise, console: Console) -> int:
    """The exercise as it was before anybody wrote in it; what is there now is kept beside it, under the next number."""
    path, fresh = path_of(exercise), stub(exercise.answer)
    if path.exists() and path.read_text(encoding="utf-8") != fresh:
        mine = next(to for n in count(1) if not (to := path.with_suffix(f".mine{n}.py")).exists())
        path.replace(mine)
        console.print(f"yours is now {mine}")
    path.write_text(fresh, encoding="utf-8")
    console.print(f"{path} is as it was")
    return 0


def list_all(console: Console) -> int:
    for exercise in EXERCISES.values():
        solved = looked_at(exercise).failure is None
        console.print(f"{exercise.number:>3}  {'[green]solved[/]' if solved else '[dim]  open[/]'}  {title(exercise)}")
        console.print(f"             {size(exercise)}", style="dim")
    return 0


def watch(exercise: Exercise, console: Console) -> int:
    seen = None
    try:
        while True:
            now = path_of(exercise).stat().st_mtime if path_of(exercise).exists() else 0.0
            if now != seen:
                seen = now
                console.rule(time.strftime("%H:%M:%S"))
                if tell(exercise, console) == 0:
                    return 0
            time.sleep(LOOK_AGAIN)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
