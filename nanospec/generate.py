"""Plain decoding: one token per target call. The oracle of everything else, and its baseline.

Read first, it takes some things on trust: Text holds the tokens, Cache saves a model from reading
them again, and prefill reads the prompt.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nanospec.cache import Cache, LanguageModel
from nanospec.dice import Dice
from nanospec.errors import check_finite, check_has, check_request
from nanospec.probs import Sampling
from nanospec.text import Text, prefill


def plain_step(target: LanguageModel, cache: Cache, text: Text,
               sampling: Callable[[Tensor], Tensor], dice: Dice,
               kv_length: int) -> tuple[Tensor, Tensor]:
    """One token for every text, committed: token (B,), and the (B, V) that it was drawn from.

    text: the committed tokens of B texts (text.py). kv_length: slots of the cache to read.
    """
    # The cache holds keys and values of earlier tokens (cache.py), but not yet of the last one.
    cache.length = text.length - 1
    p_target = sampling(target(text.last(1), cache, kv_length)[:, -1])
    token = dice.pick(p_target)
    text.commit(token[:, None], 1)
    return token, p_target


@torch.inference_mode()
def generate(target: LanguageModel, ids: Sequence[int], max_new_tokens: int = 128,
             temperature: float = 1.0, *, top_k: int | None = None, top_p: float | None = None,
             min_p: float | None = None, seed: int = 0, stop: Sequence[int] = (),
             dice: Dice | None = None, compiler: Callable | None = None,
             **others: Any) -> Iterator[int]:
    """Continue `ids` by at most `max_new_tokens` tokens. The first one in `stop` is the last.

    dice: decides instead of the seed. compiler: makes the step one function, see fast/compiled.py.
    Raises RequestError, and LogitsError where the model answers with NaN.
    """
    sampling = Sampling(temperature, top_k, top_p, min_p)
    max_new_tokens = check_request(target, ids, max_new_tokens, seed, 0, stop, others)
    if dice is not None:
        check_has("dice", dice, "Dice", "refill", "pick")
    if compiler is not None:
        check_has("the compiler", compiler, "a function", "__call__")
    text = Text([ids], max_new_tokens, target.config.vocab_size, target.device)
    dice = dice or Dice([seed], target.device)
    cache, _ = prefill(target, text)            # the target reads the prompt but for its last token
    step = partial(plain_step, target, cache, text, sampling, dice)
    step = compiler(step, text, dice) if compiler else step
    for length in range(len(ids), len(ids) + max_new_tokens):
        dice.refill(1)
        token, p_target = step(length)
        # Read together, because a read waits for the device. The sum is NaN if any logit was.
        written, total = torch.stack([token[0].to(p_target), p_target.sum()]).tolist()
        check_finite(total)
        yield int(written)
        if int(written) in stop:
            return
