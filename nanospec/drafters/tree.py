"""A draft model that drafts a tree: several tokens behind each of several tokens, a whole level in one pass.

Children drawn independently, as in SpecInfer (Miao et al. 2023, arXiv 2305.09781), or without replacement, as in
Sequoia (Chen et al. 2024, arXiv 2402.12374, section 4.2): no token is tried twice behind the same text.
Left out: joining the subtrees of siblings that drew the same token, as merged.py does.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, check_size
from nanospec.draft_models import DraftModel
from nanospec.draft_models.gpt import reader_of
from nanospec.draft_models.reader import check_depth
from nanospec.errors import RequestError
from nanospec.probs import Sampling
from nanospec.speculate import ModelDrafter
from nanospec.text import Text


class Level(NamedTuple):
    """The rows of one depth that have children: all that the draft model reads there, and who is drawn behind them."""

    rows: Tensor            # (m,), rows of the tree
    parents: Tensor         # (m,), their parents' places among the rows of the level above
    draws: list[Tensor]     # for the eldest children, then for the next, and so on: whose they are, places in `rows`


class TreeDrafter(ModelDrafter):
    """Drafts a tree of one shape, for B texts at once.

    topology: parents of the rows, -1 for the root, which stands first; every other row stands behind its parent, and
    siblings in drawing order.
    independent: draw siblings each from the same distribution; else without replacement, each from what the elder ones
    left. Where they left nothing, a text lacks the row and all rows behind it.
    Example: topology [-1, 0, 0, 1] drafts two tokens, and one more behind the first of them.
    """

    def __init__(self, draft: DraftModel, topology: Sequence[int], independent: bool = False):
        self.draft, self.reader, self.independent = draft, reader_of(draft), independent
        self.size, self.layers = check_size(len(topology), "the rows of a topology but its root"), self.reader.layers
        if topology[0] != -1 or any(not 0 <= parent < row for row, parent in enumerate(topology[1:], 1)):
            raise RequestError(f"a topology has -1 for its root and an earlier row for every other, got {topology}")
        self.topology = in_drawing_order(topology)
        self.ancestors = [[0]]                                              # of every row, from the root down to itself
        for row, parent in enumerate(self.topology[1:], 1):
            self.ancestors.append([*self.ancestors[parent], row])
        check_depth(self.reader, len(self.ancestors[-1]) - 1)
        self.unread = len(self.ancestors[-1])       # the accepted path lies scattered in the cache: it is read again

    def begin(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        """Read the prompts, and lay out the levels on the text's device."""
        super().begin(text, rows, features)
        device = text.tokens.device
        self.parents = torch.tensor(self.topology, device=device).repeat(len(text.tokens), 1)           # (B, n)
        self.levels, above = [], []
        for depth in range(len(self.ancestors[-1]) - 1):
            inner = sorted({path[depth] for path in self.ancestors if len(path) > depth + 1})
            parents = [above.index(self.topology[row]) for row in inner] if depth else []
            above = inner
            count = [self.topology.count(row) for row in inner]             # children
            draws = [[i for i in range(len(inner)) if count[i] > rank] for rank in range(max(count))]
            self.levels.append(Level(torch.tensor(inner, device=device), torch.tensor(parents, device=device),
                                     [torch.tensor(whose, device=device) for whose in draws]))

    def move(self, rows: Sequence[int], count: int) -> None:
        super().move(rows, count)
        self.parents = self.parents[:1].repeat(count, 1)

    def propose(self, text: Text, sampling: Sampling, dice: Dice, upto: int) -> Draft:
        """Draft tokens behind the committed text, and the distribution that each was drawn from."""
        left = self.odds(self.reader.root(text, self.unread, upto), sampling)                           # (B, 1, V)
        tokens, q_draft = text.last(1), torch.zeros_like(left)
        for depth, level in enumerate(self.levels):
            if depth:
                left = self.odds(self.reader.behind(tokens[:, level.rows], upto, level.parents), sampling)  # (B, m, V)
                left *= q_draft[:, level.rows].sum(-1, keepdim=True) > 0    # behind a row that is lacking there is none
            for whose in level.draws:
                drawn, q = self._draw(left, whose, dice)
                tokens, q_draft = torch.cat([tokens, drawn], 1), torch.cat([q_draft, q], 1)
        parents = torch.where(q_draft.sum(-1) > 0, self.parents, -1)        # the root's is -1, too
        return Draft(tokens, q_draft, parents, len(self.levels))

    def odds(self, logits: Tensor, sampling: Sampling) -> Tensor:
        """What children are drawn from."""
        return sampling(logits)

    def _draw(self, left: Tensor, whose: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
        """A child for some rows of a level: tokens (B, m), and q_draft (B, m, V), zeros where nothing is left to draw.

        left (B, rows of the level, V), what is left to draw from, is lessened here.
        """
        q = left[:, whose]
        total = q.sum(-1, keepdim=True)
        nothing = total == 0                    # exactly: however little is left, it is a distribution
        q = q / (total + nothing)
        weights = q.clone()
        weights[:, :, :1] += nothing                                        # something has to be drawn: a certain 0
        token = dice.pick(weights)
        if not self.independent:
            left[:, whose] = q.scatter(2, token[:, :, None], 0.0)
        return token, q


def in_drawing_order(topology: Sequence[int]) -> list[int]:
    """The same tree with its rows renumbered: level by level, in a level all eldest children first, then the next.

    Example: [-1, 0, 0, 1, 1, 2] becomes [-1, 0, 0, 1, 2, 1]: the first child of row 2 is drawn before row 1's second.
    """
    children: list[list[int]] = [[] for _ in topology]
    for row, parent in enumerate(topology[1:], 1):
        children[parent].append(row)
    order, level = [0], [0]
    while level:
        most = max(len(children[row]) for row in level)
        level = [children[row][rank] for rank in range(most) for row in level if len(children[row]) > rank]
        order += level
    place = {row: at for at, row in enumerate(order)}
    return [-1] + [place[topology[row]] for row in order[1:]]
