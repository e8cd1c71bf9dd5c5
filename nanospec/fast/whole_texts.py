"""A GPT on whole texts while it learns on a CPU.

torch's attention is fast there on the way forward and slow on the way back: half of a training step
in bfloat16. Plain products of matrices over some queries at a time, which never see the half that a
causal mask hides, take two thirds of its time once torch.compile has fused what is between them.
"""

import torch
from torch import Tensor

from nanospec.attention import Call
from nanospec.model import GPT

QUERIES = 128           # at a time


class Sliced(Call):
    """A call on whole texts, whose attention is products of matrices over slices of the queries."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        B, _, T, D = q.shape
        seen = torch.ones(T, T, dtype=torch.bool, device=q.device).tril()
        slices, wide = [], torch.promote_types(q.dtype, torch.float32)
        for first in range(0, T, QUERIES):
            end = min(first + QUERIES, T)
            # The heads of a group read the same keys: they are more queries. (B, H_kv, _, D)
            queries = (q[:, :, first:end] * D ** -0.5).reshape(B, k.shape[1], -1, D)
            scores = queries @ k[:, :, :end].transpose(2, 3)
            scores = scores.to(wide).unflatten(2, (-1, end - first))
            scores = scores.masked_fill(~seen[first:end, :end], float("-inf"))
            weights = scores.softmax(-1).to(v.dtype).flatten(2, 3)
            slices.append((weights @ v[:, :, :end]).view(B, -1, end - first, D))
        return torch.cat(slices, 2)


def read_whole(model: GPT, tokens: Tensor) -> Tensor:
    """The logits (B, T, V) of whole texts (B, T), as model(tokens), for a loss to go back from."""
    if tokens.device.type != "cpu" or not torch.is_grad_enabled():
        return model(tokens)
    x, _ = model.through(model.embedding(tokens), Sliced(model.rope(tokens.shape[1])))
    return model.head(model.norm(x))
