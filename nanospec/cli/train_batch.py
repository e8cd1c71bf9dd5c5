"""How many texts a step takes on this device: found by trying, and what follows from it for steps and learning rates.

A step on few texts leaves a large device idle: it takes as long as one on twice as many. So the batch is doubled for as
long as tokens a second still grow, and the memory suffices.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from nanospec.errors import TextError
from nanospec.fast.clock import median_seconds
from nanospec.training.pair import Training

MOST, WORTH = 1024, 1.1         # texts; how many times the tokens a doubled batch has to bring a second


def fullest(first: int, seconds: Callable[[int], float], most: int = MOST) -> int:
    """The batch from which on another doubling gains nothing, or does not fit. seconds(batch): of a step; it may raise
    OutOfMemoryError, or TextError where the text is too short.
    """
    batch, pace = first, first / seconds(first)
    while 2 * batch <= most:
        try:
            doubled = 2 * batch / seconds(2 * batch)
        except (torch.OutOfMemoryError, TextError):
            break
        if doubled < WORTH * pace:
            break
        batch, pace = 2 * batch, doubled
    return batch


def scaled(size: Any, batch: int) -> Any:
    """A Size or a Plan of another batch: as many texts in all, and learning rates in proportion to the batch's root."""
    part = batch / size.batch
    return replace(size, batch=batch, steps=tuple(max(1, round(steps / part)) for steps in size.steps),
                   rate=tuple(rate * part ** 0.5 for rate in size.rate),
                   held_out_every=max(1, round(size.held_out_every / part)))


def seconds_of(training: Training) -> float:
    """Of a step but for the optimizer, eagerly: to compile for every batch would take longer than it gains."""
    return median_seconds(lambda: training.loss_now().backward(), training.ids.device, repeats=3, warm_up=1)
