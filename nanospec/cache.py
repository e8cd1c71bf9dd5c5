"""The KV cache: what attention has computed for the committed text is kept, not computed again.

All memory is allocated once. A call writes into the slots that it is told, and reads the first
`kv_length` slots. To roll back is to lower `length`: what lies above it is stale, no token may
attend to it, and the next call overwrites it.

Left out: paging and eviction (a cache serves one batch of texts), and gradients.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
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
