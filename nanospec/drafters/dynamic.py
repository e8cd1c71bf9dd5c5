"""A chain of guesses whose length is decided while it grows: how far ahead to guess, here and now.

What may a stopping rule look at? Lemma: whether there is a guess at a place has to be settled before that guess and its
coin are thrown, and may depend on all else: the text, the guesses and coins before it, the draft's law there, earlier
rounds. Proof: given whatever was looked at, the place gets its token by keep or replace if there is a guess and from
p_target if there is none, and either way it has the law p_target. So it does not matter which of the two it was, and
place after place the text has the target's law.

A guess that one dislikes is therefore kept, and drafting ends behind it. Were it thrown away, whether there is a guess
would depend on what it is, and tokens that the rule likes would come out too often.
Left out: several texts at once, and CUDA graphs: a length that is decided on the way has no fixed shape.
"""

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.drafters.stopping import Fixed
from nanospec.generate import Law, Text
from nanospec.model import GPT
from nanospec.probs import probs
from nanospec.speculate import ModelDrafter
from nanospec.theory import acceptance


class DynamicDrafter(ModelDrafter):
    """The drafter of speculate.py, one text at a time; `when`, one of drafters/stopping.py, says when to stop."""

    def __init__(self, draft: GPT, when: Fixed):
        super().__init__(draft)
        self.when = when

    def begin(self, text: Text, vocab_size: int) -> None:
        """A new request, of one text, for a target of that vocabulary: forget the last one, read the prompt."""
        super().begin(text, vocab_size)
        self.when.begin()

    def propose(self, text: Text, gamma: int, law: Law, dice: Dice, upto: int) -> tuple[Tensor, Tensor]:
        """n guesses, at most gamma, and the law that each was drawn from: (1, n), (1, n, V)."""
        drafted, self.q_draft, self.sure, self.steps = [], [], [], 0
        feed, self.cache.length = text.last(2), text.length - 2             # two, always: ModelDrafter says why
        while len(drafted) < gamma and self.when.goes_on(self.sure):
            logits = self.draft(feed, self.cache, upto)[:, -1]              # (1, V)
            self.steps += 1
            q_draft, own = law(logits), probs(logits)
            if not self.when.draws(own[0]):
                break
            token = dice.pick(q_draft)
            drafted.append(token)
            self.q_draft.append(q_draft)
            self.sure.append(own[0, token].item())
            self.cache.length = self.cache.length + feed.shape[1]
            feed = token[:, None]
        if drafted:
            return torch.stack(drafted, 1), torch.stack(self.q_draft, 1)
        device, vocab_size = text.tokens.device, self.draft.config.vocab_size
        return text.tokens[:, :0], torch.zeros(1, 0, vocab_size, device=device)

    def learn(self, kept: int, p_target: Tensor) -> None:
        """So many guesses stood; p_target (n + 1, V) are the target's laws at their places and one further."""
        judged = self.q_draft[:kept + 1]                                    # what stood, and the first that fell
        betas = [acceptance(p_target[place], q_draft[0]).item() for place, q_draft in enumerate(judged)]
        self.when.learn(self.sure, kept, betas)
