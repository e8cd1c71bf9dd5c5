"""Models small enough to walk: language models that are tables, and a tiny GPT."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nanospec.cache import Cache
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.draft_models.learned import Learned
from nanospec.methods.draft_models.pruned import Pruned
from nanospec.model import GPT, Config

LAYER = {"heads": 1, "kv_heads": 1, "hidden": 8}
# Sizes of small learned draft models, where those of their classes would be too large to walk.
SMALL: dict[str, dict] = {
    "medusa": {"heads": 8}, "hydra": {"heads": 8}, "mlp": {"width": 12, "depth": 2},
    "prefix": LAYER | {"width": 12}, "eagle": LAYER, "mtp": LAYER, "eagle3": LAYER | {"spoken": 3},
    "lookback": LAYER | {"spoken": 2},
    "dflash": LAYER, "dspark": LAYER, "early_exit": {"layers": [0], "hidden": 8}}


class TableModel:
    """A language model that is a table: every context, whole and in order, has a distribution of
    its own.

    It stands where a GPT stands and keeps its context in a real `Cache`: its keys are the tokens
    themselves. Feed it from a cache that was not rolled back, or that misses a token, and it
    answers for another context. Thousands of paths a second. zeros: about that share of the
    probabilities is 0. ties: every second context has likeliest tokens that tie. The hidden state
    of its only layer is the context's number.
    """

    CONTEXTS = 9973     # lines of the table; a context is hashed to one

    def __init__(self, vocab_size: int, seed: int, zeros: float = 0.25, ties: bool = False):
        self.config = Config(vocab_size, context=96, layers=1, channels=2, heads=1, kv_heads=1,
                             hidden=1)
        self.device, self.dtype = torch.device("cpu"), torch.float64
        made = torch.Generator().manual_seed(seed)
        table = torch.rand(self.CONTEXTS, vocab_size, generator=made, dtype=self.dtype)
        single = torch.float32          # whatever torch's default is now: a seed is one table
        gone = torch.rand(self.CONTEXTS, vocab_size, generator=made, dtype=single) < zeros
        gone[torch.arange(self.CONTEXTS), table.argmax(-1)] = False         # one must be left
        if ties:
            tied = torch.rand(self.CONTEXTS, vocab_size, generator=made, dtype=single) < 0.5
            tied &= ~gone
            tied[::2] = False
            table = torch.where(tied, table.amax(-1, keepdim=True), table)
        self.logits = table.log().masked_fill(gone, float("-inf"))
        # What learned draft models use of a target. Its hidden state is a large number, which the
        # norm makes a small one.
        weights = torch.randn(2, vocab_size, 2, generator=made, dtype=self.dtype)
        self.embedding = partial(F.embedding, weight=weights[0])
        self.norm, self.head = torch.sin, partial(F.linear, weight=weights[1])

    def new_cache(self, rows: int, slots: int) -> Cache:
        return Cache(rows, layers=1, kv_heads=1, rope=torch.zeros(2, slots, 1, dtype=self.dtype))

    def __call__(self, tokens: Tensor, cache: Cache | None = None, kv_length: int | None = None,
                 positions: Tensor | None = None, attention_mask: Tensor | None = None,
                 layers: Sequence[int] = (), scored: int | None = None) -> Any:
        """tokens (B, T) -> logits (B, T, V), by the contract of GPT.forward; it has no use for
        positions.
        """
        rows, T = tokens.shape
        cache = cache or self.new_cache(rows, T)
        slots = cache.next_slots(T)
        key = tokens.to(self.dtype)[:, None, :, None]
        kv_length = int(slots.max()) + 1 if kv_length is None else kv_length
        keys, _ = cache.write(0, slots, key, key, kv_length)
        kept = keys[:, 0, :, 0].long().tolist()
        if attention_mask is None:
            seen = [[row[:slot + 1] for slot in at] for row, at in zip(kept, slots.tolist())]
        else:               # a token's context is what it attends to, in the order of the slots
            seen = [[[token for token, visible in zip(row, mask) if visible] for mask in masks]
                    for row, masks in zip(kept, attention_mask.tolist())]
        number = torch.tensor([[self._hash(context) for context in contexts] for contexts in seen])
        logits = self.logits[number if scored is None else number[:, T - scored:]]
        if not layers:
            return logits
        return logits, number[:, :, None, None].to(self.dtype).expand(-1, -1, len(layers), 2)

    def _hash(self, context: list[int]) -> int:
        h = 1
        for token in context:
            h = (h * 31 + token + 1) % self.CONTEXTS
        return h


# Half of what is drawn is certain or impossible: many bugs show at once.
TABLE, DRAFT_MODEL = TableModel(3, 8, zeros=0.4), TableModel(3, 58, zeros=0.4)


def small_gpt(vocab_size: int, layers: int, seed: int, context: int = 96) -> GPT:
    """A random GPT in float64 with distributions far from uniform and from other seeds'."""
    config = Config(vocab_size, context, layers, channels=16, heads=2, kv_heads=1, hidden=24)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT(config)
    for weight in model.parameters():
        weight.data *= 12.0 if weight.dim() == 2 else 1.0
    return model.double().requires_grad_(False).eval()


@lru_cache(maxsize=None)
def small_learned(name: str, target) -> Learned:
    """A random draft model of this name for a small target, in float64, on the hidden states of its
    outermost layers; early_exit leaves after the first.
    """
    config = target.config
    outermost = {"layers": sorted({0, config.layers - 1})}
    sizes = LEARNED[name].sizes_for(config) | outermost | SMALL.get(name, {})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = LEARNED[name](config.vocab_size, config.channels, **sizes)
        for weight in model.parameters():
            nn.init.normal_(weight, std=0.3) if weight.dim() == 2 else None
        if isinstance(model, Pruned):       # from the first token to the last, with gaps
            rows = torch.arange(len(model.offsets))
            model.offsets.copy_(rows * (config.vocab_size - 1) // (len(rows) - 1) - rows)
    return model.double().requires_grad_(False).eval().attach(target)
