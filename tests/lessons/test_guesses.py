"""Who guesses is told: a "Guess first" stands above a cell of code, and the text after it begins with the answer."""

import re
from pathlib import Path

import pytest

from lessons.notebooks import cells_of

LESSONS = sorted((Path(__file__).parents[2] / "lessons").glob("[0-9]*.py"))


def guesses_without_an_answer(script: str) -> list[str]:
    """What is asked there."""
    found, asked = [], ""
    for kind, text in cells_of(script):
        if kind == "markdown":
            if asked and not text.startswith("*Answer:* "):
                found.append(asked)
            guesses = re.findall(r"\*Guess\s+first:\*\s+(.+?\?)", text, re.S)
            assert len(guesses) < 2, "two guesses before one answer"
            asked = " ".join(guesses)
    return found + [asked] * bool(asked)


def test_a_guess_without_an_answer_is_seen():
    asks, code = "# %% [markdown]\n# *Guess\n# first:* how many?\n", "# %%\nprint(3)\n"
    answers, none = "# %% [markdown]\n# *Answer:* three.\n", "# %% [markdown]\n# ## Another thing\n"
    assert guesses_without_an_answer(asks + code + answers) == []
    assert guesses_without_an_answer(asks + code + none) == guesses_without_an_answer(asks + code) == ["how many?"]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem[3:])
def test_every_guess_gets_its_answer(lesson):
    assert guesses_without_an_answer(lesson.read_text(encoding="utf-8")) == []
