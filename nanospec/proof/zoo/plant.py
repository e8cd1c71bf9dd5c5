"""How a bug is planted: a few words of source are exchanged for others, and the compiled code of the functions that
they touch is swapped in place. So every check runs the very functions that it always runs, whatever calls them.
"""

import gc
import inspect
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType


FALLS = AssertionError, ArithmeticError, IndexError, RuntimeError, ValueError       # what a bug's code may end in


@dataclass(frozen=True)
class Bug:
    """old -> new in one file of nanospec. A control has no check that catches it."""

    name: str
    source: str                 # where it shipped; "generic": in many places; "ours": made up to try the checks
    what: str                   # what is done wrong, in one sentence
    caught_by: str              # in tests/proof/: a check, "T1", or a part of the contract, "exact: tree, block"
    file: str                   # of nanospec, without its ending: speculate, methods.rules.block
    edits: tuple[tuple[str, str], ...]


def bug(name: str, source: str, what: str, caught_by: str, *edits: tuple[str, str], file: str = "speculate") -> Bug:
    return Bug(name, source, what, caught_by, file, edits)


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Within it, the functions of the bug's file run with the bug in them."""
    with exchanged(exchanges(bug)):
        yield


@contextmanager
def exchanged(codes: list[tuple[FunctionType, CodeType]]) -> Iterator[None]:
    """Within it, these functions run these codes."""
    before = [(function, function.__code__) for function, _ in codes]
    try:
        for function, code in codes:
            function.__code__ = code
        yield
    finally:
        for function, code in before:
            function.__code__ = code


def exchanges(bug: Bug) -> list[tuple[FunctionType, CodeType]]:
    """Every function that was compiled from the bug's file and differs with the bug in it, and its new code: methods,
    what decorators have wrapped, and closures too, wherever they are kept.
    """
    ships, has_the_bug = (_codes(source, f"<{bug.name}>") for source in (_source_of(bug.file), source_with(bug)))
    pairs = []
    for function in functions_of(bug.file):
        old, new = (codes.get(function.__qualname__, []) for codes in (ships, has_the_bug))
        if len(old) == len(new) == 1:
            pairs.append((function, new[0]))
        elif len(old) == len(new) and function.__code__ in old:         # several lambdas, told apart by their code
            pairs.append((function, new[old.index(function.__code__)]))
    return [(function, code) for function, code in pairs if code != function.__code__]


@cache
def functions_of(file: str) -> list[FunctionType]:
    """All that are alive when this is first asked: to search the heap takes as long as many a check. A closure that is
    made while a bug is planted has it from the function that makes it.
    """
    module = import_module(f"nanospec.{file}")
    return [thing for thing in gc.get_referrers(vars(module)) if type(thing) is FunctionType     # its globals are these
            and thing.__code__.co_filename == module.__file__]


def changed(bug: Bug) -> dict:
    """The names of the bug's file, run anew with the bug in it; the file that ships is left alone."""
    names = {"__name__": f"nanospec.{bug.file}"}
    exec(compile(source_with(bug), f"<{bug.name}>", "exec"), names)
    return names


def _source_of(file: str) -> str:
    return Path(str(import_module(f"nanospec.{file}").__file__)).read_text()


def source_with(bug: Bug) -> str:
    """Its file with the bug in it. LookupError if the words that it changes are no longer there."""
    source = _source_of(bug.file)
    for old, new in bug.edits:
        if source.count(old) != 1:
            raise LookupError(f"{bug.name}: the line it changes is no longer there, or not alone: {old!r}")
        source = source.replace(old, new)
    return source


def _codes(source: str, name: str) -> dict[str, list[CodeType]]:
    """Qualified name -> the codes of the functions of that name, in their order."""
    codes = defaultdict(list)

    def collect(code: CodeType, path: str) -> None:
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                name = path + inner.co_name
                if inner.co_flags & inspect.CO_OPTIMIZED:       # a function's; a class body's is not
                    codes[name].append(inner)
                    name += ".<locals>"
                collect(inner, name + ".")

    collect(compile(source, name, "exec"), "")
    return codes
