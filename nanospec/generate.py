"""Plain decoding: one token per target call. The oracle of everything else, and the baseline of every speed-up."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from nanospec.cache import Cache, LanguageModel
from nanospec.dice import Dice
from nanospec.probs import Sampling
from nanospec.text import Text, check_numbers, check_request, check_seed, prefill


def plain_step(target: LanguageModel, cache: Cache, text: Text, sampling: Sampling, dice: Dice,
               upto: int) -> tuple[Tensor, Tensor]:
    """One token for every row, committed: the token (B,) and the distribution (B, V) it was drawn from."""
    cache.length = text.length - 1                          # the last token is committed but not cached yet
    p_target = sampling(target(text.last(1), cache, upto)[:, -1])
    token = dice.pick(p_target)
    text.commit(token[:, None], 1)
    return token, p_target


@torch.inference_mode()
def generate(target: LanguageModel, ids: Sequence[int], max_new_tokens: int = 128, temperature: float = 1.0,
             top_k: int | None = None, top_p: float | None = None, seed: int = 0, stop: Sequence[int] = (),
             dice: Dice | None = None, capture: Callable | None = None) -> Iterator[int]:
    """Continue `ids`: yields at most `max_new_tokens` tokens, the last one being the first that is in `stop`, if any.

    dice: to decide instead of the seed. capture: makes the step one launch on CUDA, see fast/capture.py.
    Raises RequestError, and LogitsError where the model answers with NaN.
    """
    check_request(target, ids, max_new_tokens, temperature, top_k, top_p)
    check_seed(seed)
    sampling = Sampling(temperature, top_k, top_p)
    text = Text([ids], max_new_tokens, target.config.vocab_size, target.device)
    dice = dice or Dice([seed], target.device)
    step = partial(plain_step, target, prefill(target, text)[0], text, sampling, dice)
    step = capture(step, text, dice) if capture else step
    for length in range(len(ids), len(ids) + max_new_tokens):
        dice.refill(1)
        token, p_target = step(length)
        emitted, total = torch.stack([token[0].to(p_target), p_target.sum()]).tolist()      # the one read-back
        check_numbers(total)
        yield int(emitted)
        if int(emitted) in stop:
            return
