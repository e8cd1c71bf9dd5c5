"""The classroom as a class gets it: lessons, exercises to be written, and a checker without an answer in sight.

What can be seen all the same is said when it is written: see envelope.py.
"""

import os
import re
import shlex
import shutil
from pathlib import Path

from lessons.check import envelope, seeds
from lessons.check.catalogue import ENTRIES, TOP, asked, stub

WHOLE = ("nanospec", "training", "docs", "pyproject.toml", "README.md", "LICENSE", "demo.py", "train_tiny.py")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "out", "*.egg-info", ".*")
SEALED = ("ex[0-9][0-9]_*.py", "mistakes_*.py", "rounds.py", "layers.py", "pairs.py", "verdicts.py")
TEACHERS = {f"{name}.py" for name in ("alike", "grade", "handed", "handout", "honest", "marks", "variants", "workers")}
IN_A_LESSON = "The answers are in the file of the same name in `lessons/answers/`."
SAID = """{folder} has the lessons, {count} exercises to be written, and a checker. Students need nothing else.
No answer lies in it as text: the checks are in lessons/check/checks.sealed. That is an envelope and no safe, for Python
must open it in order to check; and the library, which the lessons show, does what most exercises ask for. Who wrote the
same as another, or as the answers that ship, is told by --grade FOLDER{variant}."""


class Refused(Exception):
    """Nothing was written, and why."""


def hand_out(folder: Path) -> str:
    """Written aside and moved, so that it is whole or not there. Returns what to tell the teacher. With drawn tables
    every known mistake must be seen, and told from the others: that is tried, and takes a minute.
    """
    folder = Path(os.path.abspath(folder))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(f"{folder} exists, and is not an empty folder")
    if any(folder.resolve().is_relative_to(TOP / part) for part in (*WHOLE, "lessons")):
        raise Refused(f"{folder} is inside of what is handed out")
    if seeds.NAME:
        tried()
    aside = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        write(aside)
        if folder.exists():
            folder.rmdir()
        aside.replace(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    variant = f" --variant {shlex.quote(seeds.NAME)}" if seeds.NAME else ""
    return SAID.format(folder=folder, count=len(ENTRIES), variant=variant)


def tried() -> None:
    from lessons.check import EXERCISES
    from lessons.check.naming import named
    from nanospec.fast.announce import announced
    with announced("trying every known mistake on the variant's tables", steps=len(EXERCISES)) as step:
        for number, exercise in EXERCISES.items():
            for mistake in exercise.wrongs:
                theirs = {part: exercise.seen_of(mistake, part) for part in exercise.looks}
                if {found.name for found in named(exercise, theirs)} != {mistake.name}:
                    raise Refused(f"the tables of variant {seeds.NAME!r} do not show the mistake {mistake.name} of "
                                  f"exercise {number}, or not it alone: choose another name")
            step()


def write(top: Path) -> None:
    top.mkdir(parents=True)
    for part in WHOLE:
        copy = shutil.copytree if (TOP / part).is_dir() else shutil.copy
        copy(TOP / part, top / part, **{"ignore": LEFT_OUT} if copy is shutil.copytree else {})
    lessons, check = top / "lessons", top / "lessons" / "check"
    for folder in lessons / "exercises", check:
        folder.mkdir(parents=True)
    for path in sorted((TOP / "lessons").glob("*.py")):
        put(lessons / path.name, path.read_text(encoding="utf-8").replace(IN_A_LESSON, "Your teacher has the answers."))
    for path in sorted((TOP / "lessons").glob("*.md")):
        put(lessons / path.name, for_students(path.read_text(encoding="utf-8")))
    for entry in ENTRIES.values():
        put(lessons / "exercises" / entry.file, stub(entry.answer))
    sealed = {path for pattern in SEALED for path in (TOP / "lessons" / "check").glob(pattern)}
    texts = {f"{envelope.MODULE}lessons.check.{path.stem}": path.read_text(encoding="utf-8") for path in sealed}
    texts |= {envelope.STUB + entry.file: stub(entry.answer) for entry in ENTRIES.values()}
    texts |= {envelope.RIGHT + entry.file: entry.answer for entry in ENTRIES.values() if len(asked(entry.answer)) > 1}
    envelope.seal(check / envelope.FILE.name, texts | {envelope.VARIANT: seeds.NAME})
    for path in set((TOP / "lessons" / "check").glob("*.py")) - sealed:
        if path.name not in TEACHERS:
            shutil.copy(path, check / path.name)


def put(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def for_students(page: str) -> str:
    """Up to what is for the teacher, and without the lines that name answers."""
    text = page.split("\n## For the teacher")[0].replace("From a fresh clone, run", "In this folder, run") + "\n"
    text = re.sub(r"(?m)^python -m lessons.check .*--answer.*\n", "", text)
    return re.sub(r"[;,]? (and )?(with )?the answers (are in `lessons/answers/`|folded away)", "", text)
