"""Medusa: heads on the target's last layer, one for each of the next tokens. They predict them all
at once.

Cai et al. 2024 (arXiv 2401.10774), Medusa-1: the target is frozen. Blockwise parallel decoding
(Stern et al. 2018, arXiv 1811.03115) came before it.

    h = norm(hidden states before the last token)       what the target made the last token from
    head k:  logits = output head of the target (h + silu(block_k(h)))     of token k + 1 after it

A head knows the text up to the last token but one, and nothing of the tokens that the others
predict. So all rows of one depth get the same children, and the farther a head looks, the less it
knows. A draft takes one step, whatever its size. At first every block is zero: each head predicts
what the target predicted for the last token.

Left out: output heads of their own, which the heads of the authors' code have; the weights .8^k of
the heads' losses (all count alike here); training the target with them (Medusa-2).
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.methods.draft_models.layer import Reading
from nanospec.methods.draft_models.learned import AtOnce
from nanospec.methods.draft_models.text_reader import LearnedReader
from nanospec.model import Config, Linear


class Medusa(AtOnce):
    """heads: how many tokens it can draft one after the other."""

    reader_class = LearnedReader
    blocks: Any             # an nn.ModuleList, whose parts are any Module

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int = 5):
        super().__init__(vocab_size, channels, layers, heads=heads)
        # Each is a module of its own.
        self.blocks = nn.ModuleList(Linear(channels, channels) for _ in range(heads))
        for block in self.blocks:
            nn.init.zeros_(block.weight)
        self.steps = self.deepest = heads

    @classmethod
    def sizes_for(cls, target: Config) -> dict[str, Any]:
        return {"layers": [target.layers - 1]}

    def head(self, k: int, h: Tensor) -> Tensor:
        """Logits (..., V) of token k + 1 after the last one."""
        return self.target_logits(h + F.silu(self.blocks[k](h)))

    def rows(self, tokens: Tensor, before: Tensor, call: Reading) -> Tensor:
        h = self.last_hidden(call.asking(before))
        return torch.stack([self.head(k, h) for k in range(call.steps)], -2)
