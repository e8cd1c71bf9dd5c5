"""A chain whose length is decided while it grows: how many tokens to draft, here and now.

A stopping rule decides whether a place of the text gets a draft token. It may look at the text, at earlier rounds, at
the draft tokens and coins before this place, and at the draft's distribution at this place. It may not look at the
draft token of this place, or at that token's coin.

Claim: the text has the target's distribution.
Proof.
1. Fix all that the rule has looked at. Then its decision is fixed: yes or no.
2. Yes: the draft token and its coin are still to come. Accepted or replaced, the token is distributed as p_target.
3. No: the place gets its token from p_target.
4. Both times the token is distributed as p_target. So it does not matter what was decided.
5. Append the token. The same holds for the next place.

So a draft token that the rule dislikes stays in the draft, and drafting ends behind it. If such tokens were thrown
away, tokens that the rule likes would come out too often. Lesson 21 shows how much too often.
Left out: CUDA graphs, since a length that is decided on the way has no fixed shape.
"""

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, chain_parents, rows_there
from nanospec.draft_models import DraftModel
from nanospec.drafters.stopping import StoppingRule
from nanospec.probs import Sampling, probs
from nanospec.speculate import ModelDrafter
from nanospec.text import Text
from nanospec.theory import acceptance


class DynamicDrafter(ModelDrafter):
    """The drafter of speculate.py, with at most gamma draft tokens a round.

    when: the rule that says when to stop, one of drafters/stopping.py. Every text has a copy of its own.
    """

    def __init__(self, draft: DraftModel, when: StoppingRule, gamma: int = 8):
        super().__init__(draft, gamma)
        self.when, self.of = when, {}

    def begin(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        """New requests: read the prompts, and forget what the last requests taught."""
        super().begin(text, rows, features)
        for b in rows:
            self.of[b] = copy(self.when)
            self.of[b].begin()

    def move(self, rows: Sequence[int], count: int) -> None:
        super().move(rows, count)
        self.of = {i: self.of[b] for i, b in enumerate(rows)}

    def propose(self, text: Text, sampling: Sampling, dice: Dice, upto: int) -> Draft:
        """Up to gamma draft tokens for every row. Rows that stop earlier than others lack the rest."""
        B, device = len(text.tokens), text.tokens.device
        tokens, q_draft, steps = [text.last(1)[:, 0]], [], 0
        self.sure, grows = [[] for _ in range(B)], [True] * B       # sure: the draft's own probability of every token
        certain = torch.eye(1, text.vocab_size, device=device)
        while len(tokens) < self.size:
            grows = [on and self.of[b].goes_on(self.sure[b]) for b, on in enumerate(grows)]
            if not any(grows):
                break
            logits = (self.reader.behind(tokens[-1][:, None], upto) if steps else
                      self.reader.root(text, self.unread, upto))[:, 0]                              # (B, V)
            steps += 1
            own, q = probs(logits), sampling(logits)
            grows = [on and self.of[b].draws(own[b]) for b, on in enumerate(grows)]
            if not any(grows):
                break
            on = torch.tensor(grows, device=device)[:, None]
            tokens.append(dice.pick(torch.where(on, q, certain)))                   # rows that have stopped draw a 0
            q_draft.append(torch.where(on, q, 0.0))
            for b, probability in enumerate(own.gather(1, tokens[-1][:, None])[:, 0].tolist()):
                self.sure[b] += [probability] * grows[b]
        zeros = torch.zeros(B, text.vocab_size, device=device)
        q_rows = torch.stack([zeros.to(q_draft[0]) if q_draft else zeros, *q_draft], 1)
        rows = [1 + len(sure) for sure in self.sure]
        return Draft(torch.stack(tokens, 1), q_rows, chain_parents(rows, device), steps, rows_there(rows, device))

    def commit(self, draft: Draft, accepted: Tensor, p_target: Tensor, features: Tensor | None) -> None:
        """Every row's rule learns how many of its draft tokens were accepted."""
        super().commit(draft, accepted, p_target, features)
        betas = acceptance(p_target[:, :-1], draft.q_draft[:, 1:]).tolist()
        for b, row in enumerate(accepted.tolist()):
            while row > len(self.sure[b]):                  # in a merged draft, tokens of others stand behind its own
                row = draft.of_text(b)[1][row]
            judged = min(row + 1, len(self.sure[b]))        # what was accepted, and the first that was rejected
            self.of[b].learn(self.sure[b], row, betas[b][:judged])
