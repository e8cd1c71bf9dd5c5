"""A class at once: every student's folder, every exercise in a process of its own, a table.

Nothing that one file does reaches the next: it runs in another process, in a copy of its own, with its output thrown
away and a time limit, after which its whole process group is killed. A file that changes the library or the checks has
failed. This is no wall against malice: whoever runs strangers' code should do so in a container.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from lessons.check import EXERCISES
from lessons.check.engine import Exercise, check, stub

ROOT = Path(__file__).parent.parent.parent
NOT_TRIED = ("missing", "untouched")


def grade(folder: Path, seconds: float, console: Console) -> int:
    """Print what every student has solved; 0 if all could be looked at."""
    students = sorted(path for path in folder.iterdir() if path.is_dir())
    if not students:
        print(f"lessons.check: no folders in {folder}: one for each student, with files such as "
              f"{EXERCISES[1].file}", file=sys.stderr)
        return 2
    rows = []
    for student in students:
        results = {number: run(exercise, student / exercise.file, seconds) for number, exercise in EXERCISES.items()}
        rows.append((student.name, results))
        console.print(f"{student.name}: {solved(results)} of {len(results)}",
                      style="dim", markup=False)
    shown = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    shown.add_column("student")
    for number in EXERCISES:
        shown.add_column(str(number), justify="center")
    shown.add_column("solved", justify="right")
    for name, results in rows:
        marks = ["[green]✓[/]" if found["solved"] else "[dim]·[/]" if found["part"] in NOT_TRIED else "[red]✗[/]"
                 for found in results.values()]
        shown.add_row(name, *marks, str(solved(results)))
    console.print(shown)
    for name, results in rows:
        for number, found in results.items():
            if not found["solved"] and found["part"] not in NOT_TRIED:
                console.print(f"{name}, {number}: {found['part']}: {found['why']}", markup=False)
    return 0


def solved(results: dict[int, dict]) -> int:
    return sum(found["solved"] for found in results.values())


def run(exercise: Exercise, path: Path, seconds: float) -> dict:
    """One exercise of one student: {"solved", "part", "why"}; part is where it failed."""
    if not path.is_file():
        return {"solved": False, "part": "missing", "why": ""}
    if path.read_bytes() == stub(exercise.answer).encode():
        return {"solved": False, "part": "untouched", "why": ""}
    with tempfile.TemporaryDirectory() as folder:
        copy, out = Path(folder) / exercise.file, Path(folder) / "result.json"
        shutil.copyfile(path, copy)
        command = [sys.executable, "-m", "lessons.check", str(exercise.number), "--result", str(copy), str(out)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return {"solved": False, "part": "time", "why": f"not done after {seconds:g} seconds"}
        finally:
            stop(process)
        try:
            return json.loads(out.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {"solved": False, "part": "crash", "why": f"its process ended by itself, with {process.returncode}"}


def stop(process: subprocess.Popen) -> None:
    """The process and all it has started."""
    if hasattr(os, "killpg"):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    else:
        process.kill()
    process.wait()


def write_result(exercise: Exercise, path: Path, out: Path) -> int:
    """What `run` starts: look at one file, and write down what was found."""
    out.write_text(json.dumps(found_in(exercise, path)), encoding="utf-8")
    os._exit(0)                                         # nothing a student's file has left to run at the end is run


def found_in(exercise: Exercise, path: Path) -> dict:
    """As `run`, without a process and a clock of its own."""
    before = fingerprint()
    result = check(exercise, path, seconds=0)
    if changed(before, fingerprint()):
        return {"solved": False, "part": "library", "why": "it changes the library or the checks"}
    if result.failure:
        part, why = result.failure
        return {"solved": False, "part": part, "why": ", ".join(result.named) or why.splitlines()[0][:100]}
    return {"solved": True, "part": "", "why": ""}


def fingerprint() -> dict:
    """Every name of the library, the checks, torch and the built-ins: what it stands for, and a function's code."""
    found: dict = {}
    for name, module in list(sys.modules.items()):
        ours = name.split(".")[0] in ("nanospec", "lessons")
        if module is None or not (ours or name in ("torch", "builtins")):
            continue
        for key, thing in list(vars(module).items()):
            if key.startswith("__"):
                continue
            found[name, key] = thing, getattr(thing, "__code__", None)
            if isinstance(thing, type) and ours or thing is torch.Tensor:
                found.update({(name, key, method): (function, getattr(function, "__code__", None))
                              for method, function in list(vars(thing).items()) if callable(function)})
    for number, exercise in EXERCISES.items():
        found["parts", number] = exercise.contract, (*exercise.looks.items(), *exercise.tests.items())
    return found


def changed(before: dict, now: dict) -> bool:
    """A name that stands for something else, or a method that was not there. (Modules may have been imported since.)"""
    return any(key not in now or now[key][0] is not thing or now[key][1] != more
               for key, (thing, more) in before.items()) or any(
        len(key) == 3 and key not in before and key[:2] in before for key in now)
