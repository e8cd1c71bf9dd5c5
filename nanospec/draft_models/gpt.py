"""A GPT as a draft model: it reads every token once, and a cache keeps what it has read.

    1 - 2 - 4       Of this tree a GPT reads row 1, then rows 2 and 3, then row 4. The rows stand in the cache's slots
        3           in this order, behind the text. A row's position is its depth, and it sees its ancestors alone.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nanospec.cache import Cache, LanguageModel
from nanospec.draft import Draft
from nanospec.draft_models.reader import Reader
from nanospec.text import Text, check_vocabulary, prefill


def reader_of(draft) -> Reader:
    """A new reader for a draft model: its own kind, if it has one."""
    return draft.reader() if hasattr(draft, "reader") else GPTReader(draft)


class Branches:
    """Where the rows of a tree stand in a cache, behind the text, level by level, and what they see."""

    def __init__(self, cache: Cache):
        """The root is the last token in the cache."""
        self.cache, self.start, self.depth = cache, cache.length, 0
        self.sees = torch.zeros(len(cache.length), 1, 0, dtype=torch.bool, device=cache.length.device)

    def grow(self, parents: Tensor, upto: int) -> tuple[Tensor, Tensor]:
        """The next level. parents (m,) or (B, m): behind which row of the last level each of its rows stands.

        Returns positions (B, m), and what is seen (B, m, upto), for a GPT's forward: all the text and one's ancestors.
        """
        B, m = len(self.start), parents.shape[-1]
        rows = torch.arange(B, device=parents.device)[:, None]
        own = torch.eye(m, dtype=torch.bool, device=parents.device).expand(B, m, m)
        self.sees = torch.cat([self.sees[rows, parents.expand(B, m)], own], 2)      # (B, m, rows read so far)
        positions = (self.start[:, None] + self.depth).expand(B, m)
        self.depth += 1
        return positions, self.cache.sees_tree(self.start, self.sees, upto)


class GPTReader(Reader):
    """Reads with a GPT, or with whatever answers as one."""

    text: Any = None                                        # a Text, once there is one
    cache: Cache

    def __init__(self, model: LanguageModel):
        self.model = model

    def meet(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        """A text that it does not know yet gets a new cache."""
        check_vocabulary(self.model, text.vocab_size)
        if text is not self.text:
            self.text, self.cache = text, self.model.new_cache(*text.tokens.shape)

    def read_prompts(self, rows: Sequence[int]) -> None:
        prefill(self.model, self.text, rows, self.cache)

    def move(self, rows: Sequence[int], count: int) -> None:
        self.cache.move(rows, count)

    def root(self, text: Text, unread: int, upto: int) -> Tensor:
        """Read the last `unread` tokens of every text."""
        self.cache.length = text.length - unread            # this is also the roll-back of whatever was rejected
        logits = self._read(text.last(unread), upto)[:, -1:]
        self.branches = Branches(self.cache)
        return logits

    def behind(self, tokens: Tensor, upto: int, parents: Tensor | None = None) -> Tensor:
        """Read draft tokens, each into a slot of its own."""
        # Of a chain, position = slot, and all before it is seen.
        return self._read(tokens, upto, *(() if parents is None else self.branches.grow(parents, upto)))

    def _read(self, tokens: Tensor, upto: int, *tree: Tensor) -> Tensor:
        logits = self.model(tokens, self.cache, upto, *tree)
        self.cache.length = self.cache.length + tokens.shape[1]
        return logits

    def commit(self, text: Text, draft: Draft, accepted: Tensor, features: Tensor | None) -> None:
        """Nothing to do: the next proposal rolls back, and a model is what it is."""
