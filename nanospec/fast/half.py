"""Weights in float16, arithmetic in float32: half the bytes to read, and nearly float32's answers.

    halve(model)                # every nn.Linear of the model becomes a HalfLinear, in place

A step on one token takes as long as it takes to read the weights. FBGEMM has products of float32
with weights in float16, made for a few rows, which widen the weights as they read them. For one and
two rows they read faster than oneDNN's products in bfloat16; for many rows those are faster, since
they also compute with 16 bits. Here a draft is verified with the numbers of plain decoding, up to
the order of sums in float32.
"""

from typing import Any

import torch
from torch import Tensor

from nanospec.fast.fbgemm import Copied, copied, has_fbgemm
from nanospec.fast.packed import Model


class HalfLinear(Copied):
    """The copy has the weight in float16, and the bias."""

    kept = torch.float16

    def packed_weight(self) -> Any:
        bias = None if self.bias is None else self.bias.detach()
        return torch.ops.quantized.linear_prepack_fp16(self.weight.detach(), bias)

    @staticmethod
    def product(x: Tensor, copy: Any) -> Tensor:
        return torch.ops.quantized.linear_dynamic_fp16(x, copy)


def halve(model: Model) -> Model:
    """The model itself, its weights rounded to float16 and kept in float32, its products over
    copies in float16.

    Halve again after they have changed. DeviceError where there are no such products.
    """
    if has_fbgemm(next(model.parameters()).device):
        model.to(torch.float16)
    return copied(model, HalfLinear, has_fbgemm)
