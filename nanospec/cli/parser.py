"""The command line's parser, of all commands."""

import argparse
from typing import Any

from nanospec.errors import RequestError

# Options that other programs have, and that are refused by their names.
LEFT_OUT = ("--min-p", "--logit-bias", "--repetition-penalty", "--repeat-penalty",
            "--presence-penalty", "--frequency-penalty")


class Parser(argparse.ArgumentParser):
    """Raises what is wrong as a RequestError, instead of printing its usage and leaving. Its
    description keeps its lines.
    """

    def __init__(self, **more: Any):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **more)

    def error(self, message: str):
        for name in LEFT_OUT:
            if name in message:
                message = (f"{name} is left out here: a distribution is made of logits by "
                           "temperature, top-k and top-p alone")
        raise RequestError(message)
