"""A tree that is grown where the draft model is sure: another shape behind every text.

EAGLE-2 (Li et al. 2024, arXiv 2406.16858). A row's confidence is the product of the draft model's probabilities along
its path: about the chance that the target accepts the whole path.

    expand   on every level the `width` most confident rows get `width` children each, their likeliest tokens
    rerank   of all rows that were made, the `count` most confident are the draft

A child is never more confident than its parent, and where they tie the parent stands first. So the choice is a tree.
No token is drawn: which rows there are follows from the text alone. So every q_draft is one-hot, and the node rule of
rules/tree.py is exact.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, check_size
from nanospec.draft_models import DraftModel
from nanospec.draft_models.gpt import reader_of
from nanospec.draft_models.reader import longest_chain
from nanospec.errors import RequestError
from nanospec.probs import Sampling
from nanospec.speculate import ModelDrafter
from nanospec.text import Text


class DynamicTree(ModelDrafter):
    """count: draft tokens a round. width: see above.

    The draft model reads `width` rows a level, and no more rows in all than the draft has: that sets the depth.
    """

    columns = 0                                             # no uniform is taken
    counts = False                                          # whether a text may have fewer rows than another

    def __init__(self, draft: DraftModel, count: int = 8, width: int = 2):
        self.draft, self.reader, self.width = draft, reader_of(draft), width
        self.size, self.layers = check_size(count + 1, "the draft tokens of a tree"), self.reader.layers
        if width < 1:
            raise RequestError(f"a tree's width must be 1 or more, got {width}")
        self.depth = longest_chain(self.reader, min(1 + count // width, count))
        self.unread = self.depth + 1                        # the accepted path lies scattered in a draft's cache

    def propose(self, text: Text, sampling: Sampling, dice: Dice, upto: int) -> Draft:
        """Every text has a tree of its own, of up to count draft tokens."""
        logits = self.reader.root(text, self.unread, upto)                          # (B, 1, V)
        B, _, V = logits.shape
        width, made = min(self.width, V), 0
        tokens, parents, sures = [], [], []             # of all rows that are made; parents: their numbers, 0 the root
        sure, numbers = logits.new_zeros(B, 1), text.length.new_zeros(B, 1)         # of the rows that get children
        while True:
            likely, token = logits.log_softmax(-1).topk(width)                      # (B, rows, width)
            tokens.append(token.flatten(1))
            parents.append(numbers.repeat_interleave(width, 1))
            sures.append((sure[:, :, None] + likely).flatten(1))                    # logarithms of the confidence
            if len(tokens) == self.depth:
                return self._chosen(text, *(torch.cat(part, 1) for part in (tokens, parents, sures)))
            sure, best = sures[-1].topk(width)                                      # (B, width)
            numbers = made + 1 + best
            made += tokens[-1].shape[1]
            logits = self.reader.behind(tokens[-1].gather(1, best), upto, best // width)

    def _chosen(self, text: Text, tokens: Tensor, parents: Tensor, sures: Tensor) -> Draft:
        """The most confident of all rows, in the order in which they were made."""
        order = sures.sort(descending=True, stable=True).indices                                # (B, rows)
        keep = self._how_many(sures.gather(1, order)[:, :self.size - 1].exp())                  # of every text
        n = int(keep.max()) if self.counts else min(self.size - 1, tokens.shape[1])
        chosen, number = order[:, :n].sort()                # number: how many rows are more confident
        there = F.pad(number < keep[:, None], (1, 0))                                           # (B, n + 1)
        row = F.pad(F.one_hot(chosen, tokens.shape[1]).sum(1).cumsum(1), (1, 0))    # a row's number in the draft
        parents = F.pad(row.gather(1, parents.gather(1, chosen)), (1, 0)).where(there, -1)
        tokens = torch.cat([text.last(1), tokens.gather(1, chosen)], 1)
        q_draft = F.one_hot(tokens, text.vocab_size).to(torch.promote_types(sures.dtype, torch.float32))
        return Draft(tokens, q_draft * there[:, :, None], parents, self.depth)

    def _how_many(self, sure: Tensor) -> Tensor:
        """(B,): how many of the rows, whose confidence is sure (B, count), falling, are drafted."""
        return torch.full_like(sure[:, 0], sure.shape[1])


class BudgetTree(DynamicTree):
    """Takes rows only while one more raises the expected tokens a second.

    CaDDTree (arXiv 2606.01813). costs: c, and v[m] for 2 to count + 1 tokens, as for Goodput. With n draft tokens a
    round is expected to bring 1 and the sum of their confidences, in depth * c + v[n + 1] target steps.
    """

    counts = True

    def __init__(self, draft: DraftModel, costs: tuple[float, Mapping[int, float]], count: int = 8, width: int = 2):
        super().__init__(draft, count, width)
        c, v = costs
        self.steps = [self.depth * c + v[n + 1] for n in range(1, count + 1)]

    def _how_many(self, sure: Tensor) -> Tensor:
        rate = (1 + sure.cumsum(1)) / torch.tensor(self.steps, device=sure.device)[:sure.shape[1]]
        return 1 + (rate[:, 1:] > rate[:, :-1]).cumprod(1).sum(1)
