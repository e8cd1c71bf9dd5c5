"""How far a text that is written round by round is from the target's, for exercise 23."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache

import torch

from lessons.kit import OneRow
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk


def off_by(a_round: Callable, seeds: Sequence[int], temperature: float, new: int) -> float:
    """How far a text of `new` tokens that is written round by round is from the target's: total variation, every path
    walked.

    a_round(target, draft_model, text, gamma, temperature, dice) -> the text with what one round adds. Both models: a
    list of T tokens -> logits (T, V). The models are the tables of those two seeds, of three tokens, in which some
    probabilities are zero. gamma is 2, and the text begins with [1].
    """
    tables = [TableModel(3, seed, zeros=0.4) for seed in seeds]
    target, draft_model = (lambda text, model=model: model(torch.tensor([text]))[0] for model in tables)

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
    return distance(written((1,)), target_distribution(tables[0], [1], new, temperature=temperature))[1]
