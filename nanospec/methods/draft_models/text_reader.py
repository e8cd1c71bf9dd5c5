"""What runs a learned draft model over B texts.

A reader has the methods of GPTReader (nanospec/reader.py). For a tree's level `step` has `parents`,
as in methods/trees/tree_reader.py.

The target's hidden states are kept for every place of a text, not in the order in which they came:
a text may shrink, and those of rejected tokens must go.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nanospec.cache import Cache
from nanospec.errors import RequestError
from nanospec.methods.draft_models.layer import Reading
from nanospec.methods.draft_models.learned import Learned
from nanospec.methods.trees.tree_reader import longest_chain
from nanospec.text import Text


class LearnedReader:
    """For models that keep nothing of the text but a state.

    kept: (B, S, len(layers), C); kept[:, i] are the hidden states before token i.
    state: (B, m, ...), after every token of the last call.
    lag: as GPTReader has it. Only the last token has to be read.
    keeps_nodes: whether draft tokens take slots of a cache.
    """

    keeps_nodes = False
    per_row: tuple[str, ...] = ("kept",)
    text: Text
    lag = 1

    def __init__(self, model: Learned, depth: int):
        """RequestError if the model cannot draft `depth` tokens one after the other."""
        if depth > longest_chain(model, depth):
            raise RequestError(f"this draft model drafts at most {model.deepest} tokens one after "
                               f"the other, asked for {depth}")
        self.model, self.depth, self.layers = model, depth, model.layers

    def begin(self, text: Text) -> None:
        """A batch begins, as for Drafter."""
        own, target = self.model.vocab_size, text.vocab_size
        if target != own:
            raise RequestError(f"the draft model has a vocabulary of {own} tokens, the target "
                               f"one of {target}")
        self.text = text
        self.kept = torch.zeros(*text.tokens.shape, len(self.layers), self.model.channels,
                                dtype=self.model.dtype, device=text.tokens.device)

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | Any) -> None:
        """New requests, as for Drafter."""
        own, target = self.model.channels, hidden.shape[3]
        if target != own:
            raise RequestError(f"the draft model reads hidden states of {own} channels, the "
                               f"target's have {target}")
        self.kept[list(rows), 1:hidden.shape[1] + 1] = hidden.to(self.kept)

    def start(self, text: Text, lag: int, kv_length: int) -> Tensor:
        """Read the last `lag` tokens of every text: logits (B, 1, V) of the next one."""
        last = torch.arange(-lag, 0, device=text.length.device)
        places = (text.length[:, None] + last).clamp(min=0)                     # (B, lag)
        before, call = self.kept[self._row, places], self._of_text(places, kv_length)
        self.state, logits = self.model.read(text.last(lag), before, call)
        return self.model.spread(logits)

    def step(self, tokens: Tensor, kv_length: int, parents: Tensor | None = None) -> Tensor:
        """Read draft tokens (B, m): logits (B, m, V). parents: as in trees/tree_reader.py."""
        if parents is not None:
            self.state = self.state[self._row, parents.expand_as(tokens)]
        call = self._of_draft(tokens, kv_length, parents)
        self.state, logits = self.model.step(self.state, tokens, call)
        return self.model.spread(logits)

    def commit(self, path: Tensor, count: Tensor, hidden: Tensor | Any) -> None:
        """Keep the hidden states of the accepted path, as for Drafter.

        Node 0 of the draft was the last token of the text before the round.
        """
        first = self.text.length - count - 1            # the place of the path's first draft token
        places = first[:, None] + torch.arange(path.shape[1], device=path.device)
        self.kept[self._row, places] = hidden[self._row, path].to(self.kept)

    @property
    def _row(self) -> Tensor:
        return torch.arange(len(self.kept), device=self.kept.device)[:, None]

    def _of_text(self, places: Tensor, kv_length: int) -> Reading:
        """The call that reads the committed tokens at these places (B, T). The last one asks."""
        return Reading(asks=slice(-1, None), steps=self.depth)

    def _of_draft(self, tokens: Tensor, kv_length: int, parents: Tensor | None) -> Reading:
        """The call that reads draft tokens."""
        return Reading()


class TextReader(LearnedReader):
    """For models with attention: the keys and values of the text are kept, none of a draft token.

    Every round the last tokens are read again, now that the target's hidden states of them are
    there: at most `depth` accepted ones, and the token that followed.
    """

    per_row = ("kept", "cache")
    cache: Cache

    def __init__(self, model: Learned, depth: int):
        super().__init__(model, depth)
        self.lag = depth + 1

    def begin(self, text: Text) -> None:
        """A batch begins: a new cache for it."""
        super().begin(text)
        B, S = text.tokens.shape
        self.table = self.model.rope(S + (self.model.deepest or 0))
        self.cache = self._new_cache(B, S)

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | Any) -> None:
        """Read the prompts of new requests but for their last tokens."""
        rows = list(rows)
        super().read(text, rows, hidden)
        width = int(text.length[rows].max()) - 1
        if width:
            part = self._new_cache(len(rows), width)
            places = torch.arange(width, device=text.length.device).expand(len(rows), -1)
            call = self._of_text(places, width, part)
            self.model.read(text.tokens[rows, :width], self.kept[rows, :width], call)
            self.cache.put(rows, part)

    def _new_cache(self, rows: int, slots: int) -> Cache:
        config: Any = self.model.config
        return Cache(rows, config.layers, config.kv_heads, self.table[:, :slots])

    def _of_text(self, places: Tensor, kv_length: int, cache: Cache | None = None) -> Reading:
        cache, self.place = cache or self.cache, places[:, -1]                  # (B,)
        text = cache.causal_mask(places[:, -1:], kv_length)                     # (B, 1, kv_length)
        self.mask = cache.scores(text)[:, None]                                 # for all heads
        rope = self.table[:, places][:, :, None]                                # (2, B, 1, T, D)
        return Reading(rope, cache, places, self.mask, kv_length, slice(-1, None), self.depth,
                       self.table, places, text)

    def _of_draft(self, tokens: Tensor, kv_length: int, parents: Tensor | None) -> Reading:
        """All tokens of a call stand at the same place, and ask the same text."""
        self.place = self.place + 1
        rope = self.table[:, self.place][:, :, None, None]                      # (2, B, 1, 1, D)
        return Reading(rope, self.cache, mask=self.mask, kv_length=self.mask.shape[-1])
