"""A dynamic tree that knows what its rounds bring, and may be silent for some of them.

What a chain will bring follows from one acceptance rate (by_load.py). For a tree whose shape follows the text
there is no such formula, so the tokens of the rounds before are counted. The one who asks is copies/hybrid.py: it
copies where a copy is expected to bring more tokens a second than the tree.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.serving.by_load import Pausing
from nanospec.text import Text
from nanospec.trees.draft import TreeDraft
from nanospec.trees.dynamic import DynamicTree


class PayingTree(Pausing, DynamicTree):
    """A DynamicTree of `count` draft tokens.

    seconds(rows, tokens, steps): of a round of this many texts, draft tokens and steps of the draft model, in any unit.
    rounds, brought: how many there were, and the tokens that they wrote; read, as by ByLoad, when the next one begins.
    """

    fixed = False                       # how much the draft model has to read differs
    TRUST, PRIOR = 4.0, 2.0             # it begins as if TRUST rounds had brought PRIOR tokens each
    MEMORY = 0.98                       # what a round still weighs when the next one is over
    text: Any = None                    # a Text, once there is one
    rounds: Any
    brought: Any

    def __init__(self, draft: Any, seconds: Callable[[int, int, int], float], count: int = 8, width: int = 4):
        super().__init__(draft, count, width)
        self.seconds, self.count = seconds, count

    def begin(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """Read the prompts. What is known of the rounds holds for one batch of texts."""
        if text is not self.text:
            self.text, self.rounds, self.brought, self.new = text, self.TRUST, self.TRUST * self.PRIOR, 0
        super().begin(text, rows, hidden)

    def goodput(self, rows: int) -> list[float]:
        """Of no draft token, and of a tree: expected tokens of a text a second."""
        per_round = float(self.brought) / float(self.rounds)
        return [1 / self.seconds(rows, 0, 0), per_round / self.seconds(rows, self.count, self.depth)]

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> TreeDraft:
        """After a silence the draft model reads what was written meanwhile."""
        return super().propose(text, sampling, dice, kv_length, self.resumed(text, lag))

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor, hidden: Tensor | None) -> None:
        """Learn what the round has brought to the texts that have a draft in it."""
        super().commit(draft, path, count, p_target, hidden)
        drafted = draft.q_draft.flatten(1).any(-1)                              # (B,)
        self.rounds = self.MEMORY * self.rounds + drafted.sum()
        self.brought = self.MEMORY * self.brought + torch.where(drafted, count + 1, 0).sum()
