"""Trees of guesses: what the walk in proof/trees.py does not say of them."""

from functools import partial

import pytest
import torch

from nanospec.draft import Tree
from nanospec.topology import shape
from nanospec.drafters.tree import TreeDrafter
from nanospec.errors import LogitsError, RequestError
from nanospec.generate import generate
from nanospec.proof.checks import Ledger
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.proof.checks import node_cases, rounds
from nanospec.proof.tables import small_gpt
from nanospec.proof.checks import DRAFT, FULL, FULL_DRAFT, TABLE, TWO_ONE, TWO_TWO, WARM, tree_checks
from nanospec.rules.traversal import verify_traversal
from nanospec.rules.tree import verify_tree
from nanospec.speculate import speculate_tree
from nanospec.speculate import ModelDrafter, speculate, tokens_of

GPT, GPT_DRAFT = small_gpt(11, 2, 1), small_gpt(11, 1, 2)
CHAIN = [-1, 0, 1, 2]


@pytest.mark.parametrize("layer, setting, check", tree_checks(), ids=[setting for _, setting, _ in tree_checks()])
def test_the_layers(layer, setting, check):
    paths, error, tv = check()
    assert paths and error < 1e-12 and tv < 1e-12


@pytest.mark.parametrize("count, independent", [(2, True), (2, False), (3, True), (3, False)])
def test_a_node_has_the_targets_law_whatever_the_two_laws(count, independent):
    """T0 for several children: zeros, equal, disjoint, one-hot. A law may run out of tokens to guess."""
    drawn_out, cases = 0, list(node_cases())
    for name, p_target, q_draft in cases[:60:4] + cases[60:]:
        laws = torch.stack([p_target] + [torch.eye(5, dtype=torch.float64)[0]] * count)

        def play(dice):
            tree, left = Tree([0]), q_draft
            for _ in range(count):
                if not left.sum() > 0:
                    break
                tree.add(0, int(dice.pick(left[None])), left)
                if not independent:
                    left = left.index_fill(0, torch.tensor(tree.tokens[-1]), 0.0)
                    left = left / left.sum() if left.sum() > 0 else left
            path, token = verify_tree(tree, laws[:len(tree.tokens)], dice)
            return (tree.tokens[path[0]] if path else token), len(tree.tokens)

        law, _ = walk(play)
        drawn_out += any(size <= count for _, size in law)
        tokens = {}
        for (token, _), weight in law.items():
            tokens[token] = tokens.get(token, 0.0) + weight
        assert distance(tokens, dict(enumerate(p_target.tolist())))[0] < 1e-12, name
    assert independent or drawn_out


class Chosen:
    """A drafter without chance: the draft's k likeliest tokens behind the text, and no law reported."""

    def __init__(self, draft, count):
        self.draft, self.count, self.size = draft, count, 2 * count + 1

    def begin(self, text, vocab_size):
        pass

    def propose(self, text, law, dice):
        n = int(text.length)
        tree = Tree([int(text.tokens[0, n - 1])])
        for token in law(self.draft(text.tokens[:, :n]))[0, -1].topk(self.count).indices.tolist():
            child = tree.add(0, token)
            tree.add(child, token)
        return tree

    def commit(self, path, p_target):
        pass


@pytest.mark.parametrize("count", [1, 2, 3])
def test_chosen_children_are_judged_as_certain(count):
    law, _ = walk(lambda dice: tuple(tokens_of(speculate_tree(FULL, Chosen(FULL_DRAFT, count), [1, 0], 3,
                                                              dice=dice, **WARM))))
    assert distance(law, target_distribution(FULL, [1, 0], 3, **WARM))[1] < 1e-12


class ChosenTree(TreeDrafter):
    """As TreeDrafter, but the children of a row are its law's likeliest tokens, and no law is reported."""

    def _draw(self, tree, old, rows, q_draft, dice):
        drawn = self.children[old][:int((q_draft > 0).sum())]
        for row, token in zip(drawn, q_draft.argsort(descending=True).tolist()):
            rows[row] = tree.add(rows[old], token)
        return drawn


# More than half of all probabilities are zero: most laws are certain or of two tokens.
SPARSE, SPARSE_DRAFT = TableModel(3, 31, zeros=0.6), TableModel(3, 32, zeros=0.6)
DRAFTED = {"independent": lambda topology: TreeDrafter(SPARSE_DRAFT, topology, independent=True),
           "without replacement": lambda topology: TreeDrafter(SPARSE_DRAFT, topology),
           "chosen": lambda topology: ChosenTree(SPARSE_DRAFT, topology)}


@pytest.mark.parametrize("rule", [verify_tree, verify_traversal])
@pytest.mark.parametrize("way", DRAFTED)
@pytest.mark.parametrize("branches", [(2,), (3,), (2, 1), (2, 2)], ids=str)
def test_whole_requests_have_the_law_of_the_target(branches, way, rule):
    """Two rounds and more, laws with zeros, certain ones among them."""
    many = way == "independent" and len(branches) > 1               # paths: one prompt has to do
    for ids, new in (([1, 0], 4), ([2, 2, 1], 2 if branches == (2, 2) else 3))[many:]:
        run = partial(speculate_tree, SPARSE, DRAFTED[way](shape(*branches)), rule=rule)
        paths, error, tv = rounds(SPARSE, run, ids, new)
        assert paths > 1 and error < 1e-12 and tv < 1e-12


