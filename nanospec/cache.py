"""The KV cache: what attention has already computed for the committed text, kept so that it is never redone.

Everything is allocated once. Writing goes by slot, reading takes the first `upto` slots, and rolling back is
lowering `length`: what lies above it is stale, is never looked at, and is written over by the next call.

Left out: paging and eviction; one cache serves one batch of texts up to a fixed number of slots. Gradients: a cache is
written in place.
"""

import torch
from torch import Tensor


class Cache:
    """Keys and values of all layers for B rows of S slots.

    kv:        (L, 2, B, S, H_kv, D);  k, v: its L parts, each (B, S, H_kv, D)
    length:    (B,) int64, how many slots of each row hold committed text
    rope:      (2, S, D), the model's rotation for every position
    """

    def __init__(self, rows: int, layers: int, kv_heads: int, rope: Tensor):
        _, slots, head_size = rope.shape
        self.kv = rope.new_zeros(layers, 2, rows, slots, kv_heads, head_size)   # the table's dtype and device
        self.k, self.v = self.kv[:, 0].unbind(), self.kv[:, 1].unbind()
        self.rope = rope
        self.length = torch.zeros(rows, dtype=torch.int64, device=rope.device)
        self._count = torch.arange(slots, device=rope.device)
        self._row = torch.arange(rows, device=rope.device)[:, None]
        self._seen, self._unseen = rope.new_zeros(()), rope.new_full((), float("-inf"))

    def next_slots(self, tokens: int) -> Tensor:
        """(B, T): the slots of the next T tokens, those right above `length`.

        A negative length is allowed: a text of one token has no "last two", so its only token is fed twice, both times
        into slot 0.
        """
        return (self.length[:, None] + self._count[:tokens]).clamp(min=0)

    def sees(self, slots: Tensor, upto: int) -> Tensor:
        """(B, T, upto) bool: a token sees every slot up to and including its own. Whatever is stale lies above."""
        return self._count[:upto] <= slots[:, :, None]

    def sees_tree(self, start: Tensor, own: Tensor, upto: int) -> Tensor:
        """(B, T, upto) bool for the rows of a tree: all slots below `start` (B,), and from there on those that
        `own` (B, T, W) says, slot start + j by its column j.
        """
        B, T, W = own.shape
        slots = (start[:, None] + self._count[:W])[:, None].expand(B, T, W)
        below = (self._count[:upto] < start[:, None])[:, None].expand(B, T, upto)
        return below.scatter(2, slots, own)

    def as_mask(self, sees: Tensor) -> Tensor:
        """What is added to attention's scores: 0 where it is seen, minus infinity where it is not."""
        return torch.where(sees, self._seen, self._unseen)

    def commit(self, start: Tensor, path: Tensor) -> None:
        """Copy slots start + path to start, start + 1, and so on, in every row: of a tree that was read from `start`
        (B,) on, the accepted path (B, n) is now the text.
        """
        to, path = start[:, None] + self._count[:path.shape[1]], start[:, None] + path
        if torch.compiler.is_compiling():       # it would copy whatever is written under two names, kv and k or v
            for part in (*self.k, *self.v):
                part[self._row, to] = part[self._row, path]
        else:
            self.kv[:, :, self._row, to] = self.kv[:, :, self._row, path]

    def put(self, rows: list[int], other: "Cache") -> None:
        """Take over what `other`, a cache of fewer rows, holds: its row i becomes row rows[i]."""
        self.kv[:, :, rows, :other.kv.shape[3]] = other.kv

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor, upto: int) -> tuple[Tensor, Tensor]:
        """Put k, v (B, H_kv, T, D) into `slots` (B, T); give back the layer's first `upto` slots of both."""
        self.k[layer][self._row, slots] = k.transpose(1, 2)
        self.v[layer][self._row, slots] = v.transpose(1, 2)
        return self.k[layer][:, :upto].transpose(1, 2), self.v[layer][:, :upto].transpose(1, 2)
