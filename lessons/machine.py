"""What the lessons ask of a machine, how fast it reads and multiplies; and dice whose coins are loaded."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nanospec.cli.quantities import per_second
from nanospec.dice import Dice
from nanospec.fast.autotune import tuning_of
from nanospec.fast.clock import median_seconds
from nanospec.model import GPT


def bandwidth(size: int, device: torch.device) -> float:
    """Bytes a second when `size` bytes are read again and again."""
    numbers = torch.ones(size // 4, device=device)
    return per_second(4 * numbers.numel(), [median_seconds(numbers.sum, device)])


def matrix_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Floating-point operations a second in a product of two large matrices."""
    n = 8192 if device.type == "cuda" else 1024
    a = torch.ones(n, n, dtype=dtype, device=device)
    return per_second(2 * n ** 3, [median_seconds(lambda: a @ a, device)])


def weight_bytes(model: GPT) -> int:
    """What one token reads of the weights: all but an embedding table that is not also the head."""
    looked_up = 0 if model.config.tied else model.embedding.weight.numel()
    return (sum(weight.numel() for weight in model.parameters()) - looked_up) * tuning_of(model).dtype.itemsize


class Coins(Dice):
    """Accepts every draft token with probability alpha, whatever the distributions: the pace of an untrained pair."""

    def __init__(self, seeds: Sequence[int], device: torch.device, alpha: float):
        super().__init__(seeds, device)
        self.alpha = alpha

    def flip(self, prob: Tensor) -> Tensor:
        return self._take(prob.shape[1]) < self.alpha
