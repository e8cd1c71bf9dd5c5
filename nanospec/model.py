"""The GPT, small and Llama-shaped: RMSNorm, rotary positions, SwiGLU, grouped-query attention, one embedding matrix
for the way in and the way out (Touvron et al. 2023, arXiv 2302.13971; Su et al. 2021, arXiv 2104.09864; Shazeer
2020, arXiv 2002.05202; Ainslie et al. 2023, arXiv 2305.13245).

One forward serves training (no cache), plain decoding (one token a row), drafting, and verification (several).
By its Config it is a Llama 3, a Qwen2 or a Qwen3, too. Left out: dropout, and every fused kernel that torch has not.
"""

import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.cache import Cache, Call, RaggedCall, cached_call
from nanospec.errors import DeviceError

LARGEST = 2 ** 31 - 1   # of any size
PACKED_FOR = 8          # tokens a call; oneDNN has one layout for a single row, slow for more, and one for several


@dataclass
class Config:
    """Sizes of a GPT. `heads` divides `channels`, or there is a `head_dim`; `kv_heads` divides `heads`.

    ValueError, with what is wrong, for sizes that make no GPT.
    """

    vocab_size: int
    context: int            # the longest text it was trained on, in tokens
    layers: int
    channels: int
    heads: int
    kv_heads: int
    hidden: int             # inner width of the SwiGLU
    tied: bool = True       # one matrix for the way in and the way out
    eps: float = 1e-5       # of RMSNorm
    rope_theta: float = 10_000.0
    rope_llama3: tuple[float, ...] = ()     # Llama 3's scaling, see `rope_table`
    head_dim: int | None = None     # channels of a head; None: channels / heads
    qkv_bias: bool = False          # as in Qwen2
    qk_norm: bool = False           # queries and keys are normed before they are turned, as in Qwen3

    def __post_init__(self):
        for name in ("vocab_size", "context", "layers", "channels", "heads", "kv_heads", "hidden", "head_dim"):
            size = getattr(self, name)
            if (name, size) != ("head_dim", None) and (type(size) is not int or not 0 < size <= LARGEST):   # no bool
                raise ValueError(f"{name} must be a whole number from 1 to {LARGEST}, got {size!r}")
        scaled = [("rope_llama3", value) for value in self.rope_llama3]
        for name, value in [("eps", self.eps), ("rope_theta", self.rope_theta), *scaled]:
            if type(value) not in (int, float) or not 0 < value <= sys.float_info.max:
                raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
        if scaled and (len(scaled) != 4 or self.rope_llama3[1] >= self.rope_llama3[2]):
            raise ValueError(f"rope_llama3 must be (factor, low, high, context), low below high: {self.rope_llama3!r}")
        for name in ("tied", "qkv_bias", "qk_norm"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if not self.head_dim and self.channels % self.heads or self.heads % self.kv_heads:
            raise ValueError(f"{self.channels} channels, {self.heads} heads, {self.kv_heads} heads of keys and values: "
                             "each must be a multiple of the next")

    @property
    def head_size(self) -> int:
        return self.head_dim or self.channels // self.heads


def rope_table(positions: int, head_size: int, theta: float, dtype: torch.dtype, device,
               llama3: tuple[float, ...] = ()) -> Tensor:
    """(2, positions, D), cos and sin: position t turns the pair (i, i + D/2) by the angle t * theta^(-2i/D).

    llama3 (factor, low, high, context): a pair that turns fewer than `low` times in `context` positions turns `factor`
    times slower, one of more than `high` times as ever, and between it goes evenly (Llama 3's rope_scaling).
    The minus sign of the rotation lives in the first half of the sines, so that turning x is
    x * cos + x.roll(D/2) * sin. Angles are float32 or wider, whatever the model's dtype.
    """
    wide = torch.promote_types(dtype, torch.float32)
    frequency = theta ** (-torch.arange(0, head_size, 2, dtype=wide, device=device) / head_size)
    if llama3:
        factor, low, high, context = llama3
        kept = ((context * frequency / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        frequency = frequency * (kept + (1 - kept) / factor)
    angle = torch.arange(positions, dtype=wide, device=device)[:, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)]).to(dtype)


def rotate(x: Tensor, rope: Tensor) -> Tensor:
    """Turn every head of x (B, H, T, D) to its position."""
    cos, sin = rope
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def can_pack(weight: Tensor) -> bool:
    """Whether this machine has oneDNN kernels for a layout of their own, for this weight's dtype and device."""
    mkldnn = torch.ops.mkldnn
    return (weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
            and hasattr(mkldnn, "_linear_pointwise") and (
                weight.dtype == torch.float32 or weight.dtype == torch.bfloat16 and mkldnn._is_mkldnn_bf16_supported()))


class Linear(nn.Linear):
    """x (..., in) @ weight (out, in).T.

    packed: the same weight in oneDNN's own order, once there is one; calls on `fewest` tokens and more read it.
    """

    packed: Tensor | None = None
    fewest = 1

    def __init__(self, inputs: int, outputs: int, bias: bool = False):
        super().__init__(inputs, outputs, bias)

    def forward(self, x: Tensor) -> Tensor:
        if (self.packed is None or x.numel() < self.fewest * self.in_features
                or torch.compiler.is_compiling()):                              # a compiler packs for itself
            return F.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")

    def pack(self, fewest: int = 1) -> None:
        self.packed, self.fewest = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), PACKED_FOR), fewest

    def _apply(self, *args, **kwargs):
        """What `.to` and its kin go through: a packed copy would be of the old weight."""
        self.packed = None
        return super()._apply(*args, **kwargs)


