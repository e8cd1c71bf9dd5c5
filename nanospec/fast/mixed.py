"""Products in bfloat16 where the machine has units for them. Weights, losses and their sums stay in
float32.

A processor without such units converts every number on the way: three times as slow as float32 on
an Intel Xeon that has AVX-512 but no AMX.
"""

import time
import warnings
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import linear

TRIES = 5
# torch says that such a norm is not its fastest one. The weights stay in float32 all the same.
warnings.filterwarnings("ignore", "Mismatch dtype between input and weight")


@cache
def bfloat16_is_faster(device: str) -> bool:
    """Whether a product of matrices in bfloat16 takes less time than in float32 there: measured
    once, CUDA taken for granted.
    """
    if device != "cpu":
        return True
    took = {}
    for dtype in (torch.bfloat16, torch.float32):
        x, weight = torch.ones(2, 1024, 384, dtype=dtype, device=device)
        linear(x, weight)
        for _ in range(TRIES):
            began = time.perf_counter()
            linear(x, weight)
            took[dtype] = min(time.perf_counter() - began, took.get(dtype, float("inf")))
    return took[torch.bfloat16] < took[torch.float32]


def mixed(x: Tensor) -> torch.autocast:
    """The context in which models and losses are computed, on the device of x."""
    return torch.autocast(x.device.type, torch.bfloat16, enabled=bfloat16_is_faster(x.device.type))
