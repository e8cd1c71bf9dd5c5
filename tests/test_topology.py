"""The best tree against every tree there is, against its own heap, and against what a round really keeps."""

from itertools import product

import pytest
import torch

import nanospec.topology as sequoia
from nanospec.draft import Tree
from nanospec.topology import best_size, best_tree, expected_of, heap_tree, shape
from nanospec.proof.walk import walk
from nanospec.proof.zoo import Bug, changed
from nanospec.rules.traversal import verify_traversal
from nanospec.theory import expected_tokens

FALLING = [(.6, .2, .1), (.5, .5, .5), (.8, .1, .05, .01), (.9,), (.4, .3, 0)]
RISING = [(.3, .05, .9), (.1, .7), (0, .6, .3), (.2, .1, .1, .8)]
DEPTHS = (1, 2, 3, 4, None)


def depth_of(topology):
    levels = [1]
    for parent in topology[1:]:
        levels.append(levels[parent] + 1)
    return levels


def every_tree(children, size, depth):
    """All trees of `size` rows, a row being the ranks along its path. Slow and obvious."""
    trees = {frozenset({()})}
    for _ in range(size - 1):
        trees = {tree | {path + (i,)} for tree in trees for path in tree for i in range(children)
                 if path + (i,) not in tree and (i == 0 or path + (i - 1,) in tree) and len(path) + 2 <= depth}
    return trees


def reached(path, accepted):
    chance = 1.0
    for i in path:
        chance *= accepted[i]
    return chance


def errors(names):
    """How far any tree of `names` is from the best of all there are; infinite where it is not a tree as agreed."""
    worst = 0.0
    for accepted, size, depth in product(FALLING + RISING, range(1, 7), DEPTHS):
        trees = every_tree(len(accepted), size, depth or size)
        if not trees:
            continue
        truth = max(sum(reached(path, accepted) for path in tree) for tree in trees)
        found = [names["best_tree"](accepted, size, depth)]
        found += [names["heap_tree"](accepted, size, depth)] * (accepted in FALLING)
        for expected, topology in found:
            levels = depth_of(topology)
            if len(topology) != size or max(levels) > (depth or size) or topology[1:] != sorted(topology[1:]):
                return float("inf")
            worst = max(worst, abs(expected - truth), abs(names["expected_of"](topology, accepted) - truth))
    return worst


def test_shapes():
    assert shape() == [-1] and shape(3) == [-1, 0, 0, 0] and shape(1, 1, 1) == [-1, 0, 1, 2]
    assert shape(2, 2, 1) == [-1, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6]
    assert expected_of(shape(2, 1), [.6, .2]) == pytest.approx(2.28)
    assert expected_of(shape(1, 1, 1, 1), [.8]) == pytest.approx(expected_tokens(.8, 4), abs=1e-12)


@pytest.mark.parametrize("tree", [best_tree, heap_tree])
def test_the_numbers_of_the_reference(tree):
    accepted = (.6, .2, .1)
    found = [tree(accepted, size)[0] for size in (1, 2, 3, 4, 5, 6, 7, 8, 16)]
    assert found == pytest.approx([1, 1.6, 1.96, 2.176, 2.376, 2.5056, 2.6256, 2.7456, 3.306016], abs=1e-12)
    assert [tree(accepted, size, 3)[0] for size in (4, 5, 6)] == pytest.approx([2.16, 2.28, 2.4], abs=1e-12)
    assert tree(accepted, 4)[1] == [-1, 0, 1, 2] and tree(accepted, 4, 3)[1] == [-1, 0, 0, 1]


def test_no_tree_is_better():
    assert errors(vars(sequoia)) < 1e-12


