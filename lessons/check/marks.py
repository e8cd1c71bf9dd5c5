"""Marks of a class: points, the files that are written, and what the words in them mean."""

import csv
import hashlib
import io
import json
from pathlib import Path

from lessons.check import EXERCISES, alike
from lessons.check.catalogue import Entry
from nanospec.files.paths import write_atomically

NOT_TRIED = ("missing", "untouched")
MARKS = {"✓": "solved", "½": "exact but slow: half of the points", "✗": "not yet", "·": "missing or untouched",
         "?": "not judged, because the machine had no time for it: grade again"}
WORDS = {       # where a file failed, if not in a part that the exercise itself has
    "contract": "it raises an error, or does not return what the exercise asks for",
    "syntax": "Python cannot read the file",
    "time": "it does not come to an end",
    "busy": "the machine had no time for it",
    "crash": "its process ended before it was judged",
    "library": "it changes the library or the checks",
    "answers": "it reads the answers or the checks",
    "process": "it starts or ends a program",
    "what it is given": "it changes its arguments, which the caller still needs"}
LONGEST_NAME = 240      # bytes; systems have 255, and an ending follows
NO_FORMULA = ("=", "+", "-", "@", "\t", "\r")       # a spreadsheet takes a cell that begins so for one


def points(exercise: Entry, result: dict) -> float:
    """As many as the exercise is difficult, 1 to 5; half for a rule that is exact but slow."""
    return exercise.difficulty * (1.0 if result["solved"] else 0.5 if result["slow"] else 0.0)


def mark(result: dict) -> str:
    if result["solved"]:
        return "✓"
    if result["slow"]:
        return "½"
    return "·" if result["part"] in NOT_TRIED else "?" if result["part"] == "busy" else "✗"


def legend(results: alike.Known, telling: bool) -> str:
    """The marks and the words that were used, a line each. telling: answers that are alike were named."""
    found = [result for of_one in results.values() for result in of_one.values()]
    marks = [f"{sign} {said}" for sign, said in MARKS.items() if sign in set(map(mark, found))]
    words = [f"{word}: {said}" for word, said in WORDS.items() if any(result["part"] == word for result in found)]
    same = ("the same: but for names, remarks and annotations. It is a reason to ask, and no more. In parentheses are "
            "answers so short that they are often alike by themselves")
    return "\n".join(["", "; ".join(marks), *words, *[same] * telling])


class Sheets:
    """The files that are asked for, each whole at any time: written aside, and moved."""

    def __init__(self, sheet: Path | None, record: Path | None, gradescope: Path | None):
        self.sheet, self.record, self.gradescope = sheet, record, gradescope

    def write(self, everybody) -> None:
        """What is known of `everybody`, a grade.Class."""
        done = everybody.done()
        if self.sheet:
            put(self.sheet, table(everybody, done))
        if self.record:
            put(self.record, json.dumps({
                "results": everybody.results, "notes": everybody.notes,
                "mistakes": {number: everybody.mistakes(number) for number in EXERCISES}}, indent=1))
        if self.gradescope:
            self.gradescope.mkdir(exist_ok=True)
            for student in done:
                put(self.gradescope / file_of(student), json.dumps(
                    for_gradescope(everybody.results[student], everybody.notes[student]), indent=1))


def file_of(student: str) -> str:
    """The name of their file; a folder's name may be as long as a name can be."""
    whole = student.encode(errors="replace")
    if len(whole) <= LONGEST_NAME:
        return f"{whole.decode()}.json"
    return f"{whole[:LONGEST_NAME - 9].decode(errors='ignore')}-{hashlib.sha256(whole).hexdigest()[:8]}.json"


def put(path: Path, text: str) -> None:
    """Whole or not at all; a link stays one, and a device a device."""
    write_atomically(path, lambda file: file.write(text.encode(errors="replace")))


def table(everybody, done: list[str]) -> str:
    """A row for each student, as a spreadsheet reads it."""
    sheet, shared = io.StringIO(), alike.same(everybody.results)
    write = csv.writer(sheet).writerow
    write(["student", *EXERCISES, "solved", "points", "shipped", "same as", "notes"])
    for student in done:
        results = everybody.results[student]
        write(map(cell, [student, *(results[number]["label"] for number in EXERCISES), everybody.solved(student),
                         f"{everybody.points(student):g}", alike.shipped(results).words, shared[student].words,
                         "; ".join(everybody.notes[student])]))
    return sheet.getvalue()


def cell(value) -> str:
    """Never a formula."""
    text = str(value)
    return f"'{text}" if text.startswith(NO_FORMULA) else text


def for_gradescope(results: dict[int, dict], notes: list[str]) -> dict:
    """results.json, as Gradescope's autograder reads it."""
    tests = []
    for number, exercise in EXERCISES.items():
        result = results[number]
        said = f"{result['part']}: {result['why']}" if result["part"] and result["why"] else result["part"]
        tests.append({"number": str(number), "name": exercise.title, "score": points(exercise, result),
                      "max_score": exercise.difficulty, "status": "passed" if result["solved"] else "failed",
                      "output": said})
    return {"score": sum(test["score"] for test in tests), "output": "\n".join(notes), "tests": tests}
