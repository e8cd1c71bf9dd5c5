"""The trees that are grown where the draft model is sure, against all nodes there could be."""

from functools import partial
from itertools import product

import pytest
import torch

from nanospec.dice import Dice
from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.trees.dynamic_tree import DynamicTree
from nanospec.methods.trees.tree_draft import of_text
from nanospec.probs import Sampling
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.speculate import speculate, tokens_of
from nanospec.text import Text, prefill
from tests.proof.compare import Batch

DRAFT_MODEL = TableModel(5, 4, zeros=0)
TEXTS = [[1, 0, 2], [3], [4, 4, 1, 0]]


def proposed(drafter, texts=TEXTS):
    text = Text(texts, 40, 5)
    drafter.begin(text)
    drafter.read(text, range(len(texts)), None)
    return drafter.propose(text, Sampling(0), Dice(range(len(texts))), 40)


def paths_of(draft, b):
    """The tokens after the root of every node that text b has."""
    paths = {0: ()}
    tokens, parents, _ = of_text(draft, b)
    for node, parent in enumerate(parents):
        if parent >= 0:
            paths[node] = (*paths[parent], tokens[node])
    return set(paths.values()) - {()}


def confidence(ids, path):
    """The product of the draft model's probabilities along it."""
    chance = 1.0
    for depth, token in enumerate(path):
        chance *= DRAFT_MODEL(torch.tensor([[*ids, *path[:depth]]]))[0, -1].softmax(-1)[token].item()
    return chance


def test_the_depth_that_is_not_asked_for():
    """1 + count // width levels hold count nodes, and a chain, of width 1, has as many as that."""
    assert [DynamicTree(DRAFT_MODEL, count, width).depth for count, width in ((8, 2), (8, 3), (4, 1), (1, 1))] == [
        5, 3, 4, 1]


@pytest.mark.parametrize("count, width, depth", [(60, 3, 3), (7, 5, 2), (6, 2, 4), (9, 1, 3)])
def test_count_width_and_depth_as_they_are_asked_for(count, width, depth):
    """Against a plain loop: `width` of the likeliest of `width` children, level by level; of all the `count` best."""
    drafter = DynamicTree(DRAFT_MODEL, count, width, depth)
    draft = proposed(drafter)
    assert draft.steps == depth and drafter.most == count
    for b, ids in enumerate(TEXTS):
        level, made = [()], []
        for _ in range(depth):
            each = [sorted(((*path, token) for token in range(5)), key=lambda path: -confidence(ids, path))[:width]
                    for path in level]
            made += sum(each, [])
            level = sorted(sum(each, []), key=lambda path: -confidence(ids, path))[:width]
        assert paths_of(draft, b) == set(sorted(made, key=lambda path: -confidence(ids, path))[:count])


@pytest.mark.parametrize("count", [1, 3, 6, 9])
def test_where_every_row_is_expanded_it_is_the_most_confident_of_all_trees(count):
    """With a width of the whole vocabulary nothing is overlooked, as deep as it reads."""
    drafter = DynamicTree(DRAFT_MODEL, count, width=5)
    draft = proposed(drafter)
    for b, ids in enumerate(TEXTS):
        every = sorted((path for depth in range(1, drafter.depth + 1) for path in product(range(5), repeat=depth)),
                       key=lambda path: -confidence(ids, path))
        assert paths_of(draft, b) == set(every[:count])


def test_a_width_beyond_the_vocabulary_is_all_of_it():
    assert paths_of(proposed(DynamicTree(DRAFT_MODEL, 9, 9, 1)), 0) == {(token,) for token in range(5)}


def grown(ids, count, width, depth):
    """Expand and rerank, in plain lists."""
    beam, made = [()], []
    for _ in range(depth):
        level = []
        for path in beam:
            children = sorted(((*path, token) for token in range(5)), key=lambda path: -confidence(ids, path))
            level += children[:width]
        made += level
        beam = sorted(level, key=lambda path: -confidence(ids, path))[:width]
    return set(sorted(made, key=lambda path: -confidence(ids, path))[:count])


@pytest.mark.parametrize("count, width", [(4, 1), (8, 2), (12, 3), (12, 2)])
def test_a_row_goes_on_from_its_own_parent_level_after_level(count, width):
    drafter = DynamicTree(DRAFT_MODEL, count, width)
    draft = proposed(drafter)
    assert drafter.depth > 3
    for b, ids in enumerate(TEXTS):
        assert paths_of(draft, b) == grown(ids, count, width, drafter.depth)


