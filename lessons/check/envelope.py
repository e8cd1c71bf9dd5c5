"""What a class gets of the checks: one file that no editor shows, and from which Python imports.

An envelope, and no safe. Python opens it in order to check, so whoever writes three lines of Python opens it as well,
and the library, which the lessons show, does what most exercises ask for. It keeps honest people from seeing an answer
by accident. Who has copied is seen when the class is graded.
"""

import json
import sys
import zlib
from functools import cache
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.util import spec_from_loader
from pathlib import Path

FILE = Path(__file__).with_name("checks.sealed")
STUB, RIGHT, MODULE, VARIANT = "stub ", "right ", "module ", "variant"      # "stub ex01_pick.py" -> its text


@cache
def opened() -> dict[str, str]:
    """What is in it; nothing in a clone, where every file lies open."""
    return json.loads(zlib.decompress(FILE.read_bytes())) if FILE.exists() else {}


def seal(path: Path, texts: dict[str, str]) -> None:
    path.write_bytes(zlib.compress(json.dumps(texts).encode(), 9))


class Checks(MetaPathFinder, InspectLoader):
    """Imports the modules that are in it."""

    def find_spec(self, name, path=None, target=None):
        return spec_from_loader(name, self) if MODULE + name in opened() else None

    def is_package(self, name) -> bool:
        return False

    def get_source(self, name) -> str:
        return opened()[MODULE + name]


if FILE.exists():
    sys.meta_path.append(Checks())
