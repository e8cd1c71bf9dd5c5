"""Products of FBGEMM: float32 with weights that are kept in fewer bits, made for a few tokens.

    halve(model)                # every nn.Linear of the model becomes a HalfLinear, in place

Weights in float16, arithmetic in float32: half the bytes to read, and nearly float32's answers. A
step on one token takes as long as it takes to read the weights, and these products widen them as
they read them. For one and two tokens they read faster than oneDNN's products in bfloat16; for
many those are faster, since they also compute with 16 bits. A draft is verified with the numbers of
plain decoding, up to the order of sums in float32. (In 8 bits: int8.py.)

A compiler cannot look into FBGEMM's copies of the weights. In what it makes, such a product is a
call of an operator of ours, which finds the copy by its number.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.errors import DeviceError
from nanospec.fast.packed import LinearWithCopy, Model, swap

NUMBERS = count()


def has_fbgemm(device: torch.device) -> bool:
    """Whether this build of torch has FBGEMM's products there."""
    return device.type == "cpu" and torch.backends.quantized.engine in ("x86", "fbgemm")


class FBGEMMLinear(LinearWithCopy):
    """The copy is FBGEMM's. number: the copy's. kept: the data type of the copy's weights."""

    number: int
    kept: torch.dtype

    def packed_weight(self) -> Any:
        """A copy of the weight, and of the bias where `product` adds it."""
        raise NotImplementedError

    @staticmethod
    def product(x: Tensor, copy: Any) -> Tensor:
        """x (..., in), copy -> (..., out), both float32."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out), both float32."""
        return F.linear(x, self.weight, self.bias) if self.copy is None else self.multiplied(x)

    def multiplied(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return torch.ops.nanospec.product(x, self.number, self.out_features)
        return self.product(x, self.copy)

    def make_copy(self) -> None:
        self.copy = self.packed_weight()
        # What was compiled for an earlier copy goes on with that one no more.
        self.number = next(NUMBERS)
        COPIES[self.number] = self


COPIES: WeakValueDictionary[int, FBGEMMLinear] = WeakValueDictionary()
LIBRARY = torch.library.Library("nanospec", "DEF")
LIBRARY.define("product(Tensor x, int number, int outputs) -> Tensor")
LIBRARY.impl("product", lambda x, number, outputs:
             COPIES[number].product(x, COPIES[number].copy), "CPU")
torch.library.register_fake("nanospec::product", lambda x, number, outputs:
                            x.new_empty(*x.shape[:-1], outputs))


def use_copies(model: Model, kind: type[FBGEMMLinear],
               can: Callable[[torch.device], bool]) -> Model:
    """The model itself, in float32, its products over copies of this kind, made of its weights as
    they are now.

    DeviceError, and nothing has changed, where `can` says that there are none.
    """
    device = next(model.parameters()).device
    if not can(device):
        raise DeviceError(f"no products with weights in {str(kind.kept).removeprefix('torch.')} on "
                          f"{device} in this build of torch")
    model.to(torch.float32)
    with ThreadPoolExecutor() as pool:      # FBGEMM makes each with one thread
        list(pool.map(kind.make_copy, swap(model, kind)))
    return model


class HalfLinear(FBGEMMLinear):
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
        for weight in model.parameters():       # one by one: a whole model more is slow to allocate
            weight.data = weight.data.to(torch.float16).to(torch.float32)
    return use_copies(model, HalfLinear, has_fbgemm)
