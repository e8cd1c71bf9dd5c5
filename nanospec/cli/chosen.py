"""What demo and why can be asked for, and what they make of it: a pair as it runs fastest here, a
drafter and a rule by their names, and one prompt.
"""

from argparse import Namespace
from typing import Any

from nanospec.cli import options
from nanospec.cli.method_options import (chosen_drafters, options_of, read_pair, takes_shape,
                                         topology_of)
from nanospec.errors import RequestError, check_request
from nanospec.fast.autotune import COMPILED, setups_of
from nanospec.files.checkpoint import WEIGHTS
from nanospec.files.sources import source_of
from nanospec.methods.index import DRAFTERS, Method, check_fixed, method_of, most_drafted

PROMPT = '''class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y

'''
DEFAULTS = {"prompt": PROMPT, "draft": "gpt", "drafter": None, "gamma": None, "shape": None,
            "temperature": 0.8, "max_new_tokens": None, "weights": WEIGHTS, "threads": None,
            "compile": False, **options.SAMPLING}
WORDS = {"prompt": "the beginning of a class",
         "drafter": "chain, or suffix where there is no draft model"}
SIZES = {"gamma": "--gamma, not --shape", "topology": "--shape, not --gamma",
         "itself": "neither --gamma nor --shape"}


def settled(asked: Namespace) -> Namespace:
    """The same, its weights found and its drafter named. RequestError for what does not go
    together, before anything is downloaded if the user names a drafter.
    """
    if asked.drafter:
        check(asked)
    asked.weights = source_of(asked.weights)
    named = [asked.drafter] if asked.drafter else []
    asked.drafter, = chosen_drafters(named, asked.weights, [asked.draft], "--drafter")
    check(asked)
    return asked


def check(asked: Namespace) -> None:
    if asked.compile:
        check_fixed([asked.drafter], [asked.rule], "--compile")
    sized_by = DRAFTERS[asked.drafter].sized_by
    wrong = asked.shape and (asked.gamma or not takes_shape(asked.drafter, asked.shape))
    if asked.gamma and sized_by != "gamma" or wrong:
        raise RequestError(f"--drafter {asked.drafter} takes {SIZES[sized_by]}")


class Chosen:
    """new, gamma: how many tokens are written, if the context leaves room, and draft tokens a
    round, where the user asks for no other numbers. What cannot be is refused before anything is
    measured.

    setups: the pair as it runs eagerly, and compiled if that was asked for. how: the last in words.
    """

    def __init__(self, asked: Namespace, new: int, gamma: int):
        self.asked, self.options = asked, topology_of(asked.shape)
        self.target, self.draft, self.tokenizer = read_pair(asked.weights, asked.device,
                                                            asked.draft)
        self.ids = self.tokenizer.begin + self.tokenizer.encode(asked.prompt)
        self.sampling = options.sampling_of(asked)
        new = max(1, min(new, self.target.config.context - len(self.ids)))
        self.request: dict = self.sampling | {
            "max_new_tokens": asked.max_new_tokens or new, "seed": asked.seed,
            "stop": self.tokenizer.ends}
        self.gamma = asked.gamma or most_drafted(asked.drafter, self.draft, gamma)
        check_request(self.target, self.ids, **self.request, rows=self.method().gamma + 1)
        self.setups, how = setups_of(self.target, self.draft, asked.dtype, asked.threads,
                                     asked.compile)
        self.how = how.split(COMPILED)[-1]
        self.options = options_of(self.target, self.draft, [self.ids], [asked.drafter],
                                  self.options, self.gamma, **self.sampling)

    def method(self, target: Any = None, draft: Any = None, gamma: int = 0) -> Method:
        """For other models than those that run eagerly, or of another length, if they are given."""
        return method_of(target or self.target, draft or self.draft, self.asked.drafter,
                         self.asked.rule, gamma=gamma or self.gamma, **self.options)
