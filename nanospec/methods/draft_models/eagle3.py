"""EAGLE-3: the layer may pass on any state, and learns to draft from its own.

Li et al. 2025 (arXiv 2503.01840). What differs from EAGLE-1 (eagle.py):

    state       fused from three layers of the target, not its last one alone
    entrance    attention reads [norm(embedding of x_i), norm(state)], twice as wide; its result is
                added to the state (layer.py)
    exit        an output head of its own, perhaps for a part of the vocabulary only
    training    no loss on hidden states: a state need not look like the target's. Instead the layer
                is unrolled several steps, reads its own states, and every step has a loss on its
                distribution; the next one counts .8 of it

The head is pruned.py's. As "Attention Drift" advises (arXiv 2605.09992), the target's hidden states
are normed, and the next step reads the normed state. vLLM calls that EAGLE-3.1.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from nanospec.methods.draft_models.eagle import EagleReader
from nanospec.methods.draft_models.layer import DecoderLayer, Reading, layer_sizes
from nanospec.methods.draft_models.learned import three_layers
from nanospec.methods.draft_models.pruned import Pruned
from nanospec.model import Config, Linear


class Eagle3(Pruned):
    """heads, kv_heads, hidden: of its layer, as in Config. spoken: how many tokens it can draft."""

    reader_class = EagleReader
    steps, decay, anchors = 5, 0.8, 128

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int,
                 kv_heads: int, hidden: int, spoken: int):
        super().__init__(vocab_size, channels, layers, spoken, heads=heads, kv_heads=kv_heads,
                         hidden=hidden)
        self.config = Config(vocab_size, 1, 1, channels, heads, kv_heads, hidden)
        self.fuse, self.layer = Linear(len(layers) * channels, channels), DecoderLayer(self.config)
        self.norm = nn.RMSNorm(channels, 1e-5)

    @classmethod
    def sizes_for(cls, target: Config) -> dict[str, Any]:
        return {"layers": three_layers(target), "spoken": target.vocab_size} | layer_sizes(target)

    def read(self, tokens: Tensor, before: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        return self.step(self.fuse(self.normed(before)), tokens, call)

    def step(self, state: Tensor, tokens: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        state = self.norm(self.layer(self.embedded(tokens), state, call))
        return state, self.head(state)
