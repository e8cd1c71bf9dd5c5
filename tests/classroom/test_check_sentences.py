"""Every sentence that a check can say has an answer of which it is true.

Those about known mistakes come with functions that make them, in lessons/check, and test_check.py tries them all. Here
are the others: what a Failure says, and what engine.py and naming.py say of whatever has failed.
"""

import ast
import re
import sys
from pathlib import Path

import pytest

from lessons.check import clock
from lessons.check.seen import Failure
from tests.classroom.answers_told import TOLD
from tests.sentences import sentences

CHECKS = Path(clock.__file__).parent


@pytest.fixture
def said(told, monkeypatch):
    """Every answer of TOLD is judged. -> (what is said of each and under which name, the lines from which it comes)."""
    texts, lines, failures = [], set(), []
    build = Failure.__init__

    def noted(self, text, name=""):
        build(self, text, name)
        frame, came = sys._getframe(1), set()
        while frame:
            came.add((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        failures.append((text, came))
    monkeypatch.setattr(Failure, "__init__", noted)
    for number, source, *_ in TOLD:
        failures.clear()
        result = told(number, source, 0.1 if "while" in source and number < 4 else 20)
        part, text = result.failure or ("", "")
        texts.append((text, result.named))
        lines |= {line for words, came in failures if words[:100] in text for line in came}
    return texts, lines


def raising(path: Path) -> dict[int, set[int]]:
    """The statements that make a Failure, or hand its words to answered.py: first line -> all lines."""
    tree = ast.parse(path.read_text())
    judges = {name.asname or name.name for node in tree.body if isinstance(node, ast.ImportFrom)
              and node.module == "lessons.check.answered" for name in node.names}
    return {node.lineno: {*range(node.lineno, node.end_lineno + 1)} for node in ast.walk(tree)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in judges | {"Failure"}}


def test_every_sentence_has_an_answer_of_which_it_is_true(said, told, monkeypatch):
    texts, lines = said
    assert [] == [(number, source, text) for (number, source, words, *name), (text, named) in zip(TOLD, texts)
                  if not (words in text and named == name and all(f"({one}" in text for one in name))]
    assert [] == [(path.name, line) for path in sorted(CHECKS.glob("*.py")) for line, own in raising(path).items()
                  if not any((str(path), one) in lines for one in own)], "no answer makes these be said"
    monkeypatch.setattr(clock, "PATIENCE", -1 / 3)                  # at 2 seconds of CPU a third of a second of wall
    texts = "\n".join([*(text for text, _ in texts), told(2, "import time\ntime.sleep(600)\n", 2).failure[1]])
    assert [] == [words for name in ("engine.py", "naming.py") for words in sentences(CHECKS / name)
                  if not re.search(words, texts)], "no answer makes these be said"
