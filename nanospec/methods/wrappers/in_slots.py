"""A wrapper of a language model that keeps a whole number for every token, in the token's own slot
of the cache: the state of a grammar (grammar.py), or the token itself (penalties.py).

    slot            0    1    2    3       above `length` nothing counts: what stands there is stale
    keys, values    .    .    .    .       the model's own layers
    number          4    5    6    -       one layer more, which the model never reads

So whatever becomes of the slot becomes of the number: `length` is lowered and it is forgotten, a
path is kept and it moves along, a request gets another row of a batch and takes it with it. Nothing
has to be rolled back.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nanospec.cache import Cache, LanguageModel
from nanospec.errors import check_model

DIGITS = 513            # -256 to 256: the whole numbers that every data type holds exactly
MOST_KEPT = DIGITS ** 2     # numbers are 0 to this, and not this: two digits, one in k, one in v


class InSlots:
    """Stands in the place of `model`, whose logits it changes. RequestError if that is none; what:
    its name in the message.
    """

    def __init__(self, what: str, model: LanguageModel):
        check_model(what, model)
        self.model, self.config = model, model.config
        self.device, self.dtype = model.device, model.dtype
        self.layer = len(model.new_cache(1, 1).k)           # the model's own layers come before it

    def new_cache(self, rows: int, slots: int) -> Cache:
        """The model's, and one layer more for the numbers, all of them 0."""
        cache = self.model.new_cache(rows, slots)
        cache.kv = torch.cat([cache.kv, torch.zeros_like(cache.kv[:1])])
        cache.index()
        return cache

    def __call__(self, tokens: Tensor, cache: Cache | None = None, kv_length: int | None = None,
                 *, layers: Sequence[int] = (), scored: int | None = None, **placing: Any) -> Any:
        """As GPT.forward."""
        cache = cache or self.new_cache(*tokens.shape)
        out = self.model(tokens, cache, kv_length, layers=layers, scored=scored, **placing)
        logits, *hidden = out if layers else (out,)
        logits = self.changed(logits, tokens, cache, placing.get("attention_mask"))
        return (logits, *hidden) if layers else logits

    def changed(self, logits: Tensor, tokens: Tensor, cache: Cache,
                attention_mask: Tensor | None) -> Tensor:
        """What becomes of logits (B, scored, V), those of the last of tokens (B, T). It writes the
        numbers of all T.
        """
        raise NotImplementedError

    def kept(self, cache: Cache) -> Tensor:
        """(B, S) int64, the number in every slot."""
        high, low = (part[self.layer][:, :, 0, 0].long() % DIGITS for part in (cache.k, cache.v))
        return DIGITS * high + low

    def keep(self, cache: Cache, slots: Tensor, numbers: Tensor) -> None:
        """Write numbers (B, T) into slots (B, T)."""
        row = torch.arange(len(slots), device=slots.device)[:, None]
        for part, digit in (cache.k, numbers // DIGITS), (cache.v, numbers % DIGITS):
            signed = digit - DIGITS * (digit > DIGITS // 2)
            part[self.layer][row, slots] = signed[:, :, None, None].to(self.dtype)
