"""A gate before any drafter: where speculation does not pay, rounds are steps of plain decoding.

Whether it pays depends on the text, on the batch and on what else the machine does, so no table
that was made beforehand can know. The gate compares what it sees: the seconds and the tokens of its
last rounds with a draft, and the seconds of its last plain steps.

    open     rounds with drafts; now and then a plain step, to see what one takes now
    closed   plain steps, and after a pause it opens again. The pause is so long that what the open
             gate has lost is a hundredth of it; it doubles every time the gate closes soon
    in doubt two plain steps, where an open gate would close by what such steps took long ago

It closes where plain steps write more tokens a second. A few rounds say little, because some drafts
are lucky: after n rounds it takes 1 + 6 / n times as many. So a gate that should stay open seldom
closes. One that should not has lost, when it does, about the time of six plain steps for each
token that a round writes, whether speculation is hopeless or only a little slower. Old rounds count
for less, and all together never for more than fifty: a loss of less than 8% is not seen.

(All calls take longer as texts grow. So what an open gate knows of plain steps is soon too little.)

What copies costs hardly anything as long as nobody verifies it. So it goes on while the gate is
closed, and its first draft token is compared with the token that the target writes. Eight in a row
that are the same open the gate: the text has begun to repeat itself.

In a server requests come and go all the time. What was measured holds for the batch as long as it
has more than half as many texts, and fewer than twice as many. Then all is measured anew. Drafts
that paid for more texts pay for fewer, where there is less to compute: then an open gate stays
open, and a single plain step tells what one takes now.

llama.cpp, SGLang and TensorRT-LLM have switches of this kind.

Claim: the text is lossless. Proof: whether a round has a draft was decided before its first draft
token, by clocks, by how earlier rounds ended and by text that stands. A plain step is a round whose
draft is empty.
Left out: a gate for every text of a batch. All share one call, so they share one gate.
"""

from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter, Rule
from nanospec.errors import check_has
from nanospec.methods.lengths.by_load import lag_after, nothing_drafted
from nanospec.speculate import verify
from nanospec.text import Text

FIRST = 2               # plain steps before it opens
WATCH = 96              # rounds of an open gate up to a plain step
PAUSE, LONGEST = 64, 1024               # plain steps before it opens again, at least and at most
SHARE = 0.01            # of a pause that an open gate may have lost
LAST = 5                # plain steps, of whose seconds the median counts
RECENT = 8              # rounds for which an open gate believes what plain steps took
MEMORY = 0.98           # what a round with a draft still weighs when the next one is over
DOUBT = 6.0             # after n rounds plain steps must be 1 + DOUBT / n times as fast
RIGHT = 8               # copied tokens in a row that were what the target wrote open the gate


