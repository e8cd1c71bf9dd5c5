"""Samplers with a bug in them, and which of these a sampler is: how a bug gets its name."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from nanospec.judge.sampler import Sampler, walked
from nanospec.proof.walk import Distribution
from nanospec.proof.zoo.chain import BUGS
from nanospec.proof.zoo.plant import FALLS, Bug, exchanged, exchanges
from nanospec.speculate import ModelDrafter, speculate, tokens_of

AS_IT_SHIPS = Bug("as it ships", "", "", "", "speculate", ())
# A walk does not see those of the dice.
OF_A_CHAIN = [bug for bug in BUGS if bug.file != "dice"]


def sampler_with(bug: Bug, target, draft_model, ids: Sequence[int], new: int, gamma: int,
                 **settings) -> Sampler:
    """A sampler that speculates with the bug planted, while it runs and no longer."""
    codes = exchanges(bug)

    def sampler(dice):
        with exchanged(codes):
            return tokens_of(speculate(target, ModelDrafter(draft_model, gamma), ids, new,
                                       dice=dice, **settings))
    return sampler


def beginnings(distribution: Distribution, new: int) -> Distribution:
    """Of the first `new` tokens alone."""
    shorter: dict = defaultdict(float)
    for tokens, probability in distribution.items():
        shorter[tokens[:new]] += probability
    return dict(shorter)


def named(fits: Callable[[Distribution], bool], like: Distribution | None, seconds: float,
          tolerance: float, new: int, **task) -> Iterator[tuple[str, bool]]:
    """(name, is it that) of every bug that a chain can have, while there is time; each is walked.

    like: what it must be, up to tolerance; its first tokens are compared first, because few paths
    tell them. Or None, and fits(distribution of the bug) says whether it is.
    """
    until = perf_counter() + seconds
    for bug in OF_A_CHAIN:
        for length in range(1, new + 1) if like else [new]:
            left = until - perf_counter()
            if left <= 0:
                return
            try:
                found = walked(sampler_with(bug, new=length, **task), left, again=0,
                               like=like and beginnings(like, length), same=tolerance)
            except FALLS:           # some write past the cache, or make NaN
                found = None
            if found is None:
                break
        yield bug.name, found is not None and fits(found)
