"""nanospec NAME ...

    demo    the same prompt twice: the target alone, then speculation
    chat    a conversation in the terminal, with SmolLM2 or another model that has a chat template
    bench   what speculation gains here, measured
    why     is mine slow? What a round is made of here, and what to change first
    train   a pair of your own, in a clone of the repository
    export  a pair as folders that transformers, vLLM and SGLang open
    proof   every method walked, in a clone of the repository: is it exact?
    judge   a sampler of yours, or of other people: is it exact?
    check   the exercises, in a clone of the repository

`nanospec NAME --help` says what NAME takes. `nanospec --version` says which version this is.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from nanospec.cli.launch import quiet

MODULES = {"demo": "nanospec.cli.demo", "chat": "nanospec.cli.chat", "why": "nanospec.cli.why",
           "bench": "nanospec.cli.bench.command", "train": "train_tiny",
           "export": "nanospec.cli.export", "proof": "tests.proof.__main__",
           "judge": "nanospec.cli.judge", "check": "lessons.check.command"}
# What an installation lacks.
IN_A_CLONE = {"train": "train_tiny.py", "proof": "tests/proof/__main__.py",
              "check": "lessons/check/command.py"}


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status of the command argv[0] names; 2 if there is none, 130 if interrupted."""
    if argv is None:
        quiet()
    name, *rest = [*(sys.argv[1:] if argv is None else argv)] or ["--help"]
    if name in ("-h", "--help"):
        print(__doc__.strip())
        return 0
    if name == "--version":
        print(f"nanospec {installed()}")
        return 0
    if name not in MODULES:
        print(f"nanospec: no command {name!r}: there is {', '.join(MODULES)}", file=sys.stderr)
        return 2
    if name in IN_A_CLONE:
        folders = [Path(__file__).parents[2], Path.cwd(), *Path.cwd().parents]
        clone = next((folder for folder in folders if (folder / IN_A_CLONE[name]).exists()), None)
        if clone is None:
            print(f"nanospec: {IN_A_CLONE[name]} is in the repository: clone it, and say "
                  f"`nanospec {name}` there", file=sys.stderr)
            return 2
        sys.path.insert(0, str(clone))
    try:
        return import_module(MODULES[name]).main(rest)      # what is heavy is imported here
    except KeyboardInterrupt:
        return 130


def installed() -> str:
    """The version that pip knows."""
    # this import takes half as long as Python takes to start
    from importlib.metadata import PackageNotFoundError, version
    try:
        return version("nanospec")
    except PackageNotFoundError:
        return "of a clone that is not installed"


if __name__ == "__main__":
    sys.exit(main())