def test_a_tree_that_is_a_chain_is_speculates_chain():
    """The same law of text and rounds, path for path: each is the other's oracle."""
    def of_tree(dice):
        return tuple((tuple(one.emitted), one.kept) for one in speculate_tree(
            TABLE, TreeDrafter(DRAFT, [-1, 0, 1]), [1, 0], 3, dice=dice, **WARM))

    def of_chain(dice):
        return tuple((tuple(one.emitted), one.kept) for one in speculate(TABLE, ModelDrafter(DRAFT), [1, 0], 2, 3,
                                                                         dice=dice, **WARM))
    assert distance(walk(of_tree)[0], walk(of_chain)[0])[1] < 1e-12


@pytest.mark.parametrize("topology", [CHAIN, TWO_ONE, TWO_TWO, [-1, 0, 0, 0, 0]])
@pytest.mark.parametrize("independent", [True, False])
def test_greedy_is_greedy_and_a_repeated_sibling_is_nothing_new(topology, independent):
    for seed, ids in enumerate([[1], [3, 4, 5], [7] * 9]):
        fast = tokens_of(speculate_tree(GPT, TreeDrafter(GPT_DRAFT, topology, independent), ids, 40,
                                        temperature=0, seed=seed))
        assert fast == list(generate(GPT, ids, 40, temperature=0))


@pytest.mark.parametrize("settings", [{"temperature": 0.8, "top_k": 5}, {"top_p": 0.8}, {"stop": {4, 7}, "seed": 5}])
def test_lengths_stops_and_identities(settings):
    for new in (1, 2, 7, 30):
        done = list(speculate_tree(GPT, TreeDrafter(GPT_DRAFT, TWO_TWO), [2, 3], new, **settings))
        text, stop = tokens_of(done), settings.get("stop", ())
        assert len(text) == new or text[-1] in stop
        assert not set(text[:-1]) & set(stop)
        for one in done:
            rows = [one.drafted[row - 1] for row in one.path]
            assert one.kept == len(one.path) and (rows + [one.token])[:len(one.emitted)] == one.emitted
            assert all(one.parents[row] == before for row, before in zip(one.path, [0, *one.path]))
        again = tokens_of(speculate_tree(GPT, TreeDrafter(GPT_DRAFT, TWO_TWO), [2, 3], new, **settings))
        assert text == again


def test_no_uniform_is_handed_out_twice():
    dice = Ledger([5])
    list(speculate_tree(TABLE, TreeDrafter(DRAFT, TWO_TWO), [1, 0], 40, dice=dice, **WARM))
    assert len(dice.handed) == len(set(dice.handed)) > 100


def test_a_drafter_serves_one_request_after_another():
    """The second answer is what it would have been first."""
    drafter = TreeDrafter(GPT_DRAFT, TWO_TWO)
    alone = tokens_of(speculate_tree(GPT, TreeDrafter(GPT_DRAFT, TWO_TWO), [5], 20, seed=2))
    tokens_of(speculate_tree(GPT, drafter, [1, 2, 3], 25, seed=1))
    assert tokens_of(speculate_tree(GPT, drafter, [5], 20, seed=2)) == alone


def test_more_children_are_kept_more_often_and_without_replacement_best():
    """Expected tokens of the first round, exact: a wider tree of the same depth is never worse."""
    def expected(topology, independent):
        law, _ = walk(lambda dice: next(speculate_tree(FULL, TreeDrafter(FULL_DRAFT, topology, independent), [1, 0], 9,
                                                       dice=dice, **WARM)).kept + 1)
        return sum(kept * weight for kept, weight in law.items())
    one, two, apart = expected([-1, 0], False), expected([-1, 0, 0], True), expected([-1, 0, 0], False)
    assert one < two < apart
    assert expected([-1, 0, 0, 0], False) == pytest.approx(2)           # every token is guessed: one of them must stand


@pytest.mark.parametrize("topology", [[], [0], [-1, 1], [-1, 0, 5], [0, -1]])
def test_what_is_no_topology_is_refused(topology):
    with pytest.raises(RequestError, match="topology"):
        TreeDrafter(GPT_DRAFT, topology)


def test_bad_requests():
    with pytest.raises(RequestError, match="context"):
        next(speculate_tree(GPT, TreeDrafter(GPT_DRAFT, TWO_TWO), [1], 1000))
    with pytest.raises(RequestError, match="tokenizer"):
        next(speculate_tree(TableModel(4, 1), TreeDrafter(DRAFT, TWO_TWO), [1], 10))
    bad = small_gpt(11, 1, 2)
    bad.embedding.weight.data[3] = float("nan")
    for target, draft in ((bad, GPT_DRAFT), (GPT, bad)):
        with pytest.raises(LogitsError):
            list(speculate_tree(target, TreeDrafter(draft, TWO_TWO), [3], 10))


def test_a_draft_that_is_the_target_has_every_first_child_kept():
    done = list(speculate_tree(TABLE, TreeDrafter(TABLE, CHAIN), [1, 0], 40, **WARM))
    assert all(one.path == [1, 2, 3] for one in done)


def test_the_loop_takes_another_rule():
    def first_child_only(tree, p_target, dice):
        kept = Tree(tree.tokens[:2], tree.parents[:2], tree.q_draft[:2])
        return verify_tree(kept, p_target, dice)

    run = partial(speculate_tree, TABLE, TreeDrafter(DRAFT, [-1, 0, 0]), rule=first_child_only)
    assert rounds(TABLE, run, [1, 0], 3, **WARM)[2] < 1e-12
