"""The committed tokens of B texts: appended after the prompt, read into a cache, cut at a stop."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nanospec.cache import Cache, LanguageModel
from nanospec.errors import RequestError

WIDTH = 128     # a text's room is a multiple of it: what is compiled for one width serves many


class Text:
    """The committed tokens of B texts, over a vocabulary of `vocab_size`. Nothing is checked here.

    tokens: (B, N) int64, with room to write ahead;  length: (B,) int64, how many are committed
    """

    def __init__(self, prompts: Sequence[Sequence[int]], room: int, vocab_size: int,
                 device: torch.device | str = "cpu"):
        width = -(-(max(len(ids) for ids in prompts) + room) // WIDTH) * WIDTH
        rows = [list(ids) + [0] * (width - len(ids)) for ids in prompts]
        self.tokens = torch.tensor(rows, dtype=torch.int64, device=device)
        self.length = torch.tensor([len(ids) for ids in prompts], device=device)
        self.vocab_size = vocab_size
        self._places = torch.arange(width, device=device)

    def last(self, n: int) -> Tensor:
        """(B, n <= N): the last n tokens of every text; a text of fewer repeats its first one."""
        if n > self.tokens.shape[1]:
            raise RequestError(f"no last {n} tokens of texts with room for {self.tokens.shape[1]}")
        return self.tokens.gather(1, (self.length[:, None] - n + self._places[:n]).clamp(min=0))

    def commit(self, tokens: Tensor, count: Tensor | int) -> None:
        """Append the first `count` (B,) of `tokens` (B, T). The rest is written, and never read."""
        self.tokens.scatter_(1, self.length[:, None] + self._places[:tokens.shape[1]], tokens)
        self.length += count

    def ids(self) -> list[list[int]]:
        """The committed tokens of every text, for drafters that use lists. Waits for the device."""
        return [ids[:n] for ids, n in zip(self.tokens.tolist(), self.length.tolist())]


def prefill(model: LanguageModel, text: Text, layers: Sequence[int] = (),
            cache: Cache | None = None,
            rows: Sequence[int] | None = None) -> tuple[Cache, Tensor | None]:
    """Read all but the last token of every prompt, or of those in `rows` of a batch with a cache.

    Returns a cache with a slot for every token that `text` has room for (`cache`, if given: its
    other rows stay as they are), and the hidden states after `layers`: (len(rows), T, len(layers),
    C), or None without layers. T is the longest prompt's; after a shorter one nothing has meaning.
    """
    rows = list(range(len(text.tokens))) if rows is None else list(rows)
    width = int(text.length[rows].max()) - 1
    new, cache = cache is None, cache or model.new_cache(*text.tokens.shape)
    if not width:
        empty = torch.empty(len(rows), 0, len(layers), model.config.channels, dtype=model.dtype,
                            device=model.device)
        return cache, empty if layers else None
    read = cache if new else model.new_cache(len(rows), width)
    out = model(text.tokens[rows, :width], read, width, layers=layers, scored=0)
    if not new:
        cache.put(rows, read)
    return cache, out[1] if layers else None


def until(tokens: list[int], stop: Sequence[int]) -> tuple[list[int], bool]:
    """The tokens up to and including the first that is in `stop`, and whether there was one."""
    for i, token in enumerate(tokens):
        if token in stop:
            return tokens[:i + 1], True
    return tokens, False
