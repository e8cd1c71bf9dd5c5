"""The best tree against every tree there is, against a greedy one that is as good, and against what a round accepts."""

import heapq
from collections.abc import Sequence
from itertools import count, product
from pathlib import Path

import pytest
import torch

from lessons.oracles import expected_of
import nanospec.methods.trees.shapes
from nanospec.errors import RequestError
from nanospec.methods.rules.traversal import verify_traversal
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.shapes import Topology, best_size, best_tree, grown_by, grown_tree, shape
from nanospec.methods.trees.shapes import published
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.proof.walk import walk
from nanospec.theory import expected_tokens

FALLING = [(.6, .2, .1), (.5, .5, .5), (.8, .1, .05, .01), (.9,), (.4, .3, 0)]
RISING = [(.3, .05, .9), (.1, .7), (0, .6, .3), (.2, .1, .1, .8)]
DEPTHS = (1, 2, 3, 4, None)


def depths_of(topology: Topology) -> list[int]:
    depths = [1]
    for parent in topology[1:]:
        depths.append(depths[parent] + 1)
    return depths


def every_tree(children: int, size: int, depth: int) -> set[frozenset]:
    """All trees of `size` nodes, a node being the ranks along its path. Slow and obvious."""
    trees = {frozenset({()})}
    for _ in range(size - 1):
        trees = {tree | {path + (i,)} for tree in trees for path in tree for i in range(children)
                 if path + (i,) not in tree and (i == 0 or path + (i - 1,) in tree) and len(path) + 2 <= depth}
    return trees


def chance_of(path: Sequence[int], accepted: Sequence[float]) -> float:
    chance = 1.0
    for i in path:
        chance *= accepted[i]
    return chance


def greedy_tokens(accepted: Sequence[float], size: int, depth: int) -> float:
    """The next node is always the one whose path is likeliest to be accepted, by a heap.

    Where `accepted` falls, a node ranks after its parent and its elder sibling, so the likeliest nodes form a tree, and
    no other has more. It goes where listing every tree does not.
    """
    expected, nodes, number = 1.0, 1, count()
    heap = [(-accepted[0], next(number), 0, 2, 1.0)]            # less a node's chance; its rank, depth, parent's chance
    while nodes < size and heap:
        minus_chance, _, i, level, parent = heapq.heappop(heap)
        if level > depth:
            continue
        expected, nodes = expected - minus_chance, nodes + 1
        heapq.heappush(heap, (minus_chance * accepted[0], next(number), 0, level + 1, -minus_chance))
        if i + 1 < len(accepted):
            heapq.heappush(heap, (-parent * accepted[i + 1], next(number), i + 1, level, parent))
    return expected


def errors(names: dict) -> float:
    """How far any tree of `names` is from the best of all there are; infinite where it is not a tree as agreed."""
    worst = 0.0
    for accepted, size, depth in product(FALLING + RISING, range(1, 7), DEPTHS):
        trees = every_tree(len(accepted), size, depth or size)
        if not trees:
            continue
        truth = max(sum(chance_of(path, accepted) for path in tree) for tree in trees)
        expected, topology = names["best_tree"](accepted, size, depth)
        if (len(topology) != size or max(depths_of(topology)) > (depth or size) or topology[0] != -1
                or topology[1:] != sorted(topology[1:])):
            return float("inf")
        worst = max(worst, abs(expected - truth), abs(expected_of(topology, accepted) - truth))
    return worst


def test_shapes():
    assert shape() == [-1] and shape(3) == [-1, 0, 0, 0] and shape(1, 1, 1) == [-1, 0, 1, 2]
    assert shape(2, 2, 1) == [-1, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6]
    assert expected_of(shape(2, 1), [.6, .2]) == pytest.approx(2.28)
    assert expected_of(shape(1, 1, 1, 1), [.8]) == pytest.approx(expected_tokens(.8, 4), abs=1e-12)


def test_the_numbers_of_the_reference():
    accepted = (.6, .2, .1)
    found = [best_tree(accepted, size)[0] for size in (1, 2, 3, 4, 5, 6, 7, 8, 16)]
    assert found == pytest.approx([1, 1.6, 1.96, 2.176, 2.376, 2.5056, 2.6256, 2.7456, 3.306016], abs=1e-12)
    assert [best_tree(accepted, size, 3)[0] for size in (4, 5, 6)] == pytest.approx([2.16, 2.28, 2.4], abs=1e-12)
    assert best_tree(accepted, 4)[1] == [-1, 0, 1, 2] and best_tree(accepted, 4, 3)[1] == [-1, 0, 0, 1]


