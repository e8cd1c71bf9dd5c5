"""How commands begin and end: what is wrong is one line, and so is Ctrl-C."""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import wraps

import torch

from nanospec.errors import NanospecError, RequestError, one_line

# Options that other programs have, and that are refused by their names.
LEFT_OUT = ("--min-p", "--logit-bias", "--repetition-penalty", "--repeat-penalty", "--presence-penalty",
            "--frequency-penalty")
Main = Callable[..., int]               # of argv, or of nothing: then it is the command line's


class Parser(argparse.ArgumentParser):
    """Raises what is wrong as a RequestError, instead of printing its usage and leaving."""

    def error(self, message: str):
        left_out = next((name for name in LEFT_OUT if name in message), None)
        raise RequestError(message if left_out is None else f"{left_out} is left out here: a distribution is made of "
                           "logits by temperature, top-k and top-p alone")


def command(name: str) -> Callable[[Main], Main]:
    """A command of the proof: main(argv) -> exit code, run on one thread, because small tensors gain nothing from more.
    2 if it is refused, 130 if it is interrupted.
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
