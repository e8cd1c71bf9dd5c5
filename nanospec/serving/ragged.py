"""Drafts of different lengths in one batch, without computing the nodes that a text lacks.

    x x x x x       text 1 has four draft tokens, text 2 one, text 3 none: 8 nodes of 15 exist
    x x . . .       everything but attention takes these 8 as one text of 8 tokens; attention
    x . . . .       takes the rectangle, and what it gives for the dots is dropped

One object stands in the place of both the target and the drafter in `one_round`: as a drafter it
notes which nodes exist, as a target it computes no others (their logits are zeros). For GPTs; any
other target is called as it is.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from nanospec.attention import Call, cached_call
from nanospec.cache import Cache, LanguageModel
from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.model import GPT
from nanospec.text import Text


class Ragged:
    """A target and a drafter; all else is the drafter's. exist: (N,), nodes b n + i; None: all."""

    def __init__(self, target: LanguageModel, drafter: Drafter):
        self.target, self.drafter = target, drafter
        self.exist: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "drafter":                   # a copy that has none yet
            raise AttributeError(name)
        return getattr(self.drafter, name)

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        draft = self.drafter.propose(text, sampling, dice, kv_length, lag)
        exist = draft.exist                                                     # (B, n)
        exist[:, 0] = True
        places = exist.flatten().nonzero()[:, 0]                            # waits for the device
        self.exist = places if len(places) < exist.numel() else None
        return draft

    def __call__(self, tokens: Tensor, cache: Cache, kv_length: int, *, layers: Sequence[int] = (),
                 **placing: Any) -> Any:
        """As GPT.forward with a cache. placing: as Draft.placing has it."""
        gpt = self.target
        if self.exist is None or type(gpt) is not GPT:      # a Steady has a forward of its own
            return gpt(tokens, cache, kv_length, layers=layers, **placing)
        call = cached_call(gpt.config, tokens.shape[1], cache, kv_length, **placing)
        call = RaggedCall(call, self.exist)
        x, hidden = gpt.through(call.packed(gpt.embedding(tokens)), call, layers)
        logits = call.spread(gpt.head(gpt.norm(x)))
        return (logits, call.spread(hidden)) if layers else logits


class RaggedCall(Call):
    """A call on some of the B T tokens: all but attention takes them as one text of N.

    exist (N,): which, counted text by text.
    """

    def __init__(self, call: Call, exist: Tensor):
        super().__init__(**vars(call))
        self.exist, self.rope = exist, call.rope[:, :, 0].flatten(1, 2)[:, exist]       # (2, N, D)

    def packed(self, x: Tensor) -> Tensor:
        """(B, T, ...) -> (1, N, ...)."""
        return x.flatten(0, 1)[self.exist][None]

    def spread(self, x: Tensor) -> Tensor:
        """(1, N, ...) -> (B, T, ...), zeros where no node exists."""
        B, T = self.slots.shape
        all_rows = x.new_zeros(B * T, *x.shape[2:]).index_copy_(0, self.exist, x[0])
        return all_rows.unflatten(0, (B, T))

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (self.spread(part.transpose(1, 2)).transpose(1, 2) for part in (q, k, v))
        return self.packed(super().attend(layer, q, k, v).transpose(1, 2)).transpose(1, 2)
