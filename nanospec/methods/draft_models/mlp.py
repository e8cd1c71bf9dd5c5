"""The MLP speculator: a state that every draft token changes, without attention and without cache.

Wertheimer et al. 2024 (arXiv 2404.19124); a recurrent drafter of this kind is ReDrafter (arXiv
2403.09919).

    z = start(normed hidden states before the last token)
    for the last token of the text, then for each draft token x:
        z = silu(norm(carry(z) + embedding(x)))
        z = z + silu(norm(layer(z)))                for further layers, if there are any
        logits of the next token = head(z)

The state has read every token before it. So q_draft is exact, and hardly worse for the last draft
token than for the first. A step is two products and one look into a table.

Left out: other weights for every step. One set of weights drafts any number of tokens.
"""

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.methods.draft_models.layer import Reading
from nanospec.methods.draft_models.learned import Learned, three_layers
from nanospec.methods.draft_models.text_reader import LearnedReader
from nanospec.model import Config, Embedding, Linear


class MLPSpeculator(Learned):
    """width: channels of the state. depth: layers of a step."""

    reader_class = LearnedReader
    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], width: int,
                 depth: int = 1):
        super().__init__(vocab_size, channels, layers, width=width, depth=depth)
        self.start, self.carry = Linear(len(layers) * channels, width), Linear(width, width)
        self.embedding, self.head = Embedding(vocab_size, width), Linear(width, vocab_size)
        self.norm = nn.RMSNorm(width, 1e-5)
        self.further = nn.ModuleList(
            nn.Sequential(Linear(width, width), nn.RMSNorm(width, 1e-5), nn.SiLU())
            for _ in range(depth - 1))

    @classmethod
    def sizes_for(cls, target: Config) -> dict[str, Any]:
        return {"layers": three_layers(target), "width": 512}

    def read(self, tokens: Tensor, before: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        """Only the last token matters: the state begins with the hidden states before it."""
        return self.step(self.start(self.normed(call.asking(before))), call.asking(tokens), call)

    def step(self, state: Tensor, tokens: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        state = F.silu(self.norm(self.carry(state) + self.embedding(tokens)))
        for layer in self.further:
            state = state + layer(state)
        return state, self.head(state)
