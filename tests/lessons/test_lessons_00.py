"""The overview: its round is a real one, and its lists are those of the course."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "lessons").glob("[0-9]*.py"))


def test_one_real_round(lesson):
    names, out = lesson("00")
    done, accepted = names["done"], names["accepted"]
    ends = r"(accepted|rejected|never judged)"
    rows = re.findall(r"^['\"].*['\"]" + r"\s+([\d.]+)" * 3 + rf"\s+{ends}\s*$", out, re.M)
    assert 0 < accepted < 4 and [row[3] for row in rows] == (
        ["accepted"] * accepted + ["rejected"] + ["never judged"] * (3 - accepted))
    for (p, q, chance), row, x, place in zip(names["chances"], rows, done.tokens[1:], range(4)):
        assert p == done.p_target[place, x] and q == done.q_draft[place + 1, x]
        assert chance == min(1, p / q) and [float(cell) for cell in row[:3]] == pytest.approx([p, q, chance], abs=6e-4)
    assert f"has brought {accepted + 1} tokens" in out and len(done.emitted) == accepted + 1


def test_every_lesson_is_in_its_table():
    numbers = re.findall(r"^# \| ([\d, ]+) \| [A-Z]", (ROOT / "lessons" / "00_overview.py").read_text(), re.M)
    assert [int(number) for cell in numbers for number in cell.split(",")] == list(range(1, len(LESSONS)))
