"""A decoder layer as a part of draft models, and what it is told in a call.

    token x_i         --- norm --+
                                 +-- attention --+-- MLP --> state after x_i
    state before x_i -+-- norm --+               |
                      +--------------------------+      (the entrance of EAGLE-3, arXiv 2503.01840)

The keys and values of the committed tokens stay in a cache. A draft token either goes through the
layer, too, and gets a slot of its own (eagle3.py); or it looks back: it asks what the layer has
kept of the text, and leaves nothing there (prefix.py).
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nanospec.attention import Call, grouped_attention
from nanospec.cache import Cache
from nanospec.model import MLP, Attention, Config


@dataclass
class Reading(Call):
    """A call of a draft model on tokens (B, T). Call's own fields are for models with attention.

    asks: after which of the tokens something is drafted, N of them. The others are committed
        tokens that are read for their keys and values alone.
    steps: the most draft tokens that will follow the committed text.
    table (2, S, D): the rotations of all positions.  positions (B, T): those of committed tokens.
    text (B, N, kv_length) bool: what those that ask attend to; `mask` says the same.
    """

    rope: Tensor | Any = None
    cache: Cache | Any = None
    asks: slice | Tensor = field(default_factory=lambda: slice(None))
    steps: int = 1
    table: Tensor | Any = None
    positions: Tensor | Any = None
    text: Tensor | Any = None

    def asking(self, x: Tensor) -> Tensor:
        """x (B, T, ...) -> (B, N, ...): of the tokens after which something is drafted."""
        # A product of a view would copy the weights for each text: torch makes a batch of it.
        return x[:, self.asks].contiguous()

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Keep the keys and values of all T tokens.

        Returns what queries (B, H, T, D) of those that ask find: (B, H, N, D).
        """
        return super().attend(layer, q[:, :, self.asks], k, v)

    def keep(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep keys and values (B, H_kv, T, D) of committed tokens.

        Returns all that are kept, (B, H_kv, kv_length, D).
        """
        return self.cache.write(layer, self.slots, k, v, self.kv_length)

    def look(self, layer: int, q: Tensor) -> Tensor:
        """What queries (B, H, N, D) find in the committed text: (B, H, N, D)."""
        keys, values = self.cache.k[layer], self.cache.v[layer]                 # (B, S, H_kv, D)
        keys, values = (kept[:, :self.kv_length].transpose(1, 2) for kept in (keys, values))
        return grouped_attention(q, keys, values, self.mask)


class DecoderLayer(nn.Module):
    """Embeddings of tokens and the states before them -> the states after those that ask."""

    def __init__(self, config: Config):
        super().__init__()
        channels, eps = config.channels, config.eps
        self.token_norm, self.state_norm = nn.RMSNorm(channels, eps), nn.RMSNorm(channels, eps)
        self.attention = Attention(config, 2 * channels)
        self.mlp_norm, self.mlp = nn.RMSNorm(channels, eps), MLP(config)

    def forward(self, embedded: Tensor, state: Tensor, call: Reading) -> Tensor:
        """(B, T, C) each -> (B, N, C)."""
        both = torch.cat([self.token_norm(embedded), self.state_norm(state)], -1)
        x = call.asking(state) + self.attention(both, call, 0)
        return x + self.mlp(self.mlp_norm(x))


def layer_sizes(target: Config) -> dict[str, int]:
    """The sizes of a layer that is as the target's."""
    return {"heads": target.heads, "kv_heads": target.kv_heads, "hidden": target.hidden}
