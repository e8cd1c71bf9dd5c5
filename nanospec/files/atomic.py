"""A file is whole or not there: written beside its place, flushed, and renamed into it."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from nanospec.errors import one_line
from nanospec.files.arguments import path_of


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
