"""Exercises, one idea each: you write a function in lessons/exercises, this says whether it is right.

    python -m lessons.check                 # the first that is not solved yet
    python -m lessons.check 3               # number 3
    python -m lessons.check 3 --watch       # again whenever you save, and then the next one
    python -m lessons.check --handout F     # for a teacher: what a class gets; --grade F when it comes back
"""

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from textwrap import fill
from unittest.mock import patch

from rich.console import Console

from lessons.check import progress, seeds
from lessons.check.catalogue import ENTRIES, HANDED_OUT, Entry, command, stub

WIDTH, LONGEST = 96, 86_400             # characters; seconds for an exercise
COLOURS = {progress.SOLVED: "green", progress.TRIED: "yellow", progress.UNTOUCHED: "dim", progress.MISSING: "red"}


def main(argv: Sequence[str] | None = None) -> int:
    if not ENTRIES:
        print("lessons.check: lessons/answers is not there, and the checks need it. What a class gets, without the "
              "answers, is written by --handout FOLDER in a whole clone", file=sys.stderr)
        return 2
    args = arguments(argv)
    window = Console()          # on a terminal that calls itself dumb, a width counts only with a height
    console = Console(width=max(window.width, WIDTH), height=window.height, highlight=False)
    try:
        return done(args, console)
    except OSError as error:                # a full disk, a folder that may not be written to
        known = f"{error.filename or 'a file'} could not be written or read: {error.strerror}"
        return refused(known if error.strerror else error)


def done(args: argparse.Namespace, console: Console) -> int:
    """What was asked for."""
    if args.variant:
        seeds.NAME = args.variant               # before any table is made
    if args.grade:
        return graded(args, console)
    if args.handout:
        return handed_out(args, console)
    if args.reset is not None:
        return reset(ENTRIES[args.reset], console)
    if args.list:
        return list_all(console)
    number = args.number or first_unsolved()
    if number is None:
        console.print(f"All solved. {progress.bar()}", style="bold green")
        return 0
    if args.answer and HANDED_OUT:
        console.print("Your teacher has the answers.")
        return 1
    if args.answer and progress.state_of(ENTRIES[number]) == progress.SOLVED:
        console.print(ENTRIES[number].answer, markup=False)
        return 0
    return at_the_desk(args, number, console)


def refused(why: str) -> int:
    """The exit status, after one line that no terminal obeys."""
    from nanospec.errors import one_line                    # a list of titles does not wait for it
    print(f"lessons.check: {one_line(why)}", file=sys.stderr)
    return 2


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        """One line, in place of all options."""
        self.exit(refused(message))


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog=command(), description=__doc__.splitlines()[0])
    parser.add_argument("number", type=int, nargs="?", choices=sorted(ENTRIES), metavar="n",
                        help=f"1 to {max(ENTRIES)}")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="all exercises: solved, tried or untouched")
    what.add_argument("--hint", action="store_true", help="one hint; run it again for the next one")
    what.add_argument("--watch", action="store_true", help="check whenever the file is saved; after a pass, the next")
    what.add_argument("--answer", action="store_true", help="a solution, once yours has passed")
    what.add_argument("--reset", type=int, nargs="?", const=0, choices=[0, *ENTRIES], metavar="N",
                      help="exercise N as it was; yours is kept beside it")
    what.add_argument("--grade", type=Path, metavar="FOLDER", help="every folder or zip in it is a student's")
    what.add_argument("--handout", type=Path, metavar="FOLDER", help="write there what a class gets: no answers")
    parser.add_argument("--variant", metavar="NAME", help="with --handout, and then with --grade: other tables, and "
                                                          "verdicts in another order, drawn by that name")
    grading = parser.add_argument_group("with --grade")
    grading.add_argument("--jobs", type=int, metavar="N", help="exercises looked at side by side (default: one a CPU)")
    grading.add_argument("--seconds", type=float, metavar="S", help="of CPU time for one exercise (default: 20)")
    grading.add_argument("--csv", type=Path, metavar="FILE", help="a row for each student, as a spreadsheet reads it")
    grading.add_argument("--json", type=Path, metavar="FILE", help="everything that was found")
    grading.add_argument("--gradescope", type=Path, metavar="DIR",
                         help="a file STUDENT.json for each, as Gradescope reads it")
    args = parser.parse_args(argv)
    if args.reset == 0:
        if not args.number:
            parser.error("--reset: which one?")
        args.reset = args.number
    if not args.grade and any(given is not None for given in (args.jobs, args.seconds, args.csv, args.json,
                                                              args.gradescope)):
        parser.error("--jobs, --seconds, --csv, --json and --gradescope go with --grade FOLDER")
    if args.variant is not None and not args.grade and not args.handout:
        parser.error("--variant NAME goes with --handout FOLDER or --grade FOLDER")
    if args.variant is not None and not (args.variant and args.variant.isprintable()):
        parser.error("--variant: a name that can be typed again")
    if HANDED_OUT and (args.grade or args.handout):
        parser.error("this is a class's copy; --grade and --handout are for the clone that it was made from")
    if args.jobs is not None and args.jobs < 1:
        parser.error("--jobs must be greater than 0")
    if args.seconds is not None and not 0 < args.seconds <= LONGEST:
        parser.error(f"--seconds must be greater than 0, and at most {LONGEST:,}")
    return args


