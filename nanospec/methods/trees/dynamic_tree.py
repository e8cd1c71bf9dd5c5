"""A tree that is grown where the draft model is sure: a different shape for every text.

EAGLE-2 (Li et al. 2024, arXiv 2406.16858). A node's confidence is the product of the draft model's
probabilities along its path: about the chance that the target accepts the whole path.

    expand   on every level the `width` most confident nodes get `width` children each, their
             likeliest tokens
    rerank   of all nodes that were made, the `count` most confident are the draft

A child is never more confident than its parent, and where they tie the parent stands first. So the
choice is a tree.
No token is drawn: which nodes there are follows from the text alone. So every q_draft is one-hot,
and the node rule of methods/trees/node_rule.py is exact.
"""

from collections.abc import Callable
from numbers import Integral
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice
from nanospec.errors import RequestError, check_gamma, check_numbers
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.methods.trees.tree_reader import TreeOfModel, longest_chain, tree_reader_of
from nanospec.text import Text


class DynamicTree(TreeOfModel):
    """count: draft tokens a round, at most. width: see above. depth: the levels of draft tokens.

    The draft model reads `width` nodes a level. Without a depth it reads no more nodes in all than
    the draft has. EAGLE-2 has count 60, width 10 and depth 6.
    """

    uniforms = 0                                            # none is taken

    def __init__(self, draft_model: Any, count: int = 8, width: int = 2, depth: int | None = None):
        self.most, self.width = check_gamma(count, "the draft tokens of a tree"), width
        check_numbers(Integral, width=width, depth=1 if depth is None else depth)
        for name, number in ("width", width), ("depth", 1 if depth is None else depth):
            if number < 1:
                raise RequestError(f"a tree's {name} must be 1 or more, got {number}")
        self.depth = longest_chain(draft_model, depth or min(1 + count // width, count))
        self.reader = tree_reader_of(draft_model, self.depth)
        # A cache has room for as many as a draft has.
        nodes = (width if getattr(self.reader, "keeps_nodes", True) else 1) * (self.depth - 1)
        if nodes > count:
            raise RequestError(f"a tree of width {width} and depth {self.depth} is grown from "
                               f"{nodes} nodes that the draft model reads: then its size must be "
                               f"as large, got {count}")
        self.layers = self.reader.layers

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> TreeDraft:
        """Every text has a tree of its own, of up to count draft tokens."""
        logits = self.reader.start(text, max(lag, self.reader.lag), kv_length)      # (B, 1, V)
        B, _, V = logits.shape
        width, made = min(self.width, V), 0
        # Of all nodes that are made. parents: these nodes' parents, by number; 0 is the root.
        tokens, parents, sures = [], [], []
        # Of the nodes that get children.
        sure, numbers = logits.new_zeros(B, 1), text.length.new_zeros(B, 1)
        while True:
            likely, token = logits.log_softmax(-1).topk(width)                  # (B, nodes, width)
            tokens.append(token.flatten(1))
            parents.append(numbers.repeat_interleave(width, 1))
            sures.append((sure[:, :, None] + likely).flatten(1))    # logarithms of the confidence
            if len(tokens) == self.depth:
                return self._chosen(text, len(tokens),
                                    *(torch.cat(part, 1) for part in (tokens, parents, sures)))
            sure, best = sures[-1].topk(width)                                      # (B, width)
            numbers = made + 1 + best
            made += tokens[-1].shape[1]
            logits = self.reader.step(tokens[-1].gather(1, best), kv_length, best // width)

    def _chosen(self, text: Text, depth: int, tokens: Tensor, parents: Tensor,
                sures: Tensor) -> TreeDraft:
        """The most confident of all nodes, in the order in which they were made."""
        best = sures.sort(descending=True, stable=True).indices[:, :self.most]
        chosen = best.sort().values                                                 # (B, n)
        # A node's number in the draft.
        number = F.pad(F.one_hot(chosen, tokens.shape[1]).sum(1).cumsum(1), (1, 0))
        parents = F.pad(number.gather(1, parents.gather(1, chosen)), (1, 0), value=-1)
        tokens = torch.cat([text.last(1), tokens.gather(1, chosen)], 1)
        q_draft = F.one_hot(tokens, text.vocab_size)
        q_draft = q_draft.to(torch.promote_types(sures.dtype, torch.float32))
        q_draft[:, 0] = 0
        return TreeDraft(tokens, q_draft, parents, depth)
