"""The node rule: a tree is verified node by node, each token against what its elder siblings left.

Three rules of the papers are this one rule. The difference is in the q_draft that the drafter
reports.
    children drawn independently    SpecInfer, Miao et al. 2023 (arXiv 2305.09781, Algorithm 2)
    children without replacement    Sequoia, Chen et al. 2024 (arXiv 2402.12374, Algorithm 2)
    a single child                  `verify` of speculate.py

Claim: after an accepted node, the next token of the text is distributed as p_target.
Proof.
1. Accept or replace turns a draw from any q_draft into a draw from any p_target.
2. "Replace" means: draw from the residual distribution. We may draw from it by accept or replace as
   well.
3. So try the next child in the same way, against the residual distribution. And so on, child after
   child.
4. When no child is left to try, draw from what is left.
"""

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.errors import check_scored
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.probs import residual


def verify_tree(draft: Draft, p_target: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
    """Walk every text's tree from its root: accept a child and go on from it, or reject it and try
    its next sibling.

    draft: n nodes. p_target (B, n, V): the target's distribution after every node.
    -> accepted (B,), the last node accepted, 0 for none; token (B,), which follows it.

    Children stand after their parent, in the order in which they were drawn. So one scan over the
    nodes meets every child at its turn. left (B, V): what the next child is tried against. At first
    it is p_target after the last accepted node. Each rejected child turns it into the residual
    distribution of `left` and the child's q_draft.
    Example: two children 0 and 1 of the root, drawn independently from q_draft [.5, .5], and
    p_target [.2, .8]. The 0 is accepted with probability .4. If it is rejected, [0, 1] is left, and
    the 1 is accepted for certain.
    """
    check_scored(draft, p_target, Draft, TreeDraft)
    B, n, _ = p_target.shape
    accepted, left = torch.zeros(B, 1, dtype=torch.int64, device=p_target.device), p_target[:, 0]
    tokens = draft.tokens[:, :, None]
    # Each node's token and q_draft of it, (B, 1), and its distributions, (B, V). One cut for all
    # nodes is faster than one for each.
    x, q_of_x = tokens.unbind(1), draft.q_draft.gather(-1, tokens).unbind(1)
    q, p = draft.q_draft.unbind(1), p_target.unbind(1)
    parents = draft.parents[:, :, None].unbind(1)
    for i in range(1, n):
        tried = accepted == parents[i]
        ratio = left.gather(-1, x[i]) / q_of_x[i]
        coin = dice.flip(torch.where(tried, ratio, 0.0))
        rejected = torch.where(tried, residual(left, q[i]), left)
        left = torch.where(coin, p[i], rejected)
        accepted = torch.where(coin, i, accepted)
    return accepted[:, 0], dice.pick(left)
