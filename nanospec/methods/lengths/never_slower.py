"""A gate before any drafter: where speculation does not pay, rounds are steps of plain decoding.

Whether it pays depends on the text, on the batch and on what else the machine does, so no table
that was made beforehand can know. The gate compares what it sees: the seconds and the tokens of its
last rounds with a draft, and the seconds of its last plain steps.

    trial    a few rounds with drafts. If plain steps do not write clearly more tokens a second, the
             gate opens, else it closes
    open     rounds with drafts; now and then a plain step, to see what one takes now
    closed   plain steps, and after a pause another trial. The pause is so long that the trial
             before has cost a hundredth of it; it doubles with every trial that fails

llama.cpp, SGLang and TensorRT-LLM have switches of this kind.

Claim: the text is lossless. Proof: whether a round has a draft was decided before its first draft
token, by clocks and by how earlier rounds ended. A plain step is a round whose draft is empty.
Left out: a gate for every text of a batch. All share one call, so they share one gate.
"""

from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter, Rule
from nanospec.errors import check_has
from nanospec.methods.lengths.by_load import lag_after, nothing_drafted
from nanospec.text import Text

FIRST = 2               # plain steps before the first trial
TRIAL = 4               # rounds of a trial; in the first of them a draft model reads what it missed
WATCH = 96              # rounds of an open gate up to a plain step
PAUSE, LONGEST = 64, 1024               # plain steps before the next trial, at least and at most
SHARE = 0.01            # of a pause that a trial may have cost
LAST = 5                # plain steps, of whose seconds the median counts
MEMORY = 0.97           # what a round with a draft still weighs when the next one is over
# How much quicker plain steps have to be for the gate to close: after a trial, which says little,
# and while it is open.
AFTER_TRIAL, WHILE_OPEN = 1.2, 1.03


class NeverSlower(Drafter):
    """Drafts what `drafter` drafts, or nothing. To learn the time it waits for the device.

    mode: "closed", "trial" or "open"; left: its rounds that are left. plain: seconds of plain
    steps. seconds, tokens: of rounds with a draft; those of a text. cost: the seconds that a trial
    has taken beyond those of plain steps. missed: how many tokens of a text were written while the
    drafter's model read nothing.
    """

    learns, looks_around, per_row = "length", True, ("drafter",)
    seconds: float
    tokens: float

    def __init__(self, drafter: Drafter):
        check_has("what is behind the gate", drafter, "a drafter", "propose", "most")
        self.drafter, self.most, self.layers = drafter, drafter.most, drafter.layers
        self.rule: Rule | None = drafter.rule
        self.model: Any = getattr(drafter, "other", drafter)    # of a hybrid, what asks the model

    @property
    def uniforms(self) -> int:
        """As many as the drafter's."""
        return self.drafter.uniforms

    def begin(self, text: Text) -> None:
        """A new batch, of which nothing is known."""
        self.drafter.begin(text)
        self.missed = 0
        self._forget(len(text.tokens))

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """The prompts."""
        self.drafter.read(text, rows, hidden)

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        """The drafter's draft, or none. After plain steps its model reads what it has missed."""
        if len(text.tokens) != self.rows:
            self._forget(len(text.tokens))
        if not self.left:
            self._go_on()
        self.left -= 1
        self.drafts = self.mode == "trial" or self.mode == "open" and self.left > 0
        self.began, self.usual = perf_counter(), not self.missed
        if not self.drafts:
            return nothing_drafted(text)
        if hasattr(self.model, "skip"):             # it counts by itself what was missed
            self.model.skip(self.missed)
        elif self.missed and hasattr(self.model, "reader"):
            lag = lag_after(self.missed, lag, self.model.reader, text)
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
            self.plain.append(seconds)
            return
        self.cost += seconds - tokens * median(self.plain)
        if self.usual:
            self.seconds = MEMORY * self.seconds + seconds
            self.tokens = MEMORY * self.tokens + tokens
            if self.mode == "open" and self._loses(WHILE_OPEN):
                self._close()

    def _forget(self, rows: int) -> None:
        """The batch is of another size: what was measured means nothing."""
        self.rows, self.plain = rows, deque[float](maxlen=LAST)
        self.mode, self.left, self.pause = "closed", FIRST, PAUSE
        self.seconds = self.tokens = self.cost = 0.0

    def _go_on(self) -> None:
        """The mode is over, and another one begins."""
        if self.mode == "closed":
            self.mode, self.left = "trial", TRIAL
        elif self.mode == "trial" and self._loses(AFTER_TRIAL):
            self._close(self.cost / median(self.plain) / SHARE)
        else:
            self.mode, self.left, self.pause = "open", WATCH, PAUSE

    def _close(self, pause: float = PAUSE) -> None:
        self.mode, self.left = "closed", min(max(self.pause, int(pause)), LONGEST)
        self.pause = 2 * self.left
        self.seconds = self.tokens = self.cost = 0.0

    def _loses(self, margin: float) -> bool:
        """Whether plain steps write so many times as many tokens a second."""
        return self.seconds > margin * median(self.plain) * self.tokens
