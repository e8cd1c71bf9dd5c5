"""The text we train on: Python's own standard library, which lies on every machine that can run
this; and, if one asks for more, the Python sources of the packages that nanospec depends on.

Left out: tests, the encodings and generated tables (pages of numbers teach a code model nothing),
and whatever is not UTF-8. One file in twenty is held out, chosen by a hash of its path so that the
choice is the same on every machine and does not move when other files come or go.
"""

import hashlib
import os
import re
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import torch

from nanospec.errors import TextError
from nanospec.files.paths import path_of
from nanospec.files.tokenizer_json import AnyTokenizer

SKIPPED_FOLDERS = {"test", "tests", "idle_test", "encodings", "site-packages", "dist-packages",
                   "__pycache__", "lib2to3", "_bundled", "turtledemo", "pydoc_data"}
SKIPPED_FILES = {"entities.py", "_sysconfigdata", "this.py", "stringprep.py"}
HELD_OUT_ONE_IN = 20

DEPENDENCIES = ("torch", "numpy", "tiktoken", "matplotlib", "rich")     # as in pyproject.toml
# Copies of other packages, and tests by a name.
VENDORED = {"_vendor", "vendored", "extern", "_distutils", "testing"}
LONGEST = 200_000                                       # characters; a longer file is mostly a list
LONGEST_LINE = 10_000_000                                   # characters; a longer one is no text
Texts = tuple[list[str], list[str]]                     # to train on, held out; one string a file


class Package(NamedTuple):
    name: str
    version: str
    licence: str
    files: dict[Path, Path]  # its .py files: the path below site-packages, and where that is here


def read_texts(source: Path | None = None) -> Texts:
    """(training texts, held-out texts), one string a file.

    source: a file, a folder (its text files, read recursively), or None for the standard library's
    .py files.
    A single file is split: its last twentieth is held out. TextError if it is no text; a folder's
    are left out.
    """
    if source is None or path_of(source).is_dir():
        root = Path(source or sysconfig.get_paths()["stdlib"])
        return _split({path.relative_to(root): path
                       for path in _below(root) if source or path.suffix == ".py"}, root)
    text = _text(Path(source))
    cut = len(text) * (HELD_OUT_ONE_IN - 1) // HELD_OUT_ONE_IN
    return [text[:cut]], [text[cut:]]


def read_packages(names: Iterable[str] = DEPENDENCIES) -> Texts:
    """The same of the sources of these packages and of all that they require."""
    files = {relative: path for package in packages(names)
             for relative, path in package.files.items()
             if not (VENDORED | SKIPPED_FOLDERS) & set(relative.parts)}
    return _split(files, "the installed packages", tables=False)


def packages(names: Iterable[str] = DEPENDENCIES) -> list[Package]:
    """These packages and all that they require, without extras, of those installed, by name."""
    found, wanted = {}, list(names)
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        if name in found:
            continue
        try:
            about = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # required only on other systems, or by other Pythons
            continue
        files = {Path(file): Path(file.locate())
                 for file in about.files or [] if file.suffix == ".py"}
        found[name] = Package(name, about.version, _licence(about.metadata), files)
        wanted += [re.split(r"[^\w.-]", line)[0]
                   for line in about.requires or [] if not re.search(r"extra\s*==", line)]
    return [found[name] for name in sorted(found)]


def held_out(relative_path: str) -> bool:
    """True for about one path in twenty, always the same ones."""
    # Names are any bytes.
    digest = hashlib.sha256(relative_path.encode(errors="surrogateescape")).hexdigest()
    return int(digest, 16) % HELD_OUT_ONE_IN == 0


def to_ids(texts: list[str], tokenizer: AnyTokenizer) -> torch.Tensor:
    """All texts as one row of ids (N,), end of text before each and after the last."""
    ids = [tokenizer.end_of_text]
    for text in texts:
        ids += tokenizer.encode(text) + [tokenizer.end_of_text]
    return torch.tensor(ids)


def _below(root: Path) -> Iterator[Path]:
    """The files in a folder and in those below it. What is skipped is not walked: thousands of
    files of packages lie below the standard library.
    """
    for folder, inner, files in os.walk(root):
        inner[:] = set(inner) - SKIPPED_FOLDERS
        yield from (Path(folder, name) for name in files)


def _split(files: dict[Path, Path], where: Path | str, tables: bool = True) -> Texts:
    """files: the path by which a file is known, and where it lies. tables: with those."""
    train, held = [], []
    for relative, path in sorted(files.items()):
        if any(path.name.startswith(s) for s in SKIPPED_FILES):
            continue
        text = ""
        with suppress(TextError):                       # a file among others that is no text
            text = _text(path)
        if text and (tables or not _is_table(text)):
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
        text = path.read_text(encoding="utf-8-sig")     # without the mark that some editors write
    except (OSError, UnicodeDecodeError):
        text = "\0"
    if "\0" in text:
        raise TextError(f"{path} is missing or is not UTF-8 text")
    if max(map(len, text.split("\n"))) > LONGEST_LINE:
        raise TextError(f"{path} has a line of more than {LONGEST_LINE:,} characters: it is no "
                        "text to learn from")
    return text


def _is_table(text: str) -> bool:
    """Written by a program, or too long, or with more than one digit in ten characters."""
    return (len(text) > LONGEST or "generated" in text[:600].lower()
            or sum(map(text.count, "0123456789")) > len(text) / 10)


def _licence(about) -> str:
    """By its SPDX expression, else its classifier, else the first line of its "License"."""
    classifiers = [line.split(" :: ")[-1] for line in about.get_all("Classifier", [])
                   if line.startswith("License ::")]
    words = (about.get("License") or "").strip().splitlines()
    return (about.get("License-Expression") or " AND ".join(classifiers)
            or (words[0] if words else "unknown"))
