"""DFlash: all draft tokens in one pass. DSpark: also a table that knows which tokens go together.

Chen, Liang, Liu 2026 (arXiv 2602.06036); DSpark (arXiv 2607.05147), whose anchor predicts, too.

    tokens      x_0  x_1  x_2 | x_3   ?    ?    ?       x_3, the anchor: the text's last token
    block                       e_3  mask mask mask     each attends to all places of the block
    context     h_0  h_1  h_2                           hidden states, as keys and values
    predicts                    x_4  x_5  x_6  x_7

The context goes into every layer as it is, and is never changed by a layer. So the cache of a
text's keys and values grows by one column a token, and a block never enters it.

The places of a block do not know which tokens the others become. Each predicts what is likely there
whatever the tokens before it are: a marginal distribution. Tokens drawn from such distributions
need not fit together ("of problem", "no course"). With the table, the logits of place k are changed
by the token before it: logits_k + table[x_(k-1)]. That is a distribution given the token before,
exact as q_draft, for one line of a table.

Left out: more than one kind of layer mix, confidence heads, tables of a low rank; and that the loss
of the k-th place counts exp(-(k - 1) / gamma) (all count alike here).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nanospec.methods.draft_models.layer import Reading, layer_sizes
from nanospec.methods.draft_models.learned import AtOnce, three_layers
from nanospec.methods.draft_models.text_reader import TextReader
from nanospec.model import MLP, Config, Linear, rotate


class BlockLayer(nn.Module):
    """Attention from the places of a block to the context and to the block, then an MLP."""

    def __init__(self, config: Config):
        super().__init__()
        self.heads, self.kv_heads, self.head_size = config.heads, config.kv_heads, config.head_size
        channels = config.channels
        self.norm, self.mlp_norm = nn.RMSNorm(channels, 1e-5), nn.RMSNorm(channels, 1e-5)
        self.q = Linear(channels, channels)
        self.kv = Linear(channels, 2 * self.kv_heads * self.head_size)  # of context and block alike
        self.out, self.mlp = Linear(channels, channels), MLP(config)

    def keys_values(self, x: Tensor, rope: Tensor) -> tuple[Tensor, Tensor]:
        """x (..., T, C) -> each (..., H_kv, T, D)."""
        keys, values = self.kv(x).unflatten(-1, (2, self.kv_heads, self.head_size)).unbind(-3)
        return rotate(keys.transpose(-3, -2), rope), values.transpose(-3, -2)

    def forward(self, x: Tensor, rope: Tensor, keys: Tensor, values: Tensor,
                mask: Tensor) -> Tensor:
        """x (B, N, n, C): N blocks of n places for each text.

        keys, values (B, H_kv, T, D): the context's. mask (B, N, T) bool: what each block may see.
        """
        B, N, n, C = x.shape
        read = self.norm(x)
        q = self.q(read).unflatten(-1, (self.heads, self.head_size))            # (B, N, n, H, D)
        q = rotate(q.transpose(2, 3), rope)                                     # (B, N, H, n, D)
        own_keys, own_values = self.keys_values(read, rope)                     # (B, N, H_kv, n, D)
        q = q.reshape(B, N, self.kv_heads, -1, self.head_size)  # a group's heads are more queries
        far = q @ keys[:, None].transpose(-1, -2)                           # (B, N, H_kv, -1, T)
        far = far.masked_fill(~mask[:, :, None, None], float("-inf"))
        scores = torch.cat([far, q @ own_keys.transpose(-1, -2)], -1) * self.head_size ** -0.5
        weights = scores.to(torch.promote_types(x.dtype, torch.float32)).softmax(-1).to(values)
        context = keys.shape[2]
        y = weights[..., :context] @ values[:, None] + weights[..., context:] @ own_values
        x = x + self.out(y.reshape(B, N, self.heads, n, -1).transpose(2, 3).reshape(B, N, n, C))
        return x + self.mlp(self.mlp_norm(x))


class DFlash(AtOnce):
    """block: its places, and so the most draft tokens. depth: layers.

    heads, kv_heads, hidden: of each layer, as in Config.
    """

    reader_class = TextReader
    anchors = 32
    config: Config
    deepest: int
    blocks: Any             # an nn.ModuleList, whose parts are any Module

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int,
                 kv_heads: int, hidden: int, block: int = 8, depth: int = 1):
        super().__init__(vocab_size, channels, layers, heads=heads, kv_heads=kv_heads,
                         hidden=hidden, block=block, depth=depth)
        self.config = Config(vocab_size, 1, depth, channels, heads, kv_heads, hidden)
        self.steps = self.deepest = block
        self.fuse = Linear(len(layers) * channels, channels)
        self.context_norm = nn.RMSNorm(channels, 1e-5)
        self.mask = nn.Parameter(torch.empty(channels))     # stands where a token is not known yet
        nn.init.normal_(self.mask, std=0.02)
        self.blocks = nn.ModuleList(BlockLayer(self.config) for _ in range(depth))
        self.norm = nn.RMSNorm(channels, 1e-5)

    @classmethod
    def sizes_for(cls, target: Config) -> dict[str, Any]:
        return {"layers": three_layers(target)} | layer_sizes(target)

    def logits(self, tokens: Tensor, before: Tensor, call: Reading) -> Tensor:
        """One block for each token that asks. All of it is drafted, however little is needed."""
        n, anchors = self.deepest, call.asking(call.positions)          # (B, N), the first places
        block = anchors[:, :, None] + torch.arange(n, device=anchors.device)
        of_block = call.table[:, block][:, :, :, None]                  # (2, B, N, 1, n, D)
        first = self.embedded(call.asking(tokens))[:, :, None]
        x = torch.cat([first, self.mask.expand(*first.shape[:2], n - 1, -1)], 2)    # (B, N, n, C)
        # Place p of the context has the hidden states of token p - 1, and its position.
        context = self.context_norm(self.fuse(before.flatten(-2)))                  # (B, T, C)
        of_context = call.table[:, (call.positions - 1).clamp(min=0)][:, :, None]
        places = torch.arange(call.text.shape[-1], device=anchors.device)
        for number, layer in enumerate(self.blocks):
            keys, values = call.keep(number, *layer.keys_values(context, of_context))
            x = layer(x, of_block, keys, values, call.text & (places > 0))  # place 0 has none
        return self.target_logits(self.norm(x[:, :, :call.steps]))


class DSpark(DFlash):
    """With a table of V x V, zeros at first."""

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], **sizes: int):
        super().__init__(vocab_size, channels, layers, **sizes)
        self.table = nn.Embedding(vocab_size, vocab_size)
        nn.init.zeros_(self.table.weight)

    def after_token(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """What the table has for the token before is added."""
        return logits + self.table(tokens)
