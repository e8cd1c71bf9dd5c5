"""Weights and activations in 8 bits: a quarter of float32's bytes to read, and four times its
arithmetic.

    quantise(model)             # every nn.Linear of the model becomes an Int8Linear, in place

Verification multiplies several tokens with every weight. In float32 that takes longer than reading
the weights, from three tokens on. Processors with VNNI multiply whole numbers of 8 bits four times
as fast, and sum them up in 32 bits without any rounding. So a token's product is the same, bit by
bit, whatever tokens are beside it, and with what steady.py does for attention all of a chain is
verified with plain decoding's own numbers.

Both factors are rounded to -127 ... 127 times a scale: each output's weights have a scale of their
own, and so have each token's activations. A few channels of a transformer are a hundred times as
large as the others, and one of them would leave hardly a bit to the rest. So both are turned first,
64 channels at a time, by an orthogonal matrix H that mixes them all: (x H)(W H)^T = x W^T, and what
was large in one channel is a little in 64. (LLM.int8: Dettmers et al. 2022, arXiv 2208.07339,
section 4. H is Hadamard's matrix: QuaRot, Ashkboos et al. 2024, arXiv 2404.00456, section 3.)

Still it is another model, a little further from the original than bfloat16. The text is exactly
distributed as this model alone would write it, so it is for whoever asks for it, and nothing
chooses it unasked.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from nanospec.fast.fbgemm import FBGEMMLinear, has_fbgemm, use_copies
from nanospec.fast.packed import Model
from nanospec.fast.steady import steady
from nanospec.model import GPT

LARGEST = 127
ZERO = 128              # FBGEMM's activations are 0 to 255
TURNED = 64             # channels at a time, or the largest power of two that divides their number
LEAST = 1e-30           # scale where all are zeros


class Int8Linear(FBGEMMLinear):
    """The copy has the turned weight in 8 bits, a scale for each output, and no bias."""

    kept = torch.int8

    def packed_weight(self) -> Any:
        weight = turned(self.weight.detach().float())
        scale = weight.abs().amax(1).clamp(min=LEAST) / LARGEST
        quantised = torch._make_per_channel_quantized_tensor(
            (weight / scale[:, None]).round().to(torch.int8), scale.double(),
            torch.zeros_like(scale, dtype=torch.long), 0)
        return torch.ops.quantized.linear_prepack(quantised, None)

    @staticmethod
    def product(x: Tensor, copy: Any) -> Tensor:
        """Of x within -1 and 1."""
        quantised = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        return quantised(x, 1 / LARGEST, ZERO, copy)

    def multiplied(self, x: Tensor) -> Tensor:
        x = turned(x)
        scale = x.abs().amax(-1, keepdim=True).clamp_(min=LEAST)
        y = super().multiplied(x.div_(scale)).mul_(scale)
        return y if self.bias is None else y.add_(self.bias)


@contextmanager
def unwarned() -> Iterator[None]:
    """torch means to do without tensors of 8 bits some day, and says so of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def turned(x: Tensor) -> Tensor:
    """x (..., in) H, in float32."""
    size = min(x.shape[-1] & -x.shape[-1], TURNED)
    return torch.mm(x.reshape(-1, size), hadamard(size)).view(x.shape)


@cache
def hadamard(size: int) -> Tensor:
    """(size, size), orthogonal, every entry +- size^-1/2 (Sylvester's). size: a power of two."""
    if size == 1:
        return torch.ones(1, 1, device="cpu")
    half = hadamard(size // 2) / 2 ** 0.5
    return torch.cat([torch.cat([half, half], 1), torch.cat([half, -half], 1)])


@cache
def can_quantise(device: torch.device) -> bool:
    """Whether such products are there, and exact: without VNNI 16 bits overflow."""
    if not has_fbgemm(device):
        return False
    ones = Int8Linear(torch.nn.Linear(2, 1, bias=False, device="cpu")).requires_grad_(False)
    ones.weight.copy_(torch.tensor([[1.0, 0.0]], device="cpu"))       # turned, two equal weights
    with unwarned():
        ones.make_copy()
    return torch.allclose(ones(ones.weight), hadamard(1))


def quantise(model: Model) -> Model:
    """The model itself, in float32, its products over copies of its weights in 8 bits; a GPT is
    steady then.

    Quantise again after they have changed. DeviceError where `can_quantise` says no.
    """
    with unwarned():
        use_copies(model, Int8Linear, can_quantise)
    if isinstance(model, GPT):
        steady(model)
    return model
