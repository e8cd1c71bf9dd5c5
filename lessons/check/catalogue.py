"""Which exercises there are, where they lie, and how much of a job each is. No torch here: a list is there at once."""

import ast
import errno
import os
import stat
from codecs import BOM_UTF8
from dataclasses import dataclass
from pathlib import Path

from lessons.check import envelope, seeds

TOP = Path(__file__).resolve().parent.parent.parent
ANSWERS = TOP / "lessons" / "answers"
HANDED_OUT = bool(envelope.opened())        # this is a class's copy
LONGEST = 2 ** 17       # bytes of an exercise's file


@dataclass
class Entry:
    """file: its name, in exercises/ and in answers/."""

    file: str

    @property
    def number(self) -> int:
        return int(self.file[2:4])

    @property
    def answer(self) -> str:
        """The source of a solution, as this variant has it. A class's copy has what is to be solved in its place."""
        if not seeds.NAME or HANDED_OUT:
            return self.source
        from lessons.check import variants                  # it needs torch
        return variants.drawn(self.number, self.source)

    @property
    def source(self) -> str:
        """As it ships. Its docstring says what the exercise is."""
        if HANDED_OUT:
            return envelope.opened()[envelope.STUB + self.file]
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
    def difficulty(self) -> int:
        """1 to 5: its points, too."""
        return int(self.size.split()[1])

    @property
    def path(self) -> Path:
        """Where a learner writes."""
        return folder_of_exercises() / self.file

    def _head(self) -> list[str]:
        return ast.get_docstring(ast.parse(self.source)).splitlines()


NAMES = sorted(path.name for path in ANSWERS.glob("ex[0-9][0-9]_*.py"))
NAMES = NAMES or sorted(name.removeprefix(envelope.STUB) for name in envelope.opened() if envelope.STUB in name)
ENTRIES = {entry.number: entry for entry in map(Entry, NAMES)}


def untouched(text: bytes, entry: Entry) -> bool:
    """As it was handed out, whatever an editor or git has made of its ends of lines."""
    return text.removeprefix(BOM_UTF8).replace(b"\r\n", b"\n").strip() == stub(entry.answer).encode().strip()


def as_handed_out(text: bytes, entry: Entry) -> bool:
    """It has the exercise's own tables, if that has some: those of this variant, and not another's, however they are
    laid out. Of what does not parse this is not known.
    """
    def tables(source: str | bytes) -> set[str]:
        return {ast.dump(node) for node in ast.parse(source).body if isinstance(node, ast.Assign)
                and ast.unparse(node.targets[0]) in ("P_TARGET", "Q_DRAFT", "SEEDS")}
    try:
        return tables(stub(entry.answer)) <= tables(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True


def read(path: Path, most: int = LONGEST, follow: bool = True) -> bytes:
    """A plain file's bytes. OSError for a pipe, a device, more bytes than `most`, a link that may not be followed."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if not follow and path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link", str(path))
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", str(path))
        text = file.read(most + 1)
    if len(text) > most:
        raise OSError(errno.EFBIG, f"it is longer than {most:,} bytes", str(path))
    return text


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


def asked(answer: str) -> list[ast.FunctionDef]:
    """The functions that are to be written. Rules and rounds with a letter are shown."""
    return [node for node in ast.parse(answer).body
            if isinstance(node, ast.FunctionDef) and not node.name.startswith(("rule_", "round_"))]


def stub(answer: str) -> str:
    """An answer's source with `raise NotImplementedError` for every body, and torch at hand."""
    lines, tree = answer.splitlines(), ast.parse(answer)
    for node in reversed(asked(answer)):
        first = node.body[1] if ast.get_docstring(node) else node.body[0]
        lines[first.lineno - 1:node.end_lineno] = ["    raise NotImplementedError"]
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    if not any(isinstance(node, ast.Import) and node.names[0].name == "torch" for node in imports):
        under = tree.body[0].end_lineno                 # after the docstring, and the standard library's names
        lines[under:under] = ["", "import torch"]
    return "\n".join(lines) + "\n"
