"""Mutation tests: one operator, index, name or constant of a function changed at a time. Does a test fail?

    python tests/mutate.py core                         # every mutant of the core's functions
    python tests/mutate.py rooms --sample 60            # as many of each room, drawn by a seed
    python tests/mutate.py core --lines speculate.py:50-80
    python tests/mutate.py serving --tests tests/serving > log; python tests/mutate.py serving --survivors-of log

The zoo (nanospec/proof/zoo/) has bugs that somebody thought of; these are made by a program. First every test runs
once, and which lines of nanospec it runs is written down. Then every mutant runs in a process of its own: it is
planted as the zoo plants its bugs, and the tests that run its line run again, the quickest first, until one fails.
What functions have kept (functools.cache) is forgotten before, for it was made by the code as it is. Survivors are
printed, and "not run" those whose line no test runs. It is slow, so it runs by hand or before a release.

Left out: what stands outside of functions (constants, defaults, fields of dataclasses), messages of exceptions.
"""

import argparse
import ast
import gc
import os
import random
import resource
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache, _lru_cache_wrapper
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import pytest
import torch
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "lessons")]

from nanospec.proof.zoo.plant import Bug, exchanged, exchanges       # noqa: E402

PACKAGE = ROOT / "nanospec"
NOT_CORE = {"methods.py", "theory.py", "__init__.py", "__main__.py"}        # of the files at the top
ROOMS = ("rules", "trees", "copies", "lengths", "draft_models", "serving", "training")
TESTS = ["tests/core", "tests/methods", "tests/serving", "tests/models", "tests/tools/test_edge.py"]
# They plant bugs themselves, by source, and would judge a mutant by the bug that they plant.
NOT_TESTS = ["tests/core/test_mutations.py", "tests/methods/test_zoo.py", "tests/core/test_house.py"]
SECONDS = 60            # of tests for one mutant: those that take longer together are not all run
SLOWER = 20             # how many times longer than before a mutant's tests may take, and 20 seconds: then it hangs
MEMORY = 8 << 30        # bytes that a mutant may take
WATCHED = 500           # calls of one function in one test, whose lines are noted; what comes later is slow to watch
COMPARISONS = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
               ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
               ast.In: ("in", "not in"), ast.NotIn: ("not in", "in")}
OPERATORS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
             ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"), ast.Pow: ("**", "*"), ast.BitAnd: ("&", "|"),
             ast.BitOr: ("|", "&"), ast.And: ("and", "or"), ast.Or: ("or", "and")}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "argmax": "argmin", "cumsum": "cumprod",
         "cumprod": "cumsum", "minimum": "maximum", "maximum": "minimum"}
# Functions whose first two arguments may stand in any order.
SYMMETRIC = {"transpose", "logaddexp", "promote_types", "min", "max", "minimum", "maximum", "acceptance"}


class Mutant(NamedTuple):
    """A change of the source `file` (below nanospec)."""

    file: str
    of_lambda: bool
    line: int
    start: int              # in bytes
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {' '.join(self.old.split())!r} -> {' '.join(self.new.split())!r}"