def test_no_tree_is_better():
    assert errors(vars(nanospec.methods.trees.shapes)) < 1e-12


MUTANTS = [("one level too deep", "range(depth - 1)", "range(depth)", float("inf")),
           ("a child may be skipped", "reversed(accepted)", "reversed(sorted(accepted))", .05),
           ("the siblings' order is lost", "for chance in reversed(accepted)", "for chance in accepted", .05),
           ("after a child there is nothing", "(subtrees, *siblings)", "((), *siblings)", float("inf")),
           ("a child's tree counts whole", "chance * tree + forest", "chance + tree - 1 + forest", .05),
           ("the root counts nothing", "(1 + expected, subtrees)", "(expected, subtrees)", .05),
           ("breadth first from the right", "for tree in trees]", "for tree in reversed(trees)]", .05)]


@pytest.mark.parametrize("name, old, new, least", MUTANTS, ids=[mutant[0] for mutant in MUTANTS])
def test_a_wrong_tree_is_seen(name, old, new, least):
    source = Path(nanospec.methods.trees.shapes.__file__).read_text()
    assert source.count(old) == 1
    planted: dict = {}
    exec(source.replace(old, new), planted)
    assert errors(planted) >= least


@pytest.mark.parametrize("accepted", FALLING, ids=str)
@pytest.mark.parametrize("depth", [32, 3, 6])
def test_the_greedy_tree_is_as_good_where_accepted_falls(accepted, depth):
    for size in (1, 2, 3, 5, 8, 13, 21, 32):
        assert greedy_tokens(accepted, size, depth) == pytest.approx(best_tree(accepted, size, depth)[0], abs=1e-12)


def test_the_greedy_tree_is_worse_where_it_does_not():
    """A poor child hides a good one."""
    assert best_tree((.3, .05, .9), 4)[0] == pytest.approx(2.25)
    assert greedy_tokens((.3, .05, .9), 4, 4) == pytest.approx(1.44)


def test_where_there_is_no_room_the_tree_is_full():
    assert best_tree((.6,), 5, 3)[1] == [-1, 0, 1]
    assert best_tree((.6, .2), 50, 3)[1] == shape(2, 2)
    assert best_tree((.6, .2), 50, 1) == (1.0, [-1])
    assert best_tree((1.0, 0.0), 4) == (4.0, [-1, 0, 1, 2])                     # a chance of 1 and one of 0 are chances


def test_best_size():
    topology, rate = best_size([.6, .2], {2: .010, 4: .011}, .001, range(1, 6))
    assert topology == [-1, 0, 0, 1] and rate == pytest.approx(2.16 / .013)
    seconds = {1: .010, 2: .0101, 4: .0102, 8: .0104, 16: .0108, 32: .02}
    topology, rate = best_size((.7, .2), seconds, .002, range(1, 9))
    rates = {(size, depth): best_tree((.7, .2), size, depth)[0] / ((depth - 1) * .002 + cost)
             for size, cost in seconds.items() for depth in range(1, 9)}
    assert rate == max(rates.values()) and (len(topology), max(depths_of(topology))) == max(rates, key=rates.get)
    assert len(best_size((.7, .2), seconds, .02, range(1, 9))[0]) < len(topology)          # a dear draft: a small tree
    assert best_size([.5], {1: 2.0, 2: 3.0}, 0.0, [2]) == ([-1], .5)                    # of two as quick, the first


def test_the_best_chain_is_the_formula_of_a_chain():
    seconds = {nodes: 1 + .05 * (nodes - 1) for nodes in range(1, 10)}
    topology, rate = best_size([.8], seconds, .1, range(1, 10))
    assert topology == shape(*[1] * (len(topology) - 1))
    best = max(expected_tokens(.8, n - 1) / ((n - 1) * .1 + seconds[n]) for n in seconds)
    assert rate == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("rule", [verify_tree, verify_traversal])
