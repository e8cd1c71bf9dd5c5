"""A process for every file that is judged, forked from one that has imported torch: side by side, bounded, and gone
when the grader is gone. Linux and macOS; where a bound is not to be had the others must do.

What comes back comes through a pipe, after a word that only the grader and its child know. A file that writes a result
of its own, wherever, has written nothing.
"""

import contextlib
import ctypes
import json
import os
import resource
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from lessons.check import honest
from lessons.check.alike import form
from lessons.check.catalogue import ENTRIES, read
from lessons.check.clock import OWN_WORK, PATIENCE, Clock
from lessons.check.engine import Exercise, check
from nanospec.errors import one_line

MEMORY = 2 ** 30        # bytes that a file may ask for
WRITTEN = 2 ** 24       # bytes of a file that it may write
ANSWER = 2 ** 16        # bytes that are read of what a process says, which is:
SAID = {"solved": bool, "part": str, "why": str, "slow": bool, "label": str, "form": str, "size": int, "shipped": bool}
DIE_WITH_PARENT = 1     # PR_SET_PDEATHSIG
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass
class Job:
    """A student's file: its text."""

    student: str
    exercise: Exercise
    text: bytes


@dataclass
class Running:
    job: Job
    pid: int
    word: bytes
    folder: Path
    deadline: float
    heard: bytearray = field(default_factory=bytearray)


def found(solved: bool, part: str = "", why: str = "", named: Sequence[str] = (), slow: bool = False) -> dict:
    """What is known of a file. part: where it failed.  why: the mistake's name, or a line.  label: a word for all.
    slow: the distribution of the text is right, and what is lost is speed.
    """
    names = ", ".join(named)
    return {"solved": solved, "part": part, "why": names or why and one_line(why), "slow": slow,
            "label": "solved" if solved else names or part}


def found_in(exercise: Exercise, path: Path, seconds: float = 0, before: dict | None = None) -> dict:
    """Judge a file in this very process, and see whether it is honest. before: what the library was like."""
    before = before or honest.fingerprint()
    digest, size = form(read(path), exercise)        # before anything in it is run
    looks = {"form": digest, "size": size, "shipped": bool(digest) and digest == shipped_form(exercise.number)}
    return judged(exercise, path, seconds, before) | looks


@cache
def shipped_form(number: int) -> str:
    return form(ENTRIES[number].answer.encode(), ENTRIES[number])[0]


def judged(exercise: Exercise, path: Path, seconds: float, before: dict) -> dict:
    clock = Clock(seconds)
    watch = honest.Watch(clock)
    result = check(exercise, path, clock)
    if honest.changed(before, honest.fingerprint()):
        return found(False, "library", "it changes the library or the checks")
    if watch.first():
        return found(False, *watch.first())
    if result.stopped:
        return found(False, result.stopped, result.failure[1].splitlines()[0])
    if result.failure:
        part, why = result.failure
        lines = [line for line in why.splitlines() if line.startswith("not a mistake known here")] or why.splitlines()
        return found(False, part, lines[0][:100], result.named, result.slow)
    return found(True)


def run(jobs: Iterable[Job], at_once: int, seconds: float) -> Iterator[tuple[Job, dict]]:
    """Each job with what was found, in the order in which they end. Whatever ends this ends all their processes."""
    waiting, running, before = iter(jobs), {}, honest.fingerprint()
    with selectors.DefaultSelector() as pipes, tempfile.TemporaryDirectory() as folder:
        try:
            more = True
            while more or running:
                while more and len(running) < at_once:
                    job = next(waiting, None)
                    more = job is not None
                    if more:
                        pipe, started = start(job, Path(folder), seconds, before)
                        running[pipe] = started
                        pipes.register(pipe, selectors.EVENT_READ)
                ready = [key.fd for key, _ in pipes.select(timeout=1)]
                late = [pipe for pipe, child in running.items() if time.monotonic() > child.deadline]
                for pipe in {*ready, *late}:
                    child = running[pipe]
                    said = os.read(pipe, ANSWER) if pipe in ready else b""
                    child.heard += said
                    if not said or len(child.heard) > ANSWER:
                        pipes.unregister(pipe)
                        del running[pipe]
                        yield child.job, ended(child, pipe, pipe in late)
        finally:
            for pipe, child in running.items():
                ended(child, pipe, late=True)


def start(job: Job, folder: Path, seconds: float, before: dict) -> tuple[int, Running]:
    """Fork. Returns the pipe's end to read from, and what is known of the process."""
    folder.mkdir(exist_ok=True)                         # a student's file may have removed it
    own = Path(tempfile.mkdtemp(dir=folder))
    copy, word, parent = own / "here" / job.exercise.file, secrets.token_hex(16).encode(), os.getpid()
    copy.parent.mkdir()                                 # so that what lies above it is its own, too
    copy.write_bytes(job.text)
    receive, send = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(send)
        deadline = time.monotonic() + PATIENCE * seconds + 2 * OWN_WORK
        return receive, Running(job, pid, word, own, deadline)
    try:
        bounded(parent, seconds, copy.parent, send)
        os.write(send, word + json.dumps(found_in(job.exercise, copy, seconds, before)).encode())
    finally:
        os._exit(0)                                     # nothing a student's file has left to run at the end is run


def bounded(parent: int, seconds: float, folder: Path, pipe: int) -> None:
    """In the child: a group of its own, no file but the pipe, limits, and its end when the grader ends."""
    os.setsid()
    if LIBC is not None:
        LIBC.prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    for open_file in map(int, os.listdir("/dev/fd")):   # among them the class's own sheet
        if open_file > 2 and open_file != pipe:
            with contextlib.suppress(OSError):          # the list itself is closed by now
                os.close(open_file)
    os.chdir(folder)
    cpu = int(seconds + OWN_WORK) + 1                   # the child's own alarm comes first
    limits = {resource.RLIMIT_CPU: (cpu, cpu + 1), resource.RLIMIT_CORE: (0, 0), resource.RLIMIT_FSIZE: (WRITTEN,) * 2}
    if sys.platform == "linux":                         # macOS knows no limit of memory; torch alone has gigabytes
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limits[resource.RLIMIT_AS] = (in_use + MEMORY,) * 2
    for what, limit in limits.items():
        with contextlib.suppress(OSError, ValueError):  # the system's own limit may be lower
            resource.setrlimit(what, limit)


def ended(child: Running, pipe: int, late: bool) -> dict:
    """The process and all it has started are ended; what it said, or what became of it."""
    for kill in os.killpg, os.kill:                     # it may not have come as far as to have a group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(child.pid, signal.SIGKILL)
    os.close(pipe)
    _, status = os.waitpid(child.pid, 0)
    # Its folders may be nested deeper than Python's own way to remove them goes.
    subprocess.run(["rm", "-rf", child.folder], stderr=subprocess.DEVNULL)
    if child.heard.startswith(child.word):
        with contextlib.suppress(ValueError, RecursionError):
            said = json.loads(child.heard[len(child.word):])
            if isinstance(said, dict) and {name: type(value) for name, value in said.items()} == SAID:
                return said
    if late:
        return found(False, "busy", "not done by the clock on the wall; it was not judged")
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGXCPU:
        return found(False, "time", "it does not come to an end, inside one call that cannot be interrupted")
    how = signal.strsignal(-code) if code < 0 else f"status {code}"
    return found(False, "crash", f"its process ended before there was a verdict: {how}")
