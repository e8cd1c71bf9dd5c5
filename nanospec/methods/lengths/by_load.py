"""A chain whose length depends on how many texts there are: long for a few, none in a full batch.

A target call on one token of one text costs nearly what a call on five costs, because the time goes
into reading the weights. In a batch the texts share that reading. There arithmetic counts, and a
draft token that is rejected has cost as much as a token of another text. So in a large batch it
pays to draft little, or nothing.

Goodput is expected tokens a second (SmartSpec, Liu et al. 2024, arXiv 2406.14066). Before every
round:

    goodput(gamma) = rows * expected_tokens(alpha, gamma) / seconds(rows, gamma)

alpha comes from the rounds before, seconds from measuring beforehand. A new gamma has to be better
by a margin, or it would change in every round.

Claim: the text is lossless. Proof: dynamic.py's. What decides gamma happened before the round's
first draft token.
Left out: a different gamma for every text.

A table of seconds that was measured beforehand is soon wrong: prompts are as long as they are, and
others use the machine. So `WatchedByLoad` looks at what its rounds really take, and `Costs` learns
it: what a round costs, by how many texts there are and how many tokens are drafted.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.errors import RequestError, quoted
from nanospec.methods.lengths.acceptance_rate import Acceptance
from nanospec.speculate import ModelDrafter
from nanospec.text import Text
from nanospec.theory import expected_tokens

NEWS = 0.2          # what the last round weighs
WORST = 2.0         # a round counts as at most this many times what is known
FADE = 0.005        # what is not tried seems cheaper with every round, so that it is tried again


class ByLoad(ModelDrafter):
    """At most `most` draft tokens for each text; gamma: how many in this round.

    seconds(rows, gamma): of a round with this number of texts and draft tokens, in any unit.
    new: how many of a text's last tokens, at most, were written in rounds in which the draft model
    read nothing.
    acceptance: of all draft tokens. It is read when the next round begins: then the device has
    nothing to do, and nothing has to be waited for. In a silence it goes back to what it was at
    first, so that a draft is tried again.
    """

    TRUST, PRIOR = 16.0, 0.6    # it begins as if TRUST had been judged, and PRIOR of them accepted
    MARGIN = 1.03               # how much better another gamma has to be

    fixed, learns, looks_around, per_row = False, "length", True, ("reader",)

    def __init__(self, draft_model: Any, seconds: Callable[[int, int], float], most: int = 8):
        super().__init__(draft_model, most)
        if not callable(seconds):
            raise RequestError("seconds must be a function of rows and gamma, got "
                               f"{quoted(seconds)}")
        self.seconds = seconds

    def begin(self, text: Text) -> None:
        """A batch begins. What is known of acceptance holds for one."""
        super().begin(text)
        begins = torch.tensor([self.PRIOR], device=text.tokens.device)
        self.acceptance = Acceptance(begins, self.TRUST, lasting=self.TRUST)
        self.gamma = self.new = 0

    @property
    def alpha(self) -> float:
        """Accepted draft tokens, of those that were judged."""
        return float(self.acceptance.share)

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        """As many draft tokens as pay. After a silence the draft model reads what it has missed."""
        self.gamma = self.best(len(text.tokens))
        if not self.gamma:
            self.skip(1)
            return nothing_drafted(text)
        if self.new:
            lag = lag_after(self.new, lag, self.reader.lag, text)
        self.new = 0
        return super().propose(text, sampling, dice, kv_length, lag)

    def skip(self, tokens: int) -> None:
        """This many more tokens have been written while the draft model read nothing."""
        self.new += tokens

    def best(self, rows: int) -> int:
        """The gamma of the greatest goodput, or the one before where that is about as good."""
        goodput = self.goodput(rows)
        best = max(range(self.most + 1), key=goodput.__getitem__)
        return best if goodput[best] > self.MARGIN * goodput[self.gamma] else self.gamma

    def goodput(self, rows: int) -> list[float]:
        """Of 0, 1, ... draft tokens: expected tokens of a text a second."""
        alpha = self.alpha
        return [expected_tokens(alpha, gamma) / self.seconds(rows, gamma)
                for gamma in range(self.most + 1)]

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None, logits: Tensor) -> None:
        """Learn how often draft tokens are accepted."""
        super().commit(draft, path, count, p_target, hidden, logits)
        drafted = draft.exist.sum(-1)           # (B,), draft tokens of each text
        self.acceptance.learn(torch.minimum(count + 1, drafted), torch.minimum(count, drafted),
                              torch.zeros_like(drafted))


def lag_after(missed: int, lag: int, usual: int, text: Text) -> int:
    """The most trailing tokens that a cache may lack after so many in which nothing was read into
    it. usual: how many it may lack after any round.
    """
    return min(max(lag, usual) + missed, text.tokens.shape[1])


def nothing_drafted(text: Text) -> Draft:
    """Node 0 alone: the round is a step of plain decoding."""
    last = text.last(1)
    return Draft(last, torch.zeros(*last.shape, text.vocab_size, device=last.device))


class Costs:
    """costs(rows, gamma): seconds of a round.

    table: rows -> seconds of 0, 1, 2, ... draft tokens; between two numbers of rows, on a line.
    """

    def __init__(self, table: dict[int, list[float]]):
        self.table = {rows: list(seconds) for rows, seconds in table.items()}

    def __call__(self, rows: int, gamma: int) -> float:
        known = sorted(self.table)
        return float(np.interp(rows, known, [self.table[number][gamma] for number in known]))

    def saw(self, rows: int, gamma: int, seconds: float) -> None:
        """What a round took. What drafts less is now believed to be a little cheaper: it was not
        tried for a while. (What drafts more is not tried for trying's sake: after a silence a draft
        model has much to read.)
        """
        if rows not in self.table:
            longest = len(next(iter(self.table.values())))
            self.table[rows] = [self(rows, other) for other in range(longest)]
        known = self.table[rows][gamma]
        self.table[rows][gamma] = known + NEWS * (min(seconds, WORST * known) - known)
        self.table[rows][:gamma] = [(1 - FADE) * less for less in self.table[rows][:gamma]]


class WatchedByLoad(ByLoad):
    """Times its rounds, from the draft to what is told of its end.

    Not those in which it reads what it has missed.
    """

    seconds: Costs

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        missed, self.began = self.new, perf_counter()
        draft = super().propose(text, sampling, dice, kv_length, lag)
        self.usual = not missed or not self.gamma
        return draft

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None, logits: Tensor) -> None:
        super().commit(draft, path, count, p_target, hidden, logits)
        self.alpha                      # waits for the device: the clock is to see what it has done
        if self.usual:
            self.seconds.saw(len(count), self.gamma, perf_counter() - self.began)
