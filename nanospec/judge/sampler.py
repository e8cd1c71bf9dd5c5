"""A sampler that somebody else wrote: what it returns, as a tuple of tokens, and its distribution,
if it can be walked.

A sampler can be walked if all of its chance goes through the dice that it is given. One that has
chance of its own besides betrays itself: on the same path it does not write the same tokens again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
import torch

from nanospec.dice import Dice
from nanospec.errors import RequestError, quoted
from nanospec.generate import generate
from nanospec.proof.walk import Distribution, WalkingDice, distance, walk

Sampler = Callable[[Dice], object]
MOST_PATHS = 20_000     # a sampler that takes more is not walked
MOST_SECONDS = 30.0     # nor one that takes longer
# Paths that are walked a second time, at least: all of them, over and over if there are few.
AGAIN = 200
SAME = 1e-12            # what two walks may differ by
DESCENTS = 32           # runs from which the number of paths is estimated
TOO_MANY = 4            # times as much as is allowed: so far off an estimate may be


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
                           f"{quoted(returned)}") from error


def one_sample(sampler: Sampler, dice: Any) -> tuple:
    """What it returns with these dice. RequestError too if it ends the program: that is no verdict.
    """
    try:
        return tokens_from(sampler(dice))
    except SystemExit as error:
        raise RequestError(f"the sampler ends the program: SystemExit({error.code!r})") from error


class _Unwalkable(Exception):
    """It asks the dice for nothing, takes too long, or is not what it should be like."""


class Descending(WalkingDice):
    """Follows one path to its end, at every decision a random outcome. paths: the product of the
    numbers of outcomes, whose mean is the number of all paths.

    Claim (Knuth 1975, *Estimating the efficiency of backtrack programs*): E paths is that number.
    Proof. A path with outcomes of n1, n2, ... is followed with probability 1 / (n1 n2 ...), and
    then counts n1 n2 ... So it adds 1 to the mean, as does every other.
    """

    def __init__(self, seed: int):
        self.chance, self.paths = np.random.default_rng(seed), 1
        super().__init__()

    def choose(self, weights: list[float]) -> int:
        super().choose(weights)
        possible = self.choices[-1][0]
        self.paths *= len(possible)
        return possible[self.chance.integers(len(possible))]


def too_long(sampler: Sampler, seconds: float) -> bool:
    """Whether a walk would take far more than MOST_PATHS, or than so many seconds, or has nothing
    to walk. It is known after DESCENTS runs, or fewer.
    """
    paths, began = 0, perf_counter()
    for number in range(DESCENTS):
        dice = Descending(number)
        one_sample(sampler, dice)
        paths, took = paths + dice.paths, perf_counter() - began
        if not dice.choices or paths > DESCENTS * TOO_MANY * MOST_PATHS or took > seconds:
            return True
    return took / DESCENTS * paths / DESCENTS > TOO_MANY * seconds


def walked(sampler: Sampler, seconds: float = MOST_SECONDS, again: int = AGAIN,
           like: Distribution | None = None, same: float = SAME) -> Distribution | None:
    """The sampler's exact distribution; None if its chance does not all come from the dice it is
    given, or if the walk is too long. again: how many paths are walked a second time, to see
    whether the same comes out. like: None too as soon as it cannot be this distribution, up to
    `same`; then no walk is long.
    """
    until, runs, found = perf_counter() + seconds, 0, defaultdict(float)

    def play(dice) -> tuple:
        nonlocal runs
        runs += 1
        tokens = one_sample(sampler, dice)
        if not dice.choices or runs > 2 * MOST_PATHS or perf_counter() > until:
            raise _Unwalkable
        if like is not None:
            found[tokens] += dice.weight
            if found[tokens] > like.get(tokens, 0.0) + same:
                raise _Unwalkable
        return tokens

    try:
        if like is None and too_long(sampler, seconds):
            return None
        first, paths = walk(play)
        for _ in range(-(-again // paths)):
            if distance(walk(play)[0], first)[0] > SAME:
                return None
        return first
    # No such method of dice; other odds when replayed.
    except (_Unwalkable, AttributeError, AssertionError):
        return None


def truth_walked(target, ids, new: int, **settings) -> Distribution | None:
    """Of the target's next `new` tokens, as walk.target_distribution; None if that is too long."""
    return walked(lambda dice: list(generate(target, ids, new, dice=dice, **settings)), again=0)
