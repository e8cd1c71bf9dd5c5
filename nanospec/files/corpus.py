"""The text that our models learn from and are measured on: Python's own standard library, which is
on every machine that can run this; or a file or a folder of the user's.

Left out: tests, the encodings and generated tables (pages of numbers teach a code model nothing),
and whatever is not UTF-8. One file in twenty is held out, chosen by a hash of its path so that the
choice is the same on every machine and does not move when other files come or go.
"""

import hashlib
import os
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import torch

from nanospec.errors import PairError, TextError
from nanospec.files.paths import fetched, path_of
from nanospec.files.tokenizer_json import AnyTokenizer

SKIPPED_FOLDERS = {"test", "tests", "idle_test", "encodings", "site-packages", "dist-packages",
                   "__pycache__", "lib2to3", "_bundled", "turtledemo", "pydoc_data"}
SKIPPED_FILES = {"entities.py", "_sysconfigdata", "this.py", "stringprep.py"}
HELD_OUT_ONE_IN = 20
LONGEST_LINE = 10_000_000                               # characters; a longer one is no text
Texts = tuple[list[str], list[str]]                     # to train on, held out; one string a file


def read_texts(source: Path | None = None) -> Texts:
    """(training texts, held-out texts), one string a file.

    source: a file, a folder (its text files, read recursively), or None for the standard library's
    .py files.
    A single file is split: its last twentieth is held out. TextError if it is no text; a folder's
    are left out.
    """
    if source is None or path_of(source).is_dir():
        root = Path(source or sysconfig.get_paths()["stdlib"])
        return split({path.relative_to(root): path
                      for path in _below(root) if source or path.suffix == ".py"}, root)
    text = _text(Path(source))
    cut = len(text) * (HELD_OUT_ONE_IN - 1) // HELD_OUT_ONE_IN
    return [text[:cut]], [text[cut:]]


def held_out(relative_path: str) -> bool:
    """True for about one path in twenty, always the same ones."""
    # Names are any bytes.
    digest = hashlib.sha256(relative_path.encode(errors="surrogateescape")).hexdigest()
    return int(digest, 16) % HELD_OUT_ONE_IN == 0


def to_ids(texts: list[str], tokenizer: AnyTokenizer) -> torch.Tensor:
    """All texts as one row of ids (N,), end of text before each and after the last."""
    ids = [tokenizer.end_of_text]
    for text in texts:
        ids += opening(tokenizer) + tokenizer.encode(text) + [tokenizer.end_of_text]
    return torch.tensor(ids, device="cpu")


def opening(tokenizer: AnyTokenizer) -> list[int]:
    """What a model wants to read before everything, also before a piece of a text. An end of text
    is no such token, for a piece does not follow one.
    """
    return [] if tokenizer.begin == [tokenizer.end_of_text] else tokenizer.begin


def _below(root: Path) -> Iterator[Path]:
    """The files in a folder and in those below it. What is skipped is not walked: thousands of
    files of packages lie below the standard library.
    """
    for folder, inner, files in os.walk(root):
        inner[:] = set(inner) - SKIPPED_FOLDERS
        yield from (Path(folder, name) for name in files)


def split(files: dict[Path, Path], where: Path | str,
          takes: Callable[[str], object] = bool) -> Texts:
    """files: the path by which a file is known, and where it lies. takes: whether a text is meant.
    """
    train, held = [], []
    for relative, path in sorted(files.items()):
        if any(path.name.startswith(s) for s in SKIPPED_FILES):
            continue
        text = ""
        with suppress(TextError):                       # a file among others that is no text
            text = _text(path)
        if text and takes(text):
            (held if held_out(relative.as_posix()) else train).append(text)
    if not train or not held:
        raise TextError(f"{where} has too few text files: {len(train)} to train on, {len(held)} "
                        "held out")
    return train, held


def _text(path: Path) -> str:
    """What would never end, as a pipe, is not read."""
    if path.exists() and not path.is_file():
        raise TextError(f"{path} is a pipe or a device, not a file")
    try:
        # Without the mark that some editors write.
        text = fetched(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, PairError):
        text = "\0"
    if "\0" in text:
        raise TextError(f"{path} is missing or is not UTF-8 text")
    if max(map(len, text.split("\n"))) > LONGEST_LINE:
        raise TextError(f"{path} has a line of more than {LONGEST_LINE:,} characters: it is no "
                        "text to learn from")
    return text
