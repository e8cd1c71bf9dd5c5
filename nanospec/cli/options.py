"""What commands take on their command lines. A bad request is refused in one line, before anything
is loaded.

Each type below reads an option's text, and says what it must be where it is something else. OPTIONS
has the options that commands share, by the names of the parameters that they become.
"""

import argparse
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from nanospec.errors import MOST_NODES, SEEDS, DeviceError, one_line
from nanospec.files.checkpoint import WEIGHTS
from nanospec.files.paths import TABLE, read_file
from nanospec.files.runnable import available
from nanospec.files.sources import PACKAGED, can_be_a_name
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.index import DRAFTERS, REMEMBERING, RULES
from nanospec.methods.trees.shapes import grown_by, published

HERE = "cuda" if torch.cuda.is_available() else "cpu"   # commands choose, the library does not


def option(what: str, read: Callable[[str], Any],
           holds: Callable[[Any], bool] = lambda value: True,
           why: bool = False) -> Callable[[str], Any]:
    """The type of an option that must be `what`: read(text), and `holds` must be true of it. why:
    where read(text) failed, it is said how.
    """
    def parse(text: str) -> Any:
        said = ""
        try:
            value = read(text)
            if holds(value):
                return value
        except (ValueError, TypeError, OSError, OverflowError, RecursionError) as error:
            said = f": {one_line(getattr(error, 'strerror', None) or error)}" * why
        raise argparse.ArgumentTypeError(f"must be {what}, got {text[:100]!r}{said}")
    return parse


def whole_number(least: int, most: int) -> Callable[[str], int]:
    return option(f"a whole number from {least} to {most}", int,
                  lambda number: least <= number <= most)


def tree(text: str) -> int | list[int] | dict[str, int]:
    """How many children, a topology, or how a tree is grown."""
    if text.strip().isdigit():
        return GAMMA(text)
    found = json.loads(read_file(text, TABLE) if text.endswith(".json") else text)
    if isinstance(found, dict):
        return grown_by(found)
    return published(found if isinstance(found, list) else [])


def file(suffix: str = "") -> Callable[[str], Path]:
    """A file that can be written, or written over."""
    def can_be_written(path: Path) -> bool:
        fits = path.suffix.endswith(suffix) and path.parent.is_dir() and not path.is_dir()
        return fits and os.access(path if path.exists() else path.parent, os.W_OK)
    kind = f"a {suffix} file" if suffix else "a file"
    return option(f"{kind} in a folder that can be written to", Path, can_be_written)


