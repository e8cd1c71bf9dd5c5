"""The overview: its round is a real one, and its lists are those of the course."""

import re
from pathlib import Path

import pytest
from kit import contents, title_of

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "lessons").glob("[0-9]*.py"))


def test_one_real_round_and_every_lesson_with_its_question(lesson):
    names, out = lesson("overview")
    done, accepted = names["done"], names["accepted"]
    ends = r"(accepted|rejected|never judged)"
    lines = re.findall(r"^['\"].*['\"]" + r"\s+([\d.]+)" * 3 + rf"\s+{ends}\s*$", out, re.M)
    assert 0 < accepted < 4 and [line[3] for line in lines] == (
        ["accepted"] * accepted + ["rejected"] + ["never judged"] * (3 - accepted))
    for (p, q, chance), line, x, place in zip(names["chances"], lines, done.tokens[1:], range(4)):
        assert p == done.p_target[place, x] and q == done.q_draft[place + 1, x]
        assert chance == min(1, p / q) and [float(cell) for cell in line[:3]] == pytest.approx([p, q, chance], abs=6e-4)
    assert f"has brought {accepted + 1} tokens" in out and len(done.emitted) == accepted + 1

    for number, path in enumerate(LESSONS[1:], 1):
        head = path.read_text().splitlines()
        assert head[1] == f"# # {title_of(path)}"
        question, = [question for _, title, question in contents() if title == title_of(path)]
        assert question.endswith("?") and f"\n{number:2}. {title_of(path)}: {question}\n" in out


def test_lessons_refer_to_one_another_by_title():
    """So that a lesson can be put between two others without changing what stands in them."""
    titles = {title_of(path) for path in LESSONS}
    for path in [*LESSONS, *(ROOT / "lessons" / "answers").glob("*.md"), *(ROOT / "lessons").rglob("ex[0-9]*.py")]:
        text = path.read_text()
        assert not re.findall(r"[Ll]essons? \d", text), path.name
        for title in re.findall(r"(?:Next:\*|the lesson)\s(?:# )?\*([^*]+)\*", text):
            assert re.sub(r"\s+(# )?", " ", title) in titles, (path.name, title)
