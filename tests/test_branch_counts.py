"""How many ways the dice can fall in a round, counted by hand: a walk that misses a branch, or takes one that cannot
be, arrives at another number.

All laws here are without zeros, and what is certain is no branch. Say the draft overrates `over` tokens behind a text
and underrates `under`. A guess can fall if it is overrated, and is then replaced by one of the underrated; if all
stand, any of the V tokens follows. So where coins are flipped in turn and the first that falls ends the round, as in a
tree, a chain of gamma guesses has V^(gamma + 1) ways in which all stand, and over * under for every text before guess
i, each V^(gamma - i) times: the guesses behind a refused one were drawn before anybody knew.

`verify` has no branch: it flips all coins at once, those behind a refusal too, and each overrated guess there falls in
two ways. That is dead randomness and more paths to the same law: 43 for 39 in a round, 36,927 for 13,833 in a request.
"""

from functools import cache
from itertools import product

import pytest
import torch

from nanospec.draft import Tree
from nanospec.topology import shape
from nanospec.drafters.tree import TreeDrafter
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import walk
from nanospec.rules.tree import verify_tree
from nanospec.speculate import speculate_tree
from nanospec.speculate import ModelDrafter, speculate, tokens_of

IDS = (1, 0)


def tables(V, seed):
    return TableModel(V, seed, zeros=0), TableModel(V, seed + 1000, zeros=0)


def laws_of(model, **settings):
    return cache(lambda text: probs(model(torch.tensor([text]))[0, -1], **settings))


def by_hand(target, draft, gamma, new, at_once, **settings) -> int:
    """Ways of a chain from IDS to `new` tokens, round by round. at_once: coins behind a refusal are flipped too."""
    p_target, q_draft, V = laws_of(target, **settings), laws_of(draft, **settings), target.config.vocab_size

    @cache
    def over(text):
        return (q_draft(text) > p_target(text)).nonzero()[:, 0].tolist()

    @cache
    def under(text):
        return (p_target(text) > q_draft(text)).nonzero()[:, 0].tolist()

    @cache
    def dead(text, left):                               # ways of the guesses behind a refused one
        if left == 0 or not at_once:
            return V ** left
        return sum((1 + (x in over(text))) * dead((*text, x), left - 1) for x in range(V))

    @cache
    def ways(text, left):
        if left <= 0:
            return 1
        found = 0
        for kept in range(gamma + 1):
            for guesses in product(range(V), repeat=kept):
                here = (*text, *guesses)
                refused = 1 if kept == gamma else sum(dead((*here, x), gamma - kept - 1) for x in over(here))
                for y in range(V) if kept == gamma else under(here):
                    found += refused * ways((*text, *(*guesses, y)[:left]), left - kept - 1)
        return found

    return ways(IDS, new)


def in_turn(target, drafter, new) -> int:
    """Walked: a request to the loop of trees; a chain is a tree of which everybody has one child."""
    return walk(lambda dice: tuple(tokens_of(speculate_tree(target, drafter, IDS, new, dice=dice))))[1]


def chain(draft, gamma):
    return TreeDrafter(draft, shape(*[1] * gamma))


def all_at_once(target, draft, gamma, new) -> int:
    """Walked: the chain as it ships."""
    return walk(lambda dice: tuple(tokens_of(speculate(target, ModelDrafter(draft), IDS, gamma, new, dice=dice))))[1]


# new = 1 is one round, whatever its length.
@pytest.mark.parametrize("V, gamma, new, seed, turns, once", [
    (2, 2, 1, 0, 12, 13), (3, 1, 1, 0, 11, 11), (3, 2, 1, 0, 39, 43), (3, 3, 1, 0, 135, 170), (4, 2, 1, 77, 91, 97),
    (4, 3, 1, 77, 420, 509), (2, 2, 4, 0, 364, 745), (3, 1, 4, 0, 601, 601)])
def test_a_chain(V, gamma, new, seed, turns, once):
    target, draft = tables(V, seed)
    assert by_hand(target, draft, gamma, new, at_once=False) == in_turn(target, chain(draft, gamma), new) == turns
    assert by_hand(target, draft, gamma, new, at_once=True) == all_at_once(target, draft, gamma, new) == once


def test_a_guess_that_both_like_as_well_neither_falls_nor_replaces():
    """Behind two of the nine texts of two guesses the draft swaps two tokens, and agrees on the third."""
    target, draft = tables(3, 0)
    for text in ((*IDS, 0, 1), (*IDS, 2, 2)):
        row = target._hash(text)
        draft.logits[row] = target.logits[row, [1, 0, 2]]
    assert by_hand(target, draft, 3, 1, at_once=False) == in_turn(target, chain(draft, 3), 1) == 133
    assert by_hand(target, draft, 3, 1, at_once=True) == all_at_once(target, draft, 3, 1)


def test_the_longest_walk_of_the_proof():
    """Table V3, gamma 2, 4 tokens, T 0.7, no zeros: what `python -m nanospec.proof` prints."""
    pair = TableModel(3, 5, zeros=0), TableModel(3, 6, zeros=0)
    assert by_hand(*pair, 2, 4, at_once=True, temperature=0.7) == 36_927
    assert by_hand(*pair, 2, 4, at_once=False, temperature=0.7) == 13_833


def one_round(target, draft, branches, how) -> int:
    """Walked: a tree drafted from laws that are looked up once, judged by `verify_tree`."""
    p_target, q_draft = laws_of(target), laws_of(draft)

    def play(dice):
        tree, texts, level = Tree([IDS[-1]]), [IDS], [0]
        for branch in branches:
            drawn = []
            for row in level:
                law = q_draft(texts[row])
                for chosen in law.topk(branch).indices.tolist():
                    x = chosen if how == "chosen" else int(dice.pick(law[None]))
                    drawn.append(tree.add(row, x, None if how == "chosen" else law))
                    texts.append((*texts[row], x))
                    if how == "without replacement":
                        law = law.index_fill(0, torch.tensor(x), 0.0)
                        law = law / law.sum()
            level = drawn
        path, token = verify_tree(tree, torch.stack([p_target(text) for text in texts]), dice)
        return (*(tree.tokens[row] for row in path), token)
    return walk(play)[1]


@pytest.mark.parametrize("V, seed, branches, independent, without, chosen", [
    (3, 3, [2], 37, 26, 7), (3, 3, [3], 119, 30, 9), (3, 3, [2, 1], 399, 282, 11), (3, 3, [2, 2], 3_897, 1_296, 15),
    (4, 6, [2], 88, 68, 10), (4, 6, [2, 1], 1_688, 1_312, 16)], ids=str)
def test_a_tree(V, seed, branches, independent, without, chosen):
    ways = {"independent": independent, "without replacement": without, "chosen": chosen}
    assert {how: one_round(*tables(V, seed), branches, how) for how in ways} == ways


@pytest.mark.parametrize("branches, independent, without", [([2], 37, 26), ([2, 1], 399, 282)], ids=str)
def test_the_loop_decides_nothing_of_its_own(branches, independent, without):
    target, draft = tables(3, 3)
    for count, alike in (independent, True), (without, False):
        assert in_turn(target, TreeDrafter(draft, shape(*branches), independent=alike), 1) == count
