"""What demo and why can be asked for, and what they make of it: a pair as it runs fastest here, a
drafter and a rule by their names, and one prompt.
"""

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch

from nanospec.cli import options
from nanospec.cli.bench.markdown import machine
from nanospec.cli.method_options import (Keep, check_fixed, chosen_drafters, options_of, read_pair,
                                         takes_shape, topology_of)
from nanospec.errors import RequestError, check_request
from nanospec.fast.autotune import (COMPILED, GLANCE, Setup, Tuning, autotune, described, dtypes_of,
                                    fastest, first_layers, name_of, set_up, setups_of, tuning_of)
from nanospec.fast.clock import step_seconds
from nanospec.files.model_file import fingerprint
from nanospec.files.checkpoint import WEIGHTS, Pair
from nanospec.files.kept import kept_or_found
from nanospec.files.sources import find_source
from nanospec.methods.index import DRAFTERS, Method, method_of, most_drafted

PROMPT = 'def find_files(root, suffix):\n    """Yield'
DEFAULTS = {"prompt": PROMPT, "draft_model": "gpt", "drafter": None, "gamma": None, "shape": None,
            "temperature": 0.0, "max_new_tokens": None, "weights": WEIGHTS, "threads": None,
            "compile": False, "measure": False, **options.SAMPLING}
WORDS = {"prompt": "the beginning of a function",
         "drafter": "chain, or suffix where there is no draft model"}
SIZES = {"gamma": "--gamma, not --shape", "shape": "--shape, not --gamma",
         "": "neither --gamma nor --shape"}
LOOKED_AT = 2 ** 25     # weights of layers: more than a processor's caches hold, and soon converted


def settled(args: Namespace) -> Namespace:
    """The same, its weights found and its drafter named. RequestError for what does not go
    together, before anything is downloaded if the user names a drafter.
    """
    if args.drafter:
        check(args)
    args.weights = find_source(args.weights)
    named = [args.drafter] if args.drafter else []
    args.drafter, = chosen_drafters(named, args.weights, [args.draft_model], "--drafter")
    check(args)
    return args


def check(args: Namespace) -> None:
    if args.compile:
        check_fixed([args.drafter], [args.rule])
    takes = DRAFTERS[args.drafter].takes
    wrong = args.shape and (args.gamma or not takes_shape(args.drafter, args.shape))
    if args.gamma and takes != "gamma" or wrong:
        raise RequestError(f"--drafter {args.drafter} takes {SIZES[takes]}")


def keeping(pair: Pair, args: Namespace) -> Keep:
    """Where measurements of this pair are kept for the next start, in the user's cache folder. All
    that they depend on besides what they are `about` is in their key. With --measure they are made
    anew.
    """
    key = {"target": fingerprint(pair.target), "machine": machine(), "device": args.device,
           "draft model": pair.draft_model is not None and fingerprint(pair.draft_model),
           "dtype": args.dtype, "threads": args.threads}

    def keep(what: str, find: Callable[[], Any], **about: Any) -> Any:
        tunings = [tuning_of(model)._asdict() for model in pair[:2] if model is not None]
        runs = [{name: str(value) for name, value in tuning.items()} for tuning in tunings]
        return kept_or_found(key | {"what": what, "runs": runs, **about}, find, args.measure)
    return keep


def tuned(pair: Pair, args: Namespace, keep: Keep, rounding: bool = False) -> str:
    """Convert both models, in place, to what an earlier start has found to be fastest here, else
    what a look of some seconds at the target's first layers finds, or with --measure a careful one;
    and say what that is.

    rounding: "auto" may mean int8, which rounds more. A look takes it wherever the processor has
    units for it.
    """
    models = [model for model in pair[:2] if model is not None]

    def look() -> list[Tuning]:
        if args.measure:
            autotune(*pair[:2], args.dtype, args.threads, rounding=rounding)
            return [tuning_of(model) for model in models]
        dtypes = dtypes_of(args.dtype, pair.target.device, rounding)
        if torch.int8 in dtypes:
            dtypes = [torch.int8]
        each = sum(weight.numel() for weight in pair.target.blocks[0].parameters())
        some = first_layers(pair.target, pair.target.dtype,
                            min(pair.target.config.layers, -(-LOOKED_AT // each)))
        found = fastest(some, dtypes, [args.threads] if args.threads else (),
                        lambda model: sum(step_seconds(model, tokens, repeats=2, warm_up=1)
                                          for tokens in (1, 5)),
                        glance=GLANCE, turns=1)
        return [found] * len(models)

    found = keep("tuning", lambda: [[name_of(tuning.dtype), *tuning[1:]] for tuning in look()],
                 rounding=rounding)
    for model, (name, threads, packed) in zip(models, found):
        set_up(model, Tuning(getattr(torch, name), threads, packed))
    count = torch.get_num_threads()
    words = (f"{pair.target.device}, {count} thread{'s' * (count > 1)}; target in "
             f"{described(models[0])}")
    return words + "".join(f", draft model in {described(model)}" for model in models[1:])


class Prepared:
    """new, gamma: how many tokens are written, if the context leaves room, and draft tokens a
    round, where the user asks for no other numbers. What cannot be is refused before anything is
    measured.

    setups: the pair as it runs eagerly, and compiled if that was asked for. how: the last in words.
    """

    def __init__(self, args: Namespace, new: int, gamma: int):
        self.args, self.options = args, topology_of(args.shape)
        pair = read_pair(args.weights, args.device, args.draft_model)
        self.target, self.draft_model, self.tokenizer = pair
        self.ids = self.tokenizer.begin + self.tokenizer.encode(args.prompt)
        self.sampling = options.sampling_of(args)
        new = max(1, min(new, self.target.config.context - len(self.ids)))
        self.request: dict = self.sampling | {
            "max_new_tokens": args.max_new_tokens or new, "seed": args.seed,
            "stop": self.tokenizer.ends}
        self.gamma = args.gamma or most_drafted(args.drafter, self.draft_model, gamma)
        check_request(self.target, self.ids, self.request["max_new_tokens"], args.seed,
                      self.method().gamma)
        keep = keeping(pair, args)
        if args.compile:
            self.setups, how = setups_of(self.target, self.draft_model, args.dtype, args.threads,
                                         True)
            self.how = how.split(COMPILED)[-1]
        else:
            self.how, self.setups = tuned(pair, args, keep), [Setup(*pair[:2], None)]
        self.options = options_of(self.target, self.draft_model, [self.ids], [args.drafter],
                                  self.options, self.gamma, keep, **self.sampling)

    def method(self, target: Any = None, draft_model: Any = None, gamma: int = 0) -> Method:
        """For other models than those that run eagerly, or of another length, if they are given."""
        return method_of(target or self.target, draft_model or self.draft_model, self.args.drafter,
                         self.args.rule, gamma=gamma or self.gamma, **self.options)
