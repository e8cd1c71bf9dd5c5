"""Medusa: heads on the target's last layer, one for each of the next tokens. They all speak at once.

Cai et al. 2024 (arXiv 2401.10774), Medusa-1: the target is frozen. Blockwise parallel decoding (Stern et al. 2018,
arXiv 1811.03115) is the elder of the kind.

    h = norm(features before the last token)        what the target made the last token from
    head k:  logits = output head of the target (h + silu(block_k(h)))      of the k-th token behind the last one

A head knows the text up to the last token but one, and nothing of the tokens that the others say. So all rows of one
depth get the same children, and the farther a head looks, the less it knows. A draft takes one step, whatever its size.
At first every block is zero: each head says what the target said of the last token.

Left out: output heads of their own, as in later versions; training the target with them (Medusa-2).
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.draft_models.learned import FeatureReader, Learned, all_anchors
from nanospec.model import Linear
from nanospec.text import Text


class Medusa(Learned):
    """heads: so many tokens can be drafted behind one another."""

    blocks: Any             # an nn.ModuleList, whose parts are any Module

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int = 5):
        super().__init__(vocab_size, channels, layers, heads=heads)
        self.blocks = nn.ModuleList(Linear(channels, channels) for _ in range(heads))      # each a module of its own
        for block in self.blocks:
            nn.init.zeros_(block.weight)
        self.steps = self.deepest = heads

    def head(self, k: int, h: Tensor) -> Tensor:
        """Logits (..., V) of the k-th token behind the last one."""
        return self.said_by(h + F.silu(self.blocks[k](h)))

    def forward(self, tokens: Tensor, before: Tensor, steps: int, anchors: Tensor | None = None) -> Tensor:
        h = self.last_hidden(before[:, all_anchors(tokens, steps) if anchors is None else anchors])
        return torch.stack([self.head(k, h) for k in range(steps)])

    def reader(self) -> "MedusaReader":
        return MedusaReader(self)


class MedusaReader(FeatureReader):
    """h: (B, 1, C).  depth: the head that speaks next."""

    model: Medusa

    def root(self, text: Text, unread: int, upto: int) -> Tensor:
        self.h, self.depth = self.model.last_hidden(self.before_last(text))[:, None], 0
        return self._next()

    def behind(self, tokens: Tensor, upto: int, parents: Tensor | None = None) -> Tensor:
        return self._next().expand(-1, tokens.shape[1], -1)

    def _next(self) -> Tensor:
        self.depth += 1
        return self.model.head(self.depth - 1, self.h)
