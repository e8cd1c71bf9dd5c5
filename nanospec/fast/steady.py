"""A GPT whose answers are the same, bit by bit, in whatever call a token is read.

    steady(model)               # the model itself

Verification reads several tokens in the call in which plain decoding reads one. The numbers should
be the same, and in float32 they are up to the order of sums, a few parts in ten million. A model
that rounds on its way, to bfloat16 or to 8 bits, makes that larger: here and there such a
difference turns one rounding over, and every layer after it adds its own. What comes out is then as
far from plain decoding as from the model before it was rounded.

Where does the order of sums depend on the call? Not in norms, rotations or gates, which go through
each token alone, and not in products of whole numbers (int8.py). In attention it does: the kernel
takes another product where a few queries are left over, and it divides the slots by how many there
are. So a call has more queries where a few would be left over, and its slots end where the kernel
divides those before as in every other call. What is added is read, and not answered. (He et al.
2025, Defeating nondeterminism in LLM inference, call it batch invariance.)

A tree's tokens lie in other slots than plain decoding's, and there are no such numbers for them:
this is for chains, copies among them. Which numbers they are depends on torch's kernels, so they
are tried on this machine.
"""

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.cache import Cache
from nanospec.model import GPT

BLOCK = 512                     # slots that torch's kernel goes through at a time
ENDS = ((192, 384, BLOCK), (BLOCK,))            # in each block, where a call's slots may end
QUERIES, FEW = 32, 4  # queries of a head that it goes through at a time; fewer of them are too few


class Steady(GPT):
    """ends: one of ENDS."""

    ends: Sequence[int]

    def new_cache(self, rows: int, slots: int) -> Cache:
        """With room for the tokens that `forward` adds, too."""
        return super().new_cache(rows, up_to(self.ends, slots + FEW - 1))

    def forward(self, tokens: Tensor, cache: Cache | None = None, kv_length: int | None = None,
                positions: Tensor | None = None, attention_mask: Tensor | None = None,
                layers: Sequence[int] = (),
                scored: int | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """As GPT's. Where few queries would be left over, the last token is read several times."""
        if cache is None:
            return super().forward(tokens, layers=layers, scored=scored)
        T = tokens.shape[1]
        added = lacking(T, self.config.heads // self.config.kv_heads)
        slots = int(cache.length.max()) + T if kv_length is None else kv_length
        slots = up_to(self.ends, slots + added)
        if attention_mask is not None:
            attention_mask = F.pad(with_repeats(attention_mask, added),
                                   (0, slots - attention_mask.shape[2]))
        scored = T if scored is None else scored
        positions = None if positions is None else with_repeats(positions, added)
        out: Any = super().forward(with_repeats(tokens, added), cache, slots, positions,
                                   attention_mask, layers, scored + added if scored else 0)
        return (out[0][:, :scored], out[1][:, :T]) if layers else out[:, :scored]


def with_repeats(x: Tensor, times: int) -> Tensor:
    """x (B, T, ...), its last element so many times more: (B, T + times, ...)."""
    return torch.cat([x, *[x[:, -1:]] * times], 1) if times else x


def lacking(tokens: int, group: int) -> int:
    """How many more tokens a call needs, so that no few queries of a group are left over."""
    return next(more for more in range(FEW) if not 0 < group * (tokens + more) % QUERIES < FEW)


def up_to(ends: Sequence[int], slots: int) -> int:
    """The fewest slots, and at least so many, at which a call may end."""
    blocks, rest = divmod(slots, BLOCK)
    return blocks * BLOCK + min(end for end in (0, *ends) if end >= rest)


@torch.inference_mode()
def are_steady(ends: Sequence[int], heads: int, head_size: int) -> bool:
    """Whether attention's kernel gives a query the same answer in all calls that end so, tried on
    some numbers.

    heads: of keys and values.
    """
    allowed = [blocks * BLOCK + end for blocks in range(2) for end in ends]
    numbers = 3 * heads * allowed[-1] * head_size
    waves = torch.arange(numbers, device="cpu").mul(0.7).sin()
    q, k, v = waves.view(3, 1, heads, allowed[-1], head_size).unbind()

    def answers(queries: int, seen: int, slots: int) -> Tensor:
        hidden = torch.where(torch.arange(slots, device="cpu") < seen, 0.0,
                             float("-inf"))[None, None, None]
        found = F.scaled_dot_product_attention(q[:, :, :queries], k[:, :, :slots], v[:, :, :slots],
                                               attn_mask=hidden.expand(1, 1, queries, slots))
        return found[:, :, :FEW]

    return all(torch.equal(answers(FEW, seen, slots), answers(queries, seen, more))
               for slots, more in product(allowed, allowed) if more >= slots
               for seen in (slots // 3, slots)
               for queries in (*range(FEW, FEW + 6), QUERIES, QUERIES + FEW))


@cache
def ends_here(heads: int, head_size: int, threads: int) -> Sequence[int] | None:
    """The first of ENDS that are steady here with so many threads; None if none are."""
    return next((ends for ends in ENDS if are_steady(ends, heads, head_size)), None)


def steady(model: GPT) -> GPT:
    """The model itself, a Steady from now on; as before where nothing is steady here."""
    ends = ends_here(model.config.kv_heads, model.config.head_size, torch.get_num_threads())
    if ends and model.device.type == "cpu":
        model.__class__ = Steady
        setattr(model, "ends", ends)
    return model
