"""Logits -> probabilities: temperature, top-k, top-p, min-p. One function for both models.

What is sampled from must be what is reported. So a distribution is computed here, once, and handed
to the dice and to the rule. `residual` is what a rejection leaves. Left out: biases, penalties.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nanospec.errors import check_sampling


def probs(logits: Tensor, temperature: float = 1.0, top_k: int | None = None,
          top_p: float | None = None, min_p: float | None = None) -> Tensor:
    """logits (..., V) -> probabilities (..., V), in float32 or wider. Nothing is checked here.

    temperature: divides the logits; 0 is an exact one-hot at the argmax (the first if several tie).
    top_k: keep the k most likely tokens.
    top_p: of those, keep the fewest that hold at least top_p (Holtzman 2019, arXiv 1904.09751).
    min_p: of those, keep what has min_p times the greatest probability, or more (arXiv 2407.01082).
    Tokens that tie with the last one kept are kept too: the result depends on the values alone.
    Example: probs([0, log 3]) = [.25, .75]; at temperature 0, or with top_p = .7, [0, 1].
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    # A temperature or a top_p outside this range would count as 0, or as infinity.
    smallest, greatest = torch.finfo(logits.dtype).tiny, torch.finfo(logits.dtype).max
    if temperature == 0:
        best, at = logits.max(-1, keepdim=True)
        return torch.zeros_like(logits).scatter_(-1, at, best * 0 + 1)  # a NaN does not become a 1
    if temperature != 1:    # the maximum becomes 0 first: no temperature, however low, overflows
        logits = logits - logits.amax(-1, keepdim=True)
        logits = logits / min(max(temperature, smallest), greatest)
    if top_k is not None and top_k < logits.shape[-1]:
        smallest_kept = logits.topk(top_k).values[..., -1:]
        logits = logits.masked_fill(logits < smallest_kept, float("-inf"))
    kept = logits.softmax(-1)
    if top_p is not None and top_p < 1:
        ordered = kept.sort(-1, descending=True).values
        before = ordered.cumsum(-1) - ordered               # the mass of all more likely tokens
        needed = before < max(top_p, smallest)
        smallest_kept = ordered.where(needed, 1.0).amin(-1, keepdim=True)
        kept = kept.masked_fill(kept < smallest_kept, 0.0)
        kept = kept / kept.sum(-1, keepdim=True)
    if min_p is not None:
        kept = kept.masked_fill(kept < min_p * kept.amax(-1, keepdim=True), 0.0)
        kept = kept / kept.sum(-1, keepdim=True)
    return kept


def residual(p_target: Tensor, q_draft: Tensor) -> Tensor:
    """The residual distribution: max(0, p_target - q_draft) over its sum. All three are (..., V).

    The token in place of a rejected one is drawn from it (Leviathan et al. 2022, Algorithm 1).
    Where nothing is left, because p_target = q_draft up to rounding, it is p_target itself.
    Example: p_target [.5, .5], q_draft [.8, .2] give [0, 1]. Of a q_draft of zeros it is p_target.
    """
    left = (p_target - q_draft).clamp(min=0)
    total = left.sum(-1, keepdim=True)
    return torch.where(total == 0, p_target, left / total)


@dataclass(frozen=True)
class Sampling:
    """How logits become probabilities, for every row of a batch. RequestError where they cannot."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self):
        check_sampling(self.temperature, self.top_k, self.top_p, self.min_p)
        for name, given in vars(self).items():          # numbers of others, as numpy's
            kind = int if name == "top_k" else float
            object.__setattr__(self, name, given if given is None else kind(given))

    def __call__(self, logits: Tensor) -> Tensor:
        """logits (..., V) -> probabilities (..., V), as `probs`."""
        return probs(logits, self.temperature, self.top_k, self.top_p, self.min_p)
