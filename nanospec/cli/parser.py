"""The command line's parser, of all commands."""

import argparse

from nanospec.errors import RequestError

# Options that other programs have, and that are refused by their names.
LEFT_OUT = ("--min-p", "--logit-bias", "--repetition-penalty", "--repeat-penalty",
            "--presence-penalty", "--frequency-penalty")


class Parser(argparse.ArgumentParser):
    """Raises what is wrong as a RequestError, instead of printing its usage and leaving."""

    def error(self, message: str):
        for name in LEFT_OUT:
            if name in message:
                message = (f"{name} is left out here: a distribution is made of logits by "
                           "temperature, top-k and top-p alone")
        raise RequestError(message)
