"""Traversal verification, walked draft by draft: exact on trees larger than the contract's, block verification on a
chain, and never fewer tokens than the node rule gives."""

from collections import defaultdict
from itertools import product

import pytest
import torch

from nanospec.draft import Draft
from nanospec.methods.rules.block import verify_block
from nanospec.methods.rules.traversal import verify_traversal
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.shapes import shape
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, walk

WAYS = INDEPENDENT, WITHOUT, CHOSEN = "independent", "without replacement", "chosen"


class Table:
    """A TableModel and its settings; what it says after a text is looked up once."""

    def __init__(self, seed, vocab_size=3, zeros=0.25, **settings):
        self.model, self.settings, self.seen, self.V = TableModel(vocab_size, seed, zeros), settings, {}, vocab_size

    def __call__(self, ids):
        if ids not in self.seen:
            self.seen[ids] = probs(self.model(torch.tensor([[1, 0, *ids]]))[0, -1], **self.settings)
        return self.seen[ids]


def judged(topology, target, draft_model, way, rule=verify_traversal):
    """The distribution of (the path's tokens and the one after it, which node was accepted), draws and all."""
    def play(dice):
        paths, nodes, left, parents = [()], [torch.zeros(draft_model.V, dtype=torch.float64)], {}, list(topology)
        for node, parent in enumerate(topology[1:], 1):
            q_draft = left.get(parent, draft_model(paths[parent])) if paths[parent] is not None else nodes[0]
            if not q_draft.sum() > 0:                           # nothing to draw: the node is lacking
                paths, nodes, parents[node] = [*paths, None], [*nodes, nodes[0]], -1
                continue
            token = int(q_draft.argmax()) if way == CHOSEN else int(dice.pick(q_draft[None]))
            taken = q_draft.index_fill(0, torch.tensor(token), 0.0)
            nodes.append((q_draft - taken) / q_draft[token] if way == CHOSEN else q_draft / q_draft.sum())
            paths.append((*paths[parent], token))
            left[parent] = q_draft if way == INDEPENDENT else taken
        tokens = torch.tensor([[path[-1] if path else 0 for path in paths]])
        q_draft = torch.stack(nodes)[None]
        chain = topology == list(range(-1, len(topology) - 1))
        drafted = Draft(tokens, q_draft) if chain else TreeDraft(tokens, q_draft, torch.tensor([parents]))
        accepted, token = rule(drafted, torch.stack([target(path or ()) for path in paths])[None], dice)
        return (*paths[int(accepted)], int(token)), int(accepted)
    return walk(play)[0]


def error(found, target, length):
    """How far the probability of any text is from the target's, where the target goes on to `length` tokens."""
    of = {(): 1.0}
    for n in range(length):
        of |= {(*ids, x): of[ids] * p for ids in product(range(target.V), repeat=n)
               for x, p in enumerate(target(ids).tolist())}
    written = defaultdict(float)
    for (tokens, _), weight in found.items():
        written[tokens] += weight
    return max(abs(of[ids] - sum(written[ids[:n]] * (of[ids] / of[ids[:n]] if of[ids] else 0)
                                 for n in range(1, length + 1))) for ids in product(range(target.V), repeat=length))


def mean(found):
    return sum(len(tokens) * weight for (tokens, _), weight in found.items())


SETTINGS = [({"zeros": 0.0}, {"zeros": 0.3}), ({"zeros": 0.5}, {"zeros": 0.3}), ({"temperature": 0}, {}),
            ({}, {"temperature": 0}), ({"temperature": 0.7, "top_k": 2}, {"temperature": 1.3})]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("topology", [shape(3), shape(2, 1), shape(1, 2), [-1, 0, 0, 1, 3, 1]], ids=str)