@pytest.mark.parametrize("size, depth", [(4, None), (6, 3), (9, None)])
def test_expected_tokens_are_what_a_round_emits(size, depth, rule):
    """Draft tokens that are chosen, the same three after every node, before a target that always thinks the same: the
    expected tokens of the tree are those of the walk, exactly."""
    p_target = torch.tensor([.6, .2, .1, .1], dtype=torch.float64)
    expected, topology = best_tree(p_target[:3].tolist(), size, depth)
    tokens = [3] + [topology[:node].count(parent) for node, parent in enumerate(topology[1:], 1)]      # a child's rank
    q_draft = torch.eye(4, dtype=torch.float64)[tokens]
    q_draft[0] = 0
    draft = TreeDraft(torch.tensor([tokens]), q_draft[None], torch.tensor([topology]))
    depths = depths_of(topology)
    found, _ = walk(lambda dice: depths[int(rule(draft, p_target.expand(1, size, 4), dice)[0])])
    assert sum(tokens * weight for tokens, weight in found.items()) == pytest.approx(expected, abs=1e-12)


# Medusa's tree

# The first paths of Medusa's mc_sim_7b_63, in its authors' order. The parents below were counted by hand.
CHOICES = [[0], [0, 0], [1], [0, 1], [2], [0, 0, 0], [1, 0], [0, 2], [3]]


def test_trees_as_they_are_published():
    assert published(CHOICES) == [-1, 0, 0, 0, 0, 1, 1, 1, 2, 5]
    assert published([[1], [0, 0], [0]]) == published([-1, 0, 1, 0]) == published([-1, 0, 0, 1]) == [-1, 0, 0, 1]
    for topology in shape(2, 2, 1), shape(3), [-1, 0, 0, 1, 1, 2, 3]:
        assert published(topology) == topology
    for wrong in ([], [-1], [0, 0], [-1, 1], [-1, 0, -1], [-1, 0, 2], [[0], [2]], [[0, 0]], [[0], [0]], [[]], [[-1]],
                  [[0], 0], [["a"]], [[0.0]], [[True]], ["ab"], [None]):
        with pytest.raises(ValueError):
            published(wrong)
    assert published([-1] + [0] * 4095) == [-1] + [0] * 4095
    with pytest.raises(ValueError, match="no parent"):                 # as many levels as a tree has at most
        published([[0] * 4096])
    for many in [-1] + [0] * 4096, [[0] * 4097]:
        with pytest.raises(ValueError, match="at most 4096 nodes"):
            published(many)


@pytest.mark.parametrize("depth, words", [(0, "depth must be at least 1"), ("2", "depth must be a whole number")])
def test_a_tree_without_a_level_is_refused(depth, words):
    with pytest.raises(RequestError, match=words):
        best_tree([.6], 4, depth)


def test_trees_that_are_grown_as_eagle_2_says_it():
    assert grown_by({"size": 60, "width": 10, "depth": 6}) == {"count": 60, "width": 10, "depth": 6}
    assert grown_by({"size": 3, "width": 2, "depth": 1}) == {"count": 3, "width": 2, "depth": 1}
    for wrong in ({}, {"size": 60, "width": 10}, {"size": 60, "width": 10, "depth": 6, "more": 1},
                  {"size": 60, "width": 10, "depth": 0}, {"size": 6.0, "width": 1, "depth": 1},
                  {"size": True, "width": 1, "depth": 1}):
        with pytest.raises(ValueError, match="a size, a width and a depth"):
            grown_by(wrong)


def test_the_tree_that_is_grown_by_hand():
    assert grown_tree([[.6, .2], [.5, .1]], 4) == (pytest.approx(2.1), [-1, 0, 0, 1])
    assert grown_tree([[.5, .25, 0]], 9) == (1.75, [-1, 0, 0, 0])               # there is no more
    assert grown_tree([[.6, .2], [0.0, .1]], 9) == (1.8, [-1, 0, 0, 1, 2])      # none after one that is never right
    assert grown_tree([[.9], [.8], [.1]], 3) == (pytest.approx(1 + .9 + .72), [-1, 0, 1])


@pytest.mark.parametrize("accepted", FALLING)
@pytest.mark.parametrize("size", range(2, 9))
def test_where_all_depths_are_alike_it_is_as_good_as_the_best(accepted, size):
    expected, topology = grown_tree([accepted] * 5, size)
    assert expected == pytest.approx(expected_of(topology, accepted))
    assert expected == pytest.approx(best_tree(accepted, size, 6)[0])
