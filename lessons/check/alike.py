"""Which answers are the same, whatever their names, remarks and annotations are? Which are the answer that ships?

Short answers are alike by themselves, and so are lists of numbers: their exercises stand in parentheses. The others are
a reason to ask, and no more than that.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from lessons.check.catalogue import Entry, stub

SHORT = 20              # parts of an answer (names, operators, statements); shorter ones are alike by themselves
PARTS = (ast.Name, ast.Attribute, ast.Call, ast.operator, ast.cmpop, ast.stmt, ast.comprehension)
DICTATED = {3: 30, 6: 30}           # of these exercises the text says what each line does, so that more is short

Known = dict[str, dict[int, dict]]          # student -> exercise -> what was found


class Alike(NamedTuple):
    """telling: among them is one that is not short."""

    telling: bool
    words: str


def form(text: bytes, entry: Entry) -> tuple[str, int]:
    """A digest of what the file's own functions do, and how many parts they have; ("", 0) of what does not parse."""
    try:
        given = {ast.dump(node) for node in ast.parse(stub(entry.answer)).body}
        own = [node for node in ast.parse(text).body if ast.dump(node) not in given
               and not isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr))]
        forms = sorted(ast.dump(normal(node)) for node in own)
        size = sum(isinstance(node, PARTS) for one in own for node in ast.walk(one))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "", 0
    return sha256("\n".join(forms).encode()).hexdigest() if forms else "", size


def normal(tree: ast.stmt) -> ast.stmt:
    """In place: without docstrings and annotations, and every name that is given in it by its number."""
    numbers: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns, node.decorator_list = None, []
            node.body = [part for part in node.body         # without strings that stand alone
                         if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))]
            numbers.setdefault(node.name, f"v{len(numbers)}")
        elif isinstance(node, ast.arg):
            node.annotation = None
            numbers.setdefault(node.arg, f"v{len(numbers)}")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            numbers.setdefault(node.id, f"v{len(numbers)}")
    for node in ast.walk(tree):
        for part in "name", "arg", "id":
            if isinstance(node, (ast.FunctionDef, ast.arg, ast.Name)) and getattr(node, part, None) in numbers:
                setattr(node, part, numbers[getattr(node, part)])
    return tree


def shipped(results: dict[int, dict]) -> Alike:
    """Of one student: the exercises whose answer is the one that ships, as "4 8 (1)"."""
    numbers = [number for number, result in results.items() if result.get("shipped")]
    return Alike(any(is_long(number, results) for number in numbers), numbers_of(numbers, results))


def same(everybody: Known) -> dict[str, Alike]:
    """Student -> with whom answers are shared, and which: "dora 4 8 (1); others (2)"."""
    groups: dict[tuple[int, str], list[str]] = defaultdict(list)
    for student, results in everybody.items():
        for number, result in results.items():
            if result.get("form"):
                groups[number, result["form"]].append(student)
    said = {}
    for student, results in everybody.items():
        shared: dict[str, list[int]] = defaultdict(list)
        for number, result in sorted(results.items()):
            for other in groups.get((number, result.get("form", "")), ()):
                if other != student:
                    shared[other].append(number)
        telling = {other: numbers for other, numbers in shared.items()
                   if any(is_long(number, results) for number in numbers)}
        rest = sorted({number for numbers in shared.values() for number in numbers}.difference(*telling.values()))
        words = [f"{other} {numbers_of(numbers, results)}" for other, numbers in telling.items()]
        said[student] = Alike(bool(telling), "; ".join(words + [f"others {numbers_of(rest, results)}"] * bool(rest)))
    return said


def numbers_of(numbers: Iterable[int], results: dict[int, dict]) -> str:
    long, short = [], []
    for number in sorted(numbers):
        (long if is_long(number, results) else short).append(str(number))
    return " ".join(long + [f"({' '.join(short)})"] * bool(short))


def is_long(number: int, results: dict[int, dict]) -> bool:
    return results[number]["size"] >= DICTATED.get(number, SHORT)
