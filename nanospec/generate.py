"""Plain decoding: one token per target call. The oracle of everything else, and the baseline of every speed-up.

Holds what plain and speculative decoding share: the committed `Text`, reading the prompt into a cache, where to stop.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from nanospec.cache import Cache
from nanospec.dice import Dice
from nanospec.errors import LogitsError, RequestError
from nanospec.model import GPT
from nanospec.probs import probs

Law = Callable[[Tensor], Tensor]        # logits (..., V) -> probabilities (..., V)


class Text:
    """The committed tokens of B texts of any lengths.

    tokens: (B, N) int64, with room to write ahead;  length: (B,) int64, how many of them are committed
    """

    def __init__(self, prompts: Sequence[Sequence[int]], room: int, device: torch.device | str = "cpu"):
        longest = max(len(ids) for ids in prompts)
        rows = [list(ids) + [0] * (longest + room - len(ids)) for ids in prompts]
        self.tokens = torch.tensor(rows, device=device)
        self.length = torch.tensor([len(ids) for ids in prompts], device=device)
        self._count = torch.arange(self.tokens.shape[1], device=device)

    def last(self, n: int) -> Tensor:
        """(B, n): the last n tokens of every row; in a row of fewer the first one repeats."""
        return self.tokens.gather(1, (self.length[:, None] - n + self._count[:n]).clamp(min=0))

    def commit(self, block: Tensor, count: Tensor | int) -> None:
        """Append the first `count` (B,) tokens of `block` (B, T); the rest is written too and never looked at."""
        self.tokens.scatter_(1, self.length[:, None] + self._count[:block.shape[1]], block)
        self.length += count


def prefill(model: GPT, text: Text) -> Cache:
    """A cache that has read all but the last token of every prompt, with a slot for every token `text` has room for."""
    rows, slots = text.tokens.shape
    cache = model.new_cache(rows, slots)
    width = int(text.length.max()) - 1
    if width:
        model(text.tokens[:, :width], cache, width)     # rows of fewer leave stale slots above their length
    return cache


def until(tokens: list[int], stop: Sequence[int]) -> tuple[list[int], bool]:
    """The tokens up to and including the first that is in `stop`, and whether there was one."""
    for i, token in enumerate(tokens):
        if token in stop:
            return tokens[:i + 1], True
    return tokens, False


def check_request(model: GPT, ids: Sequence[int], max_new_tokens: int, temperature: float, top_k: int | None,
                  top_p: float | None) -> None:
    """Raise RequestError, saying what is wrong, unless `model` can answer."""
    vocab_size, context = model.config.vocab_size, model.config.context
    if not len(ids):
        raise RequestError("the prompt is empty: give at least one token (end of text will do)")
    if not all(0 <= token < vocab_size for token in ids):
        raise RequestError(f"the prompt has a token outside 0..{vocab_size - 1}: is this the model's own tokenizer?")
    if max_new_tokens < 0:
        raise RequestError(f"max_new_tokens must not be negative, got {max_new_tokens}")
    if len(ids) + max_new_tokens > context:
        raise RequestError(f"{len(ids)} prompt tokens and {max_new_tokens} new ones exceed the context of {context}")
    if not temperature >= 0:
        raise RequestError(f"temperature must be 0 or more, got {temperature}")
    if top_k is not None and top_k < 1:
        raise RequestError(f"top_k must be at least 1, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise RequestError(f"top_p must lie in (0, 1], got {top_p}")


def check_vocabulary(draft: GPT, vocab_size: int) -> None:
    """Raise RequestError unless `draft` guesses among the target's `vocab_size` tokens."""
    if draft.config.vocab_size != vocab_size:
        raise RequestError(f"the draft guesses among {draft.config.vocab_size} tokens, the target knows {vocab_size}: "
                           "they must share one tokenizer")


def check_law(*laws: Tensor) -> None:
    """Raise LogitsError if there is anything but numbers in them."""
    if not math.isfinite(sum(law.sum().item() for law in laws)):
        raise LogitsError("a model's logits hold NaN or infinity: are its weights whole, is its data type wide enough?")


def plain_step(target: GPT, cache: Cache, text: Text, law: Law, dice: Dice, upto: int) -> tuple[Tensor, Tensor]:
    """One token for every row, committed: the token (B,) and the law (B, V) it was drawn from."""
    cache.length = text.length - 1                          # the last token is committed but not cached yet
    p_target = law(target(text.last(1), cache, upto)[:, -1])
    token = dice.pick(p_target)
    text.commit(token[:, None], 1)
    return token, p_target


@torch.inference_mode()
def generate(target: GPT, ids: Sequence[int], max_new_tokens: int = 128, temperature: float = 1.0,
             top_k: int | None = None, top_p: float | None = None, seed: int = 0, stop: Sequence[int] = (),
             dice: Dice | None = None, capture: Callable | None = None) -> Iterator[int]:
    """Continue `ids`: yields at most `max_new_tokens` tokens, the last one being the first that is in `stop`, if any.

    dice: to decide instead of the seed. capture: makes the step one launch on CUDA, see graphs.py.
    Raises RequestError, and LogitsError where the model answers with NaN.
    """
    check_request(target, ids, max_new_tokens, temperature, top_k, top_p)
    law = partial(probs, temperature=temperature, top_k=top_k, top_p=top_p)
    text = Text([ids], max_new_tokens, target.device)
    dice = dice or Dice([seed], target.device)
    run = partial(plain_step, target, prefill(target, text), text, law, dice)
    run = capture(run, text, dice) if capture else run
    for length in range(len(ids), len(ids) + max_new_tokens):
        dice.refill(1)
        token, p_target = run(length)
        check_law(p_target)
        emitted = token.item()
        yield emitted
        if emitted in stop:
            return
