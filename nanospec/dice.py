"""All chance in decoding goes through here, and one decision consumes one uniform.

`flip` is a biased coin, `pick` a loaded die. No other code ever holds a random number, so none can
be used twice, and a test that replaces the dice sees every decision there is (proof/walk.py tries
every outcome). Left out: initial weights and training shuffles, which decide nothing about a text.
"""

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from nanospec.errors import RequestError, check_seed, one_line


class Dice:
    """Uniforms u in [0, 1) for B rows. Row b's come from its own seed alone, in any batch.

    `refill` lays out the next round's: u is (B, uniforms) in float64, or in float32 where the
    device has no float64. `flip` and `pick` take them from left to right, so `column` is the next
    to be used. The buffer keeps its address from round to round. RequestError for a bad seed.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu"):
        self.device = torch.device(device)
        self.dtype = torch.float32 if self.device.type == "mps" else torch.float64
        self.generators = [torch.Generator("cpu").manual_seed(check_seed(seed)) for seed in seeds]
        self.u = torch.empty(len(self.generators), 0, dtype=self.dtype, device=self.device)
        self.column = 0

    def refill(self, uniforms: int) -> None:
        """Fresh uniforms for one round of every row. What the last round left over is dropped."""
        fresh = torch.stack([
            torch.rand(uniforms, generator=generator, dtype=self.dtype, device="cpu")
            for generator in self.generators])
        if self.u.shape[1] != uniforms:
            self.u = torch.empty_like(fresh, device=self.device)
        self.u.copy_(fresh)
        self.column = 0

    def flip(self, prob: Tensor) -> Tensor:
        """prob (B, n) -> (B, n) bool, True with probability min(1, prob): u < prob, never if 0."""
        check_rows(prob, len(self.generators), 2)
        return self._take(prob.shape[1]) < prob

    def pick(self, weights: Tensor) -> Tensor:
        """weights (B, V) -> (B,) indices, or (B, n, V) -> (B, n). No weight is negative.

        An index is drawn in proportion to its weight: the first one whose cumulative weight
        exceeds u * total. Example: weights [2, 0, 6] and u = 0.25 give index 2.
        """
        check_rows(weights, len(self.generators), 2, 3)
        cumulative = weights.cumsum(-1, dtype=self.dtype)
        u = self._take(1) if weights.dim() == 2 else self._take(weights.shape[1])[:, :, None]
        at = torch.searchsorted(cumulative, u * cumulative[..., -1:], right=True)[..., 0]
        return at.clamp(max=weights.shape[-1] - 1)      # where a weight is NaN there is no index

    def of_row(self, b: int) -> "Dice":
        """The dice of row b alone, at the same column: for a rule that takes one text at a time."""
        alone = copy(self)
        alone.u, alone.generators = self.u[b:b + 1], self.generators[b:b + 1]
        return alone

    def _take(self, n: int) -> Tensor:
        if self.column + n > self.u.shape[1]:
            raise RequestError(f"refill {self.column + n} uniforms: there are {self.u.shape[1]}")
        self.column += n
        return self.u[:, self.column - n:self.column]


def check_rows(of_rows: Tensor, rows: int, *dims: int) -> None:
    """RequestError unless this is a tensor of so many dimensions, the first one the B rows."""
    shape = tuple(getattr(of_rows, "shape", ()))
    if not isinstance(of_rows, Tensor) or len(shape) not in dims or shape[0] != rows:
        raise RequestError(f"dice decide for {rows} rows at once, of tensors ({rows}, n) or "
                           f"({rows}, V), got {type(of_rows).__name__} {one_line(shape)}: for one "
                           "distribution p (V,) say pick(p[None])[0]")
