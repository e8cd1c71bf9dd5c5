"""The idea in plain lines is exact, and `verify`, which ships, does what it does."""

from functools import cache

import pytest
import torch

from lessons.kit import OneRow
from nanospec.draft import Draft
from nanospec.idea import speculative_round
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import verify

TARGET, DRAFT_MODEL = TableModel(3, seed=1, zeros=0.3), TableModel(3, seed=2, zeros=0.3)


@cache
def probs(model):
    """Of a text the probabilities after each token. A walk asks for the same texts again and again."""
    known = cache(lambda *text: model(torch.tensor([text]))[0].softmax(-1))
    return lambda text: known(*text)


@pytest.mark.parametrize("gamma", [1, 2])
def test_a_text_written_round_by_round_is_the_targets(gamma):
    def three_tokens(dice):
        text = [0]
        while len(text) < 4:
            text = speculative_round(probs(TARGET), probs(DRAFT_MODEL), text, gamma, OneRow(dice))
        return tuple(text[1:4])

    assert distance(walk(three_tokens)[0], target_distribution(TARGET, [0], 3))[1] < 1e-12


def test_a_common_mistake_is_seen():
    """A rejected token that is replaced by a draw from the whole of p_target."""
    def one_token(dice):
        p, q, dice = probs(TARGET)([0])[-1], probs(DRAFT_MODEL)([0])[-1], OneRow(dice)
        x = dice.pick(q)
        return (x if dice.flip(p[x] / q[x]) else dice.pick(p),)

    assert distance(walk(one_token)[0], target_distribution(TARGET, [0], 1))[1] > 0.05


class Told(OneRow):
    """Dice that draft the tokens they are told to, and draw the rest."""

    def __init__(self, dice, draft):
        super().__init__(dice)
        self.left = list(draft)

    def pick(self, weights):
        return self.left.pop(0) if self.left else super().pick(weights)


@pytest.mark.parametrize("draft", [[0], [2, 1], [1, 1, 0], [0, 2, 1, 0]])
def test_verify_is_the_idea(draft):
    """Given one draft, the same texts come out with the same probabilities."""
    text, target, draft_model = [0, 1], probs(TARGET), probs(TableModel(3, seed=3, zeros=0))
    scored = [draft_model(text + draft[:k])[-1] for k in range(len(draft))]

    def by_verify(dice):
        made = Draft(torch.tensor([text[-1:] + draft]), torch.stack([torch.zeros(3), *scored])[None])
        accepted, token = verify(made, target(text + draft)[None, -len(draft) - 1:], dice)
        return (*text, *draft[:int(accepted)], int(token))

    found, _ = walk(by_verify)
    wanted, _ = walk(lambda dice: tuple(speculative_round(target, draft_model, text, len(draft), Told(dice, draft))))
    assert found.keys() == wanted.keys() and distance(found, wanted)[1] < 1e-12