def test_it_reads_no_more_rows_than_it_drafts():
    for count, width, depth in ((8, 2, 5), (8, 4, 3), (2, 2, 2), (1, 2, 1), (7, 3, 3)):
        drafter = DynamicTree(DRAFT_MODEL, count, width)
        assert drafter.depth == depth and (depth - 1) * width <= count
        assert drafter.reader.lag == depth + 1                      # a path of that depth is read again, and no more
    with pytest.raises(RequestError, match="width"):
        DynamicTree(DRAFT_MODEL, 4, 0)
    with pytest.raises(RequestError, match="depth"):
        DynamicTree(DRAFT_MODEL, 4, 2, 0)
    for sizes, name in ((4, "2"), "width"), ((4, 2, 2.5), "depth"):
        with pytest.raises(RequestError, match=f"{name} must be a whole number"):
            DynamicTree(DRAFT_MODEL, *sizes)


def test_parents_stand_first_and_the_best_child_before_its_siblings():
    draft = proposed(DynamicTree(DRAFT_MODEL, 8, 3))
    for b, ids in enumerate(TEXTS):
        tokens, parents, q_draft = of_text(draft, b)
        assert all(parent < node for node, parent in enumerate(parents)) and parents.count(-1) == 1
        assert q_draft[0].sum() == 0 and (q_draft[1:].argmax(-1) == torch.tensor(tokens[1:])).all()
        for node in range(1, len(tokens)):
            elder = [other for other in range(1, node) if parents[other] == parents[node]]
            assert not set(tokens[other] for other in elder) & {tokens[node]}


def test_a_certain_draft_gives_a_chain_of_ties():
    """Confidence 1 all the way: a child ties with its parent, and is never taken without it."""
    sure = TableModel(3, 1, zeros=0)
    sure.logits = torch.full_like(sure.logits, -1e9)
    sure.logits[:, 2] = 0
    drafter = DynamicTree(sure, 4, 2)
    text = Text([[1, 0]], 20, 3)
    drafter.begin(text)
    drafter.read(text, [0], None)
    draft = drafter.propose(text, Sampling(), Dice([0]), 20)
    assert {(2,), (2, 2), (2, 2, 2)} <= paths_of(draft, 0)


def test_a_gpt_reads_its_rows_after_their_own_parents():
    """What the draft model says of a node is what it says of the node's whole path."""
    model, ids = small_gpt(5, 1, 3), [2, 1, 4]
    text = Text([ids], 40, 5)
    drafter = DynamicTree(model, 9, 3)
    drafter.begin(text)
    drafter.read(text, [0], prefill(model, text)[1])
    draft = drafter.propose(text, Sampling(), Dice([0]), 40)
    paths = paths_of(draft, 0)
    for path in paths:
        if not any(len(other) > len(path) and other[:len(path)] == path for other in paths):
            continue
        best = model(torch.tensor([[*ids, *path]]))[0, -1].argmax().item()
        assert (*path, best) in paths


@pytest.mark.parametrize("name", LEARNED)
def test_a_learned_model_drafts_among_other_texts_what_it_drafts_for_a_text_alone(name):
    """Texts of different lengths, with states, hidden states and keys of their own: round by round the same trees."""
    target = small_gpt(11, 3, 5)
    texts, drafter = [[7, 0, 2, 9, 1], [3], [4, 10, 1]], partial(DynamicTree, small_learned(name, target), 7, 3)
    together, dice = Batch(target, drafter(), texts, 60), Dice(range(3))
    alone = [(Batch(target, drafter(), [ids], 60), Dice([seed])) for seed, ids in enumerate(texts)]
    for _ in range(4):
        draft, *_ = together.round(dice, Sampling(0.8))
        own = [batch.round(its, Sampling(0.8))[0] for batch, its in alone]
        trees = [of_text(draft, b)[:2] for b in range(3)]
        assert trees == [of_text(each, 0)[:2] for each in own] and trees[0] != trees[1] != trees[2]


@pytest.mark.parametrize("name", LEARNED)
def test_a_draft_may_be_smaller_than_what_it_is_grown_from_unless_a_cache_must_hold_that(name):
    """Up to the last slot of the context."""
    target = small_gpt(5, 3, 1, context=40)
    model, sizes = small_learned(name, target), (2, 4, 3)
    if name in ("eagle", "eagle3", "mtp", "early_exit"):
        with pytest.raises(RequestError, match="width 4 and depth 3 is grown from 8 nodes .* its size must"):
            DynamicTree(model, *sizes)
    else:
        tree = DynamicTree(model, *sizes)
        assert tokens_of(speculate(target, tree, [1, 2, 3], 37, 0)) == list(generate(target, [1, 2, 3], 37, 0))
