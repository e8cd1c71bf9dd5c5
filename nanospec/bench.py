"""Seconds: what one call costs, which settings are fastest on this machine, how often the draft is right.

All times are medians after a warm-up. A step is what decoding repeats: the model call, its law, and the pick.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch

from nanospec.dice import Dice
from nanospec.generate import generate
from nanospec.model import GPT
from nanospec.probs import probs
from nanospec.speculate import ModelDrafter, Round, speculate, tokens_of
from nanospec.theory import acceptance


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
def step_seconds(model: GPT, tokens: int = 1, context: int = 256, **settings) -> float:
    """One call on `tokens` tokens behind `context` committed ones, its law and one pick."""
    cache = model.new_cache(1, context + tokens)
    cache.length += context
    dice, feed = Dice([0], model.device), torch.ones(1, tokens, dtype=torch.int64, device=model.device)

    def step():
        dice.refill(1)
        dice.pick(probs(model(feed, cache, context + tokens), **settings)[:, -1])

    return median_seconds(step, model.device)


def rates(target: GPT, draft: GPT, ids: Sequence[int], gamma: int, repeats: int = 3,
          **settings) -> tuple[float, float, list[Round]]:
    """Tokens/s of plain and of speculative decoding, and the rounds of the latter.

    Medians of whole runs, prompt included, that alternate so that both meet the same machine; with the settings' one
    seed each repeat is the same work.
    """
    plain, fast = [], []
    for _ in range(repeats):
        began = perf_counter()
        tokens = list(generate(target, ids, **settings))
        plain.append(len(tokens) / (perf_counter() - began))
        began = perf_counter()
        rounds = list(speculate(target, ModelDrafter(draft), ids, gamma, **settings))
        fast.append(len(tokens_of(rounds)) / (perf_counter() - began))
    return median(plain), median(fast), rounds


@dataclass
class Costs:
    """c: a draft step / a target step. v[m]: a target call on m tokens / on one. seconds: of one target step."""

    c: float
    v: dict[int, float]
    seconds: float


def measure_costs(target: GPT, draft: GPT, sizes: Iterable[int], context: int = 256, **settings) -> Costs:
    seconds = step_seconds(target, 1, context, **settings)
    v = {m: step_seconds(target, m, context, **settings) / seconds for m in sizes}
    return Costs(step_seconds(draft, 1, context, **settings) / seconds, v, seconds)


def fastest(model: GPT, threads: Sequence[int] = ()) -> tuple[torch.dtype, int]:
    """The (dtype, threads) in which a plain step of `model` is fastest here; the model itself is left as it is.

    threads: the counts to try; by default 1 and as many as torch has now. They make no difference on CUDA.
    """
    before = torch.get_num_threads()
    tried = {}
    for dtype in (torch.float32, torch.bfloat16):
        candidate = deepcopy(model).to(dtype)
        for count in threads or sorted({1, before}):
            torch.set_num_threads(count)
            tried[dtype, count] = step_seconds(candidate)
    torch.set_num_threads(before)
    return min(tried, key=tried.get)


def alpha_of(rounds: Iterable[Round]) -> float:
    """Mean of sum min(p_target, q_draft) over the drafted places that were judged: up to the first that fell."""
    betas = []
    for one in rounds:
        judged = min(one.kept + 1, len(one.drafted))
        betas += acceptance(one.p_target[:judged], one.q_draft[:judged]).tolist()
    return sum(betas) / len(betas)


def measure_alpha(target: GPT, draft: GPT, prompts: Iterable[Sequence[int]], gamma: int = 4, **settings) -> float:
    """alpha along speculative texts that continue `prompts`, one seed each."""
    rounds = []
    for seed, ids in enumerate(prompts):
        rounds += speculate(target, ModelDrafter(draft), ids, gamma, seed=seed, **settings)
    return alpha_of(rounds)
