"""Lossy rules: what each promises, and how far from the target each is, walked. None of them is lossless."""

import pytest
import torch

from lessons.lossy_rules import enough, forgiving, lenient, relaxed, typical
from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.trees.drawn import TopTree, TreeDrafter
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.shapes import shape
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.probs import residual
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.proof.walk import walk
from nanospec.speculate import ModelDrafter, speculate, tokens_of, verify
from tests.proof.compare import rounds

TABLE, DRAFT_MODEL = TableModel(3, 8, zeros=0), TableModel(3, 58, zeros=0)
TARGET, GPT_DRAFT_MODEL = small_gpt(11, 2, 5), small_gpt(11, 1, 6)
P = torch.tensor([[[.5, .3, .2], [.05, .9, .05], [1., 0, 0], [.4, .4, .2]]], dtype=torch.float64)


def decided(rule, drafted, parents=None, **settings):
    """(last accepted node, token that follows) with u = .99, for one text whose first node is token 0."""
    n = 1 + len(drafted)
    exist = torch.tensor([parents or range(-1, n - 1)]) >= 0
    of = torch.tensor([[0, *drafted]]), exist[:, :, None] * torch.full((3,), 1 / 3)
    draft = TreeDraft(*of, torch.tensor([parents])) if parents else Draft(*of)
    dice = Dice([0])
    dice.u = torch.full((1, 1), 0.99, dtype=torch.float64)
    accepted, token = rule(draft, P[:, :n], dice, **settings)
    return int(accepted), int(token)


@pytest.mark.parametrize("rule", [typical, relaxed])
def test_what_is_not_scored_is_refused(rule):
    draft = Draft(torch.tensor([[0, 1]]), torch.zeros(1, 2, 3))
    with pytest.raises(ValueError, match="this rule judges a Draft and p_target, both"):
        rule(draft, P[:, :3], Dice([0]))


def test_typical_acceptance_by_hand():
    assert enough(P[0], most=1).tolist() == pytest.approx([.1071, .2022, .3, .1045], abs=5e-5)
    assert enough(P[0, :2]).tolist() == [.09, .09]
    assert decided(typical, [1, 1, 0]) == (3, 2)            # .3, .9 and 1 are enough
    assert decided(typical, [1, 2, 0]) == (1, 2)            # .05 is not: exp(-entropy) is .67, and .09 < .2
    assert decided(typical, [1, 2, 0], most=0.04) == (3, 2)
    assert decided(typical, [2], most=0.2) == (1, 2)        # .2 > .3 * .36
    assert decided(typical, [2], most=0.2, part=0.6) == (0, 2)
    assert decided(typical, [1], most=0.3, part=1) == (0, 2)        # .3 is not more than .3


def test_relaxed_acceptance_by_hand():
    """Of [.5, .3, .2], [.05, .9, .05] and [1, 0, 0], with the two likeliest: .3 is .2 below the best, .05 is .85."""
    assert decided(relaxed, [1, 1, 0]) == (3, 2)
    assert decided(relaxed, [1, 1, 0], delta=0.19) == (0, 2)
    assert decided(relaxed, [2], delta=1) == (0, 2) and decided(relaxed, [2], k=3, delta=1) == (1, 2)
    assert decided(relaxed, [0, 0], delta=0.8) == (1, 2) and decided(relaxed, [0, 0], delta=0.86) == (2, 0)


@pytest.mark.parametrize("coins, window, least, accepted", [
    ("nyn", 1, 0, 2), ("nyy", 1, 0, 3), ("nyy", 2, 0, 3), ("nyn", 2, 0, 0), ("nny", 1, 0, 0), ("yyn", 1, 0, 2),
    ("yny", 1, .3, 3), ("yny", 1, .4, 1), ("nyy", 1, 1.03, 0), ("nyy", 1, 1.02, 3)])
def test_a_rejection_is_forgiven_by_hand(coins, window, least, accepted):
    """The entropies at the three places are 1.03, .39 and 0."""
    draft = Draft(torch.tensor([[0, 0, 1, 0]]), (torch.arange(4) > 0)[None, :, None] * torch.full((3,), 1 / 3))

    class Coins:
        pick = staticmethod(lambda weights: weights.argmax(-1))
        flip = staticmethod(lambda prob: torch.tensor([[coin == "y" for coin in coins]]))
    assert int(forgiving(window, least, verify)(draft, P, Coins())[0]) == accepted


