"""What callers hand to this folder's functions: a path, a text; or a RequestError."""

import os
from pathlib import Path
from typing import Any

from nanospec.errors import PairError, RequestError, one_line

# Begins what a clone without Git LFS has in a file's place.
POINTER = b"version https://git-lfs.github.com/spec/"


def path_of(path: Any) -> Path:
    """The path, which may be given as a text."""
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


def text_of(text: Any) -> str:
    """The text as it is."""
    if not isinstance(text, str):
        raise RequestError(f"this must be a text, got {one_line(repr(text))}")
    return text