class Embedding(nn.Embedding):
    def reset_parameters(self) -> None:
        if not self.weight.is_meta:     # torch would import a second's worth of Python to draw nothing
            super().reset_parameters()


class Attention(nn.Module):
    """Grouped-query, with rotary positions. inputs: channels that it reads, by default as many as it writes."""

    def __init__(self, config: Config, inputs: int | None = None):
        super().__init__()
        self.heads, self.kv_heads, self.head_size = config.heads, config.kv_heads, config.head_size
        self.qkv = Linear(inputs or config.channels, (self.heads + 2 * self.kv_heads) * self.head_size, config.qkv_bias)
        self.out = Linear(self.heads * self.head_size, config.channels)
        self.q_norm, self.k_norm = (nn.RMSNorm(self.head_size, config.eps) if config.qk_norm else None for _ in "qk")

    def turned(self, x: Tensor, rope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, T, D), keys and values (B, H_kv, T, D) of x (B, T, inputs)."""
        heads = self.qkv(x).view(*x.shape[:2], -1, self.head_size).transpose(1, 2)      # (B, H + 2 H_kv, T, D)
        q_and_k = heads[:, :-self.kv_heads]
        if self.q_norm and self.k_norm:
            q_and_k = torch.cat([self.q_norm(q_and_k[:, :self.heads]), self.k_norm(q_and_k[:, self.heads:])], 1)
        turned = rotate(q_and_k, rope)
        return turned[:, :self.heads], turned[:, self.heads:], heads[:, -self.kv_heads:]

    def forward(self, x: Tensor, call: Call, layer: int) -> Tensor:
        """x (B, T, inputs) -> (B, T, C)."""
        y = call.attend(layer, *self.turned(x, call.rope))                              # (B, H, T, D)
        return self.out(y.transpose(1, 2).reshape(*x.shape[:2], -1))


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)), (..., C) -> (..., C)."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate_up = Linear(config.channels, 2 * config.hidden)
        self.down = Linear(config.hidden, config.channels)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    """One layer: what attention and the MLP answer is added to the residual stream, (B, T, C) -> (B, T, C)."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.channels, config.eps)
        self.attention = Attention(config)
        self.mlp_norm = nn.RMSNorm(config.channels, config.eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, call: Call, layer: int) -> Tensor:
        x = x + self.attention(self.attention_norm(x), call, layer)
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """A decoder-only transformer over `config.vocab_size` tokens. ValueError if its heads are of an odd size."""

    def __init__(self, config: Config):
        super().__init__()
        if config.head_size % 2:
            raise ValueError(f"rotary positions turn pairs: heads of {config.head_size} channels cannot be paired")
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.channels)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.channels, config.eps)
        with torch.device("meta") if config.tied else nullcontext():    # tied, it draws no weight of its own
            self.head = Linear(config.channels, config.vocab_size)
        if config.tied:
            self.head.weight = self.embedding.weight
        for name, weight in self.named_parameters():
            if weight.dim() == 2 and not weight.is_meta:
                # What is added to the residual stream starts smaller, as in GPT-2.
                added = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * config.layers) ** 0.5 if added else 0.02)

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.weight.dtype

    def pack(self, fewest: int = 1) -> "GPT":
        """Lay out every matrix a second time, in the order in which oneDNN's kernels read it, for calls on `fewest`
        tokens and more. For decoding: weights that change afterwards are not seen. DeviceError where `can_pack` says
        no.
        """
        if not can_pack(self.embedding.weight):
            raise DeviceError(f"no packed layout for {self.dtype} on {self.device}")
        for module in self.modules():
            if isinstance(module, Linear):
                module.pack(fewest)
        return self

    def new_cache(self, rows: int, slots: int) -> Cache:
        """An empty cache for `rows` texts of up to `slots` tokens, in this model's dtype and on its device."""
        c = self.config
        return Cache(rows, c.layers, c.kv_heads, self._rope(slots))

    def forward(self, tokens: Tensor, cache: Cache | None = None, upto: int | None = None,
                positions: Tensor | None = None, sees: Tensor | None = None, layers: Sequence[int] = (),
                there: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Score tokens (B, T): logits (B, T, V), row t for the token after t.

        Without a cache: B whole texts from position 0, causal. With one, the T tokens of row b go into the slots
        right above cache.length[b], which stays as it is; the caller moves it.
        upto: how many slots to read, a plain int >= the longest row + T (None: just that, at the cost of a sync).
        positions (B, T), sees (B, T, upto): for token trees, where a token's position is its depth and it sees
        its ancestors; by default position = slot, and every slot up to one's own is seen.
        layers: returns logits and also what these blocks put out, (B, T, len(layers), C): a drafter's features.
        there (N,), with a cache: only these tokens of all B T are computed, counted row by row (b T + t). The others
        get zeros.
        """
        call, x = self._call(tokens.shape[1], cache, upto, positions, sees), self.embedding(tokens)
        if there is None:
            return self._go_on(x, 0, call, layers)
        ragged = RaggedCall(call, there)
        out = self._go_on(ragged.packed(x), 0, ragged, layers)
        return (ragged.spread(out[0]), ragged.spread(out[1])) if isinstance(out, tuple) else ragged.spread(out)

    def first(self, depth: int, tokens: Tensor, cache: Cache | None = None, upto: int | None = None,
              positions: Tensor | None = None, sees: Tensor | None = None) -> Tensor:
        """What the first `depth` blocks put out, and nothing further: (B, T, C). Arguments as in `forward`."""
        call, x = self._call(tokens.shape[1], cache, upto, positions, sees), self.embedding(tokens)
        for layer in range(depth):
            x = self.blocks[layer](x, call, layer)
        return x

    def rest(self, depth: int, x: Tensor, cache: Cache, upto: int, layers: Sequence[int] = ()
             ) -> Tensor | tuple[Tensor, Tensor]:
        """Go on from what the first `depth` blocks have put out for the next T tokens. Returns as `forward` does."""
        return self._go_on(x, depth, self._call(x.shape[1], cache, upto), layers)

    def _call(self, T: int, cache: Cache | None, upto: int | None, positions: Tensor | None = None,
              sees: Tensor | None = None) -> Call:
        if cache is None:
            return Call(self._rope(T))
        return cached_call(self.config, T, cache, upto, positions, sees)

    def _go_on(self, x: Tensor, depth: int, call: Call, layers: Sequence[int]) -> Tensor | tuple[Tensor, Tensor]:
        features = {}
        for layer in range(depth, len(self.blocks)):
            x = self.blocks[layer](x, call, layer)
            if layer in layers:
                features[layer] = x
        logits = self.head(self.norm(x))                                        # (B, T, V)
        return (logits, torch.stack([features[layer] for layer in layers], 2)) if layers else logits

    def _rope(self, positions: int) -> Tensor:
        c = self.config
        return rope_table(positions, c.head_size, c.rope_theta, self.dtype, self.device, c.rope_llama3)
