"""nanospec NAME ...

    demo    the same prompt twice: the target alone, then speculation
    bench   what speculation gains here, measured
    proof   every method walked: is it exact?
    judge   a sampler of yours, or of other people: is it exact?
    check   the exercises, in a clone of the repository

`nanospec NAME --help` says what NAME takes.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

MODULES = {"demo": "nanospec.commands.demo", "bench": "nanospec.bench.__main__", "proof": "nanospec.proof.__main__",
           "judge": "nanospec.proof.judge.__main__", "check": "lessons.check.command"}


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status of the command that argv[0] names; 2 if there is none."""
    name, *rest = [*(sys.argv[1:] if argv is None else argv)] or ["--help"]
    if name in ("-h", "--help"):
        print(__doc__.strip())
        return 0
    if name not in MODULES:
        print(f"nanospec: no command {name!r}: there is {', '.join(MODULES)}", file=sys.stderr)
        return 2
    if name == "check":
        tops = [Path(__file__).parents[2], Path.cwd(), *Path.cwd().parents]
        top = next((top for top in tops if (top / "lessons" / "check" / "command.py").exists()), None)
        if top is None:
            print("nanospec: the exercises are in the repository: clone it, and say `nanospec check` there",
                  file=sys.stderr)
            return 2
        sys.path.insert(0, str(top))
    return import_module(MODULES[name]).main(rest)


if __name__ == "__main__":
    sys.exit(main())
