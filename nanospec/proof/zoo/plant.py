"""How a bug is planted: a few words of source are exchanged for others, and the compiled code of
the functions that they touch is swapped in place. So every check runs the very functions that it
always runs, whatever calls them.

The words are found by file, by function where they are not alone in the file, and token by token:
blanks, the ends of lines within brackets and comments do not count.
"""

import ast
import gc
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType

# What a bug's code may end in.
FALLS = AssertionError, ArithmeticError, IndexError, RuntimeError, ValueError


@dataclass(frozen=True)
class Bug:
    """old -> new in one file of nanospec. A control has no check that catches it."""

    name: str
    source: str     # where it shipped; "generic": in many places; "ours": made up to try the checks
    what: str                   # what is done wrong, in one sentence
    # In tests/proof/: a check, "T1", or a part of the contract, "exact: tree, block".
    caught_by: str
    file: str                   # of nanospec, without its ending: speculate, methods.rules.block
    edits: tuple[tuple[str, str], ...]
    # The function or class in which the words are looked for: one_round, Dice.pick.
    within: str = ""

    @property
    def module(self) -> str:
        return f"nanospec.{self.file}"


def bug(name: str, source: str, what: str, caught_by: str, *edits: tuple[str, str],
        file: str = "speculate", within: str = "") -> Bug:
    return Bug(name, source, what, caught_by, file, edits, within)


def planted(bug: Bug) -> AbstractContextManager[None]:
    """Within it, the functions of the bug's file run with the bug in them."""
    return exchanged(exchanges(bug))


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
    """Every function that was compiled from the bug's file and differs with the bug in it, and its
    new code: methods, what decorators have wrapped, and closures too, wherever they are kept.
    """
    ships, has_the_bug = (_codes(source, f"<{bug.name}>")
                          for source in (_source_of(bug.module), source_with(bug)))
    pairs = []
    for function in find_functions(bug.module):
        old, new = (codes.get(function.__qualname__, []) for codes in (ships, has_the_bug))
        if len(old) == len(new) == 1:
            pairs.append((function, new[0]))
        # Several lambdas, told apart by their code.
        elif len(old) == len(new) and function.__code__ in old:
            pairs.append((function, new[old.index(function.__code__)]))
    return [(function, code) for function, code in pairs if code != function.__code__]


@cache
def find_functions(name: str) -> list[FunctionType]:
    """All that are alive when this is first asked: to search the heap takes as long as many a
    check. A closure that is made while a bug is planted has it from the function that makes it.
    """
    module = import_module(name)
    # Its globals are these.
    return [thing for thing in gc.get_referrers(vars(module)) if type(thing) is FunctionType
            and thing.__code__.co_filename == module.__file__]


def changed(bug: Bug) -> dict:
    """The names of the bug's file, run anew with the bug; what ships is left alone."""
    names = {"__name__": bug.module}
    exec(compile(source_with(bug), f"<{bug.name}>", "exec"), names)
    return names


def _source_of(module: str) -> str:
    return Path(str(import_module(module).__file__)).read_text()


def source_with(bug: Bug, source: str | None = None) -> str:
    """Its file, here or in `source`, with the bug. LookupError if its words are not there."""
    source = _source_of(bug.module) if source is None else source
    for old, new in bug.edits:
        (words, begins, ends), (wanted, *_) = tokens_of(source), tokens_of(old)
        first, last = _span_of(bug.within, source)
        found = [i for i, begin in enumerate(begins)
                 if first <= begin < last and words[i:i + len(wanted)] == wanted]
        if len(found) != 1:
            raise LookupError(f"{bug.name}: the line it changes is no longer there, or not alone: "
                              f"{old!r}")
        source = source[:begins[found[0]]] + new + source[ends[found[0] + len(wanted) - 1]:]
    return source


TOKEN = re.compile(r"""
    (?P<skipped> \s+ | \\\n | \#[^\n]* )
    | [rbfu]{0,2} (?: \"{3}.*?\"{3} | '{3}.*?'{3} | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
    | \d\w*(?:\.\d*)?(?:(?<=e)[-+]?\d+)? | \w+
    | \.\.\. | -> | \*\* | // | [-+*/|&^<>=!:@%]= | .""", re.VERBOSE | re.DOTALL | re.IGNORECASE)


@cache
def tokens_of(source: str) -> tuple[list[str], list[int], list[int]]:
    """The tokens of a fragment of Python, and where each begins and ends."""
    found = [match for match in TOKEN.finditer(source) if match["skipped"] is None]
    words, spans = [match[0] for match in found], [match.span() for match in found]
    return words, [begin for begin, _ in spans], [end for _, end in spans]


def _span_of(name: str, source: str) -> tuple[int, int]:
    """Where this function or class begins and ends; all of the source without a name."""
    if not name:
        return 0, len(source)
    place: ast.AST = ast.parse(source)
    for part in name.split("."):
        place = next(node for node in ast.iter_child_nodes(place)
                     if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == part)
    assert isinstance(place, ast.FunctionDef | ast.ClassDef)
    lines = source.splitlines(keepends=True)
    return sum(map(len, lines[:place.lineno - 1])), sum(map(len, lines[:place.end_lineno]))


def _codes(source: str, name: str) -> dict[str, list[CodeType]]:
    """Qualified name -> the codes of the functions of that name, in their order."""
    codes = defaultdict(list)

    def collect(code: CodeType, path: str) -> None:
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                name = path + inner.co_name
                if inner.co_flags & inspect.CO_OPTIMIZED:   # a function's; a class body's is not
                    codes[name].append(inner)
                    name += ".<locals>"
                collect(inner, name + ".")

    collect(compile(source, name, "exec"), "")
    return codes
