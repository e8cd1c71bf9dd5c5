"""Paths that callers hand over, and files that are whole or not there: written beside their place,
flushed, and renamed into it.
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from nanospec.errors import PairError, RequestError, one_line

# Begins what a clone without Git LFS has in a file's place.
POINTER = b"version https://git-lfs.github.com/spec/"


def path_of(path: Any) -> Path:
    """The path, which may be given as a text; or a RequestError."""
    if not isinstance(path, str | os.PathLike):
        raise RequestError(f"this must be a path, got {one_line(repr(path))}")
    return Path(path)


def fetched(path: Any) -> Path:
    """The path of a file. OSError if it is not there; PairError for a pointer of Git LFS."""
    path = path_of(path)
    with open(path, "rb") as file:
        if file.read(len(POINTER)) == POINTER:
            raise PairError(f"{path} is not the file itself but a pointer of Git LFS: git lfs pull "
                            "fetches the file")
    return path


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """`write(file)` says what goes into the file at `path`. Killed or out of space at any moment,
    the file that was there is still there. What a killed run has left beside it, of the same name
    but for .partial, is written over.

    OSError when it cannot be written. One writer at a time.
    """
    beside = path_of(path).with_suffix(".partial")
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


def read_json(path: Path) -> dict:
    """What a file of JSON says, {} if it is not there. PairError if that is no table."""
    data = fetched(path).read_bytes() if path.exists() else b"{}"
    try:
        table = json.loads(data)
        if not isinstance(table, dict):
            raise ValueError(f"it is a {type(table).__name__}")
    except (ValueError, RecursionError) as error:
        raise PairError(f"{path} is no table in JSON: {one_line(error)}") from error
    return table


def write_json(path: Path, what: Any) -> None:
    write_atomically(path, lambda file: file.write(json.dumps(what, indent=1).encode() + b"\n"))
