"""The text that our models learn from and are measured on: Python's own standard library, which is
on every machine that can run this; or a file or a folder of the user's.

Left out: tests, the encodings and generated tables (pages of numbers teach a code model nothing),
and whatever is not UTF-8. One file in twenty is held out, chosen by a hash of its path so that the
choice is the same on every machine and does not move when other files come or go.
"""

import hashlib
import math
import os
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

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
    Of a single file, or of each of a few, the last twentieth is held out. TextError if a file is no
    text; a folder's are left out.
    """
    if source is None or path_of(source).is_dir():
        root = Path(source or sysconfig.get_paths()["stdlib"])
        return split({path.relative_to(root): path
                      for path in _below(root) if source or path.suffix == ".py"}, root)
    return cut([_text(Path(source))])


def held_out(relative_path: str) -> bool:
    """True for about one path in twenty, always the same ones."""
    # Names are any bytes.
    digest = hashlib.sha256(relative_path.encode(errors="surrogateescape")).hexdigest()
    return int(digest, 16) % HELD_OUT_ONE_IN == 0


def cut(texts: Sequence[str]) -> Texts:
    """The last twentieth of each is held out."""
    ends = [len(text) * (HELD_OUT_ONE_IN - 1) // HELD_OUT_ONE_IN for text in texts]
    return ([text[:end] for text, end in zip(texts, ends)],
            [text[end:] for text, end in zip(texts, ends)])


def to_ids(texts: Sequence[str], tokenizer: AnyTokenizer,
           step: Callable[[], object] = lambda: None) -> Tensor:
    """All texts as one row of ids (N,), end of text before each and after the last. step: called
    after each.
    """
    end = torch.tensor([tokenizer.end_of_text], device="cpu")
    begin, parts = opening(tokenizer), list[Tensor]()
    for text in texts:
        parts.append(torch.tensor(begin + tokenizer.encode(text), dtype=torch.int64, device="cpu"))
        step()
    return torch.cat([end, *(part for text in parts for part in (text, end))])


def opening(tokenizer: AnyTokenizer) -> list[int]:
    """What a model wants to read before everything, also before a piece of a text. An end of text
    is no such token, for a piece does not follow one.
    """
    return [] if tokenizer.begin == [tokenizer.end_of_text] else tokenizer.begin


class HeldOut(NamedTuple):
    """A held-out text, all its files in a row."""

    ids: Tensor             # (N,)
    bytes: int

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: AnyTokenizer, device="cpu") -> "HeldOut":
        return cls(to_ids(texts, tokenizer).to(device), sum(len(text.encode()) for text in texts))

    def bits(self, loss: float) -> float:
        """Nats per token -> bits per byte, which can be compared between tokenizers."""
        return loss * len(self.ids) / self.bytes / math.log(2)

    def windows(self, context: int, most: int | None = None) -> tuple[Tensor, Tensor]:
        """Inputs and their next tokens, each (windows, context): cut one after the other."""
        count = min(most or len(self.ids), (len(self.ids) - 1) // context)
        if count < 1:
            raise TextError(f"too little text is held out: {len(self.ids):,} tokens do not fill "
                            f"one window of {context}")
        rows = self.ids[:count * context + 1]
        return rows[:-1].view(count, context), rows[1:].view(count, context)


def _below(root: Path) -> Iterator[Path]:
    """The files in a folder and in those below it. What is skipped is not walked: thousands of
    files of packages lie below the standard library.
    """
    for folder, inner, files in os.walk(root):
        inner[:] = set(inner) - SKIPPED_FOLDERS
        yield from (Path(folder, name) for name in files)


def split(files: dict[Path, Path], where: Path) -> Texts:
    """files: the path by which a file is known, and where it lies."""
    train, held = [], []
    for relative, path in sorted(files.items()):
        if any(path.name.startswith(s) for s in SKIPPED_FILES):
            continue
        text = ""
        with suppress(TextError):                       # a file among others that is no text
            text = _text(path)
        if text:
            (held if held_out(relative.as_posix()) else train).append(text)
    if not train and not held:
        raise TextError(f"{where} has no text file")
    return (train, held) if train and held else cut(train + held)


def _text(path: Path) -> str:
    """What would never end, as a pipe, is not read."""
    if path.exists() and not path.is_file():
        raise TextError(f"{path} is a pipe or a device, not a file")
    try:
        # Without the mark that some editors write.
        text = fetched(path).read_text(encoding="utf-8-sig")
    except PairError as error:                  # too large, or not downloaded
        raise TextError(str(error)) from error
    except (OSError, UnicodeDecodeError):
        text = "\0"
    if "\0" in text:
        raise TextError(f"{path} is missing or is not UTF-8 text")
    if max(map(len, text.split("\n"))) > LONGEST_LINE:
        raise TextError(f"{path} has a line of more than {LONGEST_LINE:,} characters: it is no "
                        "text to learn from")
    return text
