"""Drafting under a grammar: any draft model gets the mask, and is not asked for forced tokens.

A token is forced where the grammar leaves no other. SGLang writes such tokens without asking a
model (Zheng et al. 2023, arXiv 2312.07104: "jump-forward decoding"). Here they are drafted without
one, and the target reads them in the call that it makes anyway:

    text    {"name": "Ann     ", "age":    4 2    }         forced: all of the second piece, and }
    asked                 the draft model, each time        no model

`Constrained` (grammar.py) masks what answers as a GPT does. This drafter masks the logits that a
draft model hands over, so it also takes one that reads the target's hidden states. Before it is
asked again it reads what was forced meanwhile: a GPT in one call, others token by token.

Claim: the text is lossless. Proof. A forced token's q_draft is one-hot, and it was not drawn. Any
other token is drawn from the q_draft that is reported. What is forced, and when the draft ends,
follows from the grammar and from tokens before, none of which is looked at and then drawn again.
Where the target has the grammar, p_target of a forced token is 1, and it is accepted if all before
it are.

In a batch it is not asked where a token is forced in all texts. Left out: trees.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.errors import check_gamma
from nanospec.methods.wrappers.grammar import Grammar
from nanospec.methods.trees.tree_reader import longest_chain
from nanospec.speculate import ModelDrafter
from nanospec.text import Text


class GrammarDrafter(ModelDrafter):
    """Drafts a chain of at most `most` tokens, gamma of them by the draft model, and forced ones.

    draft_model: as for ModelDrafter, without a mask. The target is to be Constrained by the same
    grammar; if it is not, the text is the target's, and fewer draft tokens are accepted.
    before: (B, N + 1), the state before every token of a text; known: (B,), to which place it is.
    read_to: (B,), how many tokens of every text the draft model has read for certain.
    RequestError for a grammar of another vocabulary, when a batch begins.
    """

    fixed, looks_around, per_row = False, True, ("reader", "before", "known", "read_to")

    def __init__(self, draft_model: Any, grammar: Grammar, gamma: int = 4, most: int = 16):
        super().__init__(draft_model, longest_chain(draft_model, check_gamma(most, "most")))
        self.gamma, self.grammar = check_gamma(gamma, "gamma"), grammar
        self.at_once = not hasattr(draft_model, "reader")       # a GPT reads several in one call

    def begin(self, text: Text) -> None:
        """A batch begins: the grammar goes to where it is."""
        super().begin(text)
        self.grammar.check("the target", text.vocab_size)
        device, (B, N) = text.tokens.device, text.tokens.shape
        self.allowed, self.after = self.grammar.allowed.to(device), self.grammar.after.to(device)
        self.forced = self.allowed.sum(-1) == 1                                 # (states,)
        only = self.after.gather(1, self.allowed.long().argmax(-1, keepdim=True))[:, 0]
        # The end is written again for ever, which nobody waits for.
        self.ended = self.forced & (only == torch.arange(len(only), device=device))
        self.before = torch.full((B, N + 1), max(self.grammar.prompt, 0), device=device)
        self.known, self.read_to = torch.zeros(2, B, dtype=torch.long, device=device)

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """Follow the prompts through the grammar."""
        super().read(text, rows, hidden)
        rows = list(rows)
        self.read_to[rows] = text.length[rows] - 1
        self.before[rows] = max(self.grammar.prompt, 0)
        self.known[rows] = text.length[rows] - 1 if self.grammar.at_once else 0

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        """What may follow. Waits for the device at every token."""
        row = torch.arange(len(text.length), device=text.length.device)
        tokens, q_draft, waiting = [text.last(1)[:, 0]], list[Tensor](), list[Tensor]()
        asked = steps = 0
        at = torch.minimum(self.known, text.length - 1)
        for _ in range(int((text.length - at).max())):      # what was written since
            self.before[row, at + 1] = self.after[self.before[row, at], text.tokens[row, at]]
            at = torch.minimum(at + 1, text.length - 1)
        self.known = text.length.clone()
        state = self.before[row, text.length]                                   # (B,)
        while len(q_draft) < self.most and not (q_draft and bool(self.ended[state].all())):
            allowed = self.allowed[state]                                       # (B, V)
            if bool(self.forced[state].all()):
                q_draft.append(allowed)
                tokens.append(allowed.long().argmax(-1))
            elif asked < self.gamma:
                logits, calls = self._asked(text, waiting, not asked, lag, kv_length)
                q_draft.append(sampling(logits.masked_fill(~allowed, float("-inf"))))
                tokens.append(dice.pick(q_draft[-1]))
                asked, steps, waiting = asked + 1, steps + calls, []
            else:
                break
            waiting.append(tokens[-1])
            state = self.after[state, tokens[-1]]
        # A forced token's q_draft is still a mask.
        kind = next((q.dtype for q in q_draft if q.dtype != torch.bool), torch.float32)
        nodes = F.pad(torch.stack([q.to(kind) for q in q_draft], 1), (0, 0, 1, 0))
        return Draft(torch.stack(tokens, 1), nodes, steps)

    def _asked(self, text: Text, waiting: list[Tensor], begins: bool, lag: int,
               kv_length: int) -> tuple[Tensor, int]:
        """The draft model's logits (B, V) after these draft tokens, and how many calls that took.

        begins: in this round it has not been asked yet, and reads what it has missed of the text.
        """
        calls = [token[:, None] for token in waiting]
        if self.at_once and waiting:
            calls = [torch.cat(calls, 1)]
        if begins:
            missed = text.length - torch.minimum(self.read_to, text.length - 1)
            logits = self.reader.start(text, max(lag, int(missed.max())), kv_length)
            self.read_to = text.length.clone()
        for part in calls:
            logits = self.reader.step(part, kv_length)
        return logits[:, -1], len(calls) + begins
