"""What a draft model is trained on: how far q_draft is from p_target, in seven ways.

A draft token is accepted with probability alpha = sum min(p_target, q_draft) = 1 - TV(p_target,
q_draft). So total variation is what speculation pays for. It is hard to begin with: only tokens
with q_draft < p_target change it. The Kullback-Leibler divergences are easier, and bound it: TV <=
sqrt(KL / 2), Pinsker's inequality.

DistillSpec (Zhou et al. 2023, arXiv 2310.08461): the first four. LK losses (arXiv 2602.23881): the
next two.
DSpark (arXiv 2607.05147): the last, but for its first part. There it is the cross-entropy of the
token that the training text goes on with, and here the KL. If the target wrote the text, the two
differ on average by a constant.

Each takes log-probabilities, p_target and q_draft (..., V), and gives a number for every place,
(...). It is 0 where the two are equal, and above 0 elsewhere. p_target may lack what the draft
model cannot draft: then it sums to less than 1, and total variation is still how often it is
rejected, but the KL may fall below 0.
Example: p_target [.5, .5], q_draft [.8, .2] give .223, .193, .051, .3, .357, .3 - .122 (.3 - .223)
= .291, and .1 x .223 + .9 x .6 = .562.
"""

import math

import torch
from torch import Tensor


def log_probs(logits: Tensor) -> Tensor:
    """Of logits (..., V), in float32 or wider: what a loss takes."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


def forward_kl(p_target: Tensor, q_draft: Tensor) -> Tensor:
    """KL(p_target || q_draft), in nats: the draft model has to cover what the target writes."""
    return (p_target.exp() * (p_target - q_draft)).sum(-1)


def reverse_kl(p_target: Tensor, q_draft: Tensor) -> Tensor:
    """KL(q_draft || p_target), in nats: the draft model must not write what the target does not."""
    return forward_kl(q_draft, p_target)


def jensen_shannon(p_target: Tensor, q_draft: Tensor) -> Tensor:
    """The mean of both distributions' KL from their mixture, in nats; at most log 2."""
    mixture = p_target.logaddexp(q_draft) - math.log(2)
    return (forward_kl(p_target, mixture) + forward_kl(q_draft, mixture)) / 2


def total_variation(p_target: Tensor, q_draft: Tensor) -> Tensor:
    """1 - alpha: how often a draft token is rejected."""
    return 1 - p_target.exp().minimum(q_draft.exp()).sum(-1)


def minus_log_alpha(p_target: Tensor, q_draft: Tensor) -> Tensor:
    """Total variation's gradient over alpha: where nothing is accepted yet it pushes most."""
    return -p_target.exp().minimum(q_draft.exp()).sum(-1).log()


def lk_hybrid(p_target: Tensor, q_draft: Tensor) -> Tensor:
    """KL where the draft model is far off, total variation where it is near: by exp(-3 alpha)."""
    off = total_variation(p_target, q_draft)
    weight = (-3 * (1 - off.detach())).exp()
    return weight * forward_kl(p_target, q_draft) + (1 - weight) * off


def kl_and_tv(p_target: Tensor, q_draft: Tensor) -> Tensor:
    """A tenth of KL, nine tenths of sum |p_target - q_draft|, twice the total variation."""
    return 0.1 * forward_kl(p_target, q_draft) + 0.9 * 2 * total_variation(p_target, q_draft)


LOSSES = {"forward-kl": forward_kl, "reverse-kl": reverse_kl, "jensen-shannon": jensen_shannon,
          "total-variation": total_variation, "minus-log-alpha": minus_log_alpha,
          "lk-hybrid": lk_hybrid, "kl-and-tv": kl_and_tv}