def test_what_the_target_never_writes_is_not_forgiven():
    p_target = torch.tensor([[[0, .5, .5]] * 3])
    draft = Draft(torch.tensor([[0, 0, 1]]), (torch.arange(3) > 0)[None, :, None] * torch.full((3,), 1 / 3))
    found, _ = walk(lambda dice: int(forgiving(1, 0, verify)(draft, p_target, dice)[0]))
    assert found == {0: 1.0}


def test_texts_of_a_batch_are_judged_each_by_itself():
    tokens, q_draft = torch.tensor([[0, 1, 1, 0], [0, 2, 1, 0], [0, 1, 2, 2]]), torch.full((3, 4, 3), 1 / 3)
    q_draft[:, 0], p_target = 0, P.expand(3, 4, 3)

    def judged(rows):
        dice = Dice([5 + row for row in rows])
        dice.refill(4)
        return torch.stack(typical(Draft(tokens[rows], q_draft[rows]), p_target[rows], dice), 1).tolist()

    alone = [judged([row])[0] for row in range(3)]
    assert judged([0, 1, 2]) == alone and len({accepted for accepted, _ in alone}) > 1


def test_of_two_long_paths_the_likelier_one():
    assert decided(typical, [0, 1], [-1, 0, 0], most=0) == (1, 2)
    assert decided(typical, [1, 0], [-1, 0, 0], most=0) == (2, 0)
    assert decided(typical, [1, 1, 0], [-1, 0, 1, -1], most=0) == (2, 0)        # a node that the text lacks is none


def test_it_is_not_lossless():
    """The distance of two tokens of text from the target's, walked: far above rounding."""
    def run(ids, **request):
        return speculate(TABLE, ModelDrafter(DRAFT_MODEL, 2), ids, rule=typical, **request)
    _, _, tv = rounds(TABLE, run, [1, 0], 2)
    assert tv > 0.05


def test_a_token_that_passes_is_written_for_certain():
    """So the text is 1 - p_target(x) away at that place."""
    def run(ids, **request):
        return speculate(TABLE, TopTree(DRAFT_MODEL, [-1, 0]), ids, rule=typical, **request)
    p_target = TABLE(torch.tensor([[2, 0]]))[0, -1].softmax(-1)
    x = DRAFT_MODEL(torch.tensor([[2, 0]]))[0, -1].argmax()
    assert 0.9 > p_target[x] > 0.09 and abs(rounds(TABLE, run, [2, 0], 1)[2] - (1 - p_target[x])) < 1e-12


@pytest.mark.parametrize("drafter", [ModelDrafter(GPT_DRAFT_MODEL, 4), TreeDrafter(GPT_DRAFT_MODEL, shape(2, 1)),
                                     TopTree(GPT_DRAFT_MODEL, shape(2, 2))])
def test_at_temperature_0_only_the_best_token_passes(drafter):
    for ids in ([1], [3, 4, 5]):
        found = tokens_of(speculate(TARGET, drafter, ids, 30, temperature=0, rule=typical))
        assert found == list(generate(TARGET, ids, 30, temperature=0))


@pytest.mark.parametrize("lenience", [0.5, 0.8])
@pytest.mark.parametrize("drafter, rule", [
    (ModelDrafter(DRAFT_MODEL, 2), verify), (TreeDrafter(DRAFT_MODEL, [-1, 0, 0]), verify_tree)], ids=["chain", "tree"])
def test_lenience_makes_no_token_likelier_than_it_may(drafter, rule, lenience):
    """The first token's distribution, walked: at most p / lenience, not the target's, and for a chain the formula's."""
    found, _ = walk(lambda dice: next(speculate(
        TABLE, drafter, [1, 0], 1, rule=lenient(lenience, rule), dice=dice)).emitted[0])
    p, q = (model(torch.tensor([[1, 0]]))[0, -1].softmax(-1) for model in (TABLE, DRAFT_MODEL))
    law = torch.tensor([found.get(x, 0.0) for x in range(3)], dtype=torch.float64)
    assert (law - p / lenience).max() < 1e-12 and (law - p).abs().sum() > 0.01
    if not isinstance(drafter, TreeDrafter):
        kept = torch.minimum(q, p / lenience)
        assert (law - kept - (1 - kept.sum()) * residual(p[None], q[None])[0]).abs().max() < 1e-12


def test_lenience_1_is_lossless_and_others_are_refused():
    def run(ids, **request):
        return speculate(TABLE, ModelDrafter(DRAFT_MODEL, 2), ids, rule=lenient(1.0, verify), **request)
    assert rounds(TABLE, run, [1, 0], 2)[2] < 1e-12
    for wrong in (0.0, -1.0, 1.5):
        with pytest.raises(RequestError, match="above 0 and at most 1"):
            lenient(wrong, verify)
