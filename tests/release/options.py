"""Every option of every command, ignored: one at a time it is parsed, and then has its default. Does a test fail?

    python tests/release/options.py                     # all of them
    python tests/release/options.py demo --seed         # of that command, that option

The options are read from the parsers themselves, so that a new one is tried by being there. For each, those tests run
that name it, until one fails. What no test sees is printed as IGNORED. It takes an hour, so it runs by hand or before a
release.
"""

import argparse
import ast
import os
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "lessons")]

from nanospec.cli.__main__ import MODULES           # noqa: E402

COMMANDS = {**MODULES, "training": "training.__main__", "notebooks": "lessons.notebooks"}
IGNORED = "NANOSPEC_IGNORED"                        # an option, and the options of the parser that has it
SECONDS = 300                                       # for the tests of one option


class Caught(BaseException):
    """A parser, on its way out of the command that has made it."""


def pytest_configure() -> None:
    """As a plugin: from now on that option is ignored."""
    if IGNORED in os.environ:
        option, *others = os.environ[IGNORED].split()
        parse = argparse.ArgumentParser.parse_known_args

        def deaf(parser, *given, **more):
            found, rest = parse(parser, *given, **more)
            if options_of(parser) == sorted(others):
                name = next(action.dest for action in parser._actions if option in action.option_strings)
                setattr(found, name, parser.get_default(name))
            return found, rest
        argparse.ArgumentParser.parse_known_args = deaf


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    return sorted(action.option_strings[-1] for action in parser._actions if action.option_strings)


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Of every command and subcommand, by name."""
    found = {}

    def caught(parser, *given, **more):
        raise Caught(parser)

    def add(name: str, parser: argparse.ArgumentParser) -> None:
        found[name] = parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word, below in action.choices.items():
                    add(f"{name} {word}", below)

    parse, argparse.ArgumentParser.parse_known_args = argparse.ArgumentParser.parse_known_args, caught
    for name, module in COMMANDS.items():
        try:
            import_module(module).main([])
        except Caught as error:
            add(name, error.args[0])
    argparse.ArgumentParser.parse_known_args = parse
    return found


@cache
def tests_by_file() -> dict[Path, tuple[str, dict[str, str]]]:
    """File -> its text, and the text of each test in it, decorators too."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        found[path] = text, {
            node.name: "\n".join(text.splitlines()[min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1:
                                                    node.end_lineno])
            for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and node.name.startswith("test")}
    return found


def tests_that_name(option: str, command: str) -> list[str]:
    """Of files that name the command: the tests with the option, or all where something else there has it."""
    chosen = []
    for path, (text, tests) in tests_by_file().items():
        if option not in text or {"train": "train_tiny"}.get(command, command.split()[0]) not in text:
            continue
        naming = [name for name, body in tests.items() if option in body]
        elsewhere = text.count(option) > sum(tests[name].count(option) for name in naming)
        chosen += [str(path)] if elsewhere else [f"{path}::{name}" for name in naming]
    return chosen


def tried(command: str, parser: argparse.ArgumentParser, option: str) -> str:
    chosen = tests_that_name(option, command)
    if not chosen:
        return "IGNORED: no test names it"
    environment = os.environ | {IGNORED: " ".join([option, *options_of(parser)]), "PYTHONPATH": str(ROOT),
                                "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.release.options", "-p",
                               "no:cacheprovider", "-o", "addopts=-m 'not slow'", *chosen], cwd=ROOT, env=environment,
                              capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"not settled in {SECONDS} seconds"
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if failed:
        return failed[0].split(" - ")[0].removeprefix("FAILED ")
    return "IGNORED: " + (done.stdout.splitlines() or ["?"])[-1]


def main(argv: list[str]) -> int:
    command, option = " ".join(word for word in argv if word[0] != "-"), [word for word in argv if word[0] == "-"]
    survivors = 0
    for name, parser in parsers().items():
        for action in parser._actions:
            wanted = action.option_strings and action.dest != "help" and (not option or option[0] in
                                                                          action.option_strings)
            if wanted and (not command or name == command):
                said = tried(name, parser, action.option_strings[-1])
                survivors += said.startswith("IGNORED")
                print(f"{name:20} {action.option_strings[-1]:22} {said}", flush=True)
    print(f"{survivors} survive")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
