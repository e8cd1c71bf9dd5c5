"""Draft models that can draft a part of the vocabulary alone.

Most of what a draft model of a large vocabulary reads is its output head: at 49,152 tokens and 576
channels 28 million weights, as many as ten of its layers. Few of these tokens are ever drafted.
EAGLE-3 (arXiv 2503.01840) and FR-Spec (arXiv 2502.14856) keep the weights of the frequent ones. A
token that is left out is never drafted: q_draft is 0 there, which costs speed and never exactness.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nanospec.methods.draft_models.learned import Learned
from nanospec.model import Linear


class Pruned(Learned):
    """Its head (channels -> spoken) gives logits (..., spoken): of these tokens, in the order of
    their ids.

    spoken: how many tokens it can draft.
    """

    offsets: Tensor

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int],
                 spoken: int, **sizes: int):
        super().__init__(vocab_size, channels, layers, spoken=spoken, **sizes)
        if spoken > vocab_size:
            raise ValueError(f"it cannot draft {spoken} of {vocab_size} tokens")
        self.head = Linear(channels, spoken)
        # Of every output of the head: its token's id less its own number, as EAGLE-3's d2t has it.
        self.register_buffer("offsets", torch.zeros(spoken, dtype=torch.int64))

    @property
    def ids(self) -> Tensor:        # type: ignore[override]
        """(spoken,): the tokens that it can draft, ascending."""
        return self.offsets + torch.arange(len(self.offsets), device=self.offsets.device)

    def has_tokens(self) -> bool:
        """Whether these are tokens of the vocabulary, each one once."""
        ids = self.ids.tolist()
        return (self.offsets.dtype == torch.int64 and ids == sorted({*ids}) and 0 <= ids[0]
                and ids[-1] < self.vocab_size)

    def prepare(self, ids: Tensor) -> None:
        """Draft the training text's most frequent tokens. The head begins as the target's."""
        count = ids.bincount(minlength=self.vocab_size)
        often = count.argsort(descending=True, stable=True)[:len(self.offsets)]
        self.offsets.copy_(often.sort().values - torch.arange(len(often), device=often.device))
        with torch.no_grad():
            self.head.weight.copy_(self.target.head.weight[self.ids])

    def spread(self, logits: Tensor) -> Tensor:
        """(..., spoken) -> (..., V), -infinity for the tokens that it cannot draft."""
        if len(self.offsets) == self.vocab_size:
            return logits
        never = logits.new_full((*logits.shape[:-1], self.vocab_size), float("-inf"))
        return never.index_copy(-1, self.ids, logits)
