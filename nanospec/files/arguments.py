"""What callers hand to the functions of this folder: a path, a text. RequestError for anything else."""

import os
from pathlib import Path
from typing import Any

from nanospec.errors import PairError, RequestError, one_line

POINTER = b"version https://git-lfs.github.com/spec/"       # begins what a clone without Git LFS has in a file's place


def path_of(path: Any) -> Path:
    """The path, which may be given as a text."""
    if not isinstance(path, str | os.PathLike):
        raise RequestError(f"this must be a path, got {one_line(repr(path))}")
    return Path(path)


def fetched(path: Any) -> Path:
    """The path of a file that is there. OSError if it is not; PairError if Git LFS has left a pointer in its place."""
    path = path_of(path)
    with open(path, "rb") as file:
        if file.read(len(POINTER)) == POINTER:
            raise PairError(f"{path} is not the file itself but a pointer of Git LFS: git lfs pull fetches the file")
    return path


def text_of(text: Any) -> str:
    """The text as it is."""
    if not isinstance(text, str):
        raise RequestError(f"this must be a text, got {one_line(repr(text))}")
    return text
