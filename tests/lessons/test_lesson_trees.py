"""Several futures: its distributions walked again, its mask, and a table of trees that adds up. And what exercise 13
expects, by another road.
"""

import math
import re

import pytest
import torch
from oracles import sequential_acceptance
from shorter import shorter

from lessons.check.ex13_node_rule import FORBIDS, FOUR, SURE, drawn_from, stands, without_replacement
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution
from nanospec.speculate import speculate
from nanospec.theory import expected_tokens, speedup
from tests.proof.compare import walk_by_prefix

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


def greedy_tokens(accepted, nodes):
    """The likeliest nodes first, each after its parent and its elder sibling: a good tree, and the best where
    `accepted` falls.
    """
    chances, tokens = [(1.0, 0.0, 0)], 0.0              # of a node, of its parent, and which child it is
    for _ in range(nodes):
        best = max(chances)
        chances.remove(best)
        chance, parent, child = best
        chances += [(chance * accepted[0], chance, 0)]
        chances += [(parent * accepted[child + 1], parent, child + 1)] if child + 1 < len(accepted) else []
        tokens += chance
    return tokens


@shorter(("held_out_prompts(pair, 20)", "held_out_prompts(pair, 10)"),
         ("sizes = [2, 4, 6, 8, 16, 32]", "sizes = [2, 4, 6, 8, 16, 24]"))
def test_several_futures(lesson, exchanged):
    names, out = lesson("several_futures", *exchanged)
    the_rules_of_one_place(names, out)
    the_rule_for_trees_is_exact(names)
    the_mask_is_the_librarys(names, out)
    the_table_of_trees_adds_up(names, out, 100 if exchanged else 200)


def the_rules_of_one_place(names, out):
    p_target, q_draft, walked = names["p_target"], names["q_draft"], names["walked"]
    lines = {name.strip(): (float(one), float(off)) for name, one, off in re.findall(
        r"^(\S.*?)  +(0\.\d{3}) +(0\.\d{3}) *$", out, re.MULTILINE)}
    assert lines.keys() == walked.keys() and len(lines) == 5
    right = {"one child": (1, True), "two, independent": (2, True), "two, without replacement": (2, False)}
    for name, (count, independent) in right.items():
        assert lines[name] == (round(sequential_acceptance(p_target, q_draft, count, independent), 3), 0)
    chances = [lines[name][0] for name in right]
    assert chances == sorted(set(chances)) and chances[:2] == [.5, .7]
    for name in lines.keys() - right:                                   # they seem to be better, and are not lossless
        assert lines[name][0] > max(chances) and lines[name][1] > 0.03
    for name, found in walked.items():                                  # and the lines say what was walked
        one = sum(weight for (child, _), weight in found.items() if child is not None)
        tokens = torch.tensor([sum(weight for (_, token), weight in found.items() if token == y) for y in range(4)])
        assert lines[name] == (round(one, 3), round((tokens - p_target).abs().sum().item() / 2, 3))


def the_rule_for_trees_is_exact(names):
    """By hand, round by round, in requests of as many tokens as a round can bring."""
    def by_hand(tree, p_target, dice):
        node, token = names["verify_by_hand"](tree, p_target[0], names["OneRow"](dice))
        return torch.tensor([node]), torch.tensor([token])
    for vocab, topology, independent, new in (3, [-1, 0, 0], False, 2), (2, [-1, 0, 0, 1], True, 3):
        big, small = TableModel(vocab, 5, zeros=0), TableModel(vocab, 6, zeros=0)
        def one_round(prefix, new, dice):
            return tuple(next(speculate(big, TreeDrafter(small, topology, independent), [1, 0, *prefix], new,
                                        temperature=0.7, dice=dice, rule=by_hand)).emitted)
        found, _ = walk_by_prefix(one_round, new)
        assert distance(found, target_distribution(big, [1, 0], new, temperature=0.7))[1] < 1e-12


