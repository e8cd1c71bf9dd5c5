"""Logits -> probabilities: temperature, top-k, top-p. One function for target and draft alike.

What is sampled from must be what is reported: whoever wants a distribution asks here, once, and hands the result to
the dice and to the rule. `residual` is what a rejection leaves of a distribution.
Left out: penalties and biases, which depend on the text and not on the logits alone.
"""

from collections.abc import Sequence

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
    smallest, greatest = torch.finfo(logits.dtype).tiny, torch.finfo(logits.dtype).max      # beyond: 0 or infinity
    if temperature == 0:
        best, at = logits.max(-1, keepdim=True)
        return torch.zeros_like(logits).scatter_(-1, at, best * 0 + 1)              # a NaN is not made a certainty
    if temperature != 1:        # the maximum becomes 0 first: no temperature, however small, overflows
        logits = (logits - logits.amax(-1, keepdim=True)) / min(max(temperature, smallest), greatest)
    if top_k is not None and top_k < logits.shape[-1]:
        smallest_kept = logits.topk(top_k).values[..., -1:]
        logits = logits.masked_fill(logits < smallest_kept, float("-inf"))
    kept = logits.softmax(-1)
    if top_p is not None and top_p < 1:
        ordered = kept.sort(-1, descending=True).values
        needed = ordered.cumsum(-1) - ordered < max(top_p, smallest)    # what stands before it does not reach top_p yet
        smallest_kept = ordered.where(needed, 1.0).amin(-1, keepdim=True)
        kept = kept.masked_fill(kept < smallest_kept, 0.0)
        kept = kept / kept.sum(-1, keepdim=True)
    return kept


def residual(p_target: Tensor, q_draft: Tensor) -> Tensor:
    """The residual distribution, max(0, p_target - q_draft) over its sum: (..., V), (..., V) -> (..., V).

    It is what the next token is drawn from when a draft token is rejected (Leviathan et al. 2022, Algorithm 1).
    Where nothing is left, because p_target = q_draft up to rounding, it is p_target itself.
    Example: p_target [.5, .5], q_draft [.8, .2] give [0, 1]. Of a q_draft of zeros it is p_target.
    """
    left = (p_target - q_draft).clamp(min=0)
    total = left.sum(-1, keepdim=True)
    return torch.where(total == 0, p_target, left / total)


class Sampling:
    """How logits become probabilities: temperature, top_k and top_p, each one for all rows or one per row.

    Example: Sampling(temperature=[0, 1]) makes row 0 greedy and samples row 1.
    """

    def __init__(self, temperature: float | Sequence[float] = 1.0, top_k: int | None | Sequence = None,
                 top_p: float | None | Sequence = None):
        settings = temperature, top_k, top_p
        rows = {len(values) for values in settings if isinstance(values, Sequence)}
        if len(rows) > 1:
            raise ValueError(f"settings for different numbers of rows: {sorted(rows)}")
        self.rows = max(rows, default=1)
        per_row = zip(*(values if isinstance(values, Sequence) else [values] * self.rows for values in settings))
        self.rows_of: dict[tuple, list[int]] = {}       # each setting, and the rows that have it
        for b, setting in enumerate(per_row):
            self.rows_of.setdefault(setting, []).append(b)

    def __call__(self, logits: Tensor) -> Tensor:
        """logits (B, ..., V) -> probabilities (B, ..., V), as `probs`."""
        if len(self.rows_of) == 1:
            return probs(logits, *next(iter(self.rows_of)))
        if len(logits) != self.rows:
            raise ValueError(f"settings for {self.rows} rows, logits of {len(logits)}")
        out = torch.empty_like(logits, dtype=torch.promote_types(logits.dtype, torch.float32))
        for setting, rows in self.rows_of.items():
            out[rows] = probs(logits[rows], *setting)
        return out
