"""Cascades: the text is distributed as the mixture, with every deferral rule, under every rule, and at both ends."""

from itertools import product

import pytest
import torch

from lessons.cascade import DEFERRALS, cascade
from lessons.oracles import Mixture, completed, product_of
from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.rules.block import verify_block
from nanospec.methods.rules.traversal import verify_traversal
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import ModelDrafter, speculate, tokens_of, verify
from tests.proof.compare import rounds, together

TABLE, DRAFT_MODEL = TableModel(3, 8, zeros=0.4), TableModel(3, 58, zeros=0.4)
MIDDLE = {"chow": 0.4, "diff": 0.1, "opt": 0.6, "v1": 0.3, "v2": 0.3, "v3": 0.6}
Q, P = torch.tensor([[.6, .3, .1]]), torch.tensor([[.2, .7, .1]])


def run_of(drafter, rule):
    return lambda ids, **request: speculate(TABLE, drafter, ids, rule=rule, **request)


@pytest.mark.parametrize("deferral, a, pi", [
    ("chow", 0.3, [.2, .7, .1]), ("chow", 0.5, [.6, .3, .1]),               # .6 < .7; not .6 < .5
    ("diff", 0.05, [.2, .7, .1]), ("diff", 0.2, [.6, .3, .1]),              # .6 < .65; not .6 < .5
    ("opt", 0.2, [.2, .7, .1]), ("opt", 0.5, [.6, .3, .1]),                 # TV .4: .6 < .62; not .6 < .5
    ("v1", 0.2, [.6 + .2 * .4, .7 * .4, .1 * .4]),                          # .3 and .1 are below .5
    ("v2", 0.3, [.2 * .7, .3 + .7 * .7, .1 * .7]),                          # .2 and .1 are below .4
    ("v3", 0.8, [.6 + .2 * .1, .3 + .7 * .1, .1 * .1 + 0])])                # .1 is below .14
def test_mixtures_by_hand(deferral, a, pi):
    assert torch.allclose(DEFERRALS[deferral](Q, P, a), torch.tensor([pi]), atol=1e-6)


@pytest.mark.parametrize("deferral, a", [("chow", .5), ("diff", 0), ("opt", 0), ("v1", .25), ("v2", .25), ("v3", .5)])
def test_at_the_very_limit_the_draft_writes(deferral, a):
    q, p = torch.tensor([[.5, .25, .25]]), torch.tensor([[.25, .5, .25]])
    assert torch.equal(DEFERRALS[deferral](q, p, a), q)


@pytest.mark.parametrize("deferral", DEFERRALS)
def test_a_mixture_is_a_distribution_between_its_ends(deferral):
    made = torch.Generator().manual_seed(1)
    q, p = (torch.rand(200, 7, generator=made, dtype=torch.float64).pow(4) for _ in range(2))
    q, p = q / q.sum(-1, keepdim=True), p / p.sum(-1, keepdim=True)
    for a in (0.0, 0.2, 0.5, 0.9):
        pi = DEFERRALS[deferral](q, p, a)
        assert (pi.sum(-1) - 1).abs().max() < 1e-12 and pi.min() >= -1e-15
    always = -20.0 if deferral == "opt" else -1.0           # TV is small where they agree
    assert (DEFERRALS[deferral](q, p, always) - p).abs().max() < 1e-12
    assert (DEFERRALS[deferral](q, p, 20.0 if deferral == "opt" else 1.0) - q).abs().max() < 1e-12 or deferral == "opt"


WAYS = {"chain": (ModelDrafter(DRAFT_MODEL, 2), verify), "block": (ModelDrafter(DRAFT_MODEL, 2), verify_block),
        "traversal": (ModelDrafter(DRAFT_MODEL, 2), verify_traversal),
        "tree": (TreeDrafter(DRAFT_MODEL, [-1, 0, 0, 1]), verify_tree),
        "independent": (TreeDrafter(DRAFT_MODEL, [-1, 0, 0, 1], independent=True), verify_tree)}
EVERY_TIME = [*((way, "v1") for way in WAYS), *((way, deferral) for way in ("chain", "tree") for deferral in DEFERRALS)]


@pytest.mark.parametrize("way, deferral", [
    pytest.param(*pair, marks=[pytest.mark.slow] * (pair not in EVERY_TIME)) for pair in product(WAYS, DEFERRALS)])
def test_the_text_is_the_mixtures(way, deferral):
    (drafter, rule), a = WAYS[way], MIDDLE[deferral]
    pi = Mixture(TABLE, DRAFT_MODEL, lambda q, p: DEFERRALS[deferral](q, p, a))
    _, error, tv = rounds(pi, run_of(drafter, cascade(deferral, a, rule)), [1, 0, 1, 2, 1], 2)
    assert error < 1e-12 and tv < 1e-12
    texts = [target_distribution(model, [1, 0, 1, 2, 1], 2) for model in (pi, TABLE)]
    assert distance(*texts)[1] > 0.01                               # and that is not the target's


def test_two_texts_at_once():
    """Ragged, with chains: the joint distribution is the product of two mixtures."""
    pi, texts = Mixture(TABLE, DRAFT_MODEL, lambda q, p: DEFERRALS["v1"](q, p, 0.3)), [[1], [0, 2, 1]]
    found, _ = walk(lambda dice: tuple(map(tuple, together(
        TABLE, ModelDrafter(DRAFT_MODEL, 1), texts, 2, dice, rule=cascade("v1", 0.3, verify)))))
    assert max(distance(found, product_of(*(target_distribution(pi, ids, 2) for ids in texts)))) < 1e-12


@pytest.mark.parametrize("deferral", DEFERRALS)
def test_at_its_ends_it_is_target_or_draft(deferral):
    never = -20.0 if deferral == "opt" else -1.0
    assert rounds(TABLE, run_of(ModelDrafter(DRAFT_MODEL, 2), cascade(deferral, never, verify)), [1, 0], 2)[2] < 1e-12
    if deferral != "opt":               # where the two models are far apart, opt keeps the draft with a = 1 or not
        only = rounds(DRAFT_MODEL, run_of(ModelDrafter(DRAFT_MODEL, 2), cascade(deferral, 1.0, verify)), [1, 0], 2)
        assert only[2] < 1e-12


def test_a_round_writes_at_most_gamma_tokens_and_the_target_writes_where_nothing_is_drafted():
    for done in speculate(TABLE, ModelDrafter(DRAFT_MODEL, 3), [1], 40, rule=cascade("chow", 1.0, verify)):
        assert len(done.path) == 2                          # the third draft token is the round's last
    ids = [0, 1, 2]
    found = tokens_of(speculate(TABLE, PromptLookup(2, longest=9), ids, 1, 0, rule=cascade("chow", 1.0, verify)))
    assert found == list(generate(TABLE, ids, 1, 0))


def test_what_a_text_lacks_is_written_with_the_settings_of_the_rest():
    whole = target_distribution(TABLE, [1], 2, temperature=0.5)
    of_one = target_distribution(TABLE, [1], 1, temperature=0.5)
    assert max(distance(completed(of_one, TABLE, [1], 2, temperature=0.5), whole)) < 1e-12
    assert distance(completed(of_one, TABLE, [1], 2), whole)[1] > 0.01


def test_an_unknown_rule_is_refused():
    with pytest.raises(RequestError, match="no deferral rule 'best' here: there are chow"):
        cascade("best", 0.5, verify)
    with pytest.raises(RequestError, match="the rule must be a function, got 'token'"):
        cascade("v1", 0.5, "token")
