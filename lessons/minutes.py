"""How long a lesson takes, by one rate for all: `python -m lessons.minutes` prints what lessons/README.md says.

Reading is 110 words of text a minute and 8 seconds for a line of code: technical English, for readers whose first
language may be another one, who guess before they run a cell. The page has it to the nearest five minutes. A task of
"Change this and run again" takes 4 minutes. The time that a lesson itself runs is not counted, nor are exercises,
which say their minutes.
"""

import re
from pathlib import Path

from lessons.kit import contents
from lessons.notebooks import LESSONS, cells_of

WORDS, LINE, TASK = 110, 8, 4       # words a minute, seconds a line of code, minutes a task


def minutes(script: str) -> tuple[int, int]:
    """A lesson's text -> minutes of reading, minutes of its tasks. 550 words, 30 lines and 2 tasks give (9, 8)."""
    cells = cells_of(script)
    text = "\n".join(body for kind, body in cells if kind == "markdown")
    lines = sum(bool(line.strip()) for kind, body in cells if kind == "code" for line in body.splitlines())
    tasks = re.findall(r"^\d+\. ", text.partition("## Change this and run again")[2], re.M)
    words = sum(bool(re.search(r"\w", word)) for word in text.split())
    return round(words / WORDS + lines * LINE / 60), TASK * len(tasks)


def lesson(number: str) -> Path:
    return next(LESSONS.glob(f"{int(number):02}_*.py"))


if __name__ == "__main__":
    found = {number: minutes(lesson(number).read_text(encoding="utf-8")) for number, _, _ in contents()}
    for number, (reading, tasks) in found.items():
        print(f"{number:>3} {5 * round(reading / 5):4} {tasks:4}")