class Finder(ast.NodeVisitor):
    """All mutants of one file."""

    def __init__(self, file: str):
        self.file, self.source = file, (PACKAGE / file).read_bytes()
        self.lines = [0]
        for line in self.source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.found: list[Mutant] = []
        self.inside = ""                                    # the kind of function that is looked at, if any
        self.visit(ast.parse(self.source))

    def span(self, node: ast.AST) -> tuple[int, int]:
        at = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
        return self.lines[at[0] - 1] + at[1], self.lines[at[2] - 1] + at[3]

    def change(self, node: ast.AST, start: int, end: int, new: str) -> None:
        if self.inside:
            old = self.source[start:end].decode()
            self.found.append(Mutant(self.file, self.inside == "lambda", node.lineno, start, end, old, new))

    def between(self, node: ast.AST, left: ast.AST, right: ast.AST, old: str, new: str) -> None:
        """The operator between two nodes."""
        start, end = self.span(left)[1], self.span(right)[0]
        at = self.source.find(old.encode(), start, end)
        if at >= 0:
            self.change(node, at, at + len(old), new)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer, self.inside = self.inside, "def"
        documented = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
        for part in node.body[documented:]:
            self.visit(part)
        self.inside = outer

    def visit_Lambda(self, node: ast.Lambda) -> None:
        outer, self.inside = self.inside, "lambda"
        self.visit(node.body)
        self.inside = outer

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an exception says is not looked at."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Nor what is printed."""

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators):
            self.between(node, left, right, *COMPARISONS[type(op)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in OPERATORS:
            self.between(node, node.left, node.right, *OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:]):
            self.between(node, left, right, *OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in OPERATORS:
            self.between(node, node.target, node.value, *OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if not isinstance(node.operand, ast.Constant):          # -1 and 1 are the same dimension of a matrix
            self.change(node, *self.span(node), self.source[slice(*self.span(node.operand))].decode())
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) in (bool, int, float):
            new = not node.value if type(node.value) is bool else node.value + 1 if type(node.value) is int \
                else 2 * node.value or 1.0
            self.change(node, *self.span(node), repr(new))

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        test = node.test
        if not isinstance(test, ast.Compare | ast.UnaryOp):
            self.change(test, *self.span(test), f"(not ({self.source[slice(*self.span(test))].decode()}))")
        self.generic_visit(node)

    visit_While = visit_IfExp = visit_If

    def visit_Call(self, node: ast.Call) -> None:
        same = getattr(node.func, "attr", getattr(node.func, "id", "")) in SYMMETRIC
        if not same and len(node.args) > 1 and not any(isinstance(arg, ast.Starred) for arg in node.args[:2]):
            (a, b), (c, d) = map(self.span, node.args[:2])
            if self.source[a:b] != self.source[c:d]:
                swapped = self.source[c:d] + self.source[b:c] + self.source[a:b]
                self.change(node, a, d, swapped.decode())
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in NAMES:
            self.change(node, *self.span(node), NAMES[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in NAMES:
            end = self.span(node)[1]
            self.change(node, end - len(node.attr), end, NAMES[node.attr])
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        begins = isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute) \
            and isinstance(node.value.func.value, ast.Call) and ast.unparse(node.value.func.value.func) == "super"
        if isinstance(node.value, ast.Call) and not begins:         # without super() there is no such function to plant
            self.change(node, *self.span(node), "None")             # a call that is left out
        self.generic_visit(node)


def mutants_of(what: str) -> list[Mutant]:
    """Of the "core", or of one room."""
    files = [path for path in PACKAGE.glob("*.py") if path.name not in NOT_CORE] if what == "core" else \
        (PACKAGE / what).glob("*.py")
    return sum([Finder(str(path.relative_to(PACKAGE))).found for path in sorted(files)], [])


@cache
def lines_of(file: str) -> set[int]:
    """Those that a tracer can be told of: of an expression over several lines, some are not."""
    found, codes = set(), [compile((PACKAGE / file).read_text(), file, "exec")]
    for code in codes:                                              # grows while it is read
        found |= {line for _, _, line in code.co_lines() if line}
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return found


class Mutator:
    """The pytest plugin that runs the tests in its own way. verdicts: of each mutant, a word of OF_A_CHILD."""

    def __init__(self, mutants: list[Mutant], seconds: float):
        self.mutants, self.seconds = mutants, seconds
        self.runs: dict[tuple[str, bool, int], list[tuple[float, pytest.Item]]] = defaultdict(list)
        self.verdicts: list[tuple[Mutant, str, str]] = []
        self.keeping: list[_lru_cache_wrapper] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = session.items
        for item, following in zip(items, [*items[1:], None]):
            self.watch(item, following)
        self.keeping = [thing for thing in gc.get_objects() if type(thing) is _lru_cache_wrapper]
        for number, mutant in enumerate(self.mutants, 1):
            verdict, by = self.verdict(mutant)
            self.verdicts.append((mutant, verdict, by))
            print(f"{time.strftime('%H:%M:%S')} {number}/{len(self.mutants)} {verdict} {mutant} {by}", flush=True)
        return True

    def watch(self, item: pytest.Item, following: pytest.Item | None) -> None:
        """Run a test of the code as it is, and note which lines it runs."""
        seen: set[tuple[str, bool, int]] = set()
        calls: Counter[CodeType] = Counter()

        def call(frame, event, argument):
            code = frame.f_code
            if not code.co_filename.startswith(str(PACKAGE)) or calls[code] == WATCHED:
                return None
            calls[code] += 1
            file, of_lambda = code.co_filename, code.co_name == "<lambda>"
            seen.add((file, of_lambda, code.co_firstlineno))        # a lambda's line comes with the call

            def line(frame, event, argument):
                seen.add((file, of_lambda, frame.f_lineno))
                return line
            return line

        began = time.process_time()                 # what others do on this machine does not count
        threading.settrace(call)
        sys.settrace(call)
        try:
            reports = runtestprotocol(item, nextitem=following, log=False)
        finally:
            sys.settrace(None)
            threading.settrace(None)
        took = time.process_time() - began
        if all(report.passed for report in reports):                # one that fails anyway can say nothing
            for path, of_lambda, number in seen:
                self.runs[str(Path(path).relative_to(PACKAGE)), of_lambda, number].append((took, item))

    def verdict(self, mutant: Mutant) -> tuple[str, str]:
        """killed, survived, or why there is no telling; and the test that killed it, or how many did not."""
        chosen, total = [], 0.0
        line = max(number for number in lines_of(mutant.file) if number <= mutant.line)
        for took, item in sorted(self.runs[mutant.file, mutant.of_lambda, line], key=lambda pair: pair[0]):
            total += took
            if chosen and total > self.seconds:
                break
            chosen.append(item)
        if not chosen:
            return "not run", ""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            self.try_it(mutant, chosen, int(20 + SLOWER * total), writing)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            hangs = os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGPROF)
            return "killed", "hangs" if hangs else f"signal {os.WTERMSIG(status)}"
        return OF_A_CHILD[os.WEXITSTATUS(status)], said or f"({len(chosen)} tests)"

    def try_it(self, mutant: Mutant, items: list[pytest.Item], seconds: int, writing: int) -> None:
        """In the child: run the tests, and end as OF_A_CHILD says."""
        code = 3
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)       # of work
            signal.alarm(10 * seconds)                          # of waiting for nothing
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1), os.dup2(null, 2)
            code = self.outcome(mutant, items, writing)
        finally:
            os._exit(code)

    def outcome(self, mutant: Mutant, items: list[pytest.Item], writing: int) -> int:
        source = (PACKAGE / mutant.file).read_bytes()
        changed = source[:mutant.start] + mutant.new.encode() + source[mutant.end:]
        bug = Bug("mutant", "", "", "", mutant.file[:-3].replace("/", "."), ((source.decode(), changed.decode()),))
        try:
            codes = exchanges(bug)
            if not codes:
                return 2
            for function in self.keeping:
                function.cache_clear()
            with exchanged(codes):
                for item, following in zip(items, [*items[1:], None]):
                    if any(report.failed for report in runtestprotocol(item, nextitem=following, log=False)):
                        os.write(writing, item.nodeid.encode())
                        return 1
        except (SyntaxError, ValueError):                   # no program, or one with other variables
            return 2
        return 0


