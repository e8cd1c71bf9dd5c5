"""Paths that callers hand over, and files that are whole or not there: written beside their place,
flushed, and renamed into it.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO

from nanospec.errors import PairError, RequestError, one_line, quoted

MOST = 2 ** 28          # bytes of any other file that is no weights
TABLE = 2 ** 24         # of a table in JSON, which takes up to 24 times as much memory
# Begins what a clone without Git LFS has in a file's place.
POINTER = b"version https://git-lfs.github.com/spec/"


def path_of(path: Any) -> Path:
    """The path, which may be given as a text; or a RequestError."""
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        raise RequestError(f"this must be a path, got {quoted(path)}")
    return Path(path)


def fetched(path: Any, most: int | None = None) -> Path:
    """The path of a file that can be read, of at most so many bytes; None: those of this machine's
    memory. Whatever comes from a stranger is asked for here before it is opened.

    OSError if it is not there. PairError for what is no plain file, which may never end or never
    begin, for one that is too large, and for a pointer of Git LFS.
    """
    path, most = path_of(path), most or memory()
    found = path.stat()
    if not S_ISREG(found.st_mode):
        raise PairError(f"{path} is no plain file")
    if found.st_size > most:
        raise PairError(f"{path} has {found.st_size:,} bytes, and at most {most:,} are read here")
    with open(path, "rb") as file:
        if file.read(len(POINTER)) == POINTER:
            raise PairError(f"{path} is not the file itself but a pointer of Git LFS: git lfs pull "
                            "fetches the file")
    return path


def read_file(path: Any, most: int = MOST) -> bytes:
    """What a file holds that is no weights. As `fetched`."""
    return fetched(path, most).read_bytes()


def check_claimed(claimed: int, size: int) -> None:
    """ValueError for a file of `size` bytes that says that it holds more, as by naming a byte
    twice.
    """
    if claimed > size:
        raise ValueError(f"it says that it holds {claimed:,} bytes, and it has {size:,}")


def memory() -> int:
    """Bytes of this machine's memory, or a number that no file has, where that is not known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2 ** 63


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """`write(file)` says what goes into the file at `path`. Killed or out of space at any moment,
    the file that was there is still there. What a killed run has left beside it, of the same name
    and .partial, is written over.

    OSError when it cannot be written. One writer at a time.
    """
    path = path_of(path)
    if path.exists() and not path.is_file() and not path.is_dir():      # as /dev/stdout
        with open(path, "wb") as file:
            write(file)
        return
    path = path.resolve()                               # a link stays one
    beside = path.with_name(path.name + ".partial")
    try:
        with open(beside, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException as error:                      # an interruption too
        with suppress(OSError):
            beside.unlink()
        if not isinstance(error, (OSError, RuntimeError)):          # torch wraps what the file says
            raise
        raise OSError(f"{path} could not be written, what was there before still is: "
                      f"{one_line(error)}") from error


@contextmanager
def written_aside(folder: Path) -> Iterator[Path]:
    """A folder beside this one, which becomes it once all is written; else nothing is left."""
    beside = folder.with_name(folder.name + ".partial")
    shutil.rmtree(beside, ignore_errors=True)           # of a run that was killed
    beside.mkdir(parents=True)
    try:
        yield beside
        os.replace(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def read_json(path: Path) -> dict:
    """What a file of JSON says, {} if it is not there. PairError if that is no table."""
    data = read_file(path, TABLE) if path.exists() else b"{}"
    try:
        table = json.loads(data)
        if not isinstance(table, dict):
            raise ValueError(f"it is a {type(table).__name__}")
    except (ValueError, RecursionError) as error:
        raise PairError(f"{path} is no table in JSON: {one_line(error)}") from error
    return table


def json_lines(path: Path, data: bytes) -> Iterator[tuple[int, Any]]:
    """The lines of a file that holds `data`, but for blank ones, with their numbers. RequestError
    for one that is no JSON.
    """
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.strip():
            try:
                thing = json.loads(line.decode())
            except (ValueError, RecursionError) as error:
                raise RequestError(f"{path}, line {number} is no JSON in UTF-8: "
                                   f"{one_line(error)}") from error
            yield number, thing


def write_json(path: Path, what: Any) -> None:
    write_atomically(path, lambda file: file.write(json.dumps(what, indent=1).encode() + b"\n"))
