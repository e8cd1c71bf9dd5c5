"""More text to train on, if one asks for it: the Python sources of the packages that nanospec
depends on, and of others that are installed here.

Left out besides what corpus.py leaves out: copies of other packages, and tables.
"""

import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from nanospec.files.corpus import SKIPPED_FOLDERS, Texts, split

DEPENDENCIES = ("torch", "numpy", "tiktoken", "matplotlib", "rich")     # as in pyproject.toml
# Copies of other packages, and tests by a name.
VENDORED = {"_vendor", "vendored", "extern", "_distutils", "testing"}
LONGEST = 200_000                                       # characters; a longer file is mostly a list


class Package(NamedTuple):
    name: str
    version: str
    licence: str
    files: dict[Path, Path]  # its .py files: the path below site-packages, and where that is here


def read_packages(names: Iterable[str] = DEPENDENCIES) -> Texts:
    """As `read_texts`, of the sources of these packages and of all that they require."""
    files = {relative: path for package in packages(names)
             for relative, path in package.files.items()
             if not (VENDORED | SKIPPED_FOLDERS) & set(relative.parts)}
    return split(files, "the installed packages", lambda text: not is_table(text))


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
        found[name] = Package(name, about.version, licence_of(about.metadata), files)
        wanted += [re.split(r"[^\w.-]", line)[0]
                   for line in about.requires or [] if not re.search(r"extra\s*==", line)]
    return [found[name] for name in sorted(found)]


def is_table(text: str) -> bool:
    """Written by a program, or too long, or with more than one digit in ten characters."""
    return (len(text) > LONGEST or "generated" in text[:600].lower()
            or sum(map(text.count, "0123456789")) > len(text) / 10)


def licence_of(about) -> str:
    """By its SPDX expression, else its classifier, else the first line of its "License"."""
    classifiers = [line.split(" :: ")[-1] for line in about.get_all("Classifier", [])
                   if line.startswith("License ::")]
    words = (about.get("License") or "").strip().splitlines()
    return (about.get("License-Expression") or " AND ".join(classifiers)
            or (words[0] if words else "unknown"))
