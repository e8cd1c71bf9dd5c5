"""A class at once: a line for each student as it is done, and at the end what the class found hard.

Nothing that one file does reaches the next: workers.py gives each a process. This is no protection against malice: run
strangers' code in a container.
"""

import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from lessons.check import EXERCISES, alike
from lessons.check.catalogue import as_handed_out, untouched
from lessons.check.engine import Exercise
from lessons.check.handed import handed_in, students
from lessons.check.marks import NOT_TRIED, Sheets, legend, mark, points
from lessons.check.workers import Job, found, run

WORTH_IT = 2            # files that fail an exercise; from then on its known mistakes are worked out here, for all
COMMONEST = 3           # mistakes named for an exercise


class Class:
    """What is known of everybody. results: student -> number -> what was found.  notes: student -> what was not looked
    at.  strange: what lies beside the students.
    """

    def __init__(self, folder: Path):
        self.folders, self.strange = students(folder)
        self.results: dict[str, dict[int, dict]] = {name: {} for name in self.folders}
        self.notes: dict[str, list[str]] = {name: [] for name in self.folders}

    def jobs(self) -> Iterator[Job]:
        """The files that students have changed, read as they are wanted. The verdict on the others is known at once."""
        for student, path in self.folders.items():
            handed, to_judge = handed_in(path), []
            self.notes[student] = handed.notes
            for number, exercise in EXERCISES.items():
                text = handed.files.get(exercise.file)
                if text is None or untouched(text, exercise):
                    self.results[student][number] = found(False, "missing" if text is None else "untouched")
                else:
                    if not as_handed_out(text, exercise):
                        self.notes[student].append(f"the tables in {exercise.file} are not those that were handed out; "
                                                   "is it of another --variant?")
                    to_judge.append(Job(student, exercise, text))
            yield from to_judge

    def done(self) -> list[str]:
        return [student for student, results in self.results.items() if len(results) == len(EXERCISES)]

    def solved(self, student: str) -> int:
        return sum(result["solved"] for result in self.results[student].values())

    def points(self, student: str) -> float:
        return sum(points(EXERCISES[number], result) for number, result in self.results[student].items())

    def of_exercise(self, number: int) -> list[dict]:
        return [results[number] for results in self.results.values() if number in results]

    def mistakes(self, number: int) -> Counter:
        """How often each mistake of an exercise was made, by its name, or by the part that failed."""
        return Counter(result["label"] for result in self.of_exercise(number)
                       if not result["solved"] and result["part"] not in (*NOT_TRIED, "busy"))


@dataclass
class Grading:
    """How a class is graded, and where the marks go: None is nowhere."""

    folder: Path
    seconds: float
    at_once: int
    csv: Path | None = None
    json: Path | None = None
    gradescope: Path | None = None


def grade(asked: Grading, console: Console) -> int:
    """Print and write down what every student has solved; 0 if all could be looked at."""
    everybody = Class(asked.folder)
    if not everybody.folders:
        print(f"lessons.check: no folders and no zips in {asked.folder}: one for each student, with files such as "
              f"{EXERCISES[1].file}" + f"; not looked at: {', '.join(everybody.strange)}" * bool(everybody.strange),
              file=sys.stderr)
        return 2
    sheets = Sheets(asked.csv, asked.json, asked.gradescope)
    try:
        sheets.write(everybody)
    except OSError as error:
        said = f"{error.filename}: {error.strerror}" if error.strerror else error
        print(f"lessons.check: {said}", file=sys.stderr)
        return 2
    return look_at_all(everybody, asked, sheets, console)


def look_at_all(everybody: Class, asked: Grading, sheets: Sheets, console: Console) -> int:
    """Lines as they come; then the sums, also of what an interruption has left."""
    width = max(map(len, [*everybody.folders, "solved by"]))
    console.print(Text(line("student", map(str, EXERCISES), "solved", "points", width), "bold"), soft_wrap=True)
    shown: set[str] = set()

    def show_marks() -> None:
        for student in everybody.done():
            if student not in shown:
                shown.add(student)
                marks = [mark(everybody.results[student][number]) for number in EXERCISES]
                console.print(line(student, marks, everybody.solved(student), f"{everybody.points(student):g}", width),
                              markup=False, soft_wrap=True)
                sheets.write(everybody)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    runs, code = run(everybody.jobs(), asked.at_once, asked.seconds), 0
    try:
        for job, result in runs:
            everybody.results[job.student][job.exercise.number] = result
            if everybody.mistakes(job.exercise.number).total() == WORTH_IT:
                prepare(job.exercise)
            show_marks()
        show_marks()
    except KeyboardInterrupt:
        code = 130
    finally:
        runs.close()
        signal.signal(signal.SIGTERM, before)
        sheets.write(everybody)
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
    """How many have solved each exercise; failures, a line each; the commonest mistakes; who wrote the same; what was
    not looked at; what the words mean.
    """
    def say(words: str) -> None:
        console.print(words, markup=False, soft_wrap=True)

    solved = [sum(result["solved"] for result in everybody.of_exercise(number)) for number in EXERCISES]
    most = sum(exercise.difficulty for exercise in EXERCISES.values())
    console.print(Text(line("solved by", map(str, solved), sum(solved), f"of {most}", width), "bold"), soft_wrap=True)
    for student, results in everybody.results.items():
        for number in sorted(results):
            result = results[number]
            if not result["solved"] and result["part"] not in NOT_TRIED:
                say(f"{student}, {number}: {result['part']}: {result['why']}")
    for number in EXERCISES:
        mistakes = everybody.mistakes(number)
        if mistakes:
            said = ", ".join(f"{name} ({times})" for name, times in mistakes.most_common(COMMONEST))
            say(f"exercise {number}, {mistakes.total()} not yet: {said}")
    shared, telling = alike.same(everybody.results), False
    for student, results in everybody.results.items():
        for words, what in ("the answer that ships", alike.shipped(results)), ("the same as", shared[student]):
            telling |= what.telling
            if what.telling:
                say(f"{student}, {words}: {what.words}")
    for student, notes in everybody.notes.items():
        for note in notes:
            say(f"{student}: {note}")
    if everybody.strange:
        say(f"neither a folder nor a zip, and not looked at: {', '.join(everybody.strange)}")
    say(legend(everybody.results, telling))


def line(name: str, cells, solved, points, width: int) -> str:
    return f"{name:<{width}} {' '.join(f'{cell:>2}' for cell in cells)}  {solved:>6}  {points:>6}"