def the_mask_is_the_librarys(names, out):
    """With any other, or with node numbers for depths, the distributions are not those of the paths."""
    right, root, tokens, first = names["mask"], names["root"], names["tokens"], names["first"]
    assert first.path[0] == 2                               # the picture's round: node 1 rejected, its sibling accepted
    ancestors = TreeDraft(tokens[:, root:], first.q_draft[None], torch.tensor([first.parents])).ancestors[0]
    assert torch.equal(right[root:, root:], ancestors) and right[:, :root].tril().equal(right[:, :root])
    assert (names["positions"][root:] - root).tolist() == [0, 1, 1, 2, 2, 2, 3]
    chain, slots = torch.ones_like(right).tril(), torch.arange(len(right))
    for mask, positions, wrong in (right, names["positions"], []), (chain, names["positions"], [2, 3, 4, 5, 6]), \
            (right, slots, [2, 3, 4, 5, 6]):
        found = probs(names["exact"](tokens, names["exact"].new_cache(1, len(right)), len(right), positions[None],
                                    mask[None])[0, root:])
        off = (found - names["alone"]).abs().sum(1) / 2
        assert [node for node in range(7) if off[node] > 1e-12] == wrong and all(off[node] > 1e-6 for node in wrong)
    words = names["words"]
    assert re.findall(r"^  node \d, parent +-?\d: (.+)$", out, re.MULTILINE) == words
    assert words[3].startswith(words[1][:-1]) and len(set(words)) == 7


def the_table_of_trees_adds_up(names, out, fewest):
    """What was counted, and what follows from it; of what was measured, only that one thing fits the other."""
    accepted, sizes, c, columns = (names[name] for name in ("accepted", "sizes", "c", "columns"))
    stood = [done.path[0] if done.path else 0 for done in names["rounds"]]
    assert accepted == [stood.count(child) / len(stood) for child in (1, 2, 3, 4)] and len(stood) > fewest
    assert 0.5 < accepted[0] < 0.8 and 0.03 < accepted[1] < 0.2 and sum(accepted) < 1
    v = columns["v(m)"]
    assert math.isfinite(c) and c > 0 and v == sorted(v) and v[0] >= 1
    for i, m in enumerate(sizes):
        chain, best = columns["chain"][i], columns["best tree"][i]
        assert chain == pytest.approx(expected_tokens(accepted[0], m - 1))
        assert best >= max(chain, greedy_tokens(accepted, m)) - 1e-12
        for where, price in ("here", v[i]), ("free", 1):
            assert columns[f"chain, {where}"][i] == pytest.approx(speedup(accepted[0], m - 1, c, price))
            assert columns[f"tree, {where}"][i] >= columns[f"chain, {where}"][i] - 1e-12
        cells = [str(m), *(f"{column[i]:.2f}" for column in columns.values())]
        assert cells in [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    free = columns["tree, free"]
    assert free == sorted(free) and columns["chain, free"][-1] < columns["chain, free"][3]
    assert columns["best tree"][-1] > columns["chain"][-1]
    assert columns["best tree"][:2] == pytest.approx(columns["chain"][:2])  # few nodes: it is the chain
    for where in "here", "free":
        fastest = [max(columns[f"{kind}, {where}"]) for kind in ("chain", "tree")]
        assert f"{where}: the fastest chain {fastest[0]:.2f}, the fastest tree {fastest[1]:.2f} times" in out


@pytest.mark.parametrize("p_target, q_draft", [FOUR, FORBIDS, SURE])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_exercise_13_expects_what_the_rule_of_trees_accepts(p_target, q_draft, count):
    for again, distributions in (True, drawn_from(*[q_draft] * count)), (False, without_replacement(q_draft, count)):
        found = stands(p_target, distributions)
        assert sum(found.values()) == pytest.approx(1, abs=1e-12)
        accepted = sequential_acceptance(p_target, q_draft, count, again)
        assert 1 - found.get(None, 0) == pytest.approx(accepted, abs=1e-12)
        assert found[0] == pytest.approx(p_target.minimum(q_draft).sum().item(), abs=1e-12)
