"""Early exit: the target's own first layers draft, and the rest of it verifies.

Zhang et al. 2023, Draft & Verify (arXiv 2309.08168): a part of the target drafts. Elhoushi et al. 2024, LayerSkip
(arXiv 2404.16710): it is the first part, and whoever verifies goes on from there.

    h = the target's blocks 1 to E          read a token, as the target does
    logits = output head of the target (norm(h + mlp(norm(h))))          frozen, behind a small MLP of the exit's own

Whose keys and values may stay in the cache? Those of the first E blocks. They have the target's weights and have read
what the target would have read. So committed text need not be read twice, and what they have put out for a draft token
is where the target goes on. (Had the draft left out blocks in the middle, those behind would have read something else.
The target would have to write their keys and values anew.)

    draft       x_0 - x_1 - x_2         the draft has read x_0 and x_1: they have been through blocks 1 to E
    target      blocks 1 to E read x_2 alone, blocks E+1 to L read all three

Where the draft is a tree, or its target not the one it is made of, the target reads everything itself.

Left out: training the target to be left early (LayerSkip). The target that ships is as it is.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from nanospec.cache import Cache, LanguageModel
from nanospec.draft_models.gpt import GPTReader
from nanospec.draft_models.learned import Learned, all_anchors
from nanospec.errors import RequestError
from nanospec.model import MLP, Config
from nanospec.text import Text


class EarlyExit(Learned):
    """layers: the one behind which it leaves, as a list. hidden: of its MLP, as in Config."""

    steps = 1                               # each draft token is read as the target reads it, so one is like another

    def __init__(self, vocab_size: int, channels: int, layers: Sequence[int], hidden: int):
        super().__init__(vocab_size, channels, layers, hidden=hidden)
        if len(layers) > 1:
            raise ValueError(f"there is one exit, got {list(layers)}")
        self.depth = layers[0] + 1
        self.mlp_norm, self.norm = nn.RMSNorm(channels, 1e-5), nn.RMSNorm(channels, 1e-5)
        self.mlp = MLP(Config(vocab_size, 1, 1, channels, 1, 1, hidden))
        nn.init.zeros_(self.mlp.down.weight)

    def leave(self, h: Tensor) -> Tensor:
        """What the first blocks have put out (..., C) -> logits (..., V)."""
        h = h.to(self.dtype)
        return self.said_by(self.norm(h + self.mlp(self.mlp_norm(h))))

    def forward(self, tokens: Tensor, before: Tensor, steps: int, anchors: Tensor | None = None) -> Tensor:
        """It reads the tokens themselves, and no features."""
        anchors = all_anchors(tokens, steps) if anchors is None else anchors
        with torch.no_grad():
            h = self.target.first(self.depth, tokens)
        logits = self.leave(h)
        return torch.stack([logits[:, anchors + k] for k in range(steps)])

    def reader(self) -> "ExitReader":
        return ExitReader(self)


class FirstLayers:
    """What stands where a draft GPT stands. left: what the blocks have put out for this round's draft, call by call."""

    def __init__(self, model: EarlyExit):
        self.model, self.target, self.left = model, model.target, []
        self.config, self.new_cache = self.target.config, self.target.new_cache
        self.dtype, self.device = self.target.dtype, self.target.device

    def __call__(self, tokens: Tensor, cache: Cache, upto: int, positions: Tensor | None = None,
                 sees: Tensor | None = None, layers: Sequence[int] = ()) -> Tensor:
        self.left.append(self.target.first(self.model.depth, tokens, cache, upto, positions, sees))
        return self.model.leave(self.left[-1])


class ExitReader(GPTReader):
    """shared: whether the cache is the target's. Then all committed tokens but the last one are in it."""

    model: FirstLayers
    handed: Cache | None = None
    shared = False

    def __init__(self, model: EarlyExit):
        super().__init__(FirstLayers(model))

    def share(self, target: LanguageModel, cache: Cache) -> Callable:
        """The next text is read in this cache."""
        first = self.model
        if target is not first.target:
            return target
        self.handed = cache
        return GoOn(first) if first.model.depth < target.config.layers else target

    def meet(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        new = text is not self.text
        super().meet(text, rows, features)
        if new:
            self.shared, self.cache, self.handed = self.handed is not None, self.handed or self.cache, None

    def read_prompts(self, rows: Sequence[int]) -> None:
        if not self.shared:
            super().read_prompts(rows)

    def move(self, rows: Sequence[int], count: int) -> None:
        if not self.shared:
            super().move(rows, count)

    def root(self, text: Text, unread: int, upto: int) -> Tensor:
        if self.shared and text is not self.text:
            raise RequestError("a draft model made of the target's own layers drafts for one request at a time, in the "
                               "target's cache")
        self.model.left = []
        return super().root(text, 1 if self.shared else unread, upto)


class GoOn:
    """The target, called on a draft whose first rows have been through its first blocks."""

    def __init__(self, first: FirstLayers):
        self.first, self.target, self.depth = first, first.target, first.model.depth

    def __call__(self, tokens: Tensor, cache: Cache, upto: int, positions: Tensor | None = None,
                 sees: Tensor | None = None, layers: Sequence[int] = (), there: Tensor | None = None
                 ) -> Tensor | tuple[Tensor, Tensor]:
        """As GPT.forward with a cache."""
        left, self.first.left = self.first.left, []
        if not left or sees is not None or min(layers, default=self.depth) < self.depth:
            return self.target(tokens, cache, upto, positions, sees, layers, there)
        h, start = torch.cat(left, 1), cache.length                             # (B, r, C): of rows 0 to r - 1
        if h.shape[1] < tokens.shape[1]:
            cache.length = start + h.shape[1]
            h = torch.cat([h, self.target.first(self.depth, tokens[:, h.shape[1]:], cache, upto)], 1)
            cache.length = start
        return self.target.rest(self.depth, h[:, :tokens.shape[1]], cache, upto, layers)
