"""Weights in a layout of oneDNN's own, which its products read faster than the weights as they lie.

    pack(model)                 # every nn.Linear of the model becomes a PackedLinear, in place

oneDNN has one layout for calls on a single token, which is slow for more, and one for several.
Which calls gain from it is for autotune.py to measure. Modules are swapped as gpt-fast swaps them
for quantised ones. (https://github.com/meta-pytorch/gpt-fast)
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.errors import DeviceError

PACKED_FOR = 8          # tokens of a call that the layout is made for
Model = TypeVar("Model", bound=nn.Module)
Swapped = TypeVar("Swapped", bound="LinearWithCopy")


def can_pack(weight: Tensor) -> bool:
    """Whether this machine has oneDNN kernels for packed weights of this dtype, on this device."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):              # left out of some builds
        return False
    if weight.dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32


class LinearWithCopy(nn.Linear):
    """An nn.Linear over the Parameters of another, and a copy of its weight, laid out anew.

    copy: of the weight as it was when it was copied; None where there is none.
    """

    copy: Any = None

    def __init__(self, plain: nn.Linear):
        super().__init__(plain.in_features, plain.out_features, plain.bias is not None,
                         device="meta")
        self.weight, self.bias = plain.weight, plain.bias       # what is tied stays tied

    def _apply(self, *args, **kwargs):
        """What `.to` and its kin go through: the copy would be of the old weight."""
        self.copy = None
        return super()._apply(*args, **kwargs)


class PackedLinear(LinearWithCopy):
    """The copy is packed by oneDNN.

    fewest: the tokens of a call from which on it is read.
    """

    fewest = 1

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out)."""
        few = x.numel() < self.fewest * self.in_features
        # A compiler packs for itself.
        if self.copy is None or few or torch.compiler.is_compiling():
            return F.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.copy, self.bias, "none", [], "")


def pack(model: Model, fewest: int = 1) -> Model:
    """The model itself, whose products over `fewest` tokens and more read packed weights from now
    on.

    The weights are packed as they are now: pack again after they have changed. Names in the
    state_dict stay what they were. DeviceError where `can_pack` says no.
    """
    weight = next(model.parameters())
    if not can_pack(weight):
        raise DeviceError(f"no packed layout for {weight.dtype} on {weight.device} in this build "
                          "of torch")
    for part in swap(model, PackedLinear):
        part.copy = torch.ops.mkldnn._reorder_linear_weight(part.weight.detach(), PACKED_FOR)
        part.fewest = fewest
    return model


def swap(model: nn.Module, kind: Callable[[nn.Linear], Swapped]) -> list[Swapped]:
    """Every nn.Linear becomes one of this kind, in place, over the same Parameters; all of them."""
    found: list = []
    for parent in list(model.modules()):
        for name, part in list(parent.named_children()):
            if isinstance(part, nn.Linear):
                found.append(part if type(part) is kind else kind(part))
                setattr(parent, name, found[-1])
    return found
