"""Exercises 17 and 18: other right solutions pass, ties too, and what a tree is worth."""

import pytest

from lessons.check import EXERCISES
from lessons.check.engine import Functions
from lessons.check.ex17_medusas_tree import CASES, HEADS, SIZE, best_of_all, has_its_parents, tokens_of
from lessons.check.ex18_one_ahead import play
from lessons.check.layers import TARGET, Layer
from lessons.check.seen import Row
from nanospec.methods.trees.shapes import grown_tree

HEAD17 = "def grow(accuracies, size):\n"

SORTED = '''
from itertools import product


def worth(path, accuracies):
    return accuracies[len(path) - 1][path[-1]] * worth(path[:-1], accuracies) if path else 1.0


def grow(accuracies, size):
    """All nodes there are, the most valuable first: no node is before its parent."""
    every = [path for depth in range(len(accuracies) + 1)
             for path in product(*(range(len(head)) for head in accuracies[:depth]))]
    return sorted(every, key=lambda path: (-worth(path, accuracies), path))[:size]
'''
BACKWARDS = SORTED.replace("worth(path, accuracies), path)", "worth(path, accuracies), len(path), [-i for i in path])")
AS_A_SET = SORTED.replace("    return sorted", "    return set(sorted").replace("[:size]\n", "[:size])\n")
BY_INDEX = '''
import torch


def propose(layer, tokens, hidden, gamma):
    drafted, hidden, tokens = [], list(hidden), list(tokens)
    while len(drafted) < gamma:
        pairs = []
        for i in range(1, len(tokens)):
            pairs.append([torch.tensor(hidden[i - 1]), tokens[i]])
        predicted, token = layer(pairs)
        hidden.append(predicted)
        tokens.append(token)
        drafted.append(token)
    return drafted


def keep(hidden, predicted, verified, accepted):
    new_length = len(hidden) + 1 + accepted + 1
    return [*hidden, *verified][:new_length - 1]
'''


@pytest.mark.parametrize("number, source", [(17, SORTED), (17, BACKWARDS), (17, AS_A_SET), (18, BY_INDEX)])
def test_other_right_solutions_pass(told, number, source):
    """Where nodes are worth the same, two of them take different ones."""
    assert told(number, source).failure is None


def test_solutions_of_17_differ_where_nodes_are_worth_the_same():
    exec(SORTED, one := {})
    exec(BACKWARDS, other := {})
    case = CASES["two nodes worth the same"]
    assert set(one["grow"](*case)) != set(other["grow"](*case))


@pytest.mark.parametrize("name", CASES)
def test_the_best_of_all_trees_is_the_librarys(name):
    accuracies, size = CASES[name]
    if size > 1:
        assert best_of_all(name) == pytest.approx(grown_tree(accuracies, size)[0], abs=1e-12)


def test_tokens_of_a_tree_are_counted_as_the_library_does():
    """Also of nodes that lack a parent: they bring nothing."""
    exec(EXERCISES[17].answer, found := {})
    assert tokens_of(HEADS, found["grow"](HEADS, SIZE)) == pytest.approx(grown_tree(HEADS, SIZE)[0], abs=1e-12)
    assert tokens_of([[.6, .2], [.5, .1]], [(), (0,), (0, 0), (1, 0)]) == pytest.approx(1 + .6 + .6 * .5)
    assert not has_its_parents((1, 0), [(), (1, 0)]) and has_its_parents((1, 0), [(), (1,)])


def test_a_tree_that_is_best_when_small_only_does_not_pass(told):
    found = told(17, EXERCISES[17].answer + "\n\nright = grow\n\n\n" + HEAD17 +
                 "    return right(accuracies, size) if size < 9 else right(accuracies, size - 1)\n")
    part, said = found.failure
    assert part == "larger trees" and "nodes" in said and "size 12" in said


def test_wrong_pairs_cost_speed_and_the_learner_is_told_that_it_is_no_more(told):
    """Also those that nobody knows by name."""
    for pairs, name in ("zip(hidden, tokens)", "own-hidden"), ("zip(hidden[::-1], tokens[1:])", ""):
        said = told(18, EXERCISES[18].answer.replace("zip(hidden, tokens[1:])", pairs))
        assert said.named == [name] * bool(name) and "speed, not truth" in said.failure[1]


def test_the_layer_of_the_checks_can_be_off_and_be_right():
    """With real dice: the answer's draft tokens are accepted in the second round, every time."""
    exec(EXERCISES[18].answer, found := {})
    right, wrong = Functions(**found), EXERCISES[18].with_mistake(EXERCISES[18].wrongs[0])
    assert {play(right, Row(seed=seed))[1] for seed in range(30)} == {2}
    assert {play(wrong, Row(seed=seed))[1] for seed in range(30)} == {0, 1, 2}


def test_every_pair_that_is_wrong_missing_or_too_many_puts_the_layer_off():
    def predicted(change, off=0):
        layer = Layer((0, 1, 0), off, Row())
        return layer(change(list(layer.right)))[0]

    right = predicted(list)
    for change, off, count in ((lambda pairs: pairs[:-1], 0, 1), (lambda pairs: pairs[:-2] + [(-1, 0)] * 3, 0, 3),
                               (list, 2, 2), (lambda pairs: [], 1, 3)):
        assert (predicted(change, off) - right) % TARGET.CONTEXTS == count
