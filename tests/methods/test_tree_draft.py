"""Draft trees: what their nodes attend to, which path they make, how it is kept, how a tree is built and lifted from
one text to B. All against the slow version, which follows parents by hand.
"""

import random

import pytest
import torch

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.methods.index import RULES
from nanospec.methods.rules.traversal import each_text
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.tree_draft import Tree, TreeDraft, ancestors_of, drafts_of, of_text, tree_mask
from nanospec.proof.tables import small_gpt
from nanospec.proof.walk import distance, walk
from nanospec.speculate import verify
from nanospec.text import Text

GPT = small_gpt(4, 2, 3)


def ragged_draft(nodes, made, V=7):
    """A random tree for each of three texts, wide, deep or a chain, and p_target. The first text has all nodes; the
    others lack some, and all that would follow these.
    """
    parents = []
    for b in range(3):
        deep = made.choice([1, 2, nodes])                    # a parent is one of the last `deep` nodes
        own = [-1] + [made.randrange(max(0, node - deep), node) for node in range(1, nodes)]
        for node in range(1, nodes):
            if b and (made.random() < 0.1 or own[node] > 0 and own[own[node]] == -1):
                own[node] = -1
        parents.append(own)
    tokens = torch.tensor([[made.randrange(V) for _ in range(nodes)] for _ in parents])
    q_draft, p_target = torch.tensor([made.random() for _ in range(6 * nodes * V)]).double().view(2, 3, nodes, V)
    q_draft = q_draft / q_draft.sum(-1, keepdim=True) * (torch.tensor(parents)[:, :, None] >= 0)
    return TreeDraft(tokens, q_draft, torch.tensor(parents)), p_target / p_target.sum(-1, keepdim=True)


def path_of(parents, node):
    path = [node]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


def exist(parents):
    """The nodes that a text has."""
    return [node for node, parent in enumerate(parents) if node == 0 or parent >= 0]


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 17, 40])
def test_ancestors_and_paths(nodes):
    made = random.Random(nodes)
    for _ in range(6):
        draft, _ = ragged_draft(nodes, made)
        for b, parents in enumerate(draft.parents.tolist()):
            assert [own.nonzero()[:, 0].tolist() for own in draft.ancestors[b]] == [path_of(parents, i) for i in
                                                                                    range(nodes)]
            node = made.choice(exist(parents))
            path, count = draft.path(torch.full((3,), node))
            assert path[b, :count[b] + 1].tolist() == path_of(parents, node)
            assert path[b].sort().values.tolist() == list(range(nodes))              # slots of a cache: none is lost


def test_ancestors_of_a_long_chain():
    """Ways from node to node, counted and not limited to 1, would overflow."""
    assert ancestors_of(torch.arange(-1, 299)[None])[0].equal(torch.ones(300, 300).tril().bool())


@pytest.mark.parametrize("nodes", [1, 2, 6, 13])
def test_a_nodes_place_is_its_depth_and_it_attends_to_the_text_and_its_ancestors(nodes):
    made = random.Random(nodes)
    for kv_length in (nodes + 9, nodes + 11, 26):
        draft, _ = ragged_draft(nodes, made)
        cache = GPT.new_cache(3, 26)
        cache.length = torch.tensor([9, 4, 0])
        placing = draft.placing(cache, kv_length)
        assert placing.keys() == {"positions", "attention_mask"} and placing["attention_mask"].dtype == torch.bool
        for b, (parents, length) in enumerate(zip(draft.parents.tolist(), cache.length.tolist())):
            paths = [path_of(parents, node) for node in range(nodes)]
            assert placing["positions"][b].tolist() == [length + len(path) - 1 for path in paths]
            mask = placing["attention_mask"][b]
            assert mask.shape == (nodes, kv_length)
            for path, seen in zip(paths, mask):
                assert seen.nonzero()[:, 0].tolist() == [*range(length), *(length + node for node in path)]