MUTANTS = [("one level too deep", "range(depth - 1)", "range(depth)", float("inf")),
           ("a child may be skipped", "reversed(accepted)", "reversed(sorted(accepted))", .05),
           ("the siblings' order is lost", "for chance in reversed(accepted)", "for chance in accepted", .05),
           ("behind a child there is nothing", "(behind, *siblings)", "((), *siblings)", float("inf")),
           ("a child's tree counts whole", "chance * tree + forest", "chance + tree - 1 + forest", .05),
           ("the heap forgets the path", "minus_kept * accepted[0]", "-accepted[0]", .05),
           ("the heap is without limit", "if level > depth:", "if level > size:", float("inf")),
           ("breadth first from the right", "for tree in trees]", "for tree in reversed(trees)]", .05)]


@pytest.mark.parametrize("name, old, new, least", MUTANTS, ids=[mutant[0] for mutant in MUTANTS])
def test_a_wrong_tree_is_seen(name, old, new, least):
    assert errors(changed(Bug(name, "", "", "", "drafters.sequoia", ((old, new),)))) >= least


@pytest.mark.parametrize("accepted", FALLING, ids=str)
@pytest.mark.parametrize("depth", [None, 3, 6])
def test_the_heap_is_as_good_where_accepted_falls(accepted, depth):
    for size in range(1, 33):
        assert heap_tree(accepted, size, depth)[0] == pytest.approx(best_tree(accepted, size, depth)[0], abs=1e-12)


def test_the_heap_is_worse_where_it_does_not():
    assert best_tree((.3, .05, .9), 4)[0] == pytest.approx(2.25)
    assert heap_tree((.3, .05, .9), 4)[0] == pytest.approx(1.44)
    for accepted, size in product(RISING, range(1, 12)):
        assert heap_tree(accepted, size)[0] <= best_tree(accepted, size)[0] + 1e-12


@pytest.mark.parametrize("tree", [best_tree, heap_tree])
def test_where_there_is_no_room_the_tree_is_full(tree):
    assert tree((.6,), 5, 3)[1] == [-1, 0, 1]
    assert tree((.6, .2), 50, 3)[1] == shape(2, 2)
    assert tree((.6, .2), 50, 1) == (1.0, [-1])


def test_best_size():
    topology, rate = best_size([.6, .2], {2: .010, 4: .011}, .001, range(1, 6))
    assert topology == [-1, 0, 0, 1] and rate == pytest.approx(2.16 / .013)
    seconds = {1: .010, 2: .0101, 4: .0102, 8: .0104, 16: .0108, 32: .02, 64: .04}
    topology, rate = best_size((.7, .2), seconds, .002, range(1, 9))
    rates = {(size, depth): best_tree((.7, .2), size, depth)[0] / ((depth - 1) * .002 + cost)
             for size, cost in seconds.items() for depth in range(1, 9)}
    assert rate == max(rates.values()) and (len(topology), max(depth_of(topology))) == max(rates, key=rates.get)
    assert len(best_size((.7, .2), seconds, .02, range(1, 9))[0]) < len(topology)          # a dear draft: a small tree


def test_the_best_chain_is_the_formula_of_a_chain():
    seconds = {rows: 1 + .05 * (rows - 1) for rows in range(1, 10)}
    topology, rate = best_size([.8], seconds, .1, range(1, 10))
    assert topology == shape(*[1] * (len(topology) - 1))
    best = max(expected_tokens(.8, n - 1) / ((n - 1) * .1 + seconds[n]) for n in seconds)
    assert rate == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("size, depth", [(4, None), (6, 3), (9, None)])
def test_expected_tokens_are_what_a_round_emits(size, depth):
    """Guesses that are chosen, the same three everywhere, before a target that always thinks the same: exactly F(T)."""
    p_target = torch.tensor([.6, .2, .1, .1], dtype=torch.float64)
    expected, topology = best_tree(p_target[:3].tolist(), size, depth)
    tree = Tree([0])
    for parent in topology[1:]:
        tree.add(parent, len(tree.children(parent)))
    law, _ = walk(lambda dice: len(verify_traversal(tree, p_target.expand(size, 4), dice)[0]) + 1)
    assert sum(tokens * weight for tokens, weight in law.items()) == pytest.approx(expected, abs=1e-12)
