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

from collections.abc import Sequence

from torch import Tensor

from nanospec.dice import Dice
from nanospec.drafters.guesses import Tree
from nanospec.drafters.stopping import Fixed
from nanospec.errors import RequestError
from nanospec.generate import Law, Text, check_vocabulary, prefill
from nanospec.model import GPT
from nanospec.probs import probs
from nanospec.theory import acceptance


class DynamicDrafter:
    """A drafter of trees (see drafters/tree.py) that are chains of up to `most` guesses; `when` says when to stop.

    when: one of drafters/stopping.py. With Fixed() it is the chain of speculate.py, of gamma = most.
    """

    def __init__(self, draft: GPT, when: Fixed, most: int = 8):
        if most < 1:
            raise RequestError(f"most must be at least 1, got {most}")
        self.draft, self.when, self.size = draft, when, most + 1

    def begin(self, text: Text, vocab_size: int) -> None:
        """A new request, of one text, for a target of that vocabulary: forget the last one, read the prompt."""
        check_vocabulary(self.draft, vocab_size)
        self.cache = prefill(self.draft, text)
        self.when.begin()

    def propose(self, text: Text, law: Law, dice: Dice) -> Tree:
        """Guesses behind the committed text, each behind the last, with the law that it was drawn from."""
        n = int(text.length)
        self.tree, self.sure = Tree([int(text.tokens[0, n - 1])]), []
        feed, self.cache.length = text.last(2), text.length - 2             # two, always: ModelDrafter says why
        while len(self.sure) < self.size - 1 and self.when.goes_on(self.sure):
            logits = self.draft(feed, self.cache, n + len(self.sure))[0, -1]
            self.tree.steps += 1
            q_draft, own = law(logits), probs(logits)
            if not self.when.draws(own):
                break
            token = int(dice.pick(q_draft[None]))
            self.tree.add(len(self.sure), token, q_draft)
            self.sure.append(own[token].item())
            self.cache.length = self.cache.length + feed.shape[1]
            feed = text.tokens.new_tensor([[token]])
        return self.tree

    def commit(self, path: Sequence[int], p_target: Tensor) -> None:
        """Rows `path` of the chain are text now; p_target (n, V) is what the target thought behind every row."""
        judged = self.tree.q_draft[1:len(path) + 2]                         # what stood, and the first that fell
        betas = [acceptance(p_target[row], q_draft).item() for row, q_draft in enumerate(judged)]
        self.when.learn(self.sure, len(path), betas)
