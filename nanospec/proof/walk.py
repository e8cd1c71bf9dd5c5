"""Walk every decision: run the very code that ships, with dice that try each outcome in turn, and
add up the results.

Depth first, by replay: each run follows the choices noted so far, takes the first outcome at every
new one, and at its end the last choice that has another outcome moves on. What comes out is not an
estimate. (Pyro's `iter_discrete_traces` does the same for probabilistic programs.)

Left out: what has no outcome to walk, such as re-used randomness (the tests keep a ledger of it)
and speed.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nanospec.generate import generate

Outcome = Any           # that can be a key
Distribution = dict[Outcome, float]
TOLERANCE = 1e-12       # of an error, and of a total variation
MOST_PATHS = 500_000    # that a walk tries, in minutes: more than any that is needed here


class WalkingDice:
    """Stands in for `Dice`: the same methods, and each outcome of each decision has its turn."""

    def __init__(self):
        # [possible outcomes, their probabilities, which one is being followed, weights].
        self.choices: list[list] = []
        self.column = 0                     # a Dice counts its uniforms; here there are none
        self.rewind()

    def rewind(self) -> None:
        """Before each run."""
        self.at, self.weight = 0, 1.0

    def advance(self) -> bool:
        """After each run: on to the next path. False when there is none."""
        while self.choices and self.choices[-1][2] == len(self.choices[-1][0]) - 1:
            self.choices.pop()
        if self.choices:
            self.choices[-1][2] += 1
        return bool(self.choices)

    def refill(self, columns: int) -> None:
        """Nothing to lay out."""

    def flip(self, prob: Tensor) -> Tensor:
        """prob (B, n) -> (B, n) bool; above 1 counts as 1, as it does for a uniform."""
        heads = [self.choose([1 - p, p]) for p in prob.clamp(max=1).flatten().tolist()]
        return torch.tensor(heads, device=prob.device).view(prob.shape).bool()

    def pick(self, weights: Tensor) -> Tensor:
        """weights (B, V) -> (B,), or (B, n, V) -> (B, n)."""
        drawn = [self.choose(row) for row in weights.flatten(0, -2).tolist()]
        return torch.tensor(drawn, device=weights.device).view(weights.shape[:-1])

    def of_row(self, b: int) -> "WalkingDice":
        """A decision is a decision, whichever row it is made for."""
        return self

    def choose(self, weights: list[float]) -> int:
        """An index, in proportion to the weights: one decision, of plain numbers."""
        if self.at == len(self.choices):
            self.choices.append(_new_choice(weights))
        possible, probabilities, which, before = self.choices[self.at]
        if before != weights:
            raise AssertionError(f"replayed, decision {self.at} has other odds: {before}, now "
                                 f"{weights}. Something outside the dice is random or keeps "
                                 "state between runs.")
        self.at += 1
        self.weight *= probabilities[which]
        return possible[which]


def _new_choice(weights: list[float]) -> list:
    """One that no run has come to before, and its first outcome is followed."""
    total = sum(weights)
    if not total > 0 or min(weights) < 0:
        raise AssertionError("a choice needs weights of a positive total, none negative: "
                             f"{weights}")
    possible = [i for i, w in enumerate(weights) if w > 0]
    return [possible, [weights[i] / total for i in possible], 0, weights]


def walk(play: Callable[[Any], Outcome], most: int = MOST_PATHS) -> tuple[Distribution, int]:
    """The exact distribution of what `play(dice)` returns, and how many paths there are.

    AssertionError if there are more than `most`.
    """
    dice, found, paths = WalkingDice(), defaultdict(float), 0
    while True:
        dice.rewind()
        found[play(dice)] += dice.weight
        paths += 1
        if not dice.advance():
            break
        if paths == most:
            raise AssertionError(f"more than {most:,} paths, and {dice.at} decisions in "
                                 "the last one. Is something drawn where nobody looks, as at nodes "
                                 "that do not exist? Each such decision multiplies the paths.")
    if abs(sum(found.values()) - 1) > 1e-9:
        raise AssertionError(f"the paths' probabilities add up to {sum(found.values())}")
    return dict(found), paths


def target_distribution(target, ids: Sequence[int], new: int, **settings) -> Distribution:
    """Of the next `new` tokens, as `generate` draws them: what everything is compared with."""
    return walk(lambda dice: tuple(generate(target, ids, max_new_tokens=new, dice=dice,
                                            **settings)))[0]


def distance(found: Distribution, truth: Distribution) -> tuple[float, float]:
    """(greatest error of any outcome's probability, total variation)."""
    errors = [abs(found.get(outcome, 0.0) - truth.get(outcome, 0.0))
              for outcome in found.keys() | truth.keys()]
    return max(errors), sum(errors) / 2
