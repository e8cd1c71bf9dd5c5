"""Prefix attention: a decoder layer reads the text once a round, then a state may look back.

The layer is that of Hydra++ (Ankner et al. 2024, arXiv 2402.05109), the state that of the MLP
speculator (mlp.py). The look back is this project's own: a draft token asks the keys and values
that the layer has kept for the text anyway.

    every committed token x     r = layer(embedding of x, hidden states before x)       (layer.py)
    after the last one          y = start(norm(r)) + embedding(x)
    a draft token x             y = carry(z) + embedding(x)
                                y = y + answer(attention of query(y) to the text)
    each time                   z = silu(norm(y)),  logits of the next token = head(z)

The first draft token is the one that all others follow, and the target's hidden states do not know
the last token of the text: it was drawn when they were there. The layer looks at the whole text
once more, with that token. It costs nearly an eighth of a target of eight layers, but once a round
and not once a draft token. The state alone cannot copy a name from far back: it would have to know
the name beforehand. A query costs a little, and a draft token has no key and no value of its own.

`Lookback` is the same model without what grows with the vocabulary. The state is as wide as the
target, so the embeddings are the target's own and the output head, of a part of the vocabulary
(pruned.py), begins as a part of the target's.

    every committed token x     z = norm(layer(embedding of x, hidden states before x))
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
from nanospec.methods.draft_models.learned import Learned, three_layers
from nanospec.methods.draft_models.pruned import Pruned
from nanospec.methods.draft_models.text_reader import TextReader
from nanospec.model import Config, Embedding, Linear, rotate


class Prefix(Learned):
    """heads, kv_heads, hidden: of the layer, as in Config. width: channels of the state."""

    reader_class = TextReader
    anchors = 128

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int,
                 kv_heads: int, hidden: int, width: int):
        super().__init__(vocab_size, channels, layers, heads=heads, kv_heads=kv_heads,
                         hidden=hidden, width=width)
        self.config = Config(vocab_size, 1, 1, channels, heads, kv_heads, hidden)
        self.fuse = Linear(len(layers) * channels, channels)
        self.layer, self.read_norm = DecoderLayer(self.config), nn.RMSNorm(channels, 1e-5)
        self.start, self.carry = Linear(channels, width), Linear(width, width)
        self.norm = nn.RMSNorm(width, 1e-5)
        self.query, self.answer = Linear(width, channels), Linear(channels, width)
        self.embedding, self.head = Embedding(vocab_size, width), Linear(width, vocab_size)

    @classmethod
    def sizes_for(cls, target: Config) -> dict[str, Any]:
        return {"layers": three_layers(target), "width": 512} | layer_sizes(target)

    def read(self, tokens: Tensor, before: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        r = self.layer(self.embedded(tokens), self.fuse(self.normed(before)), call)
        return self._ended(self.start(self.read_norm(r)) + self.embedding(call.asking(tokens)))

    def step(self, state: Tensor, tokens: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        y = self.carry(state) + self.embedding(tokens)
        return self._ended(y + self.answer(found_by(self.query(y), self.layer, call)))

    def _ended(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The state, and logits of the next token."""
        state = F.silu(self.norm(y))
        return state, self.head(state)


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
        found = found_by(self.query(both), self.layer, call)
        return self._next(state + self.answer(found), both)

    def _with(self, tokens: Tensor, state: Tensor) -> Tensor:
        return torch.cat([self.input_norm(self.embedded(tokens)), state], -1)

    def _next(self, y: Tensor, both: Tensor) -> tuple[Tensor, Tensor]:
        """The next state, and logits of the next token."""
        gate, up = self.gate_up(both).chunk(2, -1)
        state = self.norm(y + self.down(F.silu(gate) * up))
        return state, self.head(state)


def found_by(query: Tensor, layer: DecoderLayer, call: Reading) -> Tensor:
    """What queries (B, N, C), cut up as the layer's heads, find in the text: (B, N, C)."""
    q = query.unflatten(-1, (layer.attention.heads, -1)).transpose(1, 2)            # (B, H, N, D)
    return call.look(0, rotate(q, call.rope)).transpose(1, 2).flatten(2)
