"""Early exit: the target's own first layers draft, and the whole of it verifies.

Zhang et al. 2023, Draft & Verify (arXiv 2309.08168): a part of the target drafts. Elhoushi et al.
2024, LayerSkip (arXiv 2404.16710): it is the first part.

    h = the target's blocks 1 to E                              read a token, as the target does
    logits = output head of the target (norm(h + mlp(norm(h))))     the MLP is the exit's own

Left out: training the target to be left early, as LayerSkip does; the target that ships is as it
is. And one cache for both: in LayerSkip the target goes on where the draft model stopped, so the
first blocks read each draft token once. Here they read it twice, for two caches.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nanospec.attention import Call, cached_call
from nanospec.cache import Cache
from nanospec.methods.draft_models.layer import Reading
from nanospec.methods.draft_models.learned import AtOnce
from nanospec.methods.trees.tree_reader import GPTTreeReader
from nanospec.model import GPT, MLP, Config


def first_blocks(target: Any, depth: int, tokens: Tensor, cache: Cache | None = None,
                 kv_length: int | None = None, **placing: Any) -> Tensor:
    """The hidden states (B, T, C) of tokens (B, T) after `depth` blocks. As GPT.forward."""
    if not isinstance(target, GPT):                     # it has no blocks: a table of proof/
        _, hidden = target(tokens, cache, kv_length, layers=[depth - 1], **placing)
        return hidden[:, :, 0]
    T = tokens.shape[1]
    call = (Call(target.rope(T)) if cache is None else
            cached_call(target.config, T, cache, kv_length, **placing))
    x = target.embedding(tokens)
    for layer, block in enumerate(target.blocks[:depth]):
        x = block(x, call, layer)
    return x


class EarlyExit(AtOnce):
    """layers: the one after which it leaves, as a list. hidden: of its MLP, as in Config."""

    steps = 1               # each draft token is read as the target reads it: one is like another

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], hidden: int):
        super().__init__(vocab_size, channels, layers, hidden=hidden)
        if len(layers) > 1:
            raise ValueError(f"there is one exit, got {list(layers)}")
        self.depth = layers[0] + 1
        self.mlp_norm, self.norm = nn.RMSNorm(channels, 1e-5), nn.RMSNorm(channels, 1e-5)
        self.mlp = MLP(Config(vocab_size, 1, 1, channels, 1, 1, hidden))
        nn.init.zeros_(self.mlp.down.weight)

    @classmethod
    def sizes_for(cls, target: Config) -> dict[str, Any]:
        """It leaves after a quarter of the blocks."""
        return {"layers": [max(1, target.layers // 4) - 1], "hidden": target.hidden}

    def leave(self, h: Tensor) -> Tensor:
        """What the first blocks have computed (..., C) -> logits (..., V)."""
        h = h.to(self.dtype)
        return self.target_logits(self.norm(h + self.mlp(self.mlp_norm(h))))

    def logits(self, tokens: Tensor, before: Tensor, call: Reading) -> Tensor:
        """For training: of whole texts it reads the true tokens, and no hidden states."""
        with torch.no_grad():
            h = first_blocks(self.target, self.depth, tokens)
        anchors: Any = call.asks
        return self.leave(h[:, anchors[:, None] + torch.arange(call.steps, device=h.device)])

    def reader(self, depth: int) -> GPTTreeReader:
        return GPTTreeReader(ExitModel(self), depth)            # type: ignore[arg-type]


class ExitModel:
    """What stands where a draft GPT stands."""

    def __init__(self, model: EarlyExit):
        self.model, self.target = model, model.target
        self.config, self.new_cache = self.target.config, self.target.new_cache
        self.dtype, self.device = self.target.dtype, self.target.device

    def __call__(self, tokens: Tensor, cache: Cache | None = None, kv_length: int | None = None,
                 *, layers: Sequence[int] = (), scored: int | None = None,
                 **placing: Any) -> Tensor:
        """As GPT.forward. It has no hidden states to show."""
        h = first_blocks(self.target, self.model.depth, tokens, cache, kv_length, **placing)
        return self.model.leave(h if scored is None else h[:, h.shape[1] - scored:])
