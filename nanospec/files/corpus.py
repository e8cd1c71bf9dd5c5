"""The text we train on: Python's own standard library, which lies on every machine that can run this.

Left out: tests, the encodings and generated tables (pages of numbers teach a code model nothing), and whatever is
not UTF-8. One file in twenty is held out, chosen by a hash of its path so that the choice is the same on every
machine and does not move when other files come or go.
"""

import hashlib
import sysconfig
from pathlib import Path

import torch

from nanospec.errors import TextError
from nanospec.files.tokenizer import Tokenizer

SKIPPED_FOLDERS = {"test", "tests", "idle_test", "encodings", "site-packages", "dist-packages", "__pycache__",
                   "lib2to3", "_bundled", "turtledemo", "pydoc_data"}
SKIPPED_FILES = {"entities.py", "_sysconfigdata", "this.py", "stringprep.py"}
HELD_OUT_ONE_IN = 20


def read_texts(source: Path | None = None) -> tuple[list[str], list[str]]:
    """(training texts, held-out texts), one string a file.

    source: a file, a folder (its text files, read recursively), or None for the standard library's .py files.
    A single file is split: its last twentieth is held out.
    """
    if source is None:
        return _split(Path(sysconfig.get_paths()["stdlib"]), "*.py")
    source = Path(source)
    if source.is_dir():
        return _split(source, "*")
    text = _read(source)
    if text is None:
        raise TextError(f"{source} is missing or is not UTF-8 text")
    cut = len(text) * (HELD_OUT_ONE_IN - 1) // HELD_OUT_ONE_IN
    return [text[:cut]], [text[cut:]]


def held_out(relative_path: str) -> bool:
    """True for about one path in twenty, always the same ones."""
    return int(hashlib.sha256(relative_path.encode()).hexdigest(), 16) % HELD_OUT_ONE_IN == 0


def _split(root: Path, pattern: str) -> tuple[list[str], list[str]]:
    train, held = [], []
    for path in sorted(root.rglob(pattern)):
        relative = path.relative_to(root)
        if SKIPPED_FOLDERS & set(relative.parts[:-1]) or any(path.name.startswith(s) for s in SKIPPED_FILES):
            continue
        text = _read(path)
        if text:
            (held if held_out(relative.as_posix()) else train).append(text)
    if not train or not held:
        raise TextError(f"{root} has too few text files: {len(train)} to train on, {len(held)} held out")
    return train, held


def _read(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return None if "\0" in text else text


def to_ids(texts: list[str], tokenizer: Tokenizer) -> torch.Tensor:
    """All texts as one row of ids (N,), int64, an end-of-text token before each and after the last."""
    ids = [tokenizer.end_of_text]
    for text in texts:
        ids += tokenizer.encode(text) + [tokenizer.end_of_text]
    return torch.tensor(ids)
