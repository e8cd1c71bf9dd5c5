"""A stack: a middle model drafts, and it writes its draft by speculation of its own.

Chen et al. 2023, cascade speculative drafting (arXiv 2312.11462); Sun et al. 2024, TriForce (arXiv
2404.11912).

    lowest drafter      drafts for the middle model: a smaller one, or a drafter that copies
    middle model        verifies that, round after round, until it has gamma tokens
    target              verifies these gamma tokens

Claim: the text is lossless.
Proof.
1. The middle model's text is distributed as it alone would write it, whatever drafts for it.
2. So each token was drawn from the middle model's own distribution after the tokens before it.
3. This distribution is reported as q_draft. The lowest drafter's distribution is forgotten.

What the levels share: the committed text. What they must not share: caches, which hold what each
one's own weights have made of it, and random numbers. So the middle model's rounds take uniforms of
their own.

What the middle model writes beyond gamma tokens is thrown away.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.errors import RequestError, check_gamma, check_has, check_vocabulary
from nanospec.speculate import one_round, verify
from nanospec.text import Text, prefill


class Stack(Drafter):
    """gamma draft tokens of `middle`, a GPT, for which `lowest` drafts.

    inner: the text as the middle model goes on with it. known (B,): how many of its tokens are in
    the middle model's cache. RequestError if `lowest` reads hidden states: it would need the middle
    model's.

    It waits for the device in every round of the middle model, since how many rounds there will be
    depends on how many tokens each has written; before the first one, to know what the middle model
    has missed; and once more there if `lowest` copies, for it reads the text.
    """

    per_row = ("inner", "cache", "known", "lowest")

    def __init__(self, middle: Any, lowest: Drafter, gamma: int = 4):
        check_has("the drafter below it", lowest, "a drafter", "propose", "most", "layers")
        if lowest.layers or isinstance(middle, type) or not hasattr(middle, "new_cache"):
            raise RequestError("in a stack the middle model is a GPT, and the drafter below it "
                               "reads tokens alone")
        self.middle, self.lowest, self.most = middle, lowest, check_gamma(gamma, "gamma")

    @property
    def uniforms(self) -> int:
        """A round of the middle model writes a token or more: there are gamma at most."""
        return self.most * (self.lowest.uniforms + self.lowest.most + 1)

    def begin(self, text: Text) -> None:
        """Make room on both levels."""
        check_vocabulary(self.middle, text.vocab_size)
        B, N = text.tokens.shape
        # A text may have to wait for a slower one, and goes on: for as long as the draft, at most.
        room = self.most + self.lowest.most if B == 1 else self.most * (self.lowest.most + 1)
        self.inner = Text([[0]] * B, N + room, text.vocab_size, text.tokens.device)
        self.cache = self.middle.new_cache(*self.inner.tokens.shape)
        self.known = torch.zeros_like(text.length)
        self.lowest.begin(self.inner)

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """Both levels read the prompts."""
        rows = list(rows)
        self._take(text, rows)
        prefill(self.middle, self.inner, cache=self.cache, rows=rows)
        self.known[rows] = text.length[rows] - 1
        self.lowest.read(self.inner, rows, None)

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        """Rounds of the middle model, until every text has gamma tokens."""
        begun = length = self._catch_up(text, kv_length)
        gamma, first, rounds = self.most, text.length.clone(), 0
        # A whole path of its own may be new, and a token that the target wrote.
        lag = self.lowest.most + 2
        q_draft: Any = None
        while min(now - before for now, before in zip(length, begun)) < gamma:
            room = max(length) + self.lowest.most
            _, p_middle, path, count, _ = one_round(
                self.middle, self.cache, self.lowest, self.lowest.rule or verify, self.inner,
                sampling, dice, room, lag)
            j = torch.arange(path.shape[1], device=path.device)
            done = self.inner.length - count - 1 - first        # tokens of the rounds before
            # Token j of this round was drawn after node j of the path. Those beyond gamma go to a
            # place never read.
            place = torch.where(j <= count[:, None], done[:, None] + j, gamma).clamp(max=gamma) + 1
            written = p_middle.gather(1, path[:, :, None].expand_as(p_middle))
            if q_draft is None:
                q_draft = written.new_zeros(len(written), self.most + 2, text.vocab_size)
            q_draft.scatter_(1, place[:, :, None].expand_as(written), written)
            rounds, length = rounds + 1, self.inner.length.tolist()                         # waits
        self.known = self.inner.length - 1
        places = first[:, None] - 1 + torch.arange(self.most + 1, device=first.device)
        return Draft(self.inner.tokens.gather(1, places), q_draft[:, :self.most + 1], steps=rounds)

    def _catch_up(self, text: Text, kv_length: int) -> list[int]:
        """Back to the committed text; the middle model reads what is new to it but the last token.

        Returns the texts' lengths.
        """
        same = self.inner.tokens[:, :text.tokens.shape[1]] == text.tokens
        known = torch.minimum(self.known, same.long().cumprod(1).sum(1))
        length, read = torch.stack([text.length, known]).tolist()                           # waits
        new = max(tokens - 1 - known for tokens, known in zip(length, read))
        self._take(text, slice(None))
        if new > 0:
            self.cache.length = text.length - 1 - new
            self.middle(text.last(new + 1)[:, :-1], self.cache, kv_length, scored=0)
        return length

    def _take(self, text: Text, rows: list[int] | slice) -> None:
        """What is committed in these rows."""
        self.inner.tokens[rows, :text.tokens.shape[1]] = text.tokens[rows]
        self.inner.length[rows] = text.length[rows]
