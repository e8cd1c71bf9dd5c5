"""Numbers of others: what the tests of vLLM, SGLang and transformers expect of a sampler, and EAGLE's published tree.

They are all greedy: what the target and the draft model say is certain, so nothing is left to chance. Leviathan's
Table 1 is in test_theory.py, Medusa's tree and Sequoia's in test_topology.py, the example on block verification and
traversal in test_rules_block.py and test_rules_traversal.py, SpecTr's optimum in test_rules_kseq.py.
"""

import pytest
import torch
import torch.nn.functional as F

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.methods.index import RULES
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.shapes import published
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.speculate import verify

V = 20
ON_CHAINS = [rule or verify for rule in RULES.values()] + [verify_tree]
ON_TREES = [RULES["traversal"], verify_tree]


def rows(tokens: list[int]) -> torch.Tensor:
    return F.one_hot(torch.tensor(tokens), V).double()


def judged(rule, draft, p_target) -> tuple[list[list[int]], list[int]]:
    """The accepted nodes of each text, and the token that follows."""
    dice = Dice(range(len(draft.tokens)))
    dice.refill(3 * draft.tokens.shape[1])
    accepted, token = rule(draft, p_target, dice)
    path, count = draft.path(accepted)
    return [its[1:n + 1] for its, n in zip(path.tolist(), count.tolist())], token.tolist()


# Drafts, what the target says after each node, and what is written, with vLLM's names of its tests.
VLLM = {"perfect match": ([[1, 2, 3]], [[1, 2, 3, 4]], [[1, 2, 3, 4]]),
        "early mismatch": ([[1, 2, 3]], [[1, 5, 3, 4]], [[1, 5]]),
        "multiple sequences": ([[1, 2], [3]], [[1, 2, 5], [3, 4]], [[1, 2, 5], [3, 4]]),
        "single token": ([[1]], [[1, 2]], [[1, 2]]), "empty sequence": ([[]], [[5]], [[5]]),
        "multiple mismatches": ([[1, 2, 3], [4, 5, 6]], [[1, 2, 7, 6], [4, 8, 6, 9]], [[1, 2, 7], [4, 8]]),
        "first mismatch": ([[1]], [[2, 3]], [[2]]),
        "mixed matches": ([[1, 2], [3, 4]], [[1, 5, 6], [3, 4, 7]], [[1, 5], [3, 4, 7]])}
# transformers' test of `_speculative_sampling`: 1 and 4 are accepted, 5 is rejected, and 8 replaces it.
TRANSFORMERS = {"speculative sampling": ([[1, 4, 5]], [[1, 4, 8, 8]], [[1, 4, 8]])}


@pytest.mark.parametrize("rule", ON_CHAINS, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("name", [*VLLM, *TRANSFORMERS])
def test_chains_of_vllm_and_transformers(name, rule):
    drafted, said, expected = (VLLM | TRANSFORMERS)[name]
    n = 1 + max(map(len, drafted))
    q_draft, p_target = torch.zeros(len(drafted), n, V).double(), torch.full((len(drafted), n, V), 1 / V).double()
    tokens = torch.zeros(len(drafted), n, dtype=torch.int64)
    for b, (its, after) in enumerate(zip(drafted, said)):
        tokens[b, 1:len(its) + 1] = torch.tensor(its)
        q_draft[b, 1:len(its) + 1] = rows(its) if its else 0
        p_target[b, :len(after)] = rows(after)
    accepted, token = judged(rule, Draft(tokens, q_draft), p_target)
    assert [[tokens[b, node].item() for node in path] + [token[b]] for b, path in enumerate(accepted)] == expected


@pytest.mark.parametrize("rule", ON_TREES, ids=lambda rule: rule.__name__)
def test_trees_of_sglang(rule):
    """Its test of `verify_tree_greedy`, with its children and siblings as parents. Where it leaves open what the target
    says, it is 18. Rows 3, 4 and 5 of the first tree are accepted, 4 and 5 of the second; 18 follows both.
    """
    tokens = torch.tensor([[0, 1, 2, 3, 4, 5], [7, 8, 9, 10, 11, 12]])
    parents = torch.tensor([[-1, 0, 1, 0, 3, 4], [-1, 0, 1, 2, 0, 4]])
    q_draft = F.one_hot(tokens, V).double()
    q_draft[:, 0] = 0
    p_target = torch.stack([rows([3, 18, 18, 4, 5, 18]), rows([11, 18, 18, 18, 12, 18])])
    assert judged(rule, TreeDraft(tokens, q_draft, parents), p_target) == ([[3, 4, 5], [4, 5]], [18, 18])


# EAGLE's own static tree (choices.py, mc_sim_7b_63).
EAGLE = [[0], [1], [2], [3], [0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0], [2, 1], [3, 0], [0, 0, 0], [0, 0, 1],
         [0, 0, 2], [0, 1, 0], [0, 1, 1], [0, 2, 0], [0, 2, 1], [1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 2],
         [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]


def test_eagles_tree():
    """Rows of each depth as EAGLE lays them out, and what each attends to: its path's beginnings."""
    topology = published(EAGLE)
    paths: list[tuple[int, ...]] = [()]
    for node, parent in enumerate(topology[1:], 1):
        paths.append((*paths[parent], topology[1:node].count(parent)))
    assert sorted(paths[1:]) == sorted(map(tuple, EAGLE))
    assert [sum(len(path) == depth for path in paths) for depth in range(6)] == [1, 4, 8, 8, 3, 2]
    parents = torch.tensor([topology])
    seen = TreeDraft(torch.zeros_like(parents), torch.ones(1, 26, 2), parents).ancestors[0]
    for node, path in enumerate(paths):
        found = {paths[other] for other in seen[node].nonzero()[:, 0].tolist()}
        assert found == {path[:n] for n in range(len(path) + 1)}
