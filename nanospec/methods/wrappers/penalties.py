"""Penalties: a token that the text already has becomes less likely, in a text and in its drafts.

Keskar et al. 2019 (CTRL, arXiv 1909.05858, section 4.1) divide by the repetition penalty; where
that would reward, below 0, the engines multiply. The presence and the frequency penalty are those
of OpenAI's interface.

    logit > 0: logit / repetition       of every token that the text has
    else:      logit * repetition
    then:      logit - presence - frequency * (how often the text has it)

Which text? For a node of a draft it is the committed one and the path to the node. Here the tokens
stand in the slots of the cache (in_slots.py), and each node counts those that it attends to. There
is no counter that draft tokens could be left in, and none that two models could share.

Claim: the text is lossless. Proof. The logits after a node depend on its own path alone, as any
language model's do. So what is wrapped is a language model, and the proof of `verify` holds.

The prompt counts, for all three. It does so for all three in llama.cpp, and in vLLM for repetition
alone. Penalties come before temperature, top-k, top-p and min-p.
Left out: a window of the last tokens, and biases.
"""

import math
from numbers import Real

import torch
from torch import Tensor

from nanospec.cache import Cache, LanguageModel
from nanospec.errors import RequestError, check_numbers, quoted
from nanospec.methods.wrappers.in_slots import MOST_KEPT, InSlots


def repeated(logits: Tensor, repetition: float) -> Tensor:
    """What the repetition penalty makes of the logits of tokens that the text has."""
    return torch.where(logits > 0, logits / repetition, logits * repetition)


def as_float(number: float) -> float:
    """Infinity for a fraction that is too large for a float."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


class Penalised(InSlots):
    """A language model to which a token is worth less if the text has it.

    It stands in the target's place, and a second one in the draft model's. If the draft model is
    left as it is, or the drafter copies, the text has the same distribution, and fewer draft tokens
    are accepted.
    repetition: above 0; 1 changes nothing, and less than 1 rewards. presence, frequency: 0 changes
    nothing. RequestError for others, and where there is no language model.
    Example: after the text 2, 2 with frequency 0.5, the logit of token 2 is 1 less.
    """

    def __init__(self, model: LanguageModel, repetition: float = 1.0, presence: float = 0.0,
                 frequency: float = 0.0):
        super().__init__("what is penalised", model)
        numbers = {"repetition": repetition, "presence": presence, "frequency": frequency}
        check_numbers(Real, **numbers)
        for name, number in numbers.items():
            value = as_float(number)
            if not math.isfinite(value) or name == "repetition" and value <= 0:
                raise RequestError(f"{name} must be a finite number{' above 0' * (name[0] == 'r')}"
                                   f", got {quoted(number)}")
        if model.config.vocab_size > MOST_KEPT:
            raise RequestError(f"penalties are for {MOST_KEPT} tokens or fewer, the model has "
                               f"{model.config.vocab_size}")
        self.repetition, self.presence, self.frequency = map(float, numbers.values())

    def changed(self, logits: Tensor, tokens: Tensor, cache: Cache,
                attention_mask: Tensor | None) -> Tensor:
        """Those of tokens that the text has are less."""
        slots = cache.next_slots(tokens.shape[1])
        self.keep(cache, slots, tokens)
        first = tokens.shape[1] - logits.shape[1]                       # of those scored
        if attention_mask is None:
            attention_mask = cache.causal_mask(slots, cache.kv.shape[3])
        counts = self._counts(self.kept(cache), attention_mask[:, first:], logits)
        worth = repeated(logits, self.repetition) - self.presence
        worth = torch.where(counts > 0, worth, logits)
        return worth - self.frequency * counts

    def _counts(self, known: Tensor, seen: Tensor, logits: Tensor) -> Tensor:
        """(B, T, V): how often each token stands in the slots that are seen (B, T, kv_length).

        known: (B, S), the token in every slot.
        """
        wide = torch.promote_types(logits.dtype, torch.float32)         # counts of 256 and more
        counts = torch.zeros(logits.shape, dtype=wide, device=logits.device)
        tokens = known[:, None, :seen.shape[2]].expand(seen.shape)
        return counts.scatter_add_(2, tokens, seen.to(wide))
