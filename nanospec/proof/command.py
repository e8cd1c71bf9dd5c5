"""How the proof's commands begin and end: a bad option is refused in one line, Ctrl-C ends in one line."""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import wraps

import torch

Main = Callable[..., int]               # of argv, or of nothing: then it is the command line's


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        self.exit(2, f"{self.prog}: {message}\n")


def command(main: Main) -> Main:
    """main(argv) -> exit code, run on one thread, because small tensors gain nothing from more; 130 if interrupted."""
    @wraps(main)
    def run(argv: Sequence[str] | None = None) -> int:
        torch.set_num_threads(1)
        try:
            return main(argv)
        except KeyboardInterrupt:
            print("\nstopped: nothing is decided", file=sys.stderr)
            return 130
    return run
