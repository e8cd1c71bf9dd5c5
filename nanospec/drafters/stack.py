"""A stack: a middle model drafts, and it writes its draft by speculation of its own.

Chen et al. 2023, cascade speculative drafting (arXiv 2312.11462); Sun et al. 2024, TriForce (arXiv 2404.11912).

    lowest drafter      drafts for the middle model: a smaller one, or whoever copies
    middle model        verifies that, round after round, until it has gamma tokens
    target              verifies these gamma tokens

Claim: the text is lossless.
Proof.
1. The middle model's text is distributed as it alone would write it, whoever drafts for it.
2. So each token was drawn from the middle model's own distribution behind the tokens before it.
3. This distribution is reported as q_draft. What the lowest drafter said is forgotten.

What the levels share: the committed text. What they must not share: caches, which hold what each one's own weights have
made of it, and random numbers. So the middle model's rounds take uniforms of their own.

Of what the middle model writes beyond gamma tokens the rest is thrown away.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nanospec.cache import Cache, LanguageModel, moved
from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter, check_size
from nanospec.errors import RequestError
from nanospec.probs import Sampling
from nanospec.speculate import ModelDrafter, one_round, verify
from nanospec.text import Text, check_vocabulary, prefill


class Stack(ModelDrafter):
    """gamma draft tokens of `middle`, a GPT, for which `lowest` drafts.

    inner: the text as the middle model goes on with it.
    RequestError if `lowest` reads features: it would need the middle model's.
    """

    draft: LanguageModel
    text: Any = None                        # a Text, once there is one

    def __init__(self, middle: Any, lowest: Drafter, gamma: int = 4):
        if lowest.layers or not hasattr(middle, "new_cache"):
            raise RequestError("in a stack the middle model is a GPT, and whoever drafts for it reads tokens alone")
        self.draft, self.lowest, self.size = middle, lowest, check_size(gamma + 1, "gamma")

    @property
    def columns(self) -> int:
        """A round of the middle model writes one token or more, so there are gamma rounds at most."""
        return (self.size - 1) * (self.lowest.columns + self.lowest.size)

    def share(self, target: LanguageModel, cache: Cache) -> Callable:
        """Nothing of the target's."""
        return target

    def begin(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        """Both levels read the prompts."""
        check_vocabulary(self.draft, text.vocab_size)
        rows = list(rows)
        if text is not self.text:
            B, N = text.tokens.shape
            room = (self.size - 1) * self.lowest.size       # a text may have to wait for a slower one, and goes on
            self.text, self.inner = text, Text([[0]] * B, N + room, text.vocab_size, text.tokens.device)
            self.cache = self.draft.new_cache(*self.inner.tokens.shape)
            self.read = torch.zeros_like(text.length)       # so many tokens of the inner text are in the cache
        self._take(text, rows)
        prefill(self.draft, self.inner, rows, self.cache)
        self.read[rows] = text.length[rows] - 1
        # Of its own last round a whole path may be new to it, and one token more, which the target has written.
        self.lowest.unread = max(self.lowest.unread, self.lowest.size + 1, self.unread + 1)
        self.lowest.begin(self.inner, rows, None)

    def move(self, rows: Sequence[int], count: int) -> None:
        self.inner.move(rows, count)
        self.cache.move(rows, count)
        self.read = moved(self.read, rows, count)
        self.lowest.move(rows, count)

    def propose(self, text: Text, sampling: Sampling, dice: Dice, upto: int) -> Draft:
        """Rounds of the middle model, until every text has gamma tokens. Waits for the device in every round."""
        self._catch_up(text, upto)
        gamma, first, rounds = self.size - 1, text.length.clone(), 0
        q_draft: Any = None
        while int((self.inner.length - first).min()) < gamma:
            begun, upto = self.inner.length - first, int(self.inner.length.max()) + self.lowest.size - 1
            draft, p_middle, accepted, _ = one_round(self.draft, self.cache, self.lowest, verify, self.inner, sampling,
                                                     dice, upto)
            path, count = draft.path(accepted, draft.ancestors())                       # (B, n), (B,)
            j = torch.arange(path.shape[1], device=path.device)
            # Token j of this round was written by the distribution behind row j of the path. What is too much goes into
            # a place that nobody looks at.
            place = torch.where(j <= count[:, None], begun[:, None] + j, gamma).clamp(max=gamma) + 1
            written = p_middle.gather(1, path[:, :, None].expand_as(p_middle))
            if q_draft is None:
                q_draft = written.new_zeros(len(written), self.size + 1, text.vocab_size)
            q_draft.scatter_(1, place[:, :, None].expand_as(written), written)
            rounds += 1
        self.read = self.inner.length - 1
        places = first[:, None] - 1 + torch.arange(self.size, device=first.device)
        return Draft(self.inner.tokens.gather(1, places), q_draft[:, :self.size], steps=rounds)

    def commit(self, draft: Draft, accepted: Tensor, p_target: Tensor, features: Tensor | None) -> None:
        """What is committed stands in the text; the next proposal looks there."""

    def _catch_up(self, text: Text, upto: int) -> None:
        """Go back to the committed text, and let the middle model read what is new to it but the last token."""
        same = self.inner.tokens[:, :text.tokens.shape[1]] == text.tokens
        known = torch.minimum(self.read, same.long().cumprod(1).sum(1))
        new = int((text.length - 1 - known).max())
        self._take(text, slice(None))
        if new > 0:
            self.cache.length = text.length - 1 - new
            self.draft(text.last(new + 1)[:, :-1], self.cache, upto)

    def _take(self, text: Text, rows: list[int] | slice) -> None:
        """What is committed in these rows."""
        self.inner.tokens[rows, :text.tokens.shape[1]] = text.tokens[rows]
        self.inner.length[rows] = text.length[rows]
