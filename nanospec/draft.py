"""What a drafter hands over and a rule verifies: the page to read before you write one of either.

A draft is n rows for each of B texts. Row 0 is the text's last token, which the target has not read
yet. Every other row is a draft token that follows an earlier row, its parent. In a chain row i
follows row i - 1; in a `TreeDraft` (trees/) it may follow any earlier row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from nanospec.cache import Cache
from nanospec.dice import Dice
from nanospec.errors import check_draft
from nanospec.text import Text


@dataclass
class Draft:
    """A chain for each of B texts.

    tokens: (B, n) int64, row 0 the text's last token; a row that a text lacks has any id, never -1.
    q_draft: (B, n, V), the distribution that each row's token was drawn from, given all rows before
        it; one-hot where a token was chosen and not drawn. Zeros in row 0, and in the last rows of
        a text whose chain is shorter than n: the text lacks these rows.
    steps: how many calls of a draft model it took.
    ValueError for other shapes. The numbers are not looked at, which would wait for the device.
    """

    tokens: Tensor
    q_draft: Tensor
    steps: int = 0

    def __post_init__(self):
        check_draft(self.tokens, self.q_draft)

    @property
    def parents(self) -> Tensor:
        """(B, n): the row that each row follows; -1 for row 0 and for rows that a text lacks."""
        above = torch.arange(-1, self.tokens.shape[1] - 1, device=self.tokens.device)
        return torch.where(self.exist, above, -1)

    @property
    def exist(self) -> Tensor:
        """(B, n) bool: which rows a text has but row 0, which every text has."""
        return self.q_draft.sum(-1) > 0

    def placing(self, cache: Cache, kv_length: int) -> dict[str, Tensor]:
        """What the target's call has to know of the rows' places: of a chain, nothing.

        By default every row stands after the one before it, in the cache too (cache.py).
        """
        return {}

    def path(self, accepted: Tensor) -> tuple[Tensor, Tensor]:
        """accepted (B,), the last row that was accepted -> the accepted rows, and how many.

        rows (B, n), the path from row 0 on: only the first count + 1 are meant.
        count (B,), the accepted draft tokens, which row 0 is none of.
        """
        rows = torch.arange(self.tokens.shape[1], device=accepted.device)
        return rows.expand_as(self.tokens), accepted

    def keep(self, cache: Cache, path: Tensor) -> None:
        """Bring the accepted rows to the slots from the cache's length on. A chain's are there."""


Rule = Callable[[Draft, Tensor, Dice], tuple[Tensor, Tensor]]
"""(draft, p_target (B, n, V), dice) -> accepted (B,), the last row accepted, 0 for none, and token
(B,), which follows it. In a chain the last row is the number of accepted draft tokens."""


class Drafter(Protocol):
    """What proposes. It may keep anything from round to round, for each text, but no random number.

    most: how many tokens it drafts at most; the target's call has most + 1 rows.
    layers: the target's layers whose hidden states it reads; () for none.
    rule: what verifies its drafts where nothing else is asked for; None: `verify` of speculate.py.
    fixed: every draft has the same shape, so that a round can be compiled.
    What else it may say of itself: methods/index.py, and serving/rows.py.
    """

    most: int
    layers: Sequence[int] = ()
    rule: Rule | None = None
    fixed: bool = False

    @property
    def uniforms(self) -> int:
        """The most uniforms that a proposal takes, for each text."""
        return self.most

    def begin(self, text: Text) -> None:
        """A new batch: forget the one before. RequestError for a vocabulary that is not its own."""
        return          # a subclass with nothing to do here may leave it out

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """These texts of the batch are new; their prompts were read, but for the last token.

        hidden: (len(rows), T, len(layers), C), the target's hidden states of every token it read.
        Raises RequestError where it cannot draft for this text.
        """
        return

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        """A draft for every text.

        text: what is committed; it may even have shrunk since the last round.
        sampling: logits (B, ..., V) -> probabilities. kv_length: slots of a cache to read, at least
        length + most of every text. (Nobody checks that, since it would wait for the device.)
        lag: the most trailing tokens that its cache may lack, if other rounds left more.
        """

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None, logits: Tensor) -> None:
        """How the round ended. path (B, n), count (B,): the accepted rows, as Draft.path says.

        p_target and logits (B, n, V), hidden (B, n, len(layers), C): the target's, of every row.
        """
        return
