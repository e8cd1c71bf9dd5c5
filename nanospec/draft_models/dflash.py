"""DFlash: all draft tokens in one parallel pass. DSpark: the same, and a table that knows which tokens go together.

Chen, Liang, Liu 2026 (arXiv 2602.06036); DSpark (arXiv 2607.05147), whose anchor row predicts, too.

    tokens      x_0  x_1  x_2 | x_3   ?    ?    ?       x_3, the anchor, is the last token of the text
    rows                        e_3  mask mask mask     each row sees all rows of the block, before and behind it
    context     f_0  f_1  f_2                           the features of the text before the anchor, as keys and values
    says                        x_4  x_5  x_6  x_7

The context goes into every layer as it is, and is never changed by a layer. So the cache of a text's keys and values
grows by one column a token, and the rows of a block never enter it.

The rows of one pass do not know which tokens the others become. Each says what is likely at its place whatever the
tokens before it are: a marginal distribution. Tokens drawn from such rows need not fit together ("of problem", "no
course"). With the table, row k's logits are changed by the token in front: logits_k + table[x_(k-1)]. That is a
distribution given the token before, exact as q_draft, for one row of a table.

Left out: more than one kind of layer mix, confidence heads, tables of a low rank.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nanospec.cache import Cache
from nanospec.draft_models.learned import FeatureReader, Learned, all_anchors
from nanospec.model import MLP, Config, Linear, rope_table, rotate
from nanospec.text import Text


class BlockLayer(nn.Module):
    """Attention from the rows of a block to the context and to the block, then an MLP."""

    def __init__(self, config: Config):
        super().__init__()
        self.heads, self.kv_heads, self.head_size = config.heads, config.kv_heads, config.head_size
        self.norm, self.mlp_norm = nn.RMSNorm(config.channels, 1e-5), nn.RMSNorm(config.channels, 1e-5)
        self.q = Linear(config.channels, config.channels)
        self.kv = Linear(config.channels, 2 * config.kv_heads * config.head_size)       # of context and block alike
        self.out, self.mlp = Linear(config.channels, config.channels), MLP(config)

    def keys_values(self, x: Tensor, rope: Tensor) -> tuple[Tensor, Tensor]:
        """x (..., T, C) -> each (..., H_kv, T, D)."""
        keys, values = self.kv(x).unflatten(-1, (2, self.kv_heads, self.head_size)).unbind(-3)
        return rotate(keys.transpose(-3, -2), rope), values.transpose(-3, -2)

    def forward(self, x: Tensor, rope: Tensor, keys: Tensor, values: Tensor, sees: Tensor) -> Tensor:
        """x (B, N, n, C): N blocks of n rows for each text. keys, values (B, H_kv, T, D): the context's.
        sees (B, N, T) bool: which of it each block sees.
        """
        B, N, n, C = x.shape
        read = self.norm(x)
        q = rotate(self.q(read).unflatten(-1, (self.heads, self.head_size)).transpose(2, 3), rope)  # (B, N, H, n, D)
        own_keys, own_values = self.keys_values(read, rope)                                     # (B, N, H_kv, n, D)
        q = q.reshape(B, N, self.kv_heads, -1, self.head_size)                  # heads of one group are more queries
        far = (q @ keys[:, None].transpose(-1, -2)).masked_fill(~sees[:, :, None, None], float("-inf"))
        scores = torch.cat([far, q @ own_keys.transpose(-1, -2)], -1) * self.head_size ** -0.5
        weights = scores.to(torch.promote_types(x.dtype, torch.float32)).softmax(-1).to(values)
        context = keys.shape[2]
        y = weights[..., :context] @ values[:, None] + weights[..., context:] @ own_values
        x = x + self.out(y.reshape(B, N, self.heads, n, -1).transpose(2, 3).reshape(B, N, n, C))
        return x + self.mlp(self.mlp_norm(x))


class DFlash(Learned):
    """block: rows, and so the most draft tokens. depth: layers. heads, kv_heads, hidden: of each, as in Config."""

    anchors = 32
    deepest: int
    table: nn.Embedding | None
    blocks: Any             # an nn.ModuleList, whose parts are any Module

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], heads: int, kv_heads: int, hidden: int,
                 block: int = 8, depth: int = 1):
        super().__init__(vocab_size, channels, layers, heads=heads, kv_heads=kv_heads, hidden=hidden, block=block,
                         depth=depth)
        self.config = Config(vocab_size, 1, depth, channels, heads, kv_heads, hidden)
        self.steps, self.deepest, self.table = block, block, None
        self.fuse, self.context_norm = Linear(len(layers) * channels, channels), nn.RMSNorm(channels, 1e-5)
        self.mask = nn.Parameter(torch.empty(channels))                     # stands where a token is not known yet
        nn.init.normal_(self.mask, std=0.02)
        self.blocks = nn.ModuleList(BlockLayer(self.config) for _ in range(depth))
        self.norm = nn.RMSNorm(channels, 1e-5)

    def context(self, before: Tensor) -> Tensor:
        """Features (..., len(layers), C) -> what the layers see of each place (..., C)."""
        return self.context_norm(self.fuse(before.flatten(-2)))

    def rope(self, positions: int) -> Tensor:
        """Rotations, as rope_table."""
        return rope_table(positions, self.config.head_size, self.config.rope_theta, self.dtype, self.device)

    def rows(self, anchors: Tensor, n: int) -> Tensor:
        """Tokens (B, N) -> the rows that go into the first layer (B, N, n, C)."""
        first = self.target.embedding(anchors).to(self.dtype)[:, :, None]
        return torch.cat([first, self.mask.expand(*anchors.shape, n - 1, -1)], 2)

    def said(self, x: Tensor) -> Tensor:
        return self.said_by(self.norm(x))

    def corrected(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Logits (..., V) and the tokens in front (...) -> logits."""
        return logits if self.table is None else logits + self.table(tokens)

    def forward(self, tokens: Tensor, before: Tensor, steps: int, anchors: Tensor | None = None) -> Tensor:
        (B, T), device = tokens.shape, tokens.device
        places = torch.arange(T, device=device)
        anchors = all_anchors(tokens, steps) if anchors is None else anchors
        rope, n = self.rope(T + self.deepest), self.deepest
        # Place p of the context has the features of token p - 1, and its position. Before token 0 there are none.
        context, of_context = self.context(before), rope[:, (places - 1).clamp(min=0)]
        sees = ((places <= anchors[:, None]) & (places > 0)).expand(B, -1, -1)                  # (B, N, T)
        of_rows = rope[:, anchors[:, None] + torch.arange(n, device=device)][:, None, :, None]  # (2, 1, N, 1, n, D)
        x = self.rows(tokens[:, anchors], n)
        for layer in self.blocks:
            x = layer(x, of_rows, *layer.keys_values(context, of_context), sees)
        logits = self.said(x[:, :, :steps])                                                     # (B, N, steps, V)
        return torch.stack([self.corrected(logits[:, :, k], tokens[:, anchors + k]) for k in range(steps)])

    def reader(self) -> "BlockReader":
        return BlockReader(self)


