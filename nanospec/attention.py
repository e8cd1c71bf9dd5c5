"""Attention of one forward call: which slots its tokens are written to, and which they may see.

A model's layers do the rest (model.py). The cache, which outlives the call, keeps none of this.
"""

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from nanospec.cache import Cache


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
