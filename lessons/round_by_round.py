"""How far a text that is written round by round is from the target's, for exercise 23."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, lru_cache

import torch

from lessons.kit import OneRow
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk


def reading(model: Callable) -> Callable:
    """A list of T tokens -> logits (T, V), as that table has them. It reads a text once, and is asked again and again.
    """
    @cache
    def read(text: tuple[int, ...]) -> torch.Tensor:
        return model(torch.tensor([text]))[0]
    return lambda text: read(tuple(torch.tensor([text])[0].tolist())).clone()


@lru_cache(maxsize=8)
def table_of(seed: int) -> tuple[TableModel, Callable]:
    table = TableModel(3, seed, zeros=0.4)
    return table, reading(table)


@lru_cache(maxsize=32)
def truth_of(seed: int, temperature: float, new: int) -> dict:
    return target_distribution(table_of(seed)[0], [1], new, temperature=temperature)


def off_by(a_round: Callable, seeds: Sequence[int], temperature: float, new: int) -> float:
    """How far a text of `new` tokens that is written round by round is from the target's: total variation, every path
    walked.

    a_round(target, draft_model, text, gamma, temperature, dice) -> the text with what one round adds. Both models: a
    list of T tokens -> logits (T, V). The models are the tables of those two seeds, of three tokens, in which some
    probabilities are zero. gamma is 2, and the text begins with [1].
    """
    target, draft_model = (table_of(seed)[1] for seed in seeds)

    @cache
    def written(text):          # a round sees nothing but the text, so it is walked once for each
        if len(text) > new:
            return {text[1:1 + new]: 1.0}
        found, rounds = defaultdict(float), walk(lambda dice: tuple(
            a_round(target, draft_model, list(text), 2, temperature, OneRow(dice))))[0]
        for longer, share in rounds.items():
            for whole, rest in written(longer).items():
                found[whole] += share * rest
        return found
    return distance(written((1,)), truth_of(seeds[0], temperature, new))[1]
