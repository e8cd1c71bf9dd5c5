"""The sheet of an afternoon: its minutes add up, and what it says that is printed is printed."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from lessons.check import EXERCISES
from lessons.check.engine import ANSWERS, check

LESSONS = Path(__file__).parents[2] / "lessons"
SHEET = (LESSONS / "AFTERNOON.md").read_text()
LABS = {int(re.search(r"python -m lessons\.check (\d+)", lab)[1]): lab
        for lab in re.split(r"^## ", SHEET, flags=re.M)[2:6]}
BROKEN = {3: ("(p_target - q_draft).clamp(min=0))", "p_target)"),
          6: ("- q_draft[accepted]", "- q_draft[accepted - 1]"),
          7: ("length + min(accepted, gamma - 1)", "length + accepted")}


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_minutes_are_those_of_its_parts():
    table = [int(line) for line in re.findall(r"^\| \d? ?\| (\d+) \| ", SHEET, re.M)]
    heads = [int(head) for head in re.findall(r"^## .* \((\d+) minutes\)$", SHEET, re.M)]
    assert sum(table) == 150 and "150 minutes" in SHEET.splitlines()[0]
    assert sorted(heads) == sorted(table[:3] + table[4:]) and [*LABS] == [3, 6, 7, 9]


@pytest.mark.parametrize("number", LABS)
def test_an_answer_gives_the_lines_of_the_sheet(number):
    found = check(EXERCISES[number], ANSWERS / EXERCISES[number].file)
    printed = "\n".join(f"  ok      {part} {said}" for part, said in found.passed)
    shown = next(block for block in re.findall(r"```\n(.*?)```", LABS[number], re.S) if "  ok  " in block)
    assert found.failure is None and words(printed) == words(shown)


@pytest.mark.parametrize("number", BROKEN)
def test_what_is_broken_is_told_as_the_sheet_says(number, tmp_path):
    path = tmp_path / EXERCISES[number].file
    right = (ANSWERS / path.name).read_text()
    path.write_text(right.replace(*BROKEN[number]))
    _, said = check(EXERCISES[number], path).failure
    shown = LABS[number].split("reak it")[1]
    lines = re.findall(r"^  .*\d.*$", shown, re.M)
    assert path.read_text() != right and all(words(line) in words(said) for line in lines)
    assert number != 6 or "row-before" in said and "`row-before`" in shown


def test_the_table_is_what_the_program_prints():
    program = re.search(r"```python\n(.*?)```", LABS[9], re.S)[1]
    printed = re.search(r"```\n(.*?)```", (LESSONS / "answers" / "AFTERNOON.md").read_text(), re.S)[1]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program.replace("lessons.exercises.", "lessons.answers."), {})
    assert out.getvalue() == printed