class NeverSlower(Drafter):
    """Drafts what `drafter` drafts, or nothing. To learn the time it waits for the device.

    mode: "closed", "open" or "in doubt"; left: its rounds that are left. plain: seconds of plain
    steps. since: rounds with a draft since these were measured anew.
    seconds, tokens: of rounds with a draft, those of a text; rounds: how many these are, older ones
    count for less. cost: the seconds that an open gate has taken beyond those of plain steps.
    missed: how many tokens of a text were written while the drafter's model read nothing.
    rows: of the batch when it was last measured anew.
    right, wanted: copied tokens in a row that were right while it was closed, of a batch the mean;
    and how many of them open it, twice as many each time that this was soon found to be too few.
    """

    learns, looks_around, per_row = "length", True, ("drafter",)
    seconds: float
    tokens: float
    rounds: float
    cost: float
    copied: Tensor
    left: int
    since: int
    rows: int
    right: float
    wanted: int

    def __init__(self, drafter: Drafter):
        check_has("what is behind the gate", drafter, "a drafter", "propose", "most")
        self.drafter, self.most, self.layers = drafter, drafter.most, drafter.layers
        self.rule: Rule = self._verify
        self.model: Any = getattr(drafter, "other", drafter)    # of a hybrid, what asks the model
        self.copies = not getattr(drafter, "needs_draft_model", True)

    @property
    def uniforms(self) -> int:
        """As many as the drafter's."""
        return self.drafter.uniforms

    def begin(self, text: Text) -> None:
        """A new batch, of which nothing is known."""
        self.drafter.begin(text)
        self.missed, self.mode = 0, "closed"
        self._forget(len(text.tokens))

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """The prompts."""
        self.drafter.read(text, rows, hidden)

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        """The drafter's draft, or none. After plain steps its model reads what it has missed."""
        if not self.rows < 2 * len(text.tokens) < 4 * self.rows:
            self._forget(len(text.tokens))
        if not self.left:
            self._go_on()
        self.left -= 1
        self.drafts = self.mode == "open" and self.left > 0
        self.began, self.usual = perf_counter(), not self.missed
        if not self.drafts:
            if self.copies:
                draft = self.drafter.propose(text, sampling, dice, kv_length, lag)
                self.text, self.copied = text, draft.tokens[:, 1:2]
            return nothing_drafted(text)
        if hasattr(self.model, "skip"):             # it counts by itself what was missed
            self.model.skip(self.missed)
        elif self.missed:           # of a drafter that shows no reader no more than this is known
            reader = getattr(self.model, "reader", None)
            lag = lag_after(self.missed, lag, reader.lag if reader else self.most + 1, text)
        self.missed = 0
        return self.drafter.propose(text, sampling, dice, kv_length, lag)

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None, logits: Tensor) -> None:
        """Look at the clock."""
        if self.drafts:
            self.drafter.commit(draft, path, count, p_target, hidden, logits)
        elif hasattr(self.model, "reader"):
            self.model.reader.commit(path, count, hidden)       # it may keep hidden states
        tokens = float((count + 1).float().mean())             # waits for the device
        seconds = perf_counter() - self.began
        if not self.drafts:
            self.missed += 1
            self._compare()
        if draft.tokens.shape[1] == 1 and not draft.steps:      # there may be nothing to copy
            self.plain.append(seconds)
        else:
            self._count(seconds, tokens)
        if self.rounds and (self.mode == "open" or self.mode == "in doubt" and not self.left):
            self._decide()

    def _verify(self, draft: Draft, p_target: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
        """The drafter's rule. Of nothing it would make a plain step, too, but a slower one."""
        if draft.tokens.shape[1] == 1:
            return torch.zeros_like(draft.tokens[:, 0]), dice.pick(p_target[:, 0])
        return (self.drafter.rule or verify)(draft, p_target, dice)

    def _compare(self) -> None:
        """Was the copied token right? The text has been written by now."""
        if self.copies and self.mode == "closed":
            # Nothing may have been copied: then the mean is no number, and nothing was right.
            same = (self.copied == self.text.last(1)[:, :self.copied.shape[1]]).float().mean()
            self.right = (self.right + 1) * float(same.nan_to_num())
            if self.right >= self.wanted:
                self.left = 0

    def _forget(self, rows: int) -> None:
        """The batch is of another size: what was measured means nothing."""
        if self.mode != "closed" and rows < self.rows:
            self.mode, self.left = "open", 1
        else:
            self.mode, self.left = "closed", FIRST
        self._count_anew()
        self.plain, self.pause, self.rows = deque[float](maxlen=LAST), PAUSE, rows
        self.right, self.wanted = 0.0, RIGHT

    def _count(self, seconds: float, tokens: float) -> None:
        """A round with a draft."""
        self.since += 1
        self.cost += seconds - tokens * median(self.plain)
        if self.usual:
            self.rounds = MEMORY * self.rounds + 1
            self.seconds = MEMORY * self.seconds + seconds
            self.tokens = MEMORY * self.tokens + tokens

    def _decide(self) -> None:
        """Close where plain steps are faster, if it is known what they take now."""
        if self.seconds <= (1 + DOUBT / self.rounds) * median(self.plain) * self.tokens:
            return
        if self.since <= RECENT:
            self._close()
        else:
            self.mode, self.left, self.since = "in doubt", FIRST, 0
            self.plain.clear()

    def _count_anew(self) -> None:
        self.seconds = self.tokens = self.rounds = self.cost = 0.0

    def _go_on(self) -> None:
        """The gate opens, or it has stayed open for long."""
        if self.mode == "closed":
            self._count_anew()
            self.since = 0
        elif self.mode == "open":
            self.pause, self.wanted, self.right = PAUSE, RIGHT, 0.0
        self.mode, self.left = "open", WATCH

    def _close(self) -> None:
        lost = self.cost / median(self.plain)
        self.mode, self.left = "closed", min(max(self.pause, int(lost / SHARE)), LONGEST)
        self.pause = 2 * self.left
        if self.right >= self.wanted:
            self.wanted *= 2
        self.right = 0.0
