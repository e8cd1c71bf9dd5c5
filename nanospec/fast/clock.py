"""Clocks. All of them stand outside what they time: the algorithms know of none.

All medians are taken after a warm-up. A step is what decoding repeats: the model call, its
distribution, and the pick.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import torch
from torch import Tensor

from nanospec.cache import Cache
from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.methods.draft_models.learned import Learned
from nanospec.methods.trees.tree_reader import longest_chain
from nanospec.model import GPT
from nanospec.probs import Sampling
from nanospec.speculate import ModelDrafter, speculate
from nanospec.text import Text

PROMPT, DRAFTED, ROUNDS = 48, 4, 7      # tokens; draft tokens of a round that is timed; rounds
T = TypeVar("T")


def wait_for(device: torch.device) -> None:
    """Until the device has done what was asked of it. A CPU has already."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def clocked(steps: Iterable[T]) -> Iterator[tuple[T, float]]:
    """Each item and its seconds. The first one's include what comes before: reading the prompt."""
    began = perf_counter()
    for item in steps:
        yield item, perf_counter() - began
        began = perf_counter()


def timed(steps: Iterable[T]) -> tuple[list[T], list[float]]:
    """The items, and the seconds that each took, as `clocked`."""
    pairs = list(clocked(steps))
    return [item for item, _ in pairs], [seconds for _, seconds in pairs]


class ClockedDrafter:
    """Another drafter, and a clock around its proposals: `seconds` is what the last one took."""

    seconds, per_row = 0.0, ("drafter",)

    def __init__(self, drafter: Drafter):
        self.drafter = drafter

    def __getattr__(self, name: str):
        if name == "drafter":                           # a copy that has none yet
            raise AttributeError(name)
        return getattr(self.drafter, name)              # all that is not timed is the drafter's own

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        """As the drafter."""
        device = text.tokens.device
        wait_for(device)
        began = perf_counter()
        draft = self.drafter.propose(text, sampling, dice, kv_length, lag)
        wait_for(device)
        self.seconds = perf_counter() - began
        return draft


def median_seconds(work: Callable[[], object], device: torch.device, repeats: int = 30,
                   warm_up: int = 5) -> float:
    """Median wall-clock seconds of work(), the device's queue included."""
    def once():
        work()
        wait_for(device)

    _, seconds = timed(once() for _ in range(warm_up + repeats))
    return median(seconds[warm_up:])


@torch.inference_mode()
def step_seconds(model: GPT, tokens: int = 1, context: int = 256, rows: int = 1, repeats: int = 30,
                 warm_up: int = 5, compiler: Callable | None = None, **settings) -> float:
    """One call on `tokens` tokens after `context` committed ones, its distribution and one pick;
    for each row.

    compiler: as `speculate` takes it. settings: as Sampling takes them.
    """
    text = Text([[1] * context] * rows, tokens, model.config.vocab_size, model.device)
    cache, sampling = model.new_cache(*text.tokens.shape), Sampling(**settings)
    dice = Dice(range(rows), model.device)
    cache.length += context
    step = partial(_step, model, text.tokens[:, :tokens].contiguous(), cache, sampling, dice)
    return _repeated(step, text, dice, 1, context + tokens, repeats, warm_up, compiler)


@torch.inference_mode()
def draft_seconds(draft_model: GPT | Learned | None, context: int = 256, rows: int = 1,
                  repeats: int = 30,
                  warm_up: int = 5, compiler: Callable | None = None, **settings) -> float:
    """A draft token's: a step of a GPT; of a learned model, its part of a chain; of none, 0."""
    if draft_model is None:
        return 0.0
    if not isinstance(draft_model, Learned):
        return step_seconds(draft_model, 1, context, rows, repeats, warm_up, compiler, **settings)
    gamma = longest_chain(draft_model, DRAFTED)
    drafter = ModelDrafter(draft_model, gamma)
    text = Text([[1] * context] * rows, gamma, draft_model.vocab_size, draft_model.device)
    dice = Dice(range(rows), draft_model.device)
    hidden = torch.zeros(rows, context - 1, len(draft_model.layers), draft_model.channels,
                         dtype=draft_model.dtype,
                         device=draft_model.device)
    drafter.begin(text)
    drafter.read(text, range(rows), hidden)
    step = partial(drafter.propose, text, Sampling(**settings), dice)
    return _repeated(step, text, dice, gamma, context + gamma, repeats, warm_up, compiler) / gamma


def _repeated(step: Callable, text: Text, dice: Dice, uniforms: int, kv_length: int, repeats: int,
              warm_up: int, compiler: Callable | None) -> float:
    step = compiler(step, text, dice) if compiler else step

    def once():
        dice.refill(uniforms)
        step(kv_length)

    return median_seconds(once, text.tokens.device, repeats, warm_up)


def _step(model: GPT, feed: Tensor, cache: Cache, sampling: Sampling, dice: Dice,
          kv_length: int) -> tuple[Tensor]:
    return dice.pick(sampling(model(feed, cache, kv_length))[:, -1]),


def round_seconds(target: GPT, draft_model: Any) -> float:
    """One round of speculation. A text's first two rounds are the warm-up, if there are others.

    Without a draft model it is the target's call on as many tokens.
    """
    prompt = min(target.config.context // 2, PROMPT)
    if draft_model is None:
        return step_seconds(target, DRAFTED + 1, prompt, repeats=ROUNDS - 2, warm_up=2)
    drafter = ModelDrafter(draft_model, longest_chain(draft_model, DRAFTED))
    rounds = speculate(target, drafter, [0] * prompt, prompt)
    _, seconds = timed(islice(rounds, ROUNDS))
    return median(seconds[2:] or seconds)
