"""Clocks. All of them stand outside what they time: the algorithms know of none.

All medians are taken after a warm-up. A step is what decoding repeats: the model call, its distribution, and the pick.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from statistics import median
from time import perf_counter
from typing import TypeVar

import torch
from torch import Tensor

from nanospec.cache import Cache
from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.draft_models import DraftModel
from nanospec.draft_models.gpt import reader_of
from nanospec.draft_models.learned import Learned
from nanospec.draft_models.reader import longest_chain
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
    """Each item with the seconds that it took. The first item's include what comes before it: reading the prompt."""
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

    seconds = 0.0

    def __init__(self, drafter: Drafter):
        self.drafter = drafter

    def __getattr__(self, name: str):
        return getattr(self.drafter, name)              # all that is not timed is the drafter's own

    @property
    def unread(self) -> int:
        return self.drafter.unread

    @unread.setter
    def unread(self, tokens: int) -> None:
        self.drafter.unread = tokens

    def propose(self, text: Text, sampling: Sampling, dice: Dice, upto: int) -> Draft:
        device = text.tokens.device
        wait_for(device)
        began = perf_counter()
        draft = self.drafter.propose(text, sampling, dice, upto)
        wait_for(device)
        self.seconds = perf_counter() - began
        return draft


def median_seconds(work: Callable[[], object], device: torch.device, repeats: int = 30, warm_up: int = 5) -> float:
    """Median wall-clock seconds of work(), the device's queue included."""
    def once():
        work()
        wait_for(device)

    _, seconds = timed(once() for _ in range(warm_up + repeats))
    return median(seconds[warm_up:])


@torch.inference_mode()
def step_seconds(model: GPT, tokens: int = 1, context: int = 256, rows: int = 1, repeats: int = 30,
                 warm_up: int = 5, capture: Callable | None = None, **settings) -> float:
    """One call on `tokens` tokens behind `context` committed ones, its distribution and one pick; for each row.

    capture: as `speculate` takes it.
    """
    text = Text([[1] * context] * rows, tokens, model.config.vocab_size, model.device)
    cache, dice, sampling = model.new_cache(*text.tokens.shape), Dice(range(rows), model.device), Sampling(**settings)
    cache.length += context
    step = partial(_step, model, text.tokens[:, :tokens].contiguous(), cache, sampling, dice)
    return _repeated(step, text, dice, 1, context + tokens, repeats, warm_up, capture)


@torch.inference_mode()
def draft_seconds(draft: GPT | Learned, context: int = 256, rows: int = 1, repeats: int = 30,
                  warm_up: int = 5, capture: Callable | None = None, **settings) -> float:
    """One draft token: a step of a GPT; of a learned draft model, its part of a chain of DRAFTED."""
    if isinstance(draft, GPT):
        return step_seconds(draft, 1, context, rows, repeats, warm_up, capture, **settings)
    gamma = longest_chain(reader_of(draft), DRAFTED)
    drafter = ModelDrafter(draft, gamma)
    text, dice = Text([[1] * context] * rows, gamma, draft.vocab_size, draft.device), Dice(range(rows), draft.device)
    drafter.begin(text, range(rows), torch.zeros(rows, context - 1, len(draft.layers), draft.channels,
                                                 dtype=draft.dtype, device=draft.device))
    step = partial(drafter.propose, text, Sampling(**settings), dice)
    return _repeated(step, text, dice, gamma, context + gamma, repeats, warm_up, capture) / gamma


def _repeated(step: Callable, text: Text, dice: Dice, columns: int, upto: int, repeats: int,
              warm_up: int, capture: Callable | None) -> float:
    step = capture(step, text, dice) if capture else step

    def once():
        dice.refill(columns)
        step(upto)

    return median_seconds(once, text.tokens.device, repeats, warm_up)


def _step(model: GPT, feed: Tensor, cache: Cache, sampling: Sampling, dice: Dice, upto: int) -> tuple[Tensor]:
    return dice.pick(sampling(model(feed, cache, upto))[:, -1]),


def round_seconds(target: GPT, draft: DraftModel) -> float:
    """One round of speculation; a text's first rounds are the warm-up, if there are others."""
    prompt = min(target.config.context // 2, PROMPT)
    drafter = ModelDrafter(draft, longest_chain(reader_of(draft), DRAFTED))
    _, seconds = timed(islice(speculate(target, drafter, [0] * prompt, prompt), ROUNDS))
    return median(seconds[2:] or seconds)
