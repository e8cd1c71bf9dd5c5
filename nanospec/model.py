"""The GPT, small and Llama-shaped: RMSNorm, rotary positions, SwiGLU, grouped-query attention, one
embedding matrix for the way in and the way out (Touvron et al. 2023, arXiv 2302.13971; Su et al.
2021, arXiv 2104.09864; Shazeer 2020, arXiv 2002.05202; Ainslie et al. 2023, arXiv 2305.13245).

One forward serves training (no cache), plain decoding (one token a text), drafting, and
verification (several). Its Config can describe a Llama 3, a Qwen2 or a Qwen3, too. Left out:
dropout, and every fused kernel that torch does not have.
"""

import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.attention import Call, cached_call
from nanospec.cache import Cache
from nanospec.errors import quoted

LARGEST = 2 ** 31 - 1   # of any size


@dataclass
class Config:
    """Sizes of a GPT. `kv_heads` divides `heads`, which divide `channels` unless `head_dim` is set.

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
    qk_norm: bool = False           # queries and keys are normed before the rotation, as in Qwen3

    def __post_init__(self):
        check_sizes(self)

    @property
    def head_size(self) -> int:
        return self.head_dim or self.channels // self.heads


def check_sizes(config: Config) -> None:
    """ValueError, with what is wrong, unless `config`, a Config, describes a possible GPT."""
    sizes = ["vocab_size", "context", "layers", "channels", "heads", "kv_heads", "hidden"]
    for name in sizes + ["head_dim"] * (config.head_dim is not None):
        size = getattr(config, name)
        if type(size) is not int or not 0 < size <= LARGEST:            # a bool is no int here
            raise ValueError(f"{name} must be a whole number from 1 to {LARGEST}, got "
                             f"{quoted(size)}")
    scaled = [("rope_llama3", value) for value in config.rope_llama3]
    for name, value in [("eps", config.eps), ("rope_theta", config.rope_theta), *scaled]:
        if type(value) not in (int, float) or not 0 < value <= sys.float_info.max:
            raise ValueError(f"{name} must be a finite number above 0, got {quoted(value)}")
    if scaled and (len(scaled) != 4 or config.rope_llama3[1] >= config.rope_llama3[2]):
        raise ValueError("rope_llama3 must be (factor, low, high, context), low below high: "
                         f"{quoted(config.rope_llama3)}")
    for name in ("tied", "qkv_bias", "qk_norm"):
        if type(getattr(config, name)) is not bool:
            raise ValueError(f"{name} must be True or False, got "
                             f"{quoted(getattr(config, name))}")
    if not config.head_dim and config.channels % config.heads or config.heads % config.kv_heads:
        raise ValueError(f"{config.channels} channels, {config.heads} heads, {config.kv_heads} "
                         "heads of keys and values: each must be a multiple of the next")
    if config.head_size % 2:
        raise ValueError(f"rotary positions turn pairs: heads of {config.head_size} channels "
                         "cannot be paired")


def rope_table(positions: int, head_size: int, theta: float, dtype: torch.dtype, device,
               llama3: tuple[float, ...] = ()) -> Tensor:
    """(2, positions, D), cos and sin: position t turns the pair (i, i + D/2) by t * theta^(-2i/D).

    llama3 (factor, low, high, context): a pair that turns fewer than `low` times in `context`
    positions turns `factor` times slower, one of more than `high` times at full speed, and in
    between the speed is interpolated (Llama 3's rope_scaling).
    The minus sign of the rotation stands in the first half of the sines, so that turning x is
    x * cos + x.roll(D/2) * sin. Angles are float32 or wider, whatever the model's dtype.
    """
    wide = torch.promote_types(dtype, torch.float32)
    frequency = theta ** (-torch.arange(0, head_size, 2, dtype=wide, device=device) / head_size)
    if llama3:
        factor, low, high, context = llama3
        kept = ((context * frequency / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        frequency = frequency * (kept + (1 - kept) / factor)
    angle = torch.arange(positions, device=device)[:, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)]).to(dtype)


def rotate(x: Tensor, rope: Tensor) -> Tensor:
    """Turn every head of x (B, H, T, D) to its position."""
    cos, sin = rope
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


class Linear(nn.Linear):
    """x (..., in) @ weight (out, in).T, without a bias unless one is asked for."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False):
        super().__init__(inputs, outputs, bias)


class Embedding(nn.Embedding):
    def reset_parameters(self) -> None:
        if not self.weight.is_meta:     # torch would import much in order to draw nothing
            super().reset_parameters()


class Attention(nn.Module):
    """Grouped-query, with rotary positions. inputs: channels that it reads, by default C."""

    def __init__(self, config: Config, inputs: int | None = None):
        super().__init__()
        self.heads, self.kv_heads, self.head_size = config.heads, config.kv_heads, config.head_size
        of_all_heads = (self.heads + 2 * self.kv_heads) * self.head_size
        self.qkv = Linear(inputs or config.channels, of_all_heads, config.qkv_bias)
        self.out = Linear(self.heads * self.head_size, config.channels)
        norms = [nn.RMSNorm(self.head_size, config.eps) if config.qk_norm else None for _ in "qk"]
        self.q_norm, self.k_norm = norms

    def turned(self, x: Tensor, rope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, T, D), keys and values (B, H_kv, T, D) of x (B, T, inputs)."""
        heads = self.qkv(x).view(*x.shape[:2], -1, self.head_size)
        heads = heads.transpose(1, 2)                                   # (B, H + 2 H_kv, T, D)
        q_and_k = heads[:, :-self.kv_heads]
        if self.q_norm and self.k_norm:
            q, k = q_and_k[:, :self.heads], q_and_k[:, self.heads:]
            q_and_k = torch.cat([self.q_norm(q), self.k_norm(k)], 1)
        turned = rotate(q_and_k, rope)
        return turned[:, :self.heads], turned[:, self.heads:], heads[:, -self.kv_heads:]

    def forward(self, x: Tensor, call: Call, layer: int) -> Tensor:
        """x (B, T, inputs) -> (B, T, C), or as many of the T as the call asks for."""
        y = call.attend(layer, *self.turned(x, call.rope))              # (B, H, T, D)
        return self.out(y.transpose(1, 2).flatten(2))


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
    """One layer: attention and the MLP each add to the residual stream, (B, T, C) -> (B, T, C)."""

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
    """A decoder-only transformer over `config.vocab_size` tokens."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.channels)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.channels, config.eps)
        with torch.device("meta") if config.tied else nullcontext():    # tied, it needs no memory
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

    def new_cache(self, rows: int, slots: int) -> Cache:
        """An empty cache for `rows` texts of up to `slots` tokens, of its dtype, on its device."""
        if self.device.type == "cuda":      # cuDNN plans anew for each kv_length: 165 ms, not 10
            torch.backends.cuda.enable_cudnn_sdp(False)
        c = self.config
        return Cache(rows, c.layers, c.kv_heads, self.rope(slots))

    def forward(self, tokens: Tensor, cache: Cache | None = None, kv_length: int | None = None,
                positions: Tensor | None = None, attention_mask: Tensor | None = None,
                layers: Sequence[int] = (),
                scored: int | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Score tokens (B, T): logits (B, T, V), at t of the token after t. Nothing is checked.

        Without a cache: B whole texts from position 0, causal. With one, the T tokens of row b go
        into the slots right above cache.length[b], which stays as it is: the caller moves it.
        kv_length: how many slots to read, a plain int >= the longest row + T (None: just that, at
        the cost of waiting for the device).
        positions (B, T), attention_mask (B, T, kv_length) bool: for token trees; by default
        position = slot, and a token attends to every slot up to its own.
        layers: also return the hidden states after these blocks, (B, T, len(layers), C).
        scored: how many of the last tokens get logits, (B, scored, V); None: all. A prompt needs 0.
        """
        T = tokens.shape[1]
        if cache is None:
            call = Call(self.rope(T))
        else:
            call = cached_call(self.config, T, cache, kv_length, positions, attention_mask)
        x, hidden = self.through(self.embedding(tokens), call, layers)
        logits = self.head(self.norm(x if scored is None else x[:, T - scored:]))   # (B, T, V)
        return (logits, hidden) if layers else logits

    def through(self, x: Tensor, call: Call,
                layers: Sequence[int] = ()) -> tuple[Tensor, Tensor | Any]:
        """x (B, T, C) through all blocks: (B, T, C). And the hidden states after `layers`,
        (B, T, len(layers), C); None without layers.
        """
        found = {}
        for layer, block in enumerate(self.blocks):
            x = block(x, call, layer)
            if layer in layers:
                found[layer] = x
        return x, torch.stack([found[layer] for layer in layers], 2) if layers else None

    def rope(self, positions: int) -> Tensor:
        """The rotations of as many positions, as rope_table."""
        c = self.config
        return rope_table(positions, c.head_size, c.rope_theta, self.dtype, self.device,
                          c.rope_llama3)
