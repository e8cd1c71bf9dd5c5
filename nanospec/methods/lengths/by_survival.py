"""A budget of draft tokens for the whole batch: they go where they are likeliest to count.

A draft token counts only if all before it are accepted. The chance of that is called its survival:

    survival(b, k) = chance(b, 1) * chance(b, 2) * ... * chance(b, k)

chance(b, k) is how often draft tokens were accepted of which the draft model was as sure. All texts
draft. Of all their draft tokens the K of the greatest survival are verified, and K was fixed
beforehand:

    text 1      .9  .8  .7  .5          K = 6: from text 1 four draft tokens,
    text 2      .6  .2                  from text 2 one,
    text 3      .4  .3                  and from text 3 one

DSpark's scheduler (arXiv 2607.05147); vLLM's adaptive verification guesses the chance from the
draft model's margin.

Claim: all texts together are distributed as if each had been written by the target alone.
Proof.
1. Along a text survival falls, and of two equals the earlier one goes first. So the K of the
   greatest survival can be found one by one: each time, of the next place of every text, take the
   greatest.
2. So whether a place gets a draft token is decided before that token is drawn. The decision looks
   at draft tokens that were taken before, and at no coins.
3. That is a stopping rule of dynamic.py, for all texts at once: whatever it decides, this place's
   token is distributed as p_target.
4. If K were chosen after a look at the whole draft of this round, 2 would not hold: whether a place
   gets a draft token would depend on the tokens after it. Nor would it if a chance looked at its
   own draft token.

K may be found on the way, though. DSpark's Algorithm 1 takes place after place, as step 1 does,
stops at the first that does not pay, and never looks back: what it has seen by then are draft
tokens that were taken before. Its Appendix A shows in two tokens what a look back does;
lessons/21_what_a_stopping_rule_may_see.py walks it.

Left out: K from what calls cost, as by_load.py has gamma.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.methods.lengths.acceptance_rate import by_sureness, sureness
from nanospec.probs import probs
from nanospec.speculate import ModelDrafter
from nanospec.text import Text
from nanospec.theory import acceptance


class BySurvival(ModelDrafter):
    """At most gamma draft tokens for a text, and half as many for each on average.

    acceptance: of each class of sureness, the draft model's greatest probability.

    From the draft token with which the budget could be spent, it waits for the device after every
    one: whether there will be another depends on it.
    """

    fixed, learns, looks_around, per_row = False, "length", True, ("reader",)

    def __init__(self, draft_model: Any, gamma: int = 8):
        super().__init__(draft_model, gamma)
        self.budget = (gamma + 1) // 2

    def begin(self, text: Text) -> None:
        """A batch begins. What is known of acceptance holds for one."""
        super().begin(text)
        self.acceptance = by_sureness(text.tokens.device)

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        """Drafts go on until no further place could be among the K."""
        B, device = len(text.tokens), text.tokens.device
        tokens, q_draft, classes, survival = [text.last(1)[:, 0]], [], [], []
        chance, stands = self.acceptance.share, torch.ones(B, device=device)
        while len(q_draft) < self.most:
            if q_draft:
                logits = self.reader.step(tokens[-1][:, None], kv_length)[:, 0]             # (B, V)
            else:
                logits = self.reader.start(text, max(lag, self.reader.lag), kv_length)[:, 0]
            classes.append(sureness(probs(logits).amax(-1)))
            stands = stands * chance[classes[-1]]
            survival.append(stands)
            q_draft.append(sampling(logits))
            tokens.append(dice.pick(q_draft[-1]))
            if len(survival) >= self.budget:
                self.counts = self.counts_of(survival)
                least = torch.cat(survival).topk(self.budget * B).values[-1]    # of those it allows
                enough = least >= stands.max()
                enough, most = torch.stack([enough, self.counts.max()]).tolist()            # waits
                if enough:
                    break
        n = 1 + most
        self.classes = torch.stack(classes, 1)[:, :most]                    # of what is verified
        drawn = torch.arange(n, device=device) <= self.counts[:, None]                      # (B, n)
        q_nodes = torch.stack([torch.zeros_like(q_draft[0]), *q_draft], 1)[:, :n]
        return Draft(torch.stack(tokens, 1)[:, :n], q_nodes * drawn[:, :, None], len(q_draft))

    def counts_of(self, survival: list[Tensor]) -> Tensor:
        """(B,), how many draft tokens each text gets."""
        B = len(survival[0])                                    # stable: place by place
        order = torch.cat(survival).sort(descending=True, stable=True).indices
        return F.one_hot(order[:self.budget * B] % B, B).sum(0)     # bincount would wait

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None, logits: Tensor) -> None:
        """Learn how often draft tokens of each class are accepted."""
        super().commit(draft, path, count, p_target, hidden, logits)
        most = self.classes.shape[1]
        betas = acceptance(p_target[:, :most], draft.q_draft[:, 1:most + 1])            # (B, most)
        betas = betas.clamp(max=1).nan_to_num()         # a text with NaN fails alone
        place, ends = torch.arange(most, device=betas.device), torch.minimum(count + 1, self.counts)
        judged = (place < ends[:, None]).to(betas)
        self.acceptance.learn(judged, judged * betas, self.classes)