class DSpark(DFlash):
    """With a table of V x V, zeros at first."""

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], **sizes: int):
        super().__init__(vocab_size, channels, layers, **sizes)
        self.table = nn.Embedding(vocab_size, vocab_size)
        nn.init.zeros_(self.table.weight)


class BlockReader(FeatureReader):
    """cache: the context's keys and values, in the slot of the token behind them. logits (B, block, V): of all rows."""

    model: DFlash
    text: Text
    cache: Cache
    rereads = True                          # not its draft tokens: the features of the accepted ones come after them

    def meet(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        if text is not self.text:
            slots = text.tokens.shape[1] + self.model.deepest
            self.cache = Cache(len(text.tokens), len(self.model.blocks), self.model.config.kv_heads,
                               self.model.rope(slots))
        super().meet(text, rows, features)

    def read_prompts(self, rows: Sequence[int]) -> None:
        rows = list(rows)
        width = int(self.text.length[rows].max())
        if width > 1:
            fresh = Cache(len(rows), len(self.model.blocks), self.model.config.kv_heads, self.cache.rope[:, :width])
            self._write(fresh, self.kept[rows, :width], fresh.next_slots(width))
            self.cache.put(rows, fresh)

    def _write(self, cache: Cache, before: Tensor, slots: Tensor) -> None:
        """The keys and values of the features before these places."""
        context, rope = self.model.context(before), cache.rope[:, (slots - 1).clamp(min=0)][:, :, None]
        for number, layer in enumerate(self.model.blocks):
            keys, values = layer.keys_values(context, rope)
            cache.write(number, slots, keys, values, 1)

    def root(self, text: Text, unread: int, upto: int) -> Tensor:
        """Take in the features that have come since, and draft the whole block."""
        self.cache.length = text.length - unread
        slots = self.cache.next_slots(unread)
        self._write(self.cache, self.kept[self.row[:, None], slots], slots)
        n, anchor = self.model.deepest, text.length - 1
        places = torch.arange(upto, device=slots.device)
        sees = ((places <= anchor[:, None]) & (places > 0))[:, None]                            # (B, 1, upto)
        at = anchor[:, None] + torch.arange(n, device=slots.device)
        rope, x = self.cache.rope[:, at][:, :, None, None], self.model.rows(text.last(1), n)    # (2, B, 1, 1, n, D)
        for number, layer in enumerate(self.model.blocks):
            keys, values = (kept[number][:, :upto].transpose(1, 2) for kept in (self.cache.k, self.cache.v))
            x = layer(x, rope, keys, values, sees)
        self.logits, self.depth = self.model.said(x)[:, 0], 0
        return self.behind(text.last(1), upto)

    def behind(self, tokens: Tensor, upto: int, parents: Tensor | None = None) -> Tensor:
        """The next row, for every token in front of it."""
        self.depth += 1
        logits = self.logits[:, self.depth - 1, None].expand(-1, tokens.shape[1], -1)
        return self.model.corrected(logits, tokens)
