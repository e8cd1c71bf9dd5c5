"""Look back, for large vocabularies: a layer reads the text once a round, then comes a state with
attention.

It is prefix.py's model without what grows with the vocabulary. The state is as wide as the target,
so the embeddings are the target's own and the output head, of a part of the vocabulary (pruned.py),
begins as rows of the target's.

    every committed token x     z = norm(layer(embedding of x, hidden states before x)) (layer.py)
    after the last one, x       z = norm(z + mlp(x, z))
    a draft token x             z = norm(z + mlp(x, z) + attention of query(x, z) to the text)
    each time                   logits of the next token = head(z)

For a target of thirty layers and 49,152 tokens the layer with its entrance is a twentieth of the
target, and a draft token half of that.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.methods.draft_models.layer import DecoderLayer, Reading, layer_sizes
from nanospec.methods.draft_models.learned import three_layers
from nanospec.methods.draft_models.pruned import Pruned
from nanospec.methods.draft_models.text_reader import TextReader
from nanospec.model import Config, Linear, rotate


class Lookback(Pruned):
    """heads, kv_heads, hidden: of the layer, as in Config."""

    reader_class = TextReader
    steps, anchors = 3, 384

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int,
                 kv_heads: int, hidden: int, spoken: int):
        super().__init__(vocab_size, channels, layers, spoken, heads=heads, kv_heads=kv_heads,
                         hidden=hidden)
        self.config = Config(vocab_size, 1, 1, channels, heads, kv_heads, hidden)
        self.fuse, self.layer = Linear(len(layers) * channels, channels), DecoderLayer(self.config)
        self.input_norm, self.norm = nn.RMSNorm(channels, 1e-5), nn.RMSNorm(channels, 1e-5)
        self.query, self.answer = Linear(2 * channels, channels), Linear(channels, channels)
        self.gate_up, self.down = Linear(2 * channels, 2 * channels), Linear(channels, channels)

    @classmethod
    def sizes_for(cls, target: Config) -> dict[str, Any]:
        return {"layers": three_layers(target),
                "spoken": min(8192, target.vocab_size)} | layer_sizes(target)

    def read(self, tokens: Tensor, before: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        state = self.norm(self.layer(self.embedded(tokens), self.fuse(self.normed(before)), call))
        return self._next(state, self._with(call.asking(tokens), state))

    def step(self, state: Tensor, tokens: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        both = self._with(tokens, state)
        heads = self.query(both).unflatten(-1, (self.layer.attention.heads, -1))    # (B, N, H, D)
        found = call.look(0, rotate(heads.transpose(1, 2), call.rope))              # (B, H, N, D)
        return self._next(state + self.answer(found.transpose(1, 2).flatten(2)), both)

    def _with(self, tokens: Tensor, state: Tensor) -> Tensor:
        return torch.cat([self.input_norm(self.embedded(tokens)), state], -1)

    def _next(self, y: Tensor, both: Tensor) -> tuple[Tensor, Tensor]:
        """The next state, and logits of the next token."""
        gate, up = self.gate_up(both).chunk(2, -1)
        state = self.norm(y + self.down(F.silu(gate) * up))
        return state, self.head(state)