def first_unsolved() -> int | None:
    return next((number for number, state in progress.states().items() if state != progress.SOLVED), None)


def list_all(console: Console) -> int:
    for number, state in progress.states().items():
        entry = ENTRIES[number]
        console.print(f"{number:>3}  [{COLOURS[state]}]{state:<9}[/]  {entry.title}", soft_wrap=True)
        console.print(fill(entry.size, console.width, initial_indent=" " * 16, subsequent_indent=" " * 16), style="dim")
    console.print(f"{progress.bar()}  (# solved, - tried)")
    return 0


def reset(entry: Entry, console: Console) -> int:
    """The exercise as it was before anybody wrote in it; what is there now is kept beside it, under the next number."""
    path, fresh = entry.path, stub(entry.answer)
    if path.exists() and not (path.is_file() and path.stat().st_size == len(fresh.encode())
                              and path.read_bytes() == fresh.encode()):
        mine = next(to for n in count(1) if not (to := path.with_suffix(f".mine{n}.py")).exists())
        path.replace(mine)
        console.print(f"yours is now {mine}", markup=False, soft_wrap=True)
    path.write_text(fresh, encoding="utf-8")
    console.print(f"{path} is as it was", markup=False, soft_wrap=True)
    return 0


def at_the_desk(args: argparse.Namespace, number: int, console: Console) -> int:
    """What needs torch."""
    one_thread()
    from lessons.check import EXERCISES, desk
    exercise = EXERCISES[number]
    asked = desk.hint if args.hint else desk.answer if args.answer else desk.watch if args.watch else desk.tell
    with patch("os._exit", sys.exit):           # it would end the check, with a status that says solved
        return asked(exercise, console)


def one_thread() -> None:
    """Before any table is made. Small tensors gain nothing from more, and in a forked process no other would run."""
    import torch
    torch.set_num_threads(1)


def handed_out(args: argparse.Namespace, console: Console) -> int:
    if args.variant:
        one_thread()
    from lessons.check.handout import Refused, hand_out
    try:
        console.print(hand_out(args.handout), markup=False, soft_wrap=True)
    except Refused as why:
        print(f"lessons.check: {why}", file=sys.stderr)
        return 2
    return 0


def graded(args: argparse.Namespace, console: Console) -> int:
    if not args.grade.is_dir():
        return refused(f"{args.grade} is no folder")
    if not hasattr(os, "fork"):
        print("lessons.check: --grade needs a system with fork: Linux, macOS, or WSL under Windows", file=sys.stderr)
        return 2
    one_thread()
    from lessons.check.engine import SECONDS
    from lessons.check.grade import Grading, grade
    return grade(Grading(args.grade, args.seconds or SECONDS, args.jobs or os.cpu_count() or 1, args.csv, args.json,
                         args.gradescope), console)
