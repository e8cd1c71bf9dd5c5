"""A draft model that drafts a tree of one shape: several tokens after one, a level in one pass.

Children drawn independently, as in SpecInfer (Miao et al. 2023, arXiv 2305.09781), or without
replacement, as in Sequoia (Chen et al. 2024, arXiv 2402.12374, section 3.2): no token is tried
twice after the same text. When the elder siblings have used up q_draft, as at temperature 0 the
first one has, the next is any token that was not tried, all as likely (Algorithm 2, lines 12 to
15). So as many siblings as there are tokens cover the vocabulary, and one of them is accepted.
Left out: joining the subtrees of siblings that drew the same token, and SpecInfer's merged trees,
which join the drafts of several models.

`TopTree` has the same shapes and draws nothing: every node is followed by its likeliest tokens, the
best one first. Medusa (Cai et al. 2024, arXiv 2401.10774) drafts so, with a tree made from measured
accuracies (shapes.py). Blockwise parallel decoding (Stern et al. 2018, arXiv 1811.03115) does so
with a chain: at temperature 0, the longest prefix of best guesses that the target would have
written. Every q_draft is one-hot, and a draft token x is accepted with what is left of p_target(x).
That is lossless for any choice of tokens. At temperature 0 drawing gives the best child and then
any others; here they are the next best.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice
from nanospec.methods.trees.shapes import check_topology
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.methods.trees.tree_reader import TreeOfModel, tree_reader_of
from nanospec.text import Text


TRIED = -1.0            # in what is left to draw from: an elder sibling has this token


class Level(NamedTuple):
    """The nodes of one depth that have children, which alone the draft model reads."""

    nodes: Tensor           # (m,), of the tree
    parents: Tensor         # (m,), their parents' places in `nodes` of the level above
    # For the eldest children, then for the next, and so on: the places in `nodes` of their parents.
    draws: list[Tensor]


class TreeDrafter(TreeOfModel):
    """Drafts a tree of one shape, for B texts at once.

    topology: parents of the nodes, -1 for the root, which stands first; every other node stands
    after its parent, and siblings in drawing order.
    independent: draw siblings each from the same distribution; else without replacement, each from
    what the elder ones left. Where they have tried all tokens, a text lacks the node and all that
    would follow it.
    Example: topology [-1, 0, 0, 1] drafts two tokens, and one more after the first of them.
    """

    takes = "shape"

    def __init__(self, draft_model: Any, topology: Sequence[int], independent: bool = False):
        self.topology = in_drawing_order(check_topology(topology))
        self.most, self.independent = len(topology) - 1, independent
        self.ancestors = [[0]]                         # of every node, from the root down to itself
        for node, parent in enumerate(self.topology[1:], 1):
            self.ancestors.append([*self.ancestors[parent], node])
        self.reader = tree_reader_of(draft_model, len(self.ancestors[-1]) - 1)
        self.layers = self.reader.layers

    def begin(self, text: Text) -> None:
        """Make room for these texts, and lay out the levels on their device."""
        super().begin(text)
        device = text.tokens.device
        self.parents = torch.tensor(self.topology, device=device)                           # (n,)
        self.levels, above = [], []
        for depth in range(len(self.ancestors[-1]) - 1):
            inner = sorted({path[depth] for path in self.ancestors if len(path) > depth + 1})
            parents = [above.index(self.topology[node]) for node in inner] if depth else []
            above = inner
            count = [self.topology.count(node) for node in inner]           # children
            draws = [[i for i in range(len(inner)) if count[i] > rank]
                     for rank in range(max(count))]
            self.levels.append(Level(torch.tensor(inner, device=device),
                                     torch.tensor(parents, device=device),
                                     [torch.tensor(places, device=device) for places in draws]))

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> TreeDraft:
        """Draft tokens after the committed text, and the distribution that each was drawn from."""
        logits = self.reader.start(text, max(lag, self.reader.lag), kv_length)           # (B, 1, V)
        left = self.odds(logits, sampling)
        tokens, q_draft = text.last(1), torch.zeros_like(left)
        for depth, level in enumerate(self.levels):
            if depth:
                logits = self.reader.step(tokens[:, level.nodes], kv_length, level.parents)
                left = self.odds(logits, sampling)                                       # (B, m, V)
                exist = q_draft[:, level.nodes].sum(-1, keepdim=True) > 0
                left = torch.where(exist, left, TRIED)      # a node that is lacking has no children
            for parents in level.draws:
                drawn, q = self._draw(left, parents, dice)
                tokens, q_draft = torch.cat([tokens, drawn], 1), torch.cat([q_draft, q], 1)
        parents = torch.where(q_draft.sum(-1) > 0, self.parents, -1)        # the root's is -1, too
        return TreeDraft(tokens, q_draft, parents, len(self.levels))

    def odds(self, logits: Tensor, sampling: Callable[[Tensor], Tensor]) -> Tensor:
        """What children are drawn from."""
        return sampling(logits)

    def _draw(self, left: Tensor, parents: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
        """A child for each of some nodes of a level, `parents` (m,): tokens (B, m), and q_draft
        (B, m, V), zeros where nothing is left to draw.

        left (B, nodes of the level, V), what is left to draw from, is lessened here: a token that
        was tried has TRIED.
        """
        tried = left[:, parents] == TRIED
        q = torch.where(tried, 0.0, left[:, parents])
        # Exactly 0: however little is left, it is a distribution.
        q = torch.where(q.sum(-1, keepdim=True) == 0, (~tried).to(q), q)
        total = q.sum(-1, keepdim=True)
        nothing = total == 0
        q = q / (total + nothing)
        weights = q.clone()
        weights[:, :, :1] += nothing                        # something has to be drawn: a certain 0
        token = dice.pick(weights)
        if not self.independent:
            left[:, parents] = torch.where(tried, TRIED, q).scatter(2, token[:, :, None], TRIED)
        return token, q


class TopTree(TreeDrafter):
    """Example: topology [-1, 0, 0, 1] proposes the two best, and the best one's best."""

    uniforms = 0                                            # no uniform is taken

    def odds(self, logits: Tensor, sampling: Callable[[Tensor], Tensor]) -> Tensor:
        """The draft model's own: at temperature 0, too, there is a second-best token."""
        return logits.softmax(-1)

    def _draw(self, left: Tensor, parents: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
        """The best that is left for some nodes of a level, as TreeDrafter draws it."""
        best, token = left[:, parents].max(-1)
        left[:, parents] = left[:, parents].scatter(2, token[:, :, None], 0.0)
        return token, F.one_hot(token, left.shape[2]) * (best > 0)[:, :, None].to(left)


def in_drawing_order(topology: Sequence[int]) -> list[int]:
    """The same tree with its nodes renumbered: level by level, in a level all eldest children
    first, then the next.

    Example: [-1, 0, 0, 1, 1, 2] becomes [-1, 0, 0, 1, 2, 1]: the first child of node 2 is drawn
    before node 1's second.
    """
    children: list[list[int]] = [[] for _ in topology]
    for node, parent in enumerate(topology[1:], 1):
        children[parent].append(node)
    order, level = [0], [0]
    while level:
        most = max(len(children[node]) for node in level)
        level = [children[node][rank] for rank in range(most)
                 for node in level if len(children[node]) > rank]
        order += level
    place = {node: at for at, node in enumerate(order)}
    return [-1] + [place[topology[node]] for node in order[1:]]
