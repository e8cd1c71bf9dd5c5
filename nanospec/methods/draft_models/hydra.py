"""Hydra: Medusa's heads, each of which also reads the tokens between the text and its own place.

Ankner et al. 2024 (arXiv 2402.05109).

    h = norm(hidden states before the last token)
    head k:  logits = output head of the target (h + silu(block_k([h, e_0, ..., e_k])))
    e_0: the embedding of the last token; e_1, ..., e_k: of the draft tokens after it

So a head knows all the tokens before its own place. Its distribution is a true conditional one, and
may be sampled and reported as q_draft. A step costs one product more than Medusa's. At first every
block is zero, as in medusa.py.

Left out: the prefix attention and the deeper heads of Hydra++.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.methods.draft_models.layer import Reading
from nanospec.methods.draft_models.learned import Learned
from nanospec.methods.draft_models.text_reader import LearnedReader
from nanospec.model import Config, Linear


class Hydra(Learned):
    """heads: how many tokens it can draft one after the other."""

    reader_class = LearnedReader
    blocks: Any             # an nn.ModuleList, whose parts are any Module

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int = 5):
        super().__init__(vocab_size, channels, layers, heads=heads)
        self.blocks = nn.ModuleList(Linear((k + 2) * channels, channels) for k in range(heads))
        for block in self.blocks:
            nn.init.zeros_(block.weight)
        self.steps = self.deepest = heads

    @classmethod
    def sizes_for(cls, target: Config) -> dict[str, Any]:
        return {"layers": [target.layers - 1]}

    def read(self, tokens: Tensor, before: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        return self.step(self.last_hidden(call.asking(before)), call.asking(tokens), call)

    def step(self, state: Tensor, tokens: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        """The state is h and the embeddings so far (..., k C); it gets longer."""
        state = torch.cat([state, self.embedded(tokens)], -1)
        h, block = state[..., :self.channels], self.blocks[state.shape[-1] // self.channels - 2]
        return state, self.target_logits(h + F.silu(block(state)))
