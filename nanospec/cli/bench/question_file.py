"""Files of questions, as SPEED-Bench, Spec-Bench or the user has them: what the bench asks. Each
line is a question; what is none is refused by its number. The forms: questions.py.
"""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from nanospec.errors import RequestError, quoted
from nanospec.files.paths import json_lines, read_file

# What SPEED-Bench has in the place of a text that is another data set's.
PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
MT_BENCH = {"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem",
            "humanities"}


class Question(NamedTuple):
    """line: its number in the file. before: how many turns stand in the questions before it."""

    line: int
    id: int | str
    category: str
    turns: list[str]
    before: int

    @property
    def task(self) -> str:
        of_mt_bench = type(self.id) is int and 81 <= self.id <= 160 and self.category in MT_BENCH
        return "mt_bench" if of_mt_bench else self.category


class Questions(NamedTuple):
    """The questions of a file. digest: of what it holds."""

    path: Path
    digest: str
    each: list[Question]


def parse_lines(path: Path, data: bytes) -> list[tuple[int, dict]]:
    """Numbers and JSON objects of the lines of a file. RequestError for a line that is no object.
    """
    found = []
    for number, thing in json_lines(path, data):
        if not isinstance(thing, dict):
            raise RequestError(f"{path}, line {number} is no JSON object, but "
                               f"{quoted(thing)}")
        found.append((number, thing))
    return found


def read_questions(path: Path) -> Questions:
    """RequestError, with its line, for one that is no question or repeats a question_id."""
    each: list[Question] = []
    data, known, before = read_file(path), set[int | str](), 0
    for number, thing in parse_lines(path, data):
        at = f"{path}, line {number}"
        turns = find_turns(thing)
        texts = isinstance(turns, list) and all(isinstance(turn, str) and turn for turn in turns)
        if not turns or not texts:
            raise RequestError(f'{at}: a question has "turns", a list of texts, or "messages" of '
                               'the role "user", or a "prompt"')
        if any(PLACEHOLDER in turn for turn in turns):
            raise RequestError(f"{at} has no question, but SPEED-Bench's note that its text is to "
                               "be fetched, which speed-bench/prepare.py of NeMo Skills does")
        name = thing.get("question_id", f"line {number}")
        category = thing.get("category", "prompts")
        if type(name) not in (int, str) or not isinstance(category, str):
            raise RequestError(f"{at}: question_id is a whole number or a text, and category a "
                               "text")
        if name in known:
            raise RequestError(f"{at}: the question_id {quoted(name)} stands there twice")
        known.add(name)
        each.append(Question(number, name, category, turns, before))
        before += len(turns)
    if not each:
        raise RequestError(f"{path} has no question")
    return Questions(path, hashlib.sha256(data).hexdigest()[:16], each)


def find_turns(thing: dict) -> Any:
    """The user's turns, of a line in any of the forms; anything else is no list of texts."""
    if "turns" in thing:
        return thing["turns"]
    if not isinstance(thing.get("messages"), list):
        return [thing.get("prompt")]
    return [one.get("content") if isinstance(one, dict) and one.get("role") == "user" else None
            for one in thing["messages"]]
