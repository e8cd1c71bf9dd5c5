"""How a command of the proof ends: what is wrong is one line, and so is Ctrl-C."""

import sys
from collections.abc import Callable, Sequence
from functools import wraps

import torch

from nanospec.errors import NanospecError, one_line

Main = Callable[..., int]               # of argv, or of nothing: then it is the command line's


def command(name: str) -> Callable[[Main], Main]:
    """A command of the proof: main(argv) -> exit code, run on one thread, because small tensors
    gain nothing from more. 2 if it is refused, 130 if it is interrupted.
    """
    def of(main: Main) -> Main:
        @wraps(main)
        def run(argv: Sequence[str] | None = None) -> int:
            torch.set_num_threads(1)
            try:
                return main(argv)
            except (NanospecError, OSError) as error:
                print(f"{name}: {one_line(error)}", file=sys.stderr)
                return 2
            except KeyboardInterrupt:
                print("\nstopped: nothing is decided", file=sys.stderr)
                return 130
        return run
    return of
