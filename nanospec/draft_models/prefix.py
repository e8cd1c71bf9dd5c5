"""Prefix attention: a decoder layer reads the text once a round, and a state without attention drafts behind it.

The layer is that of Hydra++ (Ankner et al. 2024, arXiv 2402.05109), the state that of the MLP speculator (mlp.py).

    for every committed token x:   read = layer([norm(embedding of x), norm(features before x)])      as in EAGLE-3
    behind the last one:           z = silu(norm(start(norm(read))))
    for each draft token x:        z = silu(norm(carry(z) + embedding(x)))
    after each:                    logits of the next token = head(z)

The first draft token is the one that all others stand behind, and the target's features do not know the last token of
the text: it was drawn when they were there. The layer looks at the whole text once more, with that token. It costs
nearly an eighth of a target of eight layers, but once a round and not once a draft token.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.draft_models.eagle import Eagle, EagleReader
from nanospec.draft_models.eagle3 import Eagle3
from nanospec.draft_models.learned import Learned, all_anchors
from nanospec.model import MLP, Attention, Call, Config, Embedding, Linear


class Prefix(Eagle):
    """heads, kv_heads, hidden: of the layer, as in Config. width: channels of the state behind it."""

    anchors = Learned.anchors

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
        self.embedding, self.head = Embedding(vocab_size, width), Linear(width, vocab_size)

    def begin(self, before: Tensor) -> Tensor:
        return self.fuse(self.normed(before))

    def exit(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.said(self.start(self.read_norm(x)))

    def further(self, state: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """A state and a draft token (...) -> the next state (..., width), and logits (..., V)."""
        return self.said(self.carry(state) + self.embedding(tokens))

    def said(self, state: Tensor) -> tuple[Tensor, Tensor]:
        state = F.silu(self.norm(state))
        return state, self.head(state)

    def forward(self, tokens: Tensor, before: Tensor, steps: int, anchors: Tensor | None = None) -> Tensor:
        anchors, call = all_anchors(tokens, steps) if anchors is None else anchors, Call(self.rope(tokens.shape[1]))
        read, x = self.entrance(self.begin(before), tokens)
        state, first = self.through(read, x[:, anchors], lambda read: self.attention(read, call, 0)[:, anchors])
        logits = [first]
        for k in range(1, steps):
            state, behind = self.further(state, tokens[:, anchors + k])
            logits.append(behind)
        return torch.stack(logits)

    entrance, compared, loss = Eagle3.entrance, Learned.compared, Learned.loss

    def reader(self) -> "PrefixReader":
        return PrefixReader(self)


class PrefixReader(EagleReader):
    """Committed text goes through the layer, draft tokens change the state behind it alone."""

    def behind(self, tokens: Tensor, upto: int, parents: Tensor | None = None) -> Tensor:
        if parents is not None:
            self.state = self.state[self.row[:, None], parents.expand_as(tokens)]
        self.state, logits = self.model.further(self.state, tokens)
        return logits
