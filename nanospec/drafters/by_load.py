"""A chain whose length depends on how many texts there are: long for a few, none where the batch is full.

A target call on one token of one text costs nearly what a call on five costs, because the time goes into reading the
weights. In a batch the texts share that reading. There arithmetic counts, and a draft token that is rejected has cost
as much as a token of another text. So in a large batch it pays to draft little, or nothing.

Goodput is expected tokens a second (SmartSpec, Liu et al. 2024, arXiv 2406.14066). Before every round:

    goodput(gamma) = rows * expected_tokens(alpha, gamma) / seconds(rows, gamma)

alpha comes from the rounds before, seconds from measuring beforehand. A new gamma has to be better by a margin, or it
would change in every round.

Claim: the text is lossless. Proof: dynamic.py's. What decides gamma happened before the round's first draft token.
Left out: another gamma for every text.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nanospec.cache import Cache, LanguageModel
from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter, check_size
from nanospec.draft_models import DraftModel
from nanospec.draft_models.gpt import reader_of
from nanospec.probs import Sampling
from nanospec.speculate import ModelDrafter
from nanospec.text import Text
from nanospec.theory import expected_tokens


class ByLoad(Drafter):
    """At most gamma draft tokens. seconds(rows, gamma): of a round of so many texts and draft tokens, in any unit.

    new: so many of a text's last tokens the draft model has not read, more than `unread`, because it was silent.
    """

    TRUST, PRIOR = 16.0, 0.6            # it begins as if so many draft tokens had been judged, and so many accepted
    MEMORY, MARGIN = 0.98, 1.03         # what a round still weighs when the next one is over; when to change

    text: Any = None                    # a Text, once there is one

    def __init__(self, draft: DraftModel, seconds: Callable[[int, int], float], gamma: int = 8):
        self.size, self.reader, self.seconds = check_size(gamma + 1, "gamma"), reader_of(draft), seconds
        self.chains = [ModelDrafter(draft, length) for length in range(1, gamma + 1)]
        for chain in self.chains:
            chain.reader = self.reader                      # one text, read once
        self.layers, self.unread = self.reader.layers, self.chains[-1].unread

    def share(self, target: LanguageModel, cache: Cache) -> Callable:
        return self.reader.share(target, cache)

    def begin(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        """Read the prompts, or leave that for later. What is known of acceptance holds for one batch of texts."""
        if text is not self.text:
            self.text, self.judged, self.accepted, self.gamma, self.new = text, 0.0, 0.0, 0, 0
        if self.best(len(text.tokens)):
            return self.reader.begin(text, rows, features)
        self.reader.meet(text, rows, features)
        self.new = max(self.new, int(text.length[list(rows)].max()))

    def move(self, rows: Sequence[int], count: int) -> None:
        self.reader.move(rows, count)

    @property
    def alpha(self) -> float:
        """Accepted draft tokens, of those that were judged."""
        return (self.TRUST * self.PRIOR + self.accepted) / (self.TRUST + self.judged)

    def propose(self, text: Text, sampling: Sampling, dice: Dice, upto: int) -> Draft:
        """A draft of as many tokens as pay. After a silence the draft model reads what has been written meanwhile."""
        self.gamma = self.best(len(text.tokens))
        if not self.gamma:
            self.skip(1)
            return Draft.nothing(text)
        chain = self.chains[self.gamma - 1]
        chain.unread = min(self.unread + self.new, int(text.length.max())) if self.new else self.unread
        self.new = 0
        return chain.propose(text, sampling, dice, upto)

    def best(self, rows: int) -> int:
        """The gamma of the greatest goodput, or the one before where that is about as good."""
        goodput = self.goodput(rows)
        best = max(range(self.size), key=goodput.__getitem__)
        return best if goodput[best] > self.MARGIN * goodput[self.gamma] else self.gamma

    def goodput(self, rows: int) -> list[float]:
        """Of 0, 1, ... draft tokens: expected tokens of a text a second."""
        return [expected_tokens(self.alpha, gamma) / self.seconds(rows, gamma) for gamma in range(self.size)]

    def skip(self, tokens: int) -> None:
        """So many tokens more have been written in rounds in which the draft model read nothing."""
        self.new += tokens

    def commit(self, draft: Draft, accepted: Tensor, p_target: Tensor, features: Tensor | None) -> None:
        """Learn how often draft tokens are accepted. Rounds without a draft forget, so that it is tried again."""
        self.reader.commit(self.text, draft, accepted, features)
        there = (draft.q_draft.sum(-1) > 0).sum(-1)                             # (B,), draft tokens of each text
        judged = torch.minimum(accepted + 1, there).sum().item()
        self.judged = self.MEMORY * self.judged + judged
        self.accepted = self.MEMORY * self.accepted + torch.minimum(accepted, there).sum().item()
