"""The KV cache: what attention has computed for the committed text is kept, not computed again.

All memory is allocated once. A call writes into the slots that it is told, and reads the first
`kv_length` slots. To roll back is to lower `length`: what lies above it is stale, no token may
attend to it, and the next call overwrites it.

Left out: paging and eviction (a cache serves one batch of texts), and gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Cache:
    """Keys and values of all layers for B texts of S slots.

    kv:        (L, 2, B, S, H_kv, D);  k, v: its L parts, each (B, S, H_kv, D). In memory H_kv
               stands before S: attention then reads a batch faster
    length:    (B,) int64, how many slots of each text hold committed tokens
    rope:      (2, S, D), the model's rotation for every position (`rope_table` in model.py)
    """

    def __init__(self, rows: int, layers: int, kv_heads: int, rope: Tensor):
        _, slots, head_size = rope.shape
        self.kv = rope.new_zeros(layers, 2, rows, kv_heads, slots, head_size).transpose(3, 4)
        self.rope = rope
        self.length = torch.zeros(rows, dtype=torch.int64, device=rope.device)
        self._slots = torch.arange(slots, device=rope.device)
        self._seen, self._unseen = rope.new_zeros(()), rope.new_full((), float("-inf"))
        self.index()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy that was pickled: its parts are parts of its `kv` again."""
        self.__dict__ |= state
        self.index()

    def index(self) -> None:
        """Name the parts of `kv`. To be called again when `kv` has been replaced."""
        self.k, self.v = self.kv[:, 0].unbind(), self.kv[:, 1].unbind()
        self._row = torch.arange(self.kv.shape[2], device=self.kv.device)[:, None]

    def next_slots(self, tokens: int) -> Tensor:
        """(B, T): the slots of the next T tokens, those right above `length`.

        A negative length is allowed: a drafter feeds the last two tokens of a text, and a text may
        have only one. That token is then fed twice, both times into slot 0.
        """
        return (self.length[:, None] + self._slots[:tokens]).clamp(min=0)

    def causal_mask(self, slots: Tensor, kv_length: int) -> Tensor:
        """(B, T, kv_length) bool: a token attends to every slot up to and including its own."""
        return self._slots[:kv_length] <= slots[:, :, None]

    def scores(self, attention_mask: Tensor) -> Tensor:
        """What is added to the scores of attention: 0 where the mask is True, else -infinity."""
        return torch.where(attention_mask, self._seen, self._unseen)

    def put(self, rows: list[int], other: "Cache") -> None:
        """Take over the contents of `other`, a smaller cache: its row i becomes row rows[i].

        What stood there is zeroed: a mask hides every stale number but NaN, which would spread.
        """
        self.kv[:, :, rows] = 0
        self.kv[:, :, rows, :other.kv.shape[3]] = other.kv

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor,
              kv_length: int) -> tuple[Tensor, Tensor]:
        """Put k, v (B, H_kv, T, D) into `slots` (B, T); the first `kv_length` slots of both."""
        self.k[layer][self._row, slots] = k.transpose(1, 2)
        self.v[layer][self._row, slots] = v.transpose(1, 2)
        keys, values = self.k[layer][:, :kv_length], self.v[layer][:, :kv_length]
        return keys.transpose(1, 2), values.transpose(1, 2)


def grouped_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention of queries (B, H, T, D) to keys and values (B, H_kv, S, D): (B, H, T, D).

    mask: as in Call, or (B, 1, 1, S) where every query attends to the same slots.
    The heads of a group read the same keys, so to the kernel they are simply more queries.
    (enable_gqa says the same and is four times slower: one token, bfloat16, CPU.)
    """
    grouped = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])         # (B, H_kv, H / H_kv * T, D)
    return F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask).reshape(q.shape)


@dataclass
class Call:
    """What a forward call tells every layer: its tokens' positions, slots, and attention mask."""

    rope: Tensor                    # (2, B, 1, T, D), cos and sin; (2, T, D) without a cache
    cache: Cache | None = None
    slots: Tensor | Any = None      # (B, T); with a cache there are slots and a mask
    mask: Tensor | Any = None       # (B, 1, H / H_kv * T, kv_length), added to the scores
    kv_length: int = 0

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of queries (B, H, T, D): (B, H, T, D).

        With a cache, keys and values (B, H_kv, T, D) are written first, and then all are read.
        """
        if self.cache is None:                                          # training: whole texts
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        k, v = self.cache.write(layer, self.slots, k, v, self.kv_length)
        return grouped_attention(q, k, v, self.mask)


def cached_call(config: Any, T: int, cache: Cache, kv_length: int | None = None,
                positions: Tensor | None = None, attention_mask: Tensor | None = None) -> Call:
    """A call on T tokens a row of a GPT with this `config`; the arguments of GPT.forward."""
    kv_length = int(cache.length.max()) + T if kv_length is None else kv_length
    slots = cache.next_slots(T)
    rope = cache.rope[:, slots if positions is None else positions]
    if attention_mask is None:
        attention_mask = cache.causal_mask(slots, kv_length)
    for_each_head = attention_mask.repeat(1, config.heads // config.kv_heads, 1)
    return Call(rope[:, :, None], cache, slots, cache.scores(for_each_head)[:, None], kv_length)


class LanguageModel(Protocol):
    """What predicts the next token: a GPT, or what has its `config` and answers as it does."""

    config: Any

    @property
    def device(self) -> torch.device: ...
    @property
    def dtype(self) -> torch.dtype: ...
    def new_cache(self, rows: int, slots: int) -> Cache: ...
    def __call__(self, tokens: Tensor, cache: Cache | None = None, kv_length: int | None = None,
                 *, positions: Tensor | None = None, attention_mask: Tensor | None = None,
                 layers: Sequence[int] = (), scored: int | None = None) -> Any: ...
