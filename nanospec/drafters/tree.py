"""A draft model that drafts a tree: several tokens behind each of several tokens, a whole level in one pass.

Children drawn independently, as in SpecInfer (Miao et al. 2023, arXiv 2305.09781), or without replacement, as in
Sequoia (Chen et al. 2024, arXiv 2402.12374, section 4.2): no token is tried twice behind the same text.
Left out: joining the subtrees of siblings that drew the same token, as merged.py does.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, check_size
from nanospec.errors import RequestError
from nanospec.model import GPT
from nanospec.probs import Sampling
from nanospec.speculate import ModelDrafter
from nanospec.text import Text


class Level(NamedTuple):
    """The rows of one depth that have children: all that the draft model reads there, and who is drawn behind them."""

    rows: Tensor                            # (m,), rows of the tree
    sees: Tensor                            # (m, k) bool: of the k rows read so far, itself and its ancestors
    draws: list[tuple[Tensor, Tensor]]      # the eldest children first: (their rows, whose children: places in `rows`)


class TreeDrafter(ModelDrafter):
    """Drafts a tree of one shape, for B texts at once.

    topology: parents of the rows, -1 for the root, which stands first; level by level, siblings in drawing order.
    independent: draw siblings each from the same distribution; else without replacement, each from what the elder ones
    left. Where they left nothing, a text lacks the row and all rows behind it.
    Example: topology [-1, 0, 0, 1] drafts two tokens, and one more behind the first of them.
    """

    def __init__(self, draft: GPT, topology: Sequence[int], independent: bool = False):
        topology = list(topology)
        if topology[:1] != [-1] or any(not 0 <= parent < row for row, parent in enumerate(topology[1:], 1)):
            raise RequestError(f"a topology has -1 for its root and an earlier row for every other, got {topology}")
        self.draft, self.topology, self.independent = draft, topology, independent
        self.size = check_size(len(topology), "the rows of a topology but its root")
        self.ancestors = [[0]]                                              # of every row, from the root down to itself
        for row, parent in enumerate(topology[1:], 1):
            self.ancestors.append([*self.ancestors[parent], row])
        depths = [len(path) - 1 for path in self.ancestors]
        if depths != sorted(depths):
            raise RequestError(f"a topology stands level by level, got {topology}")
        self.unread = depths[-1] + 1        # what was accepted lies scattered in the draft's cache: it is read again

    def begin(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        """Read the prompts, and lay out the levels on the text's device."""
        super().begin(text, rows, features)
        device = text.tokens.device
        self.parents = torch.tensor(self.topology, device=device).repeat(len(text.tokens), 1)           # (B, n)
        self.levels, read = [], []
        for depth in range(self.unread - 1):
            children: dict[int, list[int]] = {}                             # of every row at this depth that has some
            for row, path in enumerate(self.ancestors):
                if len(path) == depth + 2:
                    children.setdefault(self.topology[row], []).append(row)
            read += children if depth else []                               # the root is read with the text
            sees = [[other in self.ancestors[row] for other in read] for row in children]
            draws = [zip(*((family[rank], i) for i, family in enumerate(children.values()) if len(family) > rank))
                     for rank in range(max(map(len, children.values())))]
            self.levels.append(Level(torch.tensor([*children], device=device), torch.tensor(sees, device=device),
                                     [tuple(torch.tensor(one, device=device) for one in draw) for draw in draws]))

    def propose(self, text: Text, sampling: Sampling, dice: Dice, upto: int) -> Draft:
        """Draft tokens behind the committed text, and the distribution that each was drawn from."""
        tokens, parents = text.last(1).repeat(1, self.size), self.parents.clone()                       # (B, n)
        feed, self.cache.length = text.last(self.unread), text.length - self.unread
        q_draft = left = torch.empty(0)
        for depth, level in enumerate(self.levels):
            if depth == 0:
                left = sampling(self.draft(feed, self.cache, upto)[:, -1:])                             # (B, 1, V)
                q_draft = left.new_zeros(*tokens.shape, left.shape[-1])
            else:
                m, k = level.sees.shape
                self.cache.length = text.length + (k - m)                   # behind the rows that were read before
                sees = self.cache.sees_tree(text.length, level.sees.expand(len(tokens), m, k), upto)
                positions = (text.length[:, None] + (depth - 1)).expand(-1, m)
                left = sampling(self.draft(tokens[:, level.rows], self.cache, upto, positions, sees))   # (B, m, V)
            for rows, whose in level.draws:
                tokens[:, rows], q_draft[:, rows], lacking = self._draw(left, whose, level.rows, parents, dice)
                parents[:, rows] = parents[:, rows].masked_fill(lacking, -1)
        return Draft(tokens, q_draft, parents, len(self.levels))

    def _draw(self, left: Tensor, whose: Tensor, level: Tensor, parents: Tensor,
              dice: Dice) -> tuple[Tensor, Tensor, Tensor]:
        """A child for some rows of a level: tokens (B, m), what each was drawn from (B, m, V), and which cannot be.

        left (B, rows of the level, V), what is left to draw from, is lessened here.
        """
        q = left[:, whose]
        total = q.sum(-1, keepdim=True)
        behind = level[whose]                                               # the parents' rows; the root is never -1
        lacking = (total[:, :, 0] == 0) | (parents[:, behind] < 0) & (behind > 0)
        q = torch.where(lacking[:, :, None], 0.0, q / total)
        sure = F.one_hot(torch.zeros_like(lacking, dtype=torch.int64), q.shape[-1])     # something has to be drawn
        token = dice.pick(torch.where(lacking[:, :, None], sure, q))
        if not self.independent:
            left[:, whose] = q.scatter(2, token[:, :, None], 0.0)
        return token, q, lacking
