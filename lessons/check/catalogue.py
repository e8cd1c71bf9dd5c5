"""Which exercises there are, where they lie, and how much of a job each is. No torch here: a list is there at once."""

import ast
import os
from codecs import BOM_UTF8
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
ANSWERS = TOP / "lessons" / "answers"


@dataclass
class Entry:
    """file: its name, in exercises/ and in answers/."""

    file: str

    @property
    def number(self) -> int:
        return int(self.file[2:4])

    @property
    def answer(self) -> str:
        """The source of a solution. Its docstring says what the exercise is."""
        return (ANSWERS / self.file).read_text(encoding="utf-8")

    @property
    def title(self) -> str:
        """The first line of its docstring, without the number."""
        return self._head()[0].split(": ", 1)[1]

    @property
    def size(self) -> str:
        """Difficulty, minutes, lines; lesson."""
        return self._head()[2]

    @property
    def path(self) -> Path:
        """Where a learner writes."""
        return folder_of_exercises() / self.file

    def _head(self) -> list[str]:
        return ast.get_docstring(ast.parse(self.answer)).splitlines()


ENTRIES = {entry.number: entry for entry in (Entry(path.name) for path in sorted(ANSWERS.glob("ex[0-9][0-9]_*.py")))}


def untouched(text: bytes, entry: Entry) -> bool:
    """As it was handed out, whatever an editor or git has made of its ends of lines."""
    return text.removeprefix(BOM_UTF8).replace(b"\r\n", b"\n").strip() == stub(entry.answer).encode().strip()


def folder_of_exercises() -> Path:
    """Where a learner writes: as a path to be printed, short."""
    folder = TOP / "lessons" / "exercises"
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def command() -> str:
    """What to type to come here, from the folder where the learner is."""
    if Path.cwd() == TOP:
        return "python -m lessons.check"
    here = TOP / "lessons" / "check"
    return f"python {min(str(here), os.path.relpath(here), key=len)}"


def stub(answer: str) -> str:
    """An answer's source with `raise NotImplementedError` for every body, and torch at hand."""
    lines, tree = answer.splitlines(), ast.parse(answer)
    for node in reversed([node for node in tree.body if isinstance(node, ast.FunctionDef)]):
        if node.name.startswith("rule_"):               # shown, not asked for
            continue
        first = node.body[1] if ast.get_docstring(node) else node.body[0]
        lines[first.lineno - 1:node.end_lineno] = ["    raise NotImplementedError"]
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    if not any(isinstance(node, ast.Import) and node.names[0].name == "torch" for node in imports):
        under = tree.body[0].end_lineno                 # after the docstring, and the standard library's names
        lines[under:under] = ["", "import torch"]
    return "\n".join(lines) + "\n"
