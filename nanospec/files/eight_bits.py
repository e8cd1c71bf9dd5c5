"""How weights are kept: a large matrix as whole numbers of 8 bits and a scale for each of its rows,
everything else in bfloat16. Half the size, and the model is as good (docs/results/training.md).
"""

from typing import Any

import torch
from torch import Tensor

LARGE = 2 ** 16         # numbers of a matrix that is kept in 8 bits
SCALE = ".scale"        # what the scales of its rows, (rows, 1), are called after its name


def rounded(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights as they are kept. Rounded once more, they stay as they are: the scale of a row is its
    largest number / 127, of so few bits that 127 times as much is exact.

    Example: a row [.1, -1.27] is kept as [10, -127] and the scale .01, or what bfloat16 has for it.
    """
    kept = {}
    for name, weight in state.items():
        if not weight.is_floating_point():
            kept[name] = weight
        elif weight.dim() != 2 or weight.numel() < LARGE:
            kept[name] = weight.to(torch.bfloat16)
        else:
            scale = (weight.float().abs().amax(1, keepdim=True) / 127).to(torch.bfloat16)
            whole = (weight / torch.where(scale == 0, 1, scale).float()).round()
            kept |= {name: whole.clamp(-127, 127).to(torch.int8), name + SCALE: scale}
    return kept


def widened(state: Any) -> Any:
    """Weights as `rounded` has them -> all as they are used. Whatever else there is stays as it is.

    ValueError for whole numbers without a scale for each row.
    """
    if not isinstance(state, dict):
        return state
    found = dict(state)
    for name, weight in state.items():
        if isinstance(weight, Tensor) and weight.dtype == torch.int8:
            scale = found.pop(f"{name}{SCALE}", None)
            # A tensor that is not contiguous may claim to be larger than its file.
            if not (isinstance(scale, Tensor) and scale.is_floating_point() and weight.dim() == 2
                    and scale.shape == (len(weight), 1) and weight.is_contiguous()):
                raise ValueError(f"{name} has no scale for each row")
            found[name] = weight.float() * scale.float()
    return found
