"""How far from this machine's limits a pair runs, and what its costs grow with.

A token of plain decoding reads every weight once, so it cannot take less than their bytes over the bandwidth: the
floor (the memory side of the roofline, Williams et al. 2009). Left out: the processor's several caches, of which only
two sizes are measured, the model's own and one far beyond all of them.
"""

from collections.abc import Sequence

import torch

from nanospec.measure import measure_costs
from nanospec.model import GPT
from nanospec.settle import median_seconds


def bandwidth(size: int, device: torch.device) -> float:
    """Bytes a second when `size` bytes are read again and again."""
    numbers = torch.ones(size // 4, device=device)
    return 4 * numbers.numel() / median_seconds(numbers.sum, device)


def matrix_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Floating-point operations a second in a product of two large matrices."""
    n = 8192 if device.type == "cuda" else 1024
    a = torch.ones(n, n, dtype=dtype, device=device)
    return 2 * n ** 3 / median_seconds(lambda: a @ a, device)


def weight_bytes(model: GPT) -> int:
    """What one token reads of the weights: all but an embedding table that is not also the head."""
    unread = 0 if model.config.tied else model.embedding.weight.numel()
    return (sum(weight.numel() for weight in model.parameters()) - unread) * model.embedding.weight.element_size()


def roofline(target: GPT, draft: GPT, gamma: int = 4, context: int = 256) -> dict:
    """Rates of this machine, and each step's seconds beside its floor. A round's floor is that of its parts."""
    device, size = target.device, weight_bytes(target)
    near, far = bandwidth(size, device), bandwidth(512 * 2 ** 20, device)
    floors = {"target step": size / near, "draft step": weight_bytes(draft) / near, "verification": size / near}
    floors["round"] = gamma * floors["draft step"] + floors["verification"]
    costs = measure_costs(target, draft, [gamma + 1], context)
    took = {"target step": costs.seconds, "draft step": costs.c * costs.seconds,
            "verification": costs.v[gamma + 1] * costs.seconds, "round": costs.parts(gamma)}
    return {"bytes": size, "bandwidth": near, "bandwidth_of_512_MiB": far,
            "matrix_rate": matrix_rate(target.dtype, device), "gamma": gamma, "floor_seconds": floors, "seconds": took}


def growth(target: GPT, draft: GPT, gamma: int = 4, contexts: Sequence[int] = (128, 512, 1024, 2048, 4096),
           rows: Sequence[int] = (4, 16, 64)) -> list[dict]:
    """Seconds of a plain step and of a round's parts against the context, for one row; and against rows, at 256."""
    points, out = [(1, context) for context in contexts] + [(count, 256) for count in rows], []
    for count, context in points:
        costs = measure_costs(target, draft, [gamma + 1], context, rows=count)
        out.append({"rows": count, "context": context, "plain": costs.seconds, "round": costs.parts(gamma)})
    return out
