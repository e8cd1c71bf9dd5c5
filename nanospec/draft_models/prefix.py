"""Prefix attention: a decoder layer reads the text once a round, and a state that may look back drafts behind it.

The layer is that of Hydra++ (Ankner et al. 2024, arXiv 2402.05109), the state that of the MLP speculator (mlp.py). The
look back is this project's own: a draft token asks the keys and values that the layer has kept for the text anyway.

    for every committed token x:   read = layer([norm(embedding of x), norm(features before x)])      as in EAGLE-3
    behind the last one, x:        y = start(norm(read)) + embedding(x)
    for each draft token x:        y = carry(z) + embedding(x),   y = y + answer(attention of query(y) to the text)
    after each:                    z = silu(norm(y)),   logits of the next token = head(z)

The first draft token is the one that all others stand behind, and the target's features do not know the last token of
the text: it was drawn when they were there. The layer looks at the whole text once more, with that token. It costs
nearly an eighth of a target of eight layers, but once a round and not once a draft token. The state alone cannot copy
a name from far back: it would have to know the name beforehand. A query costs a little, and a draft token has no key
and no value of its own.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.draft_models.eagle import Eagle, EagleReader, Unrolled
from nanospec.draft_models.eagle3 import Eagle3
from nanospec.draft_models.learned import Learned, all_anchors
from nanospec.model import MLP, Attention, Config, Embedding, Linear, rotate
from nanospec.text import Text


class Prefix(Eagle):
    """heads, kv_heads, hidden: of the layer, as in Config. width: channels of the state behind it."""

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int, kv_heads: int, hidden: int,
                 width: int):
        Learned.__init__(self, vocab_size, channels, layers, heads=heads, kv_heads=kv_heads, hidden=hidden, width=width)
        self.config = Config(vocab_size, 1, 1, channels, heads, kv_heads, hidden)
        self.steps = 5
        self.fuse = Linear(len(layers) * channels, channels)
        self.token_norm, self.state_norm = nn.RMSNorm(channels, 1e-5), nn.RMSNorm(channels, 1e-5)
        self.attention = Attention(self.config, 2 * channels)
        self.mlp_norm, self.mlp = nn.RMSNorm(channels, 1e-5), MLP(self.config)
        self.read_norm = nn.RMSNorm(channels, 1e-5)
        self.start, self.carry, self.norm = Linear(channels, width), Linear(width, width), nn.RMSNorm(width, 1e-5)
        self.query, self.answer = Linear(width, channels), Linear(channels, width)
        self.embedding, self.head = Embedding(vocab_size, width), Linear(width, vocab_size)

    def begin(self, before: Tensor) -> Tensor:
        return self.fuse(self.normed(before))

    def exit(self, x: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return self.said(self.start(self.read_norm(x)) + self.embedding(tokens))

    def further(self, state: Tensor, tokens: Tensor, rope: Tensor, look) -> tuple[Tensor, Tensor]:
        """States (B, N, width) and draft tokens (B, N) -> the next states, and logits (B, N, V).

        look: queries (B, H, N, D), turned by `rope` -> what they find in the text (B, N, H * D).
        """
        x = self.carry(state) + self.embedding(tokens)
        q = self.query(x).view(*x.shape[:2], -1, self.config.head_size).transpose(1, 2)
        return self.said(x + self.answer(look(rotate(q, rope))))

    def said(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """What is to be the state -> the state, and logits."""
        state = F.silu(self.norm(state))
        return state, self.head(state)

    def forward(self, tokens: Tensor, before: Tensor, steps: int, anchors: Tensor | None = None) -> Tensor:
        anchors = all_anchors(tokens, steps) if anchors is None else anchors
        read, x = self.entrance(self.begin(before), tokens)
        attend = Unrolled(self, read, anchors)
        state, first = self.through(read[:, anchors], x[:, anchors], tokens[:, anchors], attend)
        logits = [first]
        for k in range(1, steps):
            state, behind = self.further(state, tokens[:, anchors + k], attend.rope[:, anchors + k], attend.answer)
            logits.append(behind)
        return torch.stack(logits)

    entrance: Any = Eagle3.entrance         # all that it needs of an Eagle3 is here
    loss = Learned.loss

    def reader(self) -> "PrefixReader":
        return PrefixReader(self)


class PrefixReader(EagleReader):
    """Committed text goes through the layer, draft tokens change the state behind it alone.

    place (B,): of the next draft token.
    """

    model: Prefix

    def root(self, text: Text, unread: int, upto: int) -> Tensor:
        logits = super().root(text, unread, upto)
        self.place = self.cache.length
        return logits

    def behind(self, tokens: Tensor, upto: int, parents: Tensor | None = None) -> Tensor:
        if parents is not None:
            self.state = self.state[self.row[:, None], parents.expand_as(tokens)]
        rope = self.cache.rope[:, self.place][:, :, None, None]
        self.place = self.place + 1
        self.state, logits = self.model.further(self.state, tokens, rope, self.look)
        return logits
