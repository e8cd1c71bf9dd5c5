"""How a draft model reads a tree: level by level, each node after its own ancestors.

    1 - 2 - 4       A GPT reads node 1, then nodes 2 and 3, then node 4. They take the cache's
        3           next slots in this order. A node's position is its depth, and it attends to its
                    ancestors alone.

A reader for trees is a reader as GPTReader (reader.py) with one argument more: `step` takes
`parents` (m,) or (B, m), the place among the tokens of the call before that each token follows.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nanospec.cache import Cache, LanguageModel
from nanospec.draft import Draft, Drafter
from nanospec.errors import check_model
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.tree_draft import tree_mask
from nanospec.reader import GPTReader
from nanospec.text import Text


class Branches:
    """Where the nodes of a tree stand in a cache, after the text, and what they attend to."""

    def __init__(self, cache: Cache):
        """The root is the last token in the cache."""
        self.cache, self.start, self.depth = cache, cache.length, 0
        self.own = torch.zeros(len(cache.length), 1, 0, dtype=torch.bool,
                               device=cache.length.device)

    def grow(self, parents: Tensor, kv_length: int) -> dict[str, Any]:
        """The next level: positions (B, m) and attention mask (B, m, kv_length), as Draft.placing.

        parents (m,) or (B, m): which node of the last level each of its nodes follows.
        """
        B, m = len(self.start), parents.shape[-1]
        row = torch.arange(B, device=parents.device)[:, None]
        itself = torch.eye(m, dtype=torch.bool, device=parents.device).expand(B, m, m)
        above = self.own[row, parents.expand(B, m)]         # (B, m, nodes read before this level)
        self.own = torch.cat([above, itself], 2)
        positions = (self.start[:, None] + self.depth).expand(B, m)
        self.depth += 1
        return {"positions": positions,
                "attention_mask": tree_mask(self.cache, self.start, self.own, kv_length)}


class GPTTreeReader(GPTReader):
    """A GPT over trees of at most `depth` levels of draft tokens.

    The accepted path lies scattered in its cache, so `lag` is a whole path: it is read again.
    """

    def __init__(self, model: LanguageModel, depth: int):
        super().__init__(model)
        self.lag = depth + 1

    def start(self, text: Text, lag: int, kv_length: int) -> Tensor:
        logits = super().start(text, lag, kv_length)
        self.branches = Branches(self.cache)
        return logits

    def step(self, tokens: Tensor, kv_length: int, parents: Tensor | None = None, *,
             scored: int | None = None) -> Tensor:
        if parents is None:
            return super().step(tokens, kv_length, scored=scored)
        logits = self.model(tokens, self.cache, kv_length, **self.branches.grow(parents, kv_length))
        self.cache.length = self.cache.length + tokens.shape[1]
        return logits


def longest_chain(draft_model: Any, most: int) -> int:
    """`most` draft tokens one after the other, or as many as this model can draft."""
    return min(most, getattr(draft_model, "deepest", None) or most)


def tree_reader_of(draft_model: Any, depth: int) -> Any:
    """As `reader_of`, for trees of at most `depth` levels of draft tokens."""
    if not hasattr(draft_model, "reader"):
        check_model("the draft model", draft_model)
    if hasattr(draft_model, "reader"):
        return draft_model.reader(depth)
    return GPTTreeReader(draft_model, depth)


class TreeOfModel(Drafter):
    """What drafters share whose trees one draft model makes: they read with `reader`."""

    rule, fixed, per_row = staticmethod(verify_tree), True, ("reader",)
    reader: Any

    def begin(self, text: Text) -> None:
        """Make room for these texts."""
        self.reader.begin(text)

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """Read the prompts."""
        self.reader.read(text, rows, hidden)

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None, logits: Tensor) -> None:
        """Tell the reader, which may keep hidden states of what was accepted."""
        self.reader.commit(path, count, hidden)
