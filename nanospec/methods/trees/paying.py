"""A dynamic tree that is as large as it pays, and may be silent for some texts.

A row of a tree costs what one token more costs in the target's call. It brings about its confidence: the chance that
the target accepts its path. So of the most confident rows as many are drafted as bring the most tokens a second, and
the draft model reads another level only where that may bring more. (OPT-Tree, Wang et al. 2024, arXiv 2406.17276, also
stops where another level brings too little; there the number of rows is given.)

    expected tokens of n rows = 1 + truth * (sum of the n greatest confidences)

truth is how much was accepted in the rounds before, over what the confidences had promised. What the rounds brought
and took tells methods/copies/hybrid.py whether to copy instead: it asks before the draft model has read anything.

Claim: the text is lossless. Proof: dynamic.py's. Which rows there are follows from the committed text, from the draft
model, and from how earlier rounds ended.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.methods.lengths.by_load import Pausing
from nanospec.methods.trees.dynamic_tree import DynamicTree
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.text import Text


class PayingTree(Pausing, DynamicTree):
    """A DynamicTree of at most `count` draft tokens.

    seconds(rows, tokens, steps): of a round of this many texts, draft tokens of each and steps of the draft model, in
    any unit.
    prices: for a number of texts the seconds by steps and by draft tokens, (depth, count), on their device.
    learned: of the rounds so far their number, their seconds, the sum of their rows' confidences, and how many rows
    were accepted. They are read, as by ByLoad, when the next round begins.
    """

    fixed = False                       # how much the draft model has to read differs
    TRUST = 4.0                         # it begins as if TRUST rounds of two rows had each accepted one, as promised
    MEMORY = 0.98                       # what a round still weighs when the next one is over
    text: Any = None                    # a Text, once there is one
    learned: Tensor                     # (4,)

    def __init__(self, draft: Any, seconds: Callable[[int, int, int], float], count: int = 8, width: int = 2):
        super().__init__(draft, count, width)
        self.seconds, self.count = seconds, count
        self.hopes: Tensor | None = None        # (B,), the confidences of this round's rows, until it is over

    def begin(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """Read the prompts. What is known of the rounds holds for one batch of texts."""
        if text is not self.text:
            self.text, self.new, self.prices = text, 0, dict[int, Tensor]()
            took = self.seconds(len(text.tokens), min(2, self.count), 1)
            self.learned = self.TRUST * torch.tensor([1.0, took, 1.0, 1.0], device=text.tokens.device)
        super().begin(text, rows, hidden)

    def goodput(self, rows: int) -> list[float]:
        """Of no draft token, and of a tree: expected tokens of a text a second."""
        rounds, spent, _, accepted = self.learned.tolist()
        return [1 / self.seconds(rows, 0, 0), (rounds + accepted) / spent]

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> TreeDraft:
        """After a silence the draft model reads what was written meanwhile."""
        B, device = len(text.tokens), text.tokens.device
        if B not in self.prices:
            self.prices[B] = torch.tensor([[self.seconds(B, tokens, steps) for tokens in range(1, self.count + 1)]
                                           for steps in range(1, self.depth + 1)], device=device)
        *_, promised, accepted = self.learned.tolist()
        self.truth = accepted / promised
        return super().propose(text, sampling, dice, kv_length, self.resumed(text, lag))

    def enough(self, sures: Sequence[Tensor]) -> bool:
        """Unless a level more may pay for one of the texts: if the likeliest row is sure of its child."""
        made = torch.cat(list(sures), 1).sort(descending=True).values
        best, likeliest = self._best(made, len(sures))[1], sures[-1].amax(-1, keepdim=True)
        more = torch.cat([made, likeliest], 1).sort(descending=True).values
        return bool((self._best(more, len(sures) + 1)[1] <= best).all())

    def counts(self, sures: Tensor, depth: int) -> Tensor:
        """As many as bring the most tokens a second."""
        counts, _ = self._best(sures, depth)
        self.hopes = sures.exp().cumsum(-1).gather(1, counts[:, None] - 1)[:, 0]
        self.took = self.seconds(len(sures), int(counts.max()), depth)
        return counts

    def _best(self, sures: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """(B,) each: how many rows of these confidences, descending, are best, and the tokens a second they bring."""
        B, most = len(sures), min(self.count, sures.shape[1])
        expected = 1 + self.truth * sures[:, :most].exp().cumsum(-1)                            # (B, most)
        pace, n = (expected / self.prices[B][depth - 1, :most]).max(-1)
        return n + 1, pace

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor, hidden: Tensor | None) -> None:
        """Learn what the round has brought to the texts that have a draft in it."""
        super().commit(draft, path, count, p_target, hidden)
        if self.hopes is None:                          # nothing was drafted, for no text
            return
        drafted = draft.q_draft.flatten(1).any(-1).to(self.hopes)                               # (B,)
        new = torch.stack([drafted, self.took * drafted, self.hopes * drafted, count * drafted]).sum(-1)
        self.learned, self.hopes = self.MEMORY * self.learned + new, None
