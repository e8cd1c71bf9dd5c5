"""How a model runs fastest on this machine: data type, threads and the layout of its weights, chosen by measuring.

All times are medians after a warm-up. A step is what decoding repeats: the model call, its law, and the pick.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch

from nanospec.dice import Dice
from nanospec.model import GPT, can_pack
from nanospec.probs import probs
from nanospec.speculate import ModelDrafter, speculate

DTYPES = (torch.float32, torch.bfloat16)


class Setting(NamedTuple):
    dtype: torch.dtype
    threads: int
    packed: bool


def median_seconds(work: Callable[[], object], device: torch.device, repeats: int = 30, warm_up: int = 5) -> float:
    """Median wall-clock seconds of work(), the device's queue included."""
    times = []
    for i in range(warm_up + repeats):
        began = perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(perf_counter() - began)
    return median(times[warm_up:])


@torch.inference_mode()
def step_seconds(model: GPT, tokens: int = 1, context: int = 256, rows: int = 1, repeats: int = 30,
                 **settings) -> float:
    """One call on `tokens` tokens behind `context` committed ones, its law and one pick; all of it for each row."""
    cache = model.new_cache(rows, context + tokens)
    cache.length += context
    dice, feed = Dice(range(rows), model.device), torch.ones(rows, tokens, dtype=torch.int64, device=model.device)

    def step():
        dice.refill(1)
        dice.pick(probs(model(feed, cache, context + tokens), **settings)[:, -1])

    return median_seconds(step, model.device, repeats)


def round_seconds(target: GPT, draft: GPT, gamma: int = 4, rounds: int = 16) -> float:
    """One round of speculation in the middle of a text; its first rounds are the warm-up."""
    half = min(target.config.context, 512) // 2
    some = islice(speculate(target, ModelDrafter(draft), [0] * half, gamma, half), rounds)
    return median([one.draft_seconds + one.verify_seconds for one in some][2:])


def set_up(model: GPT, setting: Setting) -> GPT:
    """The model itself, converted in place, and torch's threads."""
    torch.set_num_threads(setting.threads)
    model.to(setting.dtype)
    return model.pack() if setting.packed else model


def fastest(model: GPT, dtypes: Sequence[torch.dtype] = DTYPES, threads: Sequence[int] = (),
            seconds: Callable[[GPT], float] = partial(step_seconds, repeats=12)) -> Setting:
    """The setting in which `seconds(model)`, by default a plain step, is least; the model is left as it is.

    threads: the counts to try; by default 1 and as many as torch has now. They make no difference on CUDA.
    """
    before = torch.get_num_threads()
    candidates = []
    for dtype in dtypes:
        copy = GPT(model.config).to(model.device, dtype).requires_grad_(False)
        copy.load_state_dict(model.state_dict())
        layouts = (False, True) if can_pack(copy.embedding.weight) else (False,)
        candidates += [(Setting(dtype, count, packed), copy)
                       for packed in layouts for count in threads or sorted({1, before})]
    tried = {}
    for setting, copy in candidates * 2:            # in two turns, since a machine has its moods: the better counts
        took = seconds(set_up(copy, setting))
        tried[setting] = min(took, tried.get(setting, took))
    torch.set_num_threads(before)
    return min(tried, key=tried.get)


def settle(target: GPT, draft: GPT, dtypes: Sequence[torch.dtype] = DTYPES, threads: Sequence[int] = ()) -> None:
    """Convert target and draft, in place, each to its fastest setting here; torch's threads are the target's.

    The draft is measured in rounds, not alone: a pass of the target drives the draft's weights out of the caches, so
    that a data type of half the size wins although a step in it, alone, takes longer.
    """
    setting = fastest(target, dtypes, threads)
    set_up(target, setting)
    set_up(draft, fastest(draft, dtypes, [setting.threads], lambda copy: round_seconds(target, copy)))


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def way_of(model: GPT) -> str:
    """Data type and layout, in words."""
    return name_of(model.dtype) + " packed" * (model.head.packed is not None)
