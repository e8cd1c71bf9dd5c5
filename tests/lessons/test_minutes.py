"""What lessons/README.md says of all lessons: their minutes, their questions, and the exercises that follow them."""

import re
from pathlib import Path

import pytest
from kit import contents

from lessons.minutes import lesson, minutes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "lessons" / "README.md").read_text()
PARTS = re.findall(r"^### .*\n\nReading (\d+) minutes, tasks (\d+)\.\n\n((?:\|.*\n)+)", PAGE, re.M)
LINES = [re.fullmatch(r"\| (\d+) \| `\d\d_\w+\.py` \| (.*) \| (\d+) \| (\d+) \| ?(.*?) ?\|", line).groups()
        for _, _, table in PARTS for line in table.splitlines()[2:]]


def test_minutes_by_hand():
    """550 words take 5 minutes, 30 lines 4, and a task 4 more; signs alone are no words, empty lines no code."""
    script = ("# %% [markdown]\n# # A\n#\n# " + "word " * 539 + "\n#\n# | - | - |\n\n# %%\n" + "x = 1\n\n" * 30
              + "\n# %% [markdown]\n# ## Change this and run again\n#\n# 1. One.\n# 2. Two\n#    lines.\n")
    assert minutes(script) == (9, 8)
    assert minutes(script.replace("word ", "word word ")) == (14, 8)


def test_the_page_has_every_lesson_with_its_question_and_its_minutes():
    assert [(number, question) for number, question, *_ in LINES] == [
        (number, question) for number, _, question in contents()]
    for number, _, reading, tasks, _ in LINES:
        right = minutes(lesson(number).read_text())
        assert int(reading) % 5 == 0 and abs(int(reading) - right[0]) < 4 and int(tasks) == right[1], f"lesson {number}"


def test_sums_are_those_of_the_lines():
    for reading, tasks, table in PARTS:
        each = re.findall(r"\| (\d+) \| (\d+) \|[^|]*\|$", table, re.M)
        assert [int(reading), int(tasks)] == [sum(map(int, column)) for column in zip(*each)]
    reading, tasks, _ = PARTS[0]
    exercises = {int(number): int(long) for number, long in
                 re.findall(r"^\| (\d+) \| `ex\d\d_\w+.py` \| \d of 5, (\d+), ", PAGE, re.M)}
    own = sum(exercises[number] for number in range(1, 13))
    assert f"({reading} minutes of reading and {tasks} of tasks), with exercises 1 to 12 ({own})" in PAGE
    evening = sum(int(line[2]) for line in LINES if line[0] in ("1", *"56789"))
    assert f"about {15 + evening + 40} minutes, for those" in PAGE and f"lessons 1 and 5 to 9 ({evening})" in PAGE


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0])
def test_a_lesson_ends_with_the_exercises_that_the_page_names(line):
    number, *_, then = line
    end = re.sub(r"\n#? ?", " ", lesson(number).read_text().rpartition("*Next:*")[2])
    named = re.findall(r"(\d+) \(", end.partition("Exercises:")[2])
    assert named == re.findall(r"\d+", then)
