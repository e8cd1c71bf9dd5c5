"""A class at once: every student's folder, a row for each as it is done, and at the end what the class found hard.

Nothing that one file does reaches the next: workers.py gives each a process. This is no protection against malice: run
strangers' code in a container.
"""

import csv
import json
import signal
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.text import Text

from lessons.check import EXERCISES
from lessons.check.catalogue import untouched
from lessons.check.engine import Exercise
from lessons.check.workers import Job, found, run

NOT_TRIED = ("missing", "untouched")
WORTH_IT = 2            # files that fail an exercise; from then on its known mistakes are worked out here, for all
COMMONEST = 3           # mistakes named for an exercise


class Class:
    """What is known of everybody. results: student -> number -> what was found."""

    def __init__(self, folder: Path):
        self.folders = {name_of(path): path for path in sorted(folder.iterdir())
                        if path.is_dir() and not path.name.startswith(".")}
        self.results: dict[str, dict[int, dict]] = {name: {} for name in self.folders}

    def jobs(self) -> list[Job]:
        """The files that a student has changed. The verdict on the others is known at once."""
        to_judge = []
        for student, folder in self.folders.items():
            inside = folder / "lessons" / "exercises"               # a clone of this repository
            for number, exercise in EXERCISES.items():
                path = (inside if inside.is_dir() else folder) / exercise.file
                part = not_to_be_judged(path, exercise)
                if part:
                    self.results[student][number] = found(False, part)
                else:
                    to_judge.append(Job(student, exercise, path))
        return to_judge

    def done(self) -> list[str]:
        return [student for student, results in self.results.items() if len(results) == len(EXERCISES)]

    def solved(self, student: str) -> int:
        return sum(result["solved"] for result in self.results[student].values())

    def of_exercise(self, number: int) -> list[dict]:
        return [results[number] for results in self.results.values() if number in results]

    def mistakes(self, number: int) -> Counter:
        """How often each mistake of an exercise was made, by its name, or by the part that failed."""
        return Counter(result["label"] for result in self.of_exercise(number)
                       if not result["solved"] and result["part"] not in NOT_TRIED)


def grade(folder: Path, seconds: float, at_once: int, csv_path: Path | None, json_path: Path | None,
          console: Console) -> int:
    """Print and write down what every student has solved; 0 if all could be looked at."""
    everybody = Class(folder)
    if not everybody.folders:
        print(f"lessons.check: no folders in {folder}: one for each student, with files such as "
              f"{EXERCISES[1].file}", file=sys.stderr)
        return 2
    with ExitStack() as files:
        try:
            sheet = files.enter_context(csv_path.open("w", newline="", encoding="utf-8")) if csv_path else None
            record = files.enter_context(json_path.open("w", encoding="utf-8")) if json_path else None
        except OSError as error:
            print(f"lessons.check: {error.filename}: {error.strerror}", file=sys.stderr)
            return 2
        try:
            code = look_at_all(everybody, seconds, at_once, sheet, console)
        finally:
            if record:
                json.dump({"results": everybody.results,
                           "mistakes": {number: everybody.mistakes(number) for number in EXERCISES}}, record, indent=1)
    return code


def look_at_all(everybody: Class, seconds: float, at_once: int, sheet, console: Console) -> int:
    """Rows as they come; then the sums, also of what an interruption has left."""
    write = csv.writer(sheet).writerow if sheet else lambda row: None
    width = max(map(len, [*everybody.folders, "student"]))
    console.print(Text(line("student", map(str, EXERCISES), "solved", width), "bold"), soft_wrap=True)
    write(["student", *EXERCISES, "solved"])
    shown: set[str] = set()

    def show_rows() -> None:
        for student in everybody.done():
            if student not in shown:
                shown.add(student)
                results = [everybody.results[student][number] for number in EXERCISES]
                marks = [mark(result) for result in results]
                console.print(line(student, marks, everybody.solved(student), width), markup=False, soft_wrap=True)
                write([student, *(result["label"] for result in results), everybody.solved(student)])
                if sheet:
                    sheet.flush()
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    runs, code = run(everybody.jobs(), at_once, seconds), 0
    try:
        for job, result in runs:
            everybody.results[job.student][job.exercise.number] = result
            if everybody.mistakes(job.exercise.number).total() == WORTH_IT:
                prepare(job.exercise)
            show_rows()
        show_rows()
    except KeyboardInterrupt:
        code = 130
    finally:
        runs.close()
        signal.signal(signal.SIGTERM, before)
    if code:
        console.print(f"interrupted: {len(shown)} of {len(everybody.folders)} students are done", style="red")
    sums(everybody, width, console)
    return code


def prepare(exercise: Exercise) -> None:
    """What its known mistakes look like, for all processes that are forked from now on."""
    for mistake in exercise.wrongs:
        for part in exercise.looks:
            exercise.seen_of(mistake, part)


def sums(everybody: Class, width: int, console: Console) -> None:
    """Failures, a line each; how many have solved each exercise; the commonest mistakes of each."""
    for student, results in everybody.results.items():
        for number in sorted(results):
            result = results[number]
            if not result["solved"] and result["part"] not in NOT_TRIED:
                console.print(f"{student}, {number}: {result['part']}: {result['why']}", markup=False, soft_wrap=True)
    solved = [sum(result["solved"] for result in everybody.of_exercise(number)) for number in EXERCISES]
    console.print(Text(line("solved by", map(str, solved), sum(solved), width), "bold"), soft_wrap=True)
    for number in EXERCISES:
        mistakes = everybody.mistakes(number)
        if mistakes:
            said = ", ".join(f"{name} ({times})" for name, times in mistakes.most_common(COMMONEST))
            console.print(f"exercise {number}, {mistakes.total()} not yet: {said}", markup=False, soft_wrap=True)


def line(name: str, cells, last, width: int) -> str:
    return f"{name:<{width}} {' '.join(f'{cell:>2}' for cell in cells)}  {last:>6}"


def mark(result: dict) -> str:
    if result["solved"]:
        return "✓"
    return "·" if result["part"] in NOT_TRIED else "?" if result["part"] == "busy" else "✗"


def not_to_be_judged(path: Path, exercise: Exercise) -> str:
    """"missing", "untouched", or "" for a file that is to be judged."""
    try:
        return "untouched" if untouched(path.read_bytes(), exercise) else ""
    except OSError:                                     # it is not there, is a folder, or may not be read
        return "missing"


def name_of(path: Path) -> str:
    return path.name.encode("utf-8", "replace").decode()
