"""Its tree by another road, and what its tables say."""

import pytest
from shorter import shorter

from nanospec.methods.trees.dynamic_tree import DynamicTree
from nanospec.proof.tables import TableModel, small_learned
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@pytest.mark.usefixtures("packed")
@shorter(("held_out_prompts(pair, 4)", "held_out_prompts(pair, 4)[:2]"), ("ids, 40, temp", "ids, 28, temp"))
def test_a_tree_where_it_is_sure(lesson, exchanged):
    names, out = lesson("a_tree_where_it_is_sure", *exchanged)

    # no node without its parent, eight nodes, none left out that is more confident
    chosen, made = names["chosen"], names["made"]
    assert len(made) == 18 and len(chosen) == 8 and all(path[:-1] in chosen or len(path) == 1 for path in chosen)
    sure = dict((path, share) for share, path in made)
    assert min(sure[path] for path in chosen) >= max(sure[path] for path in sure if path not in chosen)
    assert names["off"] < 1e-12 and out.count("  * ") == 9

    # as large as it pays, by hand: 1, 1.5 / 1.2, 1.9 / 1.4 and 2.1 / 1.6; and with calls that are full nothing pays
    pays = names["size_that_pays"]
    assert pays([.5, .4, .2], lambda w: 1 + .2 * w) == pytest.approx((2, 1.9 / 1.4, 2.1 / 1.6))
    assert pays([.9, .8], lambda w: 1 + w) == pytest.approx((0, 1, .9)) and names["sized_off"] < 1e-12

    # another length at another place
    assert len(set(names["longest"])) > 2 and max(names["longest"]) == 5
    chain, tree = names["calls"].values()
    assert f"{tree[0]:.2f}" in out and f"{chain[1]:.2f}" in out


def test_a_tree_by_confidence_is_exact_where_probabilities_are_nought():
    target = TableModel(2, seed=6, zeros=0.5)
    for temperature in 0.7, 1.0:
        drafter = DynamicTree(small_learned("eagle", target), 4, 2)
        found, _ = walk(lambda dice: tuple(
            tokens_of(speculate(target, drafter, [0, 1], 4, temperature, dice=dice))))
        assert distance(found, target_distribution(target, [0, 1], 4, temperature=temperature))[1] < 1e-12