def can_be_made(folder: Path) -> bool:
    """The folder, or the nearest one above it that exists, is a folder that can be written to."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK)


def device(name: str) -> str:
    try:
        available(name)
    except DeviceError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name


FILE = option("a file that is there", Path, Path.is_file)
NEW_FOLDER = option("a folder that can be written to, there or not",        # Path("") is this one
                    lambda name: Path(name or os.devnull), can_be_made)
COUNT = whole_number(1, 10 ** 9)
GAMMA = whole_number(1, MOST_NODES - 1)
SHAPE = option("children at every depth, or a whole tree, as JSON or a .json file: its parents, "
               '[-1, 0, 0], choices, [[0], [1]], or {"size": 9, "width": 3, "depth": 2}', tree,
               why=True)
SEED = whole_number(0, SEEDS - 1)
TEMPERATURE = option("a number, 0 or more", float, lambda number: 0 <= number < math.inf)
MIN_P = option("from 0 to 1", float, lambda number: 0 <= number <= 1)
TOP_P = option("more than 0 and at most 1", float, lambda number: 0 < number <= 1)
DRAFT_MODEL = option(f"gpt, {', '.join(LEARNED)} or a .pt file that is there", str,
               lambda name: name in ("gpt", *LEARNED)
               or name.endswith(".pt") and Path(name).is_file())
# argv holds other bytes as half characters
TEXT = option("UTF-8", lambda text: text.encode().decode())
MODEL = option("a folder or a .gguf file that is there, "
               f"{', '.join(PACKAGED)}, or a repository on the hub, OWNER/NAME", str, can_be_a_name)

OPTIONS: dict[str, dict] = {
    "prompt": dict(type=TEXT, metavar="TEXT", help="the text to continue"),
    "weights": dict(type=MODEL, metavar="MODEL", help="a pair that train_tiny.py wrote; Hugging "
                    "Face folders MODEL/target and MODEL/draft, or .gguf files of these names; a "
                    f"folder or a .gguf file with a target alone; {', '.join(PACKAGED)}; or a "
                    "repository on the hub"),
    "draft_model": dict(type=DRAFT_MODEL, metavar="NAME", help="the draft model: gpt, "
                  f"{', '.join(LEARNED)}, or the file of one, as python -m training leaves it"),
    "drafter": dict(choices=DRAFTERS, help="how it drafts"),
    "gamma": dict(type=GAMMA, metavar="N", help="draft tokens a round"),
    "shape": dict(type=SHAPE, nargs="+", metavar="N", help="children at every depth of a tree, or "
                  "a whole one as JSON: its parents, or Medusa's choices; default: the best for "
                  "this pair here, measured; for dynamic-tree EAGLE-2's size, width and depth, as "
                  '{"size": 60, "width": 10, "depth": 6}'),
    "remember": dict(type=whole_number(0, 10 ** 9), metavar="N", help="how many tokens of earlier "
                     f"texts {', '.join(REMEMBERING)} may copy from"),
    "rule": dict(choices=RULES, help="what decides which draft tokens are accepted"),
    "temperature": dict(type=TEMPERATURE, metavar="T", help="0 is greedy"),
    "top_k": dict(type=COUNT, metavar="N", help="only the N likeliest tokens"),
    "top_p": dict(type=TOP_P, metavar="P",
                  help="only the likeliest tokens, up to a probability of P"),
    "min_p": dict(type=MIN_P, metavar="P",
                  help="only tokens at least P times as probable as the likeliest"),
    "max_new_tokens": dict(type=COUNT, metavar="N", help="for each text"),
    "seed": dict(type=SEED, metavar="N", help="of all random numbers"),
    "device": dict(type=device, help="cpu, cuda, or cuda:N"),
    "dtype": dict(choices=["auto", "float32", "bfloat16", "float16", "int8", "float64"],
                  help="the data type of the weights (auto: the fastest here, measured, of all but "
                  "int8, which rounds more)"),
    "threads": dict(type=whole_number(1, 1024), metavar="N",
                    help="default: as many as are fastest"),
    "measure": dict(action="store_true", help="measure with care, and anew, what is fastest here; "
                    "otherwise a look of some seconds decides, or what an earlier start has kept"),
    "compile": dict(action="store_true", help="through torch.compile, too, where a drafter's "
                    "drafts have one shape: minutes, the first time"),
}
# The defaults of demo, chat and why.
SAMPLING = {"rule": "token", "top_k": None, "top_p": None, "min_p": None, "seed": 0,
            "device": HERE, "dtype": "auto"}


def sampling_of(args: argparse.Namespace) -> dict[str, Any]:
    """What makes a distribution of logits, as it was asked for."""
    return {name: getattr(args, name) for name in ("temperature", "top_k", "top_p", "min_p")}


def add_options(parser: argparse.ArgumentParser, defaults: Mapping[str, Any],
                words: Mapping[str, str], options: Mapping[str, dict] = OPTIONS) -> None:
    """An option for each name. words: a default in words, where it is no number or line itself."""
    for name, default in defaults.items():
        about, shown = options[name], default_in_words(default) or words.get(name)
        if "choices" in about:
            names = ', '.join(about['choices'])
            about = about | {"metavar": "NAME", "help": f"{about['help']}: {names}"}
        more = {"help": "; ".join(filter(None, [about.get("help"), shown and f"default: {shown}"]))}
        parser.add_argument("--" + name.replace("_", "-"), default=default, **about | more)


def default_in_words(default: Any) -> str:
    if default == WEIGHTS:
        return "the pair that ships"
    if isinstance(default, tuple):
        return " ".join(map(str, default))
    shown = str(default) if type(default) in (int, float, str) else ""
    return shown if shown.isprintable() else ""