def test_a_round_is_exact(topology, way):
    for seed, (of_target, of_draft) in enumerate(SETTINGS[:2 if way == INDEPENDENT and len(topology) > 5 else None]):
        target, draft_model = Table(seed, **of_target), Table(seed + 100, **of_draft)
        assert error(judged(topology, target, draft_model, way), target, 4 if topology[-2] == 3 else 3) < 1e-12


TABLES = [(Table(seed, zeros=seed % 3 * 0.2), Table(seed + 100, zeros=seed % 2 * 0.3)) for seed in range(12)]


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_on_a_chain_it_is_block_verification(gamma):
    """Not the text's distribution alone: each prefix is accepted, and each token follows, as often."""
    for tables in TABLES[:8 if gamma < 3 else 3]:
        found = [judged(shape(*[1] * gamma), *tables, INDEPENDENT, rule) for rule in (verify_traversal, verify_block)]
        assert distance(*found)[0] < 1e-12


@pytest.mark.parametrize("way", [INDEPENDENT, WITHOUT])
@pytest.mark.parametrize("branches", [(2,), (1, 1), (2, 1)], ids=str)
def test_never_fewer_tokens_than_by_the_node_rule(branches, way):
    more = [mean(judged(shape(*branches), *tables, way)) - mean(judged(shape(*branches), *tables, way, verify_tree))
            for tables in TABLES[:3]]
    assert min(more) > -1e-12
    if len(branches) == 1:
        assert max(more) < 1e-12                        # nothing follows a draft token that could save it
    else:
        assert min(more) > 0.02


@pytest.mark.parametrize("branches", [(3,), (2, 2), (2, 1, 1)], ids=str)
def test_chosen_draft_tokens_are_judged_as_by_the_node_rule(branches):
    for tables in TABLES:
        found = [judged(shape(*branches), *tables, CHOSEN, rule) for rule in (verify_traversal, verify_tree)]
        assert distance(*found)[0] < 1e-12


def test_equal_up_to_rounding():
    """The last token can be rejected, and nothing is left: its parent still is accepted, and p_target replaces."""
    p_target = torch.tensor([[.3, 0, .7, 0], [.3, 0, .7, 0], [0, 0, 0, 1]])
    q_draft = torch.stack([p_target[0] * 0, p_target[0], torch.nextafter(p_target[1], torch.ones(1))])
    draft = Draft(torch.tensor([[0, 2, 0]]), q_draft[None])
    found = walk(lambda dice: tuple(map(int, verify_traversal(draft, p_target[None], dice))))[0]
    assert found.keys() == {(2, 3), (1, 0), (1, 2)}


def test_the_example_and_the_toy_of_the_paper_on_block_verification():
    """11/9 of two draft tokens are accepted, by the node rule 10/9. Where all that can come was drawn, one is."""
    half, q_draft = torch.full((1, 3, 2), .5, dtype=torch.float64), torch.tensor([.8, .2], dtype=torch.float64)
    draft = Draft(torch.tensor([[0, 0, 0]]), torch.stack([q_draft * 0, q_draft, q_draft])[None])
    both, first = .625 ** 2, (1 - .625 ** 2) * .1125 / (.1125 + .375)
    assert walk(lambda dice: tuple(map(int, verify_traversal(draft, half, dice))))[0] == pytest.approx(
        {(2, 0): both / 2, (2, 1): both / 2, (1, 1): first, (0, 1): 1 - both - first}, abs=1e-12)
    target, other = Table(1, 2), Table(2, 2)
    for table, row in (target, [1, 2]), (other, [2, 1]):
        table.seen = {ids: torch.tensor(row).double() / 3 for n in range(3) for ids in product((0, 1), repeat=n)}
    tokens = [mean(judged(shape(1, 1), target, other, INDEPENDENT, rule)) for rule in (verify_traversal, verify_tree)]
    assert tokens == pytest.approx([1 + 11 / 9, 1 + 10 / 9], abs=1e-12)
    assert mean(judged(shape(3), Table(3, zeros=0), Table(4, zeros=0), WITHOUT)) == pytest.approx(2, abs=1e-12)
