"""What demo.py can be asked for, and which options do not go together."""

import argparse
from collections.abc import Sequence

from nanospec.cli import options
from nanospec.cli.bench.method_options import chosen_drafters, takes_shape
from nanospec.cli.parser import Parser
from nanospec.errors import RequestError
from nanospec.files.checkpoint import WEIGHTS
from nanospec.files.sources import source_of
from nanospec.methods.index import DRAFTERS, GAMMA, check_fixed

PROMPT = '''class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y

'''
DEFAULTS = {"prompt": PROMPT, "draft": "gpt", "drafter": None, "gamma": None, "shape": None,
            "temperature": 0.8, "max_new_tokens": None, "weights": WEIGHTS, "compile": False,
            **options.SAMPLING}
WORDS = {"prompt": "the beginning of a class", "max_new_tokens": "256, or what the context leaves",
         "drafter": "chain, or suffix where there is no draft model",
         "gamma": f"of a chain the best by the formula, else {GAMMA}"}
SIZES = {"gamma": "--gamma, not --shape", "topology": "--shape, not --gamma",
         "itself": "neither --gamma nor --shape"}


def parser(description: str) -> Parser:
    made = Parser(description=description)
    options.add_options(made, DEFAULTS, WORDS)
    add = made.add_argument
    add("--step", action="store_true", help="one round at a time, with every coin")
    add("--save", type=options.file(".svg"), metavar="FILE.svg", help="the final view as a picture")
    add("--json", type=options.file(), metavar="FILE", help="the numbers")
    add("--html", type=options.file(".html"), metavar="FILE.html",
        help="a page that replays the run, in a browser")
    return made


def parsed(argv: Sequence[str] | None, description: str) -> argparse.Namespace:
    """What was asked for. RequestError for what cannot be."""
    asked = parser(description).parse_args(argv)
    if asked.drafter:
        check(asked)                                    # before anything is downloaded
    asked.weights = source_of(asked.weights)
    named = [asked.drafter] if asked.drafter else []
    asked.drafter, = chosen_drafters(named, asked.weights, [asked.draft], "--drafter")
    check(asked)
    return asked


def check(asked: argparse.Namespace) -> None:
    """RequestError for options that do not go together."""
    if asked.step and (asked.save or asked.json or asked.html):
        raise RequestError("--step measures nothing and draws nothing: it goes without --save, "
                           "--json and --html")
    for option, given in ("--step", asked.step), ("--html", asked.html):
        if given and asked.rule != "token":
            raise RequestError(f"{option} shows the coins of --rule token: one for each draft "
                               "token that is tried")
        if given and asked.compile:
            raise RequestError(f"{option} looks at every coin, and in a compiled round there is "
                               "nothing to look at")
    if asked.compile:
        check_fixed([asked.drafter], [asked.rule], "--compile")
    sized_by = DRAFTERS[asked.drafter].sized_by
    wrong = asked.shape and (asked.gamma or not takes_shape(asked.drafter, asked.shape))
    if asked.gamma and sized_by != "gamma" or wrong:
        raise RequestError(f"--drafter {asked.drafter} takes {SIZES[sized_by]}")
