"""EAGLE: one decoder layer that predicts the target's next hidden states; the target's own output
head makes logits of them.

Li et al. 2024 (arXiv 2401.15077).

    hidden      h_0  h_1  h_2  ?        h_i: what the target's output head reads for token i
    tokens      x_1  x_2  x_3           one ahead: h_2 alone does not say which x_3 was drawn, and
                                        the next hidden state depends on it
    layer(x_i, h_(i-1))  =  h_i as predicted;  its output head  =  logits of token i + 1

For the committed text the hidden states are the target's. After it the layer reads what it has
predicted. When draft tokens are accepted, the target's hidden states of them are there, and the
layer reads these tokens again: nothing that was predicted stays in the cache.

Multi-token prediction is the same layer, with norms at its entrance and its exit, that a model
brings along and trains from its first step. Gloeckle et al. 2024 (arXiv 2404.19737) train several
heads beside a model's own. DeepSeek-V3 (arXiv 2412.19437, section 2.2) makes the second one a layer
that reads the next token too, which is what a draft model needs:

    layer(M [norm(embedding of x_i); norm(h_(i-1))])  =  h'_i
    the model's own output head of h'_i  =  logits of x_(i+1)

Target and layer share the embedding and the output head. There they learn together, both from the
text. Here the layer is trained for a finished target, as any draft model: at equal steps its first
draft token was then accepted .896 of the time instead of .768, in small targets. To draft further
it reads its own h', as EAGLE does.

Left out: noise on the hidden states while EAGLE is trained; more than one layer of MTP's.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nanospec.attention import cached_call
from nanospec.methods.draft_models.layer import Reading, layer_sizes
from nanospec.methods.draft_models.learned import Learned
from nanospec.methods.draft_models.text_reader import TextReader
from nanospec.methods.trees.tree_reader import Branches
from nanospec.model import MLP, Attention, Config, Linear
from nanospec.text import Text


class EagleReader(TextReader):
    """A draft token goes through the layer, and into a slot of its own after the text."""

    keeps_nodes = True

    def start(self, text: Text, lag: int, kv_length: int) -> Tensor:
        self.cache.length = text.length.clone()         # text.length itself moves on
        self.branches = Branches(self.cache)
        return super().start(text, lag, kv_length)

    def _of_draft(self, tokens: Tensor, kv_length: int, parents: Tensor | None) -> Reading:
        placing = {} if parents is None else self.branches.grow(parents, kv_length)
        call = cached_call(self.model.config, tokens.shape[1], self.cache, kv_length, **placing)
        self.cache.length = self.cache.length + tokens.shape[1]
        return Reading(**vars(call))


class Eagle(Learned):
    """heads, kv_heads, hidden: of its layer, as in Config."""

    reader_class = EagleReader
    steps, anchors = 1, 128                     # it is trained on the target's hidden states alone
    hidden_loss, token_loss = 1.0, 0.1          # as in the paper

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int,
                 kv_heads: int, hidden: int):
        super().__init__(vocab_size, channels, layers, heads=heads, kv_heads=kv_heads,
                         hidden=hidden)
        self.config = Config(vocab_size, 1, 1, channels, heads, kv_heads, hidden)
        self.fuse, self.attention_norm = Linear(2 * channels, channels), nn.RMSNorm(channels, 1e-5)
        self.attention = Attention(self.config)
        self.mlp_norm, self.mlp = nn.RMSNorm(channels, 1e-5), MLP(self.config)

    @classmethod
    def sizes_for(cls, target: Config) -> dict[str, Any]:
        return {"layers": [target.layers - 1]} | layer_sizes(target)

    def read(self, tokens: Tensor, before: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        return self.step(self.last_hidden(before), tokens, call)

    def step(self, state: Tensor, tokens: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        x = self.through(self.embedded(tokens), state, call)
        return x, self.target_logits(x)

    def through(self, embedded: Tensor, state: Tensor, call: Reading) -> Tensor:
        """The layer: (B, T, C) each -> (B, N, C)."""
        x = self.fuse(torch.cat([embedded, state], -1))
        x = call.asking(x) + self.attention(self.attention_norm(x), call, 0)
        return x + self.mlp(self.mlp_norm(x))


class MTP(Eagle):
    """heads, kv_heads, hidden: of its layer, as in Config."""

    hidden_loss, token_loss = 0.0, 1.0

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int,
                 kv_heads: int, hidden: int):
        super().__init__(vocab_size, channels, layers, heads, kv_heads, hidden)
        self.token_norm, self.state_norm, self.norm = (nn.RMSNorm(channels, 1e-5) for _ in range(3))

    def step(self, state: Tensor, tokens: Tensor, call: Reading) -> tuple[Tensor, Tensor]:
        embedded = self.token_norm(self.embedded(tokens))
        x = self.norm(self.through(embedded, self.state_norm(state), call))
        return x, self.target_logits(x)
