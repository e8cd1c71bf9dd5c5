"""What callers give to the functions of this folder: a path, a text. RequestError for anything else."""

import os
from pathlib import Path
from typing import Any

from nanospec.errors import RequestError, one_line


def path_of(path: Any) -> Path:
    """The path, which may be given as a text."""
    if not isinstance(path, str | os.PathLike):
        raise RequestError(f"this must be a path, got {one_line(repr(path))}")
    return Path(path)


def text_of(text: Any) -> str:
    """The text as it is."""
    if not isinstance(text, str):
        raise RequestError(f"this must be a text, got {one_line(repr(text))}")
    return text