def test_a_mask_of_more_rows_than_are_called():
    """A level of a tree that is read level by level: its own nodes and those of the levels before, in any number."""
    cache, own = GPT.new_cache(2, 12), torch.tensor([[[1, 0, 1]], [[0, 1, 1]]], dtype=torch.bool)
    mask = tree_mask(cache, torch.tensor([3, 1]), own, 7)
    assert mask.long().tolist() == [[[1, 1, 1, 1, 0, 1, 0]], [[1, 0, 1, 1, 0, 0, 0]]]


@pytest.mark.parametrize("compiling", [False, True])
def test_the_accepted_path_is_brought_together_in_every_text_and_below_it_nothing_changes(compiling, monkeypatch):
    """Keys and values of every layer; eagerly, and in the other way that is taken where it is compiled."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)
    made = random.Random(4)
    for nodes in (1, 2, 5, 9):
        draft, _ = ragged_draft(nodes, made)
        cache = GPT.new_cache(3, 20)
        cache.length = torch.tensor([7, 3, 0])
        cache.kv[:] = torch.arange(cache.kv.numel()).view(cache.kv.shape)
        before = cache.kv.clone()
        ends = torch.tensor([made.choice(exist(parents)) for parents in draft.parents.tolist()])
        path, count = draft.path(ends)
        draft.keep(cache, path)
        for b, (parents, length) in enumerate(zip(draft.parents.tolist(), cache.length.tolist())):
            its = path_of(parents, int(ends[b]))
            assert len(its) == count[b] + 1
            kept = [*range(length), *(length + node for node in its)]
            assert cache.kv[:, :, b, :len(kept)].equal(before[:, :, b, kept])
        assert torch.stack([torch.stack(pair) for pair in zip(cache.k, cache.v)]).equal(cache.kv)


def test_trees_are_padded_to_one_draft_and_come_back():
    made, text = random.Random(3), Text([[1]] * 4, 0, 9)
    for _ in range(20):
        trees = [Tree(made.randrange(9)) for _ in range(4)]
        for tree in trees:
            for _ in range(made.randrange(6)):
                tree.add(made.randrange(len(tree.tokens)), made.randrange(9))
        draft = drafts_of(trees, text)
        n = max(len(tree.tokens) for tree in trees)
        assert draft.tokens.shape == (4, n) and draft.q_draft.shape == (4, n, 9) and draft.steps == 0
        chains = all(tree.parents == list(range(-1, len(tree.parents) - 1)) for tree in trees)
        assert type(draft) is (Draft if chains else TreeDraft)
        for b, tree in enumerate(trees):
            tokens, parents, q_draft = of_text(draft, b)
            own = len(tree.tokens)
            assert tokens == tree.tokens + [0] * (n - own) and parents == tree.parents + [-1] * (n - own)
            assert q_draft[1:own].argmax(-1).tolist() == tree.tokens[1:]
            assert q_draft.sum(-1).tolist() == [0.0] + [1.0] * (own - 1) + [0.0] * (n - own)


def test_chains_are_a_draft_without_a_tree_however_long_each_is():
    """The last nodes of the shorter ones are lacking."""
    text, alone, chain, fork = Text([[1]] * 2, 0, 9), Tree(5), Tree(5), Tree(5)
    chain.extend(0, [1, 2])
    fork.extend(0, [1]), fork.extend(0, [2])
    for trees in ([alone] * 2, [chain] * 2, [chain, alone]):
        assert type(drafts_of(trees, text)) is Draft
    assert drafts_of([chain, alone], text).parents.tolist() == [[-1, 0, 1], [-1, -1, -1]]
    draft = drafts_of([chain, fork], text)
    assert type(draft) is TreeDraft and draft.parents.tolist() == [[-1, 0, 1], [-1, 0, 0]]


def test_what_follows_a_row_shares_what_stands_there():
    tree = Tree(7)
    assert [tree.extend(0, [1, 2]), tree.extend(0, [1, 3]), tree.extend(1, [2, 2]), tree.extend(0, []),
            tree.extend(3, [1])] == [2, 3, 4, 0, 5]
    assert tree.tokens == [7, 1, 2, 3, 2, 1] and tree.parents == [-1, 0, 1, 1, 2, 3]
    assert tree.add(1, 3) == 6 and tree.find(1, 3) == 3 and tree.extend(1, [3, 1]) == 5     # the eldest's


class Counted(Dice):
    """Dice that note which column of which row was handed out."""

    def __init__(self, seeds):
        super().__init__(seeds)
        self.handed = []

    def _take(self, n):
        self.handed += [(u, self.column + i) for i in range(n) for u in self.u[:, self.column + i].tolist()]
        return super()._take(n)


def test_a_rule_for_one_text_is_the_same_in_any_batch_and_moves_the_dice_on():
    """The batch's next uniform is one that no row has seen, its pick's included."""
    @each_text
    def flips(tokens, parents, q_draft, p_target, dice):
        """As many coins as the first token says."""
        row = sum(bool(dice.flip(torch.full((1, 1), 0.5))) for _ in range(tokens[0]))
        return row, p_target[0]

    draft = Draft(torch.tensor([[2, 0], [0, 0], [5, 0]]), torch.zeros(3, 2, 7))
    p_target = torch.full((3, 2, 7), 1 / 7)
    dice = Counted([4, 5, 6])
    dice.refill(9)
    together = torch.stack(flips(draft, p_target, dice), 1).tolist()
    assert dice.column == 6 and len(dice.handed) == len(set(dice.handed)) == 2 + 0 + 5 + 3
    for b, seed in enumerate((4, 5, 6)):
        alone = Dice([seed])
        alone.refill(9)
        assert torch.stack(flips(Draft(draft.tokens[b:b + 1], draft.q_draft[:1]), p_target[:1], alone),
                           1).tolist() == [together[b]]


@pytest.mark.parametrize("rule", [verify_tree, RULES["traversal"]])
def test_ragged_trees_are_judged_as_if_each_text_were_alone(rule):
    made = random.Random(5)
    for seed in range(40):
        draft, p_target = ragged_draft(made.randint(2, 12), made)
        dice = Dice([seed, seed + 100, seed + 200])
        dice.refill(20)
        together = torch.stack(rule(draft, p_target, dice), 1).tolist()
        for b in range(3):
            own = exist(draft.parents[b].tolist())
            alone = Dice([seed + 100 * b])
            alone.refill(20)
            if rule is verify_tree:         # it takes a uniform for a node that is lacking, too
                alone.u = alone.u[:, [node - 1 for node in own[1:]] + [draft.tokens.shape[1] - 1]]
            its = TreeDraft(draft.tokens[b:b + 1, own], draft.q_draft[b:b + 1, own], torch.tensor(
                [[own.index(parent) if parent >= 0 else -1 for parent in draft.parents[b, own].tolist()]]))
            accepted, token = rule(its, p_target[b:b + 1, own], alone)
            assert [own[int(accepted)], int(token)] == together[b]


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_on_a_chain_verify_and_the_node_rule_are_each_others_oracle(gamma):
    """The joint distribution of (accepted, token); with the same uniforms the very same ones, for both flip a coin for
    every node in turn, and pick. Every third chain lacks its last nodes.
    """
    made = torch.Generator().manual_seed(gamma)
    tables = torch.rand(2, 300, gamma + 1, 3, generator=made, dtype=torch.float64)
    tables[:, :150] *= torch.rand(2, 150, gamma + 1, 3, generator=made) > 0.4           # the first half has zeros
    tables[..., 0] += 1e-3
    p_target, q_draft = tables / tables.sum(-1, keepdim=True)
    tokens = q_draft.flatten(0, 1).multinomial(1, generator=made).view(300, gamma + 1)
    q_draft[:, 0] = 0
    q_draft[::3, -1:] = q_draft[::6, -2:] = 0
    for b in range(140, 160):
        found = [walk(lambda dice: tuple(map(int, rule(Draft(tokens[b:b + 1], q_draft[b:b + 1]), p_target[b:b + 1],
                                                       dice))))[0] for rule in (verify, verify_tree)]
        assert max(distance(*found)) < 1e-14
    answers = []
    for rule in (verify, verify_tree):
        dice = Dice(range(300))
        dice.refill(gamma + 1)
        answers.append(torch.stack(rule(Draft(tokens, q_draft), p_target, dice)))
    assert answers[0].equal(answers[1]) and len(set(answers[0][0].tolist())) == gamma + 1
