"""A chain whose length is decided while it grows: how many tokens to draft, here and now.

A stopping rule decides whether a place of the text gets a draft token. It may look at the text, at
earlier rounds, at the draft tokens and coins before this place, and at the draft model's
distribution at this place. It may not look at this place's draft token, or at that token's coin.

Claim: the text has the target's distribution.
Proof.
1. Fix all that the rule has looked at. Then its decision is fixed: yes or no.
2. Yes: the draft token and its coin are still to come. Accepted or replaced, the token is
   distributed as p_target.
3. No: the place gets its token from p_target.
4. Both times the token is distributed as p_target. So it does not matter what was decided.
5. Append the token. The same holds for the next place.

So a draft token that the rule dislikes stays in the draft, and drafting ends after it. If such
tokens were thrown away, tokens that the rule likes would come out too often. The lesson *What a
stopping rule may see* shows how much.
Left out: CUDA graphs, since a length that is decided on the way has no fixed shape.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.errors import check_has
from nanospec.methods.lengths.stopping import StoppingRule
from nanospec.probs import probs
from nanospec.speculate import ModelDrafter
from nanospec.text import Text
from nanospec.theory import acceptance


class DynamicDrafter(ModelDrafter):
    """The drafter of speculate.py, with at most gamma draft tokens a round.

    when: the rule that says when to stop, one of methods/lengths/stopping.py. Every text has a copy
    of its own.

    It waits for the device once after every draft token, because whether there will be another
    depends on it (not where the rule does not look), and once when the round is over, to learn from
    it.
    """

    fixed, learns, per_row = False, "length", ("reader", "rules")

    def __init__(self, draft_model: Any, when: StoppingRule, gamma: int = 8):
        super().__init__(draft_model, gamma)
        check_has("what says when to stop", when, "a stopping rule", "goes_on", "draws", "learn")
        self.when, self.rules = when, {}

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """New requests: read the prompts, and forget what the last requests taught."""
        super().read(text, rows, hidden)
        for b in rows:
            self.rules[b] = copy(self.when)
            self.rules[b].begin()

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        """Up to gamma draft tokens for every text. One that stops before others lacks the rest."""
        B, device = len(text.tokens), text.tokens.device
        tokens, q_draft, steps, unknown = [], [], 0, float("nan")
        self.sure = [[] for _ in range(B)]      # the draft model's own probability of every token
        grows, known = [True] * B, list[bool]()     # known: to the device, as `on`
        while len(tokens) < self.most:
            grows = [on and bool(self.rules[b].goes_on(self.sure[b])) for b, on in enumerate(grows)]
            if not any(grows):
                break
            if grows != known:
                on, known = torch.tensor(grows, device=device)[:, None], grows
            if steps:
                logits = self.reader.step(tokens[-1][:, None], kv_length)[:, 0]             # (B, V)
            else:
                logits = self.reader.start(text, max(lag, self.reader.lag), kv_length)[:, 0]
            steps += 1
            own, q = probs(logits), sampling(logits)
            on = on & torch.stack([self.rules[b].draws(own[b]) for b in range(B)])[:, None]
            certain = torch.eye(1, text.vocab_size, device=device)
            tokens.append(dice.pick(torch.where(on, q, certain)))   # texts that have stopped: a 0
            q_draft.append(torch.where(on, q, 0.0))
            read = [(float(grow), unknown) for grow in grows]
            if any(self.rules[b].looks for b in range(B)):
                read = torch.cat([on, own.gather(1, tokens[-1][:, None])], 1).tolist()      # waits
            for b, (drawn, probability) in enumerate(read):
                grows[b] = drawn > 0
                self.sure[b] += [probability] * grows[b]
            if not any(grows):                          # a 0 in every text: nothing was drawn
                tokens.pop()
                q_draft.pop()
        zeros = torch.zeros(B, text.vocab_size, device=device)
        q_nodes = torch.stack([zeros.to(q_draft[0]) if q_draft else zeros, *q_draft], 1)
        return Draft(torch.stack([text.last(1)[:, 0], *tokens], 1), q_nodes, steps)

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None, logits: Tensor) -> None:
        """Every text's rule learns how many of its draft tokens were accepted."""
        super().commit(draft, path, count, p_target, hidden, logits)
        betas = acceptance(p_target[:, :-1], draft.q_draft[:, 1:])
        betas = betas.nan_to_num()                  # a text with NaN fails alone
        numbers = torch.cat([count[:, None], betas], 1).tolist()                            # waits
        for b, (accepted, *its_betas) in enumerate(numbers):
            # The accepted, and the first that was rejected.
            judged = min(int(accepted) + 1, len(self.sure[b]))
            self.rules[b].learn(self.sure[b], int(accepted), its_betas[:judged])
