"""How many ways the dice can fall in a round, counted by hand: a walk that misses a branch, or takes one that cannot
be, arrives at another number.

All distributions here are without zeros, and what is certain is no branch. Say that after a text the draft model
overrates `over` tokens and underrates `under`. A draft token can be rejected if it is overrated, and is then replaced
by one of the underrated; if all are accepted, any of the V tokens follows. The scan of node_rule.py flips a coin for a
node that is reached and for no other. So a chain of gamma draft tokens has V^(gamma + 1) ways in which all are
accepted, and over * under for every text before draft token i, each V^(gamma - i) times: the tokens after a rejected
one had been drawn already.

`verify` has no branch: it flips all coins at once, those after a rejection too, and each overrated token there has two
ways to fall. That is dead randomness and more paths to the same distribution: 43 for 39 in a round of gamma 2.
"""

from functools import cache
from itertools import product

import pytest
import torch

from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.shapes import shape
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import walk
from nanospec.speculate import ModelDrafter, speculate, tokens_of

IDS = (1, 0)


def tables(V, seed):
    return TableModel(V, seed, zeros=0), TableModel(V, seed + 1000, zeros=0)


def distributions_of(model):
    return cache(lambda text: probs(model(torch.tensor([text]))[0, -1]))


def by_hand(target, draft_model, gamma, new, at_once) -> int:
    """Ways of a chain from IDS to `new` tokens, round by round. at_once: coins after a rejection are flipped too."""
    p_target, q_draft, V = distributions_of(target), distributions_of(draft_model), target.config.vocab_size

    @cache
    def over(text):
        return (q_draft(text) > p_target(text)).nonzero()[:, 0].tolist()

    @cache
    def under(text):
        return (p_target(text) > q_draft(text)).nonzero()[:, 0].tolist()

    @cache
    def dead(text, left):                               # ways of the draft tokens after a rejected one
        if left == 0 or not at_once:
            return V ** left
        return sum((1 + (x in over(text))) * dead((*text, x), left - 1) for x in range(V))

    @cache
    def ways(text, left):
        if left <= 0:
            return 1
        found = 0
        for accepted in range(gamma + 1):
            for drafted in product(range(V), repeat=accepted):
                here = (*text, *drafted)
                fell = 1 if accepted == gamma else sum(dead((*here, x), gamma - accepted - 1) for x in over(here))
                for y in range(V) if accepted == gamma else under(here):
                    found += fell * ways((*text, *(*drafted, y)[:left]), left - accepted - 1)
        return found

    return ways(IDS, new)


def walked(target, drafter, new) -> int:
    """Paths of a request; a tree's are judged by the scan."""
    return walk(lambda dice: tuple(tokens_of(speculate(target, drafter, IDS, new, dice=dice))))[1]


def chain(draft_model, gamma):
    """A tree of which every node has one child."""
    return TreeDrafter(draft_model, shape(*[1] * gamma))


# new = 1 is one round, whatever its length.
@pytest.mark.parametrize("V, gamma, new, seed, scan, at_once", [
    (2, 2, 1, 0, 12, 13), (3, 1, 1, 0, 11, 11), (3, 2, 1, 0, 39, 43), (3, 3, 1, 0, 135, 170), (4, 2, 1, 77, 91, 97),
    (2, 2, 3, 0, 100, 181), (3, 1, 3, 0, 161, 161)])
def test_a_chain(V, gamma, new, seed, scan, at_once):
    target, draft_model = tables(V, seed)
    assert by_hand(target, draft_model, gamma, new, at_once=False) == walked(target, chain(draft_model, gamma),
                                                                             new) == scan
    together = walked(target, ModelDrafter(draft_model, gamma), new)
    assert by_hand(target, draft_model, gamma, new, at_once=True) == together == at_once


def test_a_token_that_both_like_as_well_neither_falls_nor_replaces():
    """After two of the nine texts of two draft tokens the draft swaps two tokens, and agrees on the third."""
    target, draft_model = tables(3, 0)
    for text in ((*IDS, 0, 1), (*IDS, 2, 2)):
        row = target._hash(text)
        draft_model.logits[row] = target.logits[row, [1, 0, 2]]
    assert by_hand(target, draft_model, 3, 1, at_once=False) == walked(target, chain(draft_model, 3), 1) == 133
    assert by_hand(target, draft_model, 3, 1, at_once=True) == walked(target, ModelDrafter(draft_model, 3), 1)


def one_tree(target, draft_model, branches, how) -> int:
    """Walked: a tree drafted from distributions that are looked up once, judged by the scan."""
    p_target, q_draft = distributions_of(target), distributions_of(draft_model)

    def play(dice):
        parents, texts, q_nodes, level = [-1], [IDS], [torch.zeros_like(q_draft(IDS))], [0]
        for branch in branches:
            above, level = level, []
            for node in above:
                left = q_draft(texts[node])
                for likeliest in left.topk(branch).indices.tolist():
                    x = likeliest if how == "chosen" else int(dice.pick(left[None]))
                    level.append(len(texts))
                    parents.append(node)
                    texts.append((*texts[node], x))
                    q_nodes.append(torch.eye(len(left), dtype=left.dtype)[x] if how == "chosen" else left)
                    if how == "without replacement":
                        left = left.index_fill(0, torch.tensor(x), 0.0)
                        left = left / left.sum()
        tokens, p_rows = torch.tensor([[text[-1] for text in texts]]), [p_target(text) for text in texts]
        drafted = TreeDraft(tokens, torch.stack(q_nodes)[None], torch.tensor([parents]))
        accepted, token = verify_tree(drafted, torch.stack(p_rows)[None], dice)
        return texts[int(accepted)], int(token)
    return walk(play)[1]


@pytest.mark.parametrize("V, seed, branches, independent, without, chosen", [
    (3, 3, [2], 37, 26, 7), (3, 3, [3], 119, 30, 9), (3, 3, [2, 1], 399, 282, 11), (4, 6, [2], 88, 68, 10)], ids=str)
def test_a_tree(V, seed, branches, independent, without, chosen):
    ways = {"independent": independent, "without replacement": without, "chosen": chosen}
    assert {how: one_tree(*tables(V, seed), branches, how) for how in ways} == ways


@pytest.mark.parametrize("branches, independent, without", [
    ([2], 37, 26), pytest.param([2, 1], 399, 282, marks=pytest.mark.slow)], ids=str)
def test_the_loop_decides_nothing_of_its_own(branches, independent, without):
    target, draft_model = tables(3, 3)
    for count, alike in (independent, True), (without, False):
        assert walked(target, TreeDrafter(draft_model, shape(*branches), independent=alike), 1) == count
