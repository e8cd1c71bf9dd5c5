"""Weights in float16, arithmetic in float32: half the bytes to read, and nearly float32's answers.

    halve(model)                # every nn.Linear of the model becomes a HalfLinear, in place

A step on one token takes as long as it takes to read the weights. FBGEMM has products of float32
with weights in float16, made for a few rows, which widen the weights as they read them. For one and
two rows they read faster than oneDNN's products in bfloat16; for many rows those are faster, since
they also compute with 16 bits. Here a draft is verified with the numbers of plain decoding, up to
the order of sums in float32.

A compiler cannot look into FBGEMM's copies. In what it makes, such a product is a call of an
operator of ours, which finds the copy by its number.
"""

from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.errors import DeviceError
from nanospec.fast.packed import Model, Relaid, swap

NUMBERS = count()


def can_halve(device: torch.device) -> bool:
    """Whether this build of torch has FBGEMM's products there."""
    return device.type == "cpu" and torch.backends.quantized.engine in ("x86", "fbgemm")


class HalfLinear(Relaid):
    """The copy is FBGEMM's, in float16.

    half: the copy, of the weight as it was when it was halved; None where there is none.
    number: the copy's.
    """

    half: Any = None
    number: int

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out), both float32."""
        if self.half is None:
            return F.linear(x, self.weight, self.bias)
        if torch.compiler.is_compiling():
            return torch.ops.nanospec.half_linear(x, self.number, self.out_features)
        return torch.ops.quantized.linear_dynamic_fp16(x, self.half)

    def halve(self) -> None:
        bias = None if self.bias is None else self.bias.detach()
        self.half = torch.ops.quantized.linear_prepack_fp16(self.weight.detach(), bias)
        self.number = next(NUMBERS)         # what was compiled for an earlier copy goes on with that one no more
        HALVED[self.number] = self

    def forget(self) -> None:
        self.half = None


HALVED: WeakValueDictionary[int, HalfLinear] = WeakValueDictionary()
LIBRARY = torch.library.Library("nanospec", "DEF")
LIBRARY.define("half_linear(Tensor x, int number, int outputs) -> Tensor")


def _product(x: Tensor, number: int, outputs: int) -> Tensor:
    return torch.ops.quantized.linear_dynamic_fp16(x, HALVED[number].half)


def _shape(x: Tensor, number: int, outputs: int) -> Tensor:
    return x.new_empty(*x.shape[:-1], outputs)


LIBRARY.impl("half_linear", _product, "CPU")
torch.library.register_fake("nanospec::half_linear", _shape)


def halve(model: Model) -> Model:
    """The model itself, its weights rounded to float16 and kept in float32, its products over copies in float16.

    Halve again after they have changed. DeviceError where `can_halve` says no.
    """
    device = next(model.parameters()).device
    if not can_halve(device):
        raise DeviceError(f"no products with weights in float16 on {device} in this build of torch")
    model.to(torch.float16).to(torch.float32)
    for part in swap(model, HalfLinear):
        part.halve()
    return model
