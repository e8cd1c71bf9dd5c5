"""Early exit: the target's own first layers draft, and the rest of it verifies.

Zhang et al. 2023, Draft & Verify (arXiv 2309.08168): a part of the target drafts. Elhoushi et al.
2024, LayerSkip (arXiv 2404.16710): it is the first part, and the target goes on from there.

    h = the target's blocks 1 to E                              read a token, as the target does
    logits = output head of the target (norm(h + mlp(norm(h))))     the MLP is the exit's own

Which keys and values may stay in the cache? Those of the first E blocks. They have the target's
weights and have read what the target would have read. So committed text need not be read twice, and
what they have computed for a draft token is where the target goes on. (Had the draft model
left out blocks in the middle, those after them would have read something else. The target would
have to write their keys and values anew.)

    draft       x_0 - x_1 - x_2     x_0 and x_1 were read: they have been through blocks 1 to E
    target      blocks 1 to E read x_2 alone, blocks E + 1 to L read all three

This needs a target that knows what was drafted: `target_for` makes one, which stands in the
target's place. Without it, and where the target is not the one that the draft model is made of, the
draft model has a cache of its own and the target reads everything. It reads a tree in full, too.

Left out: training the target to be left early (LayerSkip). The target that ships is as it is.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nanospec.cache import Cache, Call, cached_call
from nanospec.draft import Drafter
from nanospec.errors import RequestError
from nanospec.methods.draft_models.layer import Reading
from nanospec.methods.draft_models.learned import AtOnce
from nanospec.methods.trees.tree_reader import GPTTreeReader
from nanospec.model import GPT, MLP, Config
from nanospec.text import Text


def first_blocks(target: Any, depth: int, tokens: Tensor, cache: Cache | None = None,
                 kv_length: int | None = None, **placing: Any) -> Tensor:
    """The hidden states (B, T, C) of tokens (B, T) after `depth` blocks. As GPT.forward."""
    if not isinstance(target, GPT):                     # it has no blocks: a table of proof/
        _, hidden = target(tokens, cache, kv_length, layers=[depth - 1], **placing)
        return hidden[:, :, 0]
    T = tokens.shape[1]
    call = (Call(target.rope(T)) if cache is None else
            cached_call(target.config, T, cache, kv_length, **placing))
    return target.through(target.embedding(tokens), call, end=depth)[0]


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

    def reader(self, depth: int) -> "ExitReader":
        return ExitReader(self, depth)


class ExitModel:
    """What stands where a draft GPT stands. computed: this round's hidden states, call by call."""

    def __init__(self, model: EarlyExit):
        self.model, self.target, self.computed = model, model.target, list[Tensor]()
        self.config, self.new_cache = self.target.config, self.target.new_cache
        self.dtype, self.device = self.target.dtype, self.target.device

    def __call__(self, tokens: Tensor, cache: Cache | None = None, kv_length: int | None = None,
                 *, layers: Sequence[int] = (), scored: int | None = None,
                 **placing: Any) -> Tensor:
        """As GPT.forward. It has no hidden states to show."""
        h = first_blocks(self.target, self.model.depth, tokens, cache, kv_length, **placing)
        self.computed.append(h)
        return self.model.leave(h if scored is None else h[:, h.shape[1] - scored:])


class ExitReader(GPTTreeReader):
    """Reads with the target's first blocks.

    offered: the cache that the target has made last, for the next text.
    shared: whether the cache is the target's. Then all committed tokens but the last one are in it.
    """

    model: ExitModel
    text: Text
    offered: Cache | None = None
    shared = False

    def __init__(self, model: EarlyExit, depth: int):
        super().__init__(ExitModel(model), depth)               # type: ignore[arg-type]

    @property
    def per_row(self) -> tuple[str, ...]:
        return () if self.shared else ("cache",)

    def begin(self, text: Text) -> None:
        """A batch is drafted for in the target's cache, if it has offered one of this shape."""
        offered, self.offered, self.text = self.offered, None, text
        self.shared = bool(offered and offered.kv.shape[2:4] == text.tokens.shape)
        if offered and self.shared:
            self.cache = offered
        else:
            super().begin(text)

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """Read the prompts, unless they lie in this cache: the target has read them."""
        if not self.shared:
            super().read(text, rows, hidden)

    def start(self, text: Text, lag: int, kv_length: int) -> Tensor:
        if self.shared and text is not self.text:
            raise RequestError("a draft model made of the target's own layers drafts for one "
                               "request at a time, in the target's cache")
        self.model.computed = []
        return super().start(text, 1 if self.shared else lag, kv_length)


class ContinuingTarget:
    """The target of a draft model that is made of its first blocks. It answers as a language model.

    Called on a chain, it goes on from what these blocks have computed for the nodes of the draft.
    """

    def __init__(self, reader: ExitReader):
        self.reader, self.target = reader, reader.model.target
        self.depth = reader.model.model.depth
        self.config, self.dtype = self.target.config, self.target.dtype
        self.device = self.target.device

    def new_cache(self, rows: int, slots: int) -> Cache:
        """What is made last before a text begins is the draft model's cache, too."""
        self.reader.offered = self.target.new_cache(rows, slots)
        return self.reader.offered

    def __call__(self, tokens: Tensor, cache: Cache, kv_length: int | None = None,
                 *, layers: Sequence[int] = (), scored: int | None = None, **placing: Any) -> Any:
        """As GPT.forward with a cache. A tree is read in full, and what is not of this draft."""
        first = self.reader.model
        computed, first.computed = first.computed, []
        shared = self.reader.shared and cache is self.reader.cache
        chain = not placing and min(layers, default=self.depth) >= self.depth
        if not (computed and shared and chain):
            return self.target(tokens, cache, kv_length, layers=layers, scored=scored, **placing)
        # What the blocks computed for the first nodes while drafting, and compute now for the rest.
        h, start = torch.cat(computed, 1)[:, :tokens.shape[1]], cache.length
        read = h.shape[1]
        if read < tokens.shape[1]:
            cache.length = start + read
            others = first_blocks(self.target, self.depth, tokens[:, read:], cache, kv_length)
            cache.length, h = start, torch.cat([h, others], 1)
        call = cached_call(self.config, tokens.shape[1], cache, kv_length)
        x, hidden = self.target.through(h, call, layers, first=self.depth)
        logits = self.target.head(self.target.norm(x))
        return (logits, hidden) if layers else logits


def target_for(target: Any, drafter: Drafter) -> Any:
    """What verifies the drafts of this drafter, to be used in the target's place.

    The target itself, or a ContinuingTarget if the drafter drafts with this very target's first
    blocks. A drafter that holds another one (hybrid) has no reader of its own: there the target
    itself reads every node in full, and the text is the same.
    """
    reader = getattr(drafter, "reader", None)
    if isinstance(reader, ExitReader) and reader.model.target is target and isinstance(target, GPT):
        return ContinuingTarget(reader)
    return target
