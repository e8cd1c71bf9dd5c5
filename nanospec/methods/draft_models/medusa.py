"""Medusa and Hydra: heads on the target's last layer, one for each of the next tokens.

Cai et al. 2024 (arXiv 2401.10774), Medusa-1: the target is frozen. Blockwise parallel decoding
(Stern et al. 2018, arXiv 1811.03115) came before it. Hydra: Ankner et al. 2024 (arXiv 2402.05109).

    h = norm(hidden states before the last token)       what the target made the last token from
    e_0: the embedding of the last token; e_1, ..., e_k: of the draft tokens after it
    Medusa's head k:  logits = output head of the target (h + silu(block_k(h)))
    Hydra's head k:   logits = output head of the target (h + silu(block_k([h, e_0, ..., e_k])))
                                                        of token k + 1 after the last one

A head of Medusa's knows the text up to the last token but one, and nothing of the tokens that the
others predict. So all nodes of one depth get the same children, and the farther a head looks, the
less it knows. But a draft takes one step, whatever its size.

A head of Hydra's knows all the tokens before its own place. Its distribution is a true conditional
one, and may be sampled and reported as q_draft. A step costs one product more than Medusa's.

At first every block is zero: each head predicts what the target predicted for the last token.

Left out: output heads of their own, which the heads of Medusa's authors have; the weights .8^k of
the heads' losses (all count alike here); training the target with them (Medusa-2); the prefix
attention and the deeper heads of Hydra++.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.methods.draft_models.layer import Reading
from nanospec.methods.draft_models.learned import AtOnce, Learned
from nanospec.methods.draft_models.text_reader import LearnedReader
from nanospec.model import Config, Linear


def blocks_of_zeros(widths: Iterable[int], channels: int) -> Any:
    """A module for each head, from this width to `channels`."""
    blocks: Any = nn.ModuleList(Linear(width, channels) for width in widths)
    for block in blocks:
        nn.init.zeros_(block.weight)
    return blocks


class Medusa(AtOnce):
    """heads: how many tokens it can draft one after the other."""

    reader_class = LearnedReader

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int = 5):
        super().__init__(vocab_size, channels, layers, heads=heads)
        self.blocks = blocks_of_zeros([channels] * heads, channels)
        self.steps = self.deepest = heads

    @classmethod
    def sizes_for(cls, target: Config) -> dict[str, Any]:
        return {"layers": [target.layers - 1]}

    def head(self, k: int, h: Tensor) -> Tensor:
        """Logits (..., V) of token k + 1 after the last one."""
        return self.target_logits(h + F.silu(self.blocks[k](h)))

    def logits(self, tokens: Tensor, before: Tensor, call: Reading) -> Tensor:
        h = self.last_hidden(call.asking(before))
        return torch.stack([self.head(k, h) for k in range(call.steps)], -2)


class Hydra(Learned):
    """heads: how many tokens it can draft one after the other."""

    reader_class = LearnedReader

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int = 5):
        super().__init__(vocab_size, channels, layers, heads=heads)
        self.blocks = blocks_of_zeros([(k + 2) * channels for k in range(heads)], channels)
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
