"""Mutation tests: one operator, index, name or constant of a function changed at a time. Does a test fail?

    python tests/release/mutate.py core                         # every mutant of the core's functions
    python tests/release/mutate.py rooms --sample 60            # as many of each room, drawn by a seed
    python tests/release/mutate.py core --lines speculate.py:50-80
    python tests/release/mutate.py serving --tests tests/serving > log
    python tests/release/mutate.py serving --survivors-of log

The zoo (nanospec/proof/zoo/) has bugs that somebody thought of; these are made by a program. First every test runs
once, and which lines of nanospec it runs is written down. Then every mutant runs in a process of its own: it is
planted as the zoo plants its bugs, and the tests that run its line run again, the quickest first, until one fails.
What functions have kept (functools.cache) is forgotten before, for it was made by the code as it is; and a test that
kills has to pass in such a process without a mutant. Survivors are printed, and "not run" those whose line no test
runs. It is slow, so it runs by hand or before a release. What is changed in the code, mutants.py says.

Run it in a container: without its bounds a student's file that a test invents has removed all of /tmp.
"""

import argparse
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

import pytest
import torch
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "lessons")]

from nanospec.proof.zoo.plant import exchanged, exchanges           # noqa: E402
from tests.release.mutants import Mutant, module_of, mutants_of             # noqa: E402

ROOMS = ("methods/rules", "methods/trees", "methods/copies", "methods/lengths", "methods/draft_models", "serving",
         "training", "lessons", "lessons/check", "cli", "cli/bench", "cli/show", "judge", "fast", "files", "proof")
TESTS = ["tests/core", "tests/methods", "tests/serving", "tests/models", "tests/tools", "tests/files",
         "tests/classroom"]
# They plant bugs themselves, by source, and would judge a mutant by the bug that they plant.
NOT_TESTS = ["tests/core/test_mutations.py", "tests/methods/test_zoo.py", "tests/core/test_house.py"]
SECONDS = 60            # of tests for one mutant: those that take longer together are not all run
SLOWER = 5              # how many times longer than before a mutant's tests may take, and 20 seconds: then it hangs
MEMORY = 8 << 30        # bytes that a mutant may take
LOOKED_AT = tuple(str(ROOT / folder) for folder in ("nanospec", "training", "lessons"))
WATCHED = 500           # calls of one function in one test, whose lines are noted; what comes later is slow to watch


@cache
def lines_of(file: str) -> set[int]:
    """Those that a tracer can be told of: of an expression over several lines, some are not."""
    found, codes = set(), [compile((ROOT / file).read_text(), file, "exec")]
    for code in codes:                                              # grows while it is read
        found |= {line for _, _, line in code.co_lines() if line}
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return found


def keeping() -> list[_lru_cache_wrapper]:
    """All functions that keep what they have made (functools.cache)."""
    return [thing for thing in gc.get_objects() if type(thing) is _lru_cache_wrapper]


def forget(functions: list[_lru_cache_wrapper]) -> None:
    for function in functions:
        function.cache_clear()


class Mutator:
    """The pytest plugin that runs the tests in its own way. verdicts: of each mutant, a word of OF_A_CHILD."""

    def __init__(self, mutants: list[Mutant], seconds: float):
        self.mutants, self.seconds = mutants, seconds
        self.runs: dict[tuple[str, bool, int], list[tuple[float, pytest.Item]]] = defaultdict(list)
        self.verdicts: list[tuple[Mutant, str, str]] = []
        self.keeping: list[_lru_cache_wrapper] = []
        self.passes: dict[str, bool] = {}       # does a test pass in a child without a mutant?

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = session.items
        for before, item, following in zip([None, *items], items, [*items[1:], None]):
            if before is None or before.path != item.path:      # what another file's tests have made is made anew
                forget(keeping())
            self.watch(item, following)
        self.keeping = keeping()                            # once: a child that looks for them copies all memory
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
            if not code.co_filename.startswith(LOOKED_AT) or calls[code] == WATCHED:
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
            for path, of_lambda, number in seen.copy():         # a thread may go on
                self.runs[str(Path(path).relative_to(ROOT)), of_lambda, number].append((took, item))

    def verdict(self, mutant: Mutant) -> tuple[str, str]:
        """killed, survived, or why there is no telling; and the test that killed it, or how many did not."""
        chosen, total = [], 0.0
        line = max(number for number in lines_of(mutant.file) if number <= mutant.line)
        for took, item in sorted(self.runs[mutant.file, mutant.of_lambda, line], key=lambda pair: pair[0]):
            if not self.passes.get(item.nodeid, True):
                continue
            total += took
            if chosen and total > self.seconds:
                break
            chosen.append(item)
        if not chosen:
            return "not run", ""
        word, by = self.in_a_child(mutant, chosen, total)
        if word == "killed" and by not in self.passes:
            killers = [item for item in chosen if item.nodeid == by]
            self.passes[by] = not killers or self.in_a_child(None, killers, total)[0] == "survived"
            return (word, by) if self.passes[by] else self.verdict(mutant)
        return word, by

    def in_a_child(self, mutant: Mutant | None, chosen: list[pytest.Item], total: float) -> tuple[str, str]:
        """As `verdict`, of tests that take `total` seconds together. None: of the code as it is."""
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
            by = os.WTERMSIG(status)
            return ("no telling", "it waits") if by == signal.SIGALRM else (
                "killed", "hangs" if by == signal.SIGPROF else f"signal {by}")
        return OF_A_CHILD[os.WEXITSTATUS(status)], said or f"({len(chosen)} tests)"

    def try_it(self, mutant: Mutant | None, items: list[pytest.Item], seconds: int, writing: int) -> None:
        """In the child: run the tests, and end as OF_A_CHILD says."""
        code = 3
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)       # of work
            signal.alarm(5 * seconds)                           # or of waiting for others
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1), os.dup2(null, 2)
            code = self.outcome(mutant, items, writing)
        finally:
            os._exit(code)

    def outcome(self, mutant: Mutant | None, items: list[pytest.Item], writing: int) -> int:
        try:
            codes = exchanges(mutant.bug()) if mutant else []
            if mutant and not codes:
                return 2
            forget(self.keeping)
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
        import_module(module_of(file))
    mutator = Mutator(mutants, args.seconds)
    ignored = [f"--ignore={path}" for path in NOT_TESTS]
    pytest.main(["-q", "-n", "0", "-s", "-p", "no:cacheprovider", *args.tests, *ignored], plugins=[mutator])
    for line in table(mutator.verdicts):
        print(line)


def table(verdicts: list[tuple[Mutant, str, str]]) -> Iterator[str]:
    counts: dict[str, Counter] = defaultdict(Counter)
    for mutant, verdict, _ in verdicts:
        room = mutant.file.rpartition("/")[0].removeprefix("nanospec/").replace("nanospec", "core")
        counts[room][verdict] += 1
    for room, found in counts.items():
        tried = found["killed"] + found["survived"] + found["not run"]
        yield f"{room}: {found['killed']} of {tried} killed ({found['killed'] / max(1, tried):.1%}), {dict(found)}"
    for mutant, verdict, by in verdicts:
        if verdict != "killed":
            yield f"{verdict}: {mutant} {by}"


if __name__ == "__main__":
    main()
