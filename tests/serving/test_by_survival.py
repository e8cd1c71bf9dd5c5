"""The budget of draft tokens for a whole batch. That it is lossless: contract.py, by its name, and "served, by
survival" of checks.py, where two texts share a budget. What the target computes of such drafts: test_ragged.py.
"""

from types import SimpleNamespace

import pytest
import torch

from nanospec.dice import Dice
from nanospec.methods.lengths import by_survival
from nanospec.methods.lengths.by_survival import BySurvival
from nanospec.probs import Sampling
from nanospec.proof.tables import small_gpt
from tests.proof.compare import Batch

TARGET, DRAFT_MODEL = small_gpt(5, 2, 1), small_gpt(5, 1, 2)
PROMPTS = [[1, 2, 3], [4, 0, 1, 1, 2], [0]]


def drafts(gamma: int, rounds: int = 12):
    """The drafter, and its drafts of some rounds."""
    drafter, dice = BySurvival(DRAFT_MODEL, gamma), Dice([1, 2, 3])
    batch = Batch(TARGET, drafter, PROMPTS, 90)
    return drafter, [batch.round(dice, Sampling())[0] for _ in range(rounds)]


@pytest.mark.parametrize("gamma, each", [(1, 1), (2, 1), (3, 2), (8, 4)])
def test_the_batch_has_its_budget_and_no_text_more_than_gamma(gamma, each):
    _, done = drafts(gamma)
    counts = [draft.exist.sum(-1).tolist() for draft in done]
    assert all(sum(its) == 3 * each and max(its) <= gamma for its in counts)
    assert gamma < 2 or len({tuple(its) for its in counts}) > 1            # some texts get more than others


def test_they_go_where_survival_is_greatest_and_of_equals_to_the_earlier_place():
    drafter = BySurvival(DRAFT_MODEL, 4)                                          # two for each text
    of_places = [torch.tensor(row) for row in ([0.9, 0.6, 0.4], [0.8, 0.2, 0.4], [0.7, 0.1, 0.1])]
    assert drafter.counts_of(of_places).tolist() == [3, 1, 2]
    assert drafter.counts_of([torch.tensor([0.5, 0.5])] * 3).tolist() == [2, 2]


def test_one_text_gets_its_budget_and_not_a_draft_step_more():
    drafter = BySurvival(DRAFT_MODEL, 8)
    draft, *_ = Batch(TARGET, drafter, [[1, 2, 3]], 60).round(Dice([1]), Sampling())
    assert draft.tokens.shape == (1, 5) and draft.steps == 4 and draft.parents.tolist() == [[-1, 0, 1, 2, 3]]


def test_what_is_accepted_makes_its_class_likelier():
    drafter = BySurvival(TARGET, 4)                                         # the target drafts for itself
    batch, dice = Batch(TARGET, drafter, PROMPTS, 90), Dice([1, 2, 3])
    before = drafter.acceptance.share
    for _ in range(20):
        batch.round(dice, Sampling())
    after = drafter.acceptance.share
    assert (after >= before - 1e-6).all() and (after[2:] > 0.95).all() and (after <= 1 + 1e-6).all()


def test_it_learns_from_what_is_accepted_and_from_the_first_that_is_rejected():
    drafter, dice, judged, ended = BySurvival(DRAFT_MODEL, 6), Dice([1, 2, 3]), [], set()
    batch = Batch(TARGET, drafter, PROMPTS, 90)
    drafter.acceptance = SimpleNamespace(share=drafter.acceptance.share, learn=lambda each, *its: judged.append(each))
    for _ in range(20):
        _, _, _, count, _ = batch.round(dice, Sampling())
        assert judged[-1].sum(-1).tolist() == torch.minimum(count + 1, drafter.counts).tolist()
        ended |= {*(count < drafter.counts).tolist()}
    assert ended == {True, False}


def test_a_sure_text_gets_the_places_that_an_unsure_one_does_not_want(monkeypatch):
    """Two each: .99, .98, .97, .96 of the first are all before .05 of the second, so drafts go on after two places."""
    drafter = BySurvival(DRAFT_MODEL, 4)
    monkeypatch.setattr(by_survival, "sureness", lambda likeliest: torch.tensor([4, 0]))
    batch = Batch(TARGET, drafter, PROMPTS[:2], 90)
    drafter.acceptance = SimpleNamespace(share=torch.tensor([.05, .1, .2, .5, .99]))
    text = batch.text
    dice = Dice([1, 2])
    dice.refill(12)
    draft = drafter.propose(text, Sampling(), dice, int(text.length.max()), 0)
    assert drafter.counts.tolist() == [4, 0] and draft.tokens.shape == (2, 5)


def test_a_draft_step_that_brings_no_text_a_place_was_taken_all_the_same(monkeypatch):
    """.9 and .81 of the first text, .5 and .25 of the second. The first one's third place may have .729, and has .081.
    """
    drafter, classes = BySurvival(DRAFT_MODEL, 4), iter([[4, 2], [4, 2], [0, 0]])
    monkeypatch.setattr(by_survival, "sureness", lambda likeliest: torch.tensor(next(classes)))
    batch, dice = Batch(TARGET, drafter, PROMPTS[:2], 90), Dice([1, 2])
    drafter.acceptance = SimpleNamespace(share=torch.tensor([.1, .2, .5, .7, .9]))
    dice.refill(12)
    draft = drafter.propose(batch.text, Sampling(), dice, 12)
    assert drafter.counts.tolist() == [2, 2] and draft.tokens.shape == (2, 3) and draft.steps == 3
