"""How far from this machine's limits a pair runs, and what its costs grow with.

A token of plain decoding reads every weight once, so it cannot take less than their bytes over the bandwidth: the
floor (the memory side of the roofline, Williams et al. 2009). Left out: the processor's several caches, of which only
two sizes are measured, the model's own and one far beyond all of them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from statistics import median

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.generate import plain_step
from nanospec.text import Text
from nanospec.bench.measure import measure_costs
from nanospec.model import GPT, Config, can_pack
from nanospec.probs import probs
from nanospec.fast.clock import median_seconds
from nanospec.speculate import ModelDrafter, chain_round
from nanospec.theory import expected_tokens

# A target of 1.1 billion parameters and a draft of a twentieth: with these, weights and not calls set the pace.
LARGE = (Config(32_000, 2048, layers=24, channels=2048, heads=32, kv_heads=8, hidden=5504),
         Config(32_000, 2048, layers=2, channels=1024, heads=16, kv_heads=4, hidden=2816))


def bandwidth(size: int, device: torch.device) -> float:
    """Bytes a second when `size` bytes are read again and again."""
    numbers = torch.ones(size // 4, device=device)
    return 4 * numbers.numel() / median_seconds(numbers.sum, device)


def matrix_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Floating-point operations a second in a product of two large matrices."""
    n = 8192 if device.type == "cuda" else 1024
    a = torch.ones(n, n, dtype=dtype, device=device)
    return 2 * n ** 3 / median_seconds(lambda: a @ a, device)


def weight_bytes(model: GPT) -> int:
    """What one token reads of the weights: all but an embedding table that is not also the head."""
    unread = 0 if model.config.tied else model.embedding.weight.numel()
    return (sum(weight.numel() for weight in model.parameters()) - unread) * model.embedding.weight.element_size()


def roofline(target: GPT, draft: GPT, gamma: int = 4, context: int = 256) -> dict:
    """Rates of this machine, and each step's seconds beside its floor. A round's floor is that of its parts."""
    device, size = target.device, weight_bytes(target)
    near, far = bandwidth(size, device), bandwidth(512 * 2 ** 20, device)
    floors = {"target step": size / near, "draft step": weight_bytes(draft) / near, "verification": size / near}
    floors["round"] = gamma * floors["draft step"] + floors["verification"]
    costs = measure_costs(target, draft, [gamma + 1], context)
    took = {"target step": costs.seconds, "draft step": costs.c * costs.seconds,
            "verification": costs.v[gamma + 1] * costs.seconds, "round": costs.parts(gamma)}
    return {"bytes": size, "bandwidth": near, "bandwidth_of_512_MiB": far,
            "matrix_rate": matrix_rate(target.dtype, device), "gamma": gamma, "floor_seconds": floors, "seconds": took}


def growth(target: GPT, draft: GPT, gamma: int = 4, contexts: Sequence[int] = (128, 512, 1024, 2048, 4096),
           rows: Sequence[int] = (4, 16, 64)) -> list[dict]:
    """Seconds of a plain step and of a round's parts against the context, for one row; and against rows, at 256."""
    points, out = [(1, context) for context in contexts] + [(count, 256) for count in rows], []
    for count, context in points:
        costs = measure_costs(target, draft, [gamma + 1], context, rows=count)
        out.append({"rows": count, "context": context, "plain": costs.seconds, "round": costs.parts(gamma)})
    return out


def large_pair(device: torch.device | str) -> tuple[GPT, GPT]:
    """A pair of sizes LARGE with random weights, in bfloat16 and the fastest layout."""
    with torch.device(device):
        pair = [GPT(config).to(torch.bfloat16).requires_grad_(False) for config in LARGE]
    return tuple(model.pack() if can_pack(model.embedding.weight) else model for model in pair)


class Coins(Dice):
    """Keeps every guess with probability alpha, whatever the laws say: the pace of a pair that nobody has trained."""

    def __init__(self, seeds: Sequence[int], device: torch.device, alpha: float):
        super().__init__(seeds, device)
        self.alpha = alpha

    def flip(self, prob: Tensor) -> Tensor:
        return self._take(prob.shape[1]) < self.alpha


def pace(run: Callable[[int], object], text: Text, dice: Dice, columns: int, repeats: int,
         capture: Callable | None) -> tuple[float, float]:
    """Seconds that run(upto) takes, and the tokens it adds to each row of `text`."""
    run, upto, before = capture(run, text, dice) if capture else run, text.tokens.shape[1], text.length.clone()

    def once():
        dice.refill(columns)
        run(upto)

    seconds = median_seconds(once, dice.device, repeats, warm_up=3)
    return seconds, (text.length - before).double().mean().item() / (repeats + 3)


@torch.inference_mode()
def simulated(target: GPT, draft: GPT, alphas: Sequence[float] = (0.5, 0.6, 0.7, 0.8, 0.9),
              gammas: Sequence[int] = (2, 4, 8), rows: Sequence[int] = (1, 8, 32), context: int = 256,
              repeats: int = 5, capture: Callable | None = None) -> list[dict]:
    """Speed-up over plain decoding if guesses were kept with probability alpha.

    Rounds and plain steps are run in turns; only the coins are loaded, and the target's cache holds zeros instead of a
    prompt. A round has no branch and takes as long whatever is kept, so that its cost in plain steps is one median.
    """
    room, out = (repeats + 4) * (max(gammas) + 1), []

    def begin(count: int, alpha: float = 0.0) -> tuple:
        text = Text([[0] * context] * count, room, target.device)
        return target.new_cache(*text.tokens.shape), text, Coins(range(count), target.device, alpha)

    for count, gamma in product(rows, gammas):
        plain, took, tokens = [], [], []
        for alpha in alphas:
            cache, text, dice = begin(count)
            step = partial(plain_step, target, cache, text, probs, dice)
            plain.append(pace(step, text, dice, 1, repeats, capture)[0])
            (cache, text, dice), drafter = begin(count, alpha), ModelDrafter(draft)
            drafter.begin(text, target.config.vocab_size)
            step = partial(chain_round, target, cache, drafter, text, gamma, probs, dice)
            seconds, kept = pace(step, text, dice, 2 * gamma + 1, repeats, capture)
            took.append(seconds)
            tokens.append(kept)
        cost = median(seconds / alone for seconds, alone in zip(took, plain))
        out += [{"rows": count, "gamma": gamma, "alpha": alpha, "plain": median(plain), "round": median(took),
                 "tokens_per_target_call": kept, "speedup": expected_tokens(alpha, gamma) / cost}
                for alpha, kept in zip(alphas, tokens)]
    return out
