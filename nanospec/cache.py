"""The KV cache: what attention has computed for the committed text is kept, and never computed again.

All memory is allocated once. A call writes to the slots that it is told, and reads the first `upto` slots.
To roll back is to lower `length`. What lies above `length` is stale. Nobody looks at it, and the next call writes over
it.

Left out: paging and eviction. One cache serves one batch of texts, up to a fixed number of slots.
Left out: gradients, because a cache is written in place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
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

        A negative length is allowed. A drafter feeds the last two tokens of a text, and a text may have only one. That
        token is then fed twice, both times into slot 0.
        """
        return (self.length[:, None] + self._count[:tokens]).clamp(min=0)

    def sees(self, slots: Tensor, upto: int) -> Tensor:
        """(B, T, upto) bool: a token sees every slot up to and including its own. All stale slots lie above."""
        return self._count[:upto] <= slots[:, :, None]

    def sees_tree(self, start: Tensor, own: Tensor, upto: int) -> Tensor:
        """(B, T, upto) bool for the rows of a tree. Every row sees all slots below `start` (B,).

        From there on, own (B, T, W) says what a row sees: its column j speaks of slot start + j.
        """
        B, T, W = own.shape
        slots = (start[:, None] + self._count[:W])[:, None].expand(B, T, W)
        below = (self._count[:upto] < start[:, None])[:, None].expand(B, T, upto)
        return below.scatter(2, slots, own)

    def as_mask(self, sees: Tensor) -> Tensor:
        """What is added to the scores of attention: 0 where a slot is seen, minus infinity where it is not."""
        return torch.where(sees, self._seen, self._unseen)

    def commit(self, start: Tensor, path: Tensor) -> None:
        """Copy slots start + path to start, start + 1, and so on, in every row.

        The tree was read into the slots from `start` (B,) on. Its accepted path (B, n) is now the text.
        """
        to, path = start[:, None] + self._count[:path.shape[1]], start[:, None] + path
        if torch.compiler.is_compiling():       # it would copy whatever is written under two names, kv and k or v
            for part in (*self.k, *self.v):
                part[self._row, to] = part[self._row, path]
        else:
            self.kv[:, :, self._row, to] = self.kv[:, :, self._row, path]

    def put(self, rows: list[int], other: "Cache") -> None:
        """Take over the contents of `other`, a cache of fewer rows. Its row i becomes row rows[i].

        What stood there goes: a mask hides every stale number but NaN, which attention would hand on.
        """
        self.kv[:, :, rows] = 0
        self.kv[:, :, rows, :other.kv.shape[3]] = other.kv

    def move(self, rows: Sequence[int], count: int) -> None:
        """A batch of `count` rows: what stood in row rows[i] stands in row i. The others are empty."""
        self.kv, self.length = moved(self.kv, rows, count, 2), moved(self.length, rows, count)
        self.k, self.v = self.kv[:, 0].unbind(), self.kv[:, 1].unbind()
        self._row = torch.arange(count, device=self.kv.device)[:, None]

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor, upto: int) -> tuple[Tensor, Tensor]:
        """Put k, v (B, H_kv, T, D) into `slots` (B, T). Return the layer's first `upto` slots of both."""
        self.k[layer][self._row, slots] = k.transpose(1, 2)
        self.v[layer][self._row, slots] = v.transpose(1, 2)
        return self.k[layer][:, :upto].transpose(1, 2), self.v[layer][:, :upto].transpose(1, 2)


def grouped_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """What queries (B, H, T, D) find in keys and values (B, H_kv, S, D): (B, H, T, D).

    mask: as in Call, or (B, 1, 1, S) where every query sees the same.
    Heads of one group read the same keys, so to the kernel they are just more queries. (enable_gqa says the same, four
    times slower here: one token, bfloat16, CPU.)
    """
    grouped = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])                 # (B, H_kv, H / H_kv * T, D)
    return F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask).view(q.shape)


@dataclass
class Call:
    """What one forward call tells every layer: where its tokens stand, where they are kept, what they see."""

    rope: Tensor                    # (2, B, 1, T, D): cos and sin; (2, T, D) without a cache
    cache: Cache | None = None
    slots: Tensor | Any = None      # (B, T); with a cache there is one, and a mask
    mask: Tensor | Any = None       # (B, 1, H / H_kv * T, upto), added to the scores
    upto: int = 0

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """What queries (B, H, T, D) find: (B, H, T, D). With a cache, keys and values (B, H_kv, T, D) are written
        first, and then all are read.
        """
        if self.cache is None:                                                  # training: the whole text at once
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        k, v = self.cache.write(layer, self.slots, k, v, self.upto)             # (B, H_kv, upto, D)
        return grouped_attention(q, k, v, self.mask)


class RaggedCall(Call):
    """A call on some of the B T tokens, one behind the other: everything but attention takes them as one row of N.

    there (N,): which, counted row by row. What is read of the others is never looked at.
    """

    def __init__(self, call: Call, there: Tensor):
        super().__init__(**vars(call))
        self.there, self.rope = there, call.rope[:, :, 0].flatten(1, 2)[:, there]           # (2, N, D)

    def packed(self, x: Tensor) -> Tensor:
        """(B, T, ...) -> (1, N, ...)."""
        return x.flatten(0, 1)[self.there][None]

    def spread(self, x: Tensor) -> Tensor:
        """(1, N, ...) -> (B, T, ...), zeros where nothing is."""
        B, T = self.slots.shape
        return x.new_zeros(B * T, *x.shape[2:]).index_copy_(0, self.there, x[0]).unflatten(0, (B, T))

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (self.spread(part.transpose(1, 2)).transpose(1, 2) for part in (q, k, v))
        return self.packed(super().attend(layer, q, k, v).transpose(1, 2)).transpose(1, 2)


def cached_call(config: Any, T: int, cache: Cache, upto: int | None = None, positions: Tensor | None = None,
                sees: Tensor | None = None) -> Call:
    """A call on T tokens a row of a GPT with this `config`. upto, positions, sees: as GPT.forward describes them."""
    if upto is None:
        upto = int(cache.length.max()) + T
    slots, group = cache.next_slots(T), config.heads // config.kv_heads
    rope = cache.rope[:, slots if positions is None else positions]
    sees = cache.sees(slots.repeat(1, group), upto) if sees is None else sees.repeat(1, group, 1)
    return Call(rope[:, :, None], cache, slots, cache.as_mask(sees)[:, None], upto)


class LanguageModel(Protocol):
    """What says which token may come next: a GPT, or whatever stands in its place and answers as `GPT.forward` does.

    config: as a GPT's.
    """

    config: Any

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def new_cache(self, rows: int, slots: int) -> Cache: ...

    def __call__(self, *call: Any, **more: Any) -> Any: ...


def moved(of_rows: Tensor, rows: Sequence[int], count: int, dim: int = 0) -> Tensor:
    """A tensor of `count` rows (dimension `dim`): row rows[i] of `of_rows` becomes row i. The others are zeros.

    In place where there is room, so that a row that stays where it is costs nothing. Then rows[i] >= i for every i.
    """
    there = of_rows.shape[dim]
    out = (of_rows.narrow(dim, 0, count) if count <= there else
           of_rows.new_zeros(*of_rows.shape[:dim], count, *of_rows.shape[dim + 1:]))
    for i, b in enumerate(rows):                # none moves up, so no row is written before it was read
        if i != b or count > there:
            out.select(dim, i).copy_(of_rows.select(dim, b))
    out.narrow(dim, len(rows), count - len(rows)).zero_()
    return out
