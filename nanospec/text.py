"""The committed tokens of B texts: written behind the prompt, read into a cache, cut at a stop; and what a request
may ask.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nanospec.cache import Cache, LanguageModel, moved
from nanospec.errors import LogitsError, RequestError

WIDTH = 128             # texts are as wide as a multiple of it: what is compiled for one width serves many texts


class Text:
    """The committed tokens of B texts of any lengths, over a vocabulary of `vocab_size`.

    tokens: (B, N) int64, with room to write ahead;  length: (B,) int64, how many of them are committed
    """

    def __init__(self, prompts: Sequence[Sequence[int]], room: int, vocab_size: int,
                 device: torch.device | str = "cpu"):
        width = -(-(max(len(ids) for ids in prompts) + room) // WIDTH) * WIDTH
        rows = [list(ids) + [0] * (width - len(ids)) for ids in prompts]
        self.tokens = torch.tensor(rows, device=device)
        self.length = torch.tensor([len(ids) for ids in prompts], device=device)
        self.vocab_size = vocab_size
        self._count = torch.arange(self.tokens.shape[1], device=device)

    def last(self, n: int) -> Tensor:
        """(B, n): the last n tokens of every row; in a row of fewer the first one repeats. RequestError for n > N."""
        if n > self.tokens.shape[1]:
            raise RequestError(f"asked for the last {n} tokens of texts with room for {self.tokens.shape[1]}")
        return self.tokens.gather(1, (self.length[:, None] - n + self._count[:n]).clamp(min=0))

    def commit(self, tokens: Tensor, count: Tensor | int) -> None:
        """Append the first `count` (B,) of `tokens` (B, T); the rest is written too and never looked at."""
        self.tokens.scatter_(1, self.length[:, None] + self._count[:tokens.shape[1]], tokens)
        self.length += count

    def move(self, rows: Sequence[int], count: int) -> None:
        """A batch of `count` texts: text rows[i] becomes text i. The others are one token, 0."""
        self.tokens, self.length = moved(self.tokens, rows, count), moved(self.length, rows, count)
        self.length[len(rows):] = 1

    def ids(self) -> list[list[int]]:
        """Every row's committed tokens, for drafters that work on lists. Waits for the device."""
        return [row[:n] for row, n in zip(self.tokens.tolist(), self.length.tolist())]


def prefill(model: LanguageModel, text: Text, rows: Sequence[int] | None = None, cache: Cache | None = None,
            layers: Sequence[int] = ()) -> tuple[Cache, Tensor | None]:
    """Read all but the last token of the prompts in `rows`, by default of all.

    Returns a cache with a slot for every token that `text` has room for (`cache`, if given: its other rows stay), and
    the features that `layers` put out on the way: (len(rows), T, len(layers), C), or None without layers. T is that of
    the longest of these prompts; in shorter ones what lies behind their own length means nothing.
    """
    rows = list(range(len(text.tokens))) if rows is None else list(rows)
    cache = model.new_cache(*text.tokens.shape) if cache is None else cache
    width = int(text.length[rows].max()) - 1
    if not width:
        empty = torch.empty(len(rows), 0, len(layers), model.config.channels, dtype=model.dtype, device=model.device)
        return cache, empty if layers else None
    fresh = model.new_cache(len(rows), width)
    out = model(text.tokens[rows, :width], fresh, width, layers=layers)
    cache.put(rows, fresh)
    return cache, out[1] if layers else None


def until(tokens: list[int], stop: Sequence[int]) -> tuple[list[int], bool]:
    """The tokens up to and including the first that is in `stop`, and whether there was one."""
    for i, token in enumerate(tokens):
        if token in stop:
            return tokens[:i + 1], True
    return tokens, False


def check_request(model: LanguageModel, ids: Sequence[int], max_new_tokens: int, temperature: float, top_k: int | None,
                  top_p: float | None, rows: int = 1) -> None:
    """Raise RequestError, saying what is wrong, unless `model` can answer with drafts of at most `rows` rows."""
    vocab_size, context = model.config.vocab_size, model.config.context
    if not len(ids):
        raise RequestError("the prompt is empty: give at least one token (end of text will do)")
    if not all(0 <= token < vocab_size for token in ids):
        raise RequestError(f"the prompt has a token outside 0..{vocab_size - 1}: is this the model's own tokenizer?")
    if max_new_tokens < 0:
        raise RequestError(f"max_new_tokens must not be negative, got {max_new_tokens}")
    if len(ids) + max_new_tokens > context:
        raise RequestError(f"{len(ids)} prompt tokens and {max_new_tokens} new ones exceed the context of {context}")
    if rows > context:
        raise RequestError(f"a draft of up to {rows - 1} tokens is longer than the context of {context}")
    if not (temperature >= 0 and math.isfinite(temperature)):
        raise RequestError(f"temperature must be 0 or more, got {temperature}")
    if top_k is not None and top_k < 1:
        raise RequestError(f"top_k must be at least 1, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise RequestError(f"top_p must lie in (0, 1], got {top_p}")


def check_layers(model: LanguageModel, layers: Sequence[int]) -> None:
    """Raise RequestError for a drafter that reads layers which the target does not have."""
    if not all(0 <= layer < model.config.layers for layer in layers):
        raise RequestError(f"the drafter reads layers {list(layers)}, the target has 0 to {model.config.layers - 1}")


def check_seed(seed: int) -> None:
    """Raise RequestError for a seed that no generator takes."""
    if not -2 ** 63 <= seed < 2 ** 64:
        raise RequestError(f"a seed has 64 bits, got {seed}")


def check_vocabulary(draft: LanguageModel, vocab_size: int) -> None:
    """Raise RequestError unless `draft` drafts from the target's `vocab_size` tokens."""
    if draft.config.vocab_size != vocab_size:
        raise RequestError(f"the draft has a vocabulary of {draft.config.vocab_size} tokens, the target of "
                           f"{vocab_size}: they must share one tokenizer")


def check_numbers(total: float) -> None:
    """Raise LogitsError if `total`, the sum of probabilities, is no number."""
    if not math.isfinite(total):
        raise LogitsError("a model's logits hold NaN or infinity: are its weights whole, is its data type wide enough?")