OF_A_CHILD = {0: "survived", 1: "killed", 2: "not planted", 3: "killed"}    # 3: the child itself fell over


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="+", choices=["core", "rooms", *ROOMS], help="rooms: all of them but the core")
    parser.add_argument("--sample", type=int, help="as many mutants of each room alone")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of tests for each mutant, at most")
    parser.add_argument("--lines", help="only those of FILE:FROM-TO")
    parser.add_argument("--survivors-of", type=Path, metavar="LOG", help="only those that survived in this output")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="the tests that are run (default: %(default)s)")
    args = parser.parse_args()
    os.chdir(ROOT)
    torch.set_num_threads(1)                                # a process with threads of its own cannot be forked
    mutants = []
    for room in ROOMS if args.what == ["rooms"] else args.what:
        found = mutants_of(room)
        few = args.sample is not None and args.sample < len(found)
        mutants += sorted(random.Random(args.seed).sample(found, args.sample)) if few else found
    if args.lines:
        file, lines = args.lines.split(":")
        first, last = map(int, lines.split("-"))
        mutants = [mutant for mutant in mutants if mutant.file == file and first <= mutant.line <= last]
    if args.survivors_of:
        left = args.survivors_of.read_text()
        mutants = [mutant for mutant in mutants if f" survived {mutant} " in left or f" not run {mutant} " in left]
    for file in {mutant.file for mutant in mutants}:
        import_module("nanospec." + file[:-3].replace("/", ".").removesuffix(".__init__"))
    mutator = Mutator(mutants, args.seconds)
    ignored = [f"--ignore={path}" for path in NOT_TESTS]
    pytest.main(["-q", "-n", "0", "-s", "-p", "no:cacheprovider", *args.tests, *ignored], plugins=[mutator])
    for line in table(mutator.verdicts):
        print(line)


def table(verdicts: list[tuple[Mutant, str, str]]) -> Iterator[str]:
    counts: dict[str, Counter] = defaultdict(Counter)
    for mutant, verdict, _ in verdicts:
        room = mutant.file.split("/")[0] if "/" in mutant.file else "core"
        counts[room][verdict] += 1
    for room, found in counts.items():
        tried = found["killed"] + found["survived"] + found["not run"]
        yield f"{room}: {found['killed']} of {tried} killed ({found['killed'] / max(1, tried):.1%}), {dict(found)}"
    for mutant, verdict, by in verdicts:
        if verdict != "killed":
            yield f"{verdict}: {mutant} {by}"


if __name__ == "__main__":
    main()
