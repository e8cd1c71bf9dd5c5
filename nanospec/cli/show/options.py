"""What scripts take on their command lines. A bad request is refused in one line, before anything
is loaded.

Each type below reads an option's text, and says what it must be where it is something else.
"""

import argparse
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from nanospec.errors import MOST_ROWS, SEEDS, DeviceError
from nanospec.files.ready import available
from nanospec.files.sources import PACKAGED, can_be_a_name
from nanospec.methods.trees.shapes import grown_by, published

T = TypeVar("T")
HERE = "cuda" if torch.cuda.is_available() else "cpu"       # scripts choose a device, the library touches none


def option(what: str, read: Callable[[str], T], holds: Callable[[T], bool] = lambda value: True) -> Callable[[str], T]:
    """The type of an option that must be `what`: read(text), and `holds` must be true of it."""
    def of(text: str) -> T:
        try:
            value = read(text)
            if holds(value):
                return value
        except (ValueError, TypeError, OSError, OverflowError, RecursionError):
            pass
        raise argparse.ArgumentTypeError(f"must be {what}, got {text[:200]!r}")
    return of


def whole_number(least: int, most: int) -> Callable[[str], int]:
    return option(f"a whole number from {least} to {most}", int, lambda number: least <= number <= most)


def tree(text: str) -> int | list[int] | dict[str, int]:
    """How many children, a topology, or how a tree is grown."""
    if text.strip().isdigit():
        return GAMMA(text)
    found = json.loads(Path(text).read_text() if text.endswith(".json") else text)
    return grown_by(found) if isinstance(found, dict) else published(found if isinstance(found, list) else [])


def file(suffix: str = "") -> Callable[[str], Path]:
    """A file that can be written, or written over."""
    def can_be_written(path: Path) -> bool:
        written = path if path.exists() else path.parent
        fits = not path.is_dir() if path.exists() else written.is_dir()
        return fits and path.suffix.endswith(suffix) and os.access(written, os.W_OK)
    return option(f"a {suffix} file in a folder that can be written to".replace("  ", " "), Path, can_be_written)


def can_be_made(folder: Path) -> bool:
    """The folder, or the nearest one above it that exists, is a folder that can be written to."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK)


def device(name: str) -> str:
    try:
        available(name)
    except DeviceError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name


COUNT = whole_number(1, 10 ** 9)
GAMMA = whole_number(1, MOST_ROWS - 1)
SHAPE = option("children at every depth, or a whole tree, as JSON or a .json file: its parents, [-1, 0, 0], choices, "
               '[[0], [1]], or {"size": 9, "width": 3, "depth": 2}', tree)
REMEMBER = whole_number(0, 10 ** 9)
SEED = whole_number(0, SEEDS - 1)
THREADS = whole_number(1, 1024)
TEMPERATURE = option("a number, 0 or more", float, lambda number: 0 <= number < math.inf)
TOP_P = option("more than 0 and at most 1", float, lambda number: 0 < number <= 1)
TEXT = option("UTF-8", lambda text: text.encode().decode())  # argv holds other bytes as half characters
FOLDER = option("a folder that is there", Path, Path.is_dir)
TEXTS = option("a file or a folder that is there", Path, Path.exists)
MODEL = option(f"a folder or a .gguf file that is there, {', '.join(PACKAGED)}, or a repository on the hub, OWNER/NAME",
               str, can_be_a_name)
MODEL_HELP = ("a pair that train_tiny.py wrote; Hugging Face folders MODEL/target and MODEL/draft, or .gguf files of "
              "these names; a folder or a .gguf file with a target alone; "
              f"{', '.join(PACKAGED)}; or a repository on the hub")
NEW_FOLDER = option("a folder that can be written to, there or not", Path, can_be_made)
