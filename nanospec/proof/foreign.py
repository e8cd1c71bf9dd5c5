"""A sampler that somebody else wrote: what it returns, as a tuple of tokens, and its distribution,
if it can be walked.

A sampler can be walked if all of its chance goes through the dice that it is given. One that has
chance of its own besides betrays itself: on the same path it does not write the same tokens again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import torch

from nanospec.dice import Dice
from nanospec.errors import RequestError, one_line
from nanospec.proof.walk import Distribution, distance, walk

Sampler = Callable[[Dice], object]
MOST_PATHS = 20_000     # a sampler that takes more is not walked
MOST_SECONDS = 30.0     # nor one that takes longer
# Paths that are walked a second time, at least: all of them, over and over if there are few.
AGAIN = 200
SAME = 1e-12            # what two walks may differ by


def tokens_from(returned: object) -> tuple:
    """What a sampler returned, flat: a list of numbers or of tensors, an array, a tensor of any
    shape, an iterator.

    RequestError for what torch does not take. Example: torch.tensor([[3, 1]]) and [tensor(3),
    tensor(1)] are (3, 1).
    """
    try:
        tokens: Any = list(returned) if isinstance(returned, Iterator) else returned
        return tuple(torch.as_tensor(tokens).flatten().tolist())
    except (TypeError, ValueError, RuntimeError) as error:
        raise RequestError("a sampler returns its tokens, as a list or a tensor; this one returned "
                           f"{one_line(repr(returned))}") from error


class _Unwalkable(Exception):
    """It asks the dice for nothing, takes too long, or is not what it should be like."""


def walked(sampler: Sampler, seconds: float = MOST_SECONDS, again: int = AGAIN,
           like: Distribution | None = None, same: float = SAME) -> Distribution | None:
    """The sampler's exact distribution; None if its chance does not all come from the dice it is
    given, or if the walk is too long. again: how many paths are walked a second time, to see
    whether the same comes out. like: None too as soon as it cannot be this distribution, up to
    `same`.
    """
    until, runs, found = perf_counter() + seconds, 0, defaultdict(float)

    def play(dice) -> tuple:
        nonlocal runs
        runs += 1
        tokens = tokens_from(sampler(dice))
        if not dice.choices or runs > 2 * MOST_PATHS or perf_counter() > until:
            raise _Unwalkable
        if like is not None:
            found[tokens] += dice.weight
            if found[tokens] > like.get(tokens, 0.0) + same:
                raise _Unwalkable
        return tokens

    try:
        first, paths = walk(play)
        for _ in range(-(-again // paths)):
            if distance(walk(play)[0], first)[0] > SAME:
                return None
        return first
    # No such method of dice; other odds when replayed.
    except (_Unwalkable, AttributeError, AssertionError):
        return None
