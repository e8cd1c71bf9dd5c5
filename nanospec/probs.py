"""Logits -> probabilities: temperature, top-k, top-p. One function for target and draft alike.

What is sampled from must be what is reported: whoever wants a law asks here, once, and hands the result to the dice
and to the rule. Left out: penalties and biases, which depend on the text and not on the logits alone.
"""

import torch
from torch import Tensor


def probs(logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """logits (..., V) -> probabilities (..., V), in float32 or wider.

    temperature: divides the logits; 0 is an exact one-hot at the argmax (the first one, if several tie).
    top_k: keep the k most likely tokens.
    top_p: of those, keep the fewest that together hold at least top_p (Holtzman et al. 2019, arXiv 1904.09751).
    Tokens that tie with the last one kept are kept too, so that the result is a function of the values alone.

    Example: probs([0, log 3], 1) = [.25, .75]; at temperature 0, [0, 1]; with top_p = .7, [0, 1].
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if temperature == 0:
        best, at = logits.max(-1, keepdim=True)
        return torch.zeros_like(logits).scatter_(-1, at, best * 0 + 1)              # a NaN is not made a certainty
    if temperature != 1:        # the maximum becomes 0 first: no temperature, however small, overflows
        logits = (logits - logits.amax(-1, keepdim=True)) / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        smallest_kept = logits.topk(top_k).values[..., -1:]
        logits = logits.masked_fill(logits < smallest_kept, float("-inf"))
    law = logits.softmax(-1)
    if top_p is not None and top_p < 1:
        ordered = law.sort(-1, descending=True).values
        needed = ordered.cumsum(-1) - ordered < top_p           # what stands before it does not yet reach top_p
        smallest_kept = ordered.where(needed, 1.0).amin(-1, keepdim=True)
        law = law.masked_fill(law < smallest_kept, 0.0)
        law = law / law.sum(-1, keepdim=True)
    return law
