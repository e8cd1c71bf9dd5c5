"""Cases drawn by a seed: great and small numbers, zeros, one token and many. What an exercise asks about beside its own
few examples comes from here, so that no answer can be made to fit the examples.
"""

import random

import torch

SEED = 20261


def chance(exercise: int | str) -> random.Random:
    """The random numbers of an exercise: its own, whatever the others draw."""
    return random.Random(f"{SEED}, exercise {exercise}")


def weights(draw: random.Random, size: int, zeros: int = 0) -> torch.Tensor:
    """(size,) float64: from 1e-4 to 1, with so many zeros among them."""
    found = [0.0] * zeros + [10 ** draw.uniform(-4, 0) for _ in range(size - zeros)]
    draw.shuffle(found)
    return torch.tensor(found, dtype=torch.float64)


def distribution(draw: random.Random, size: int, zeros: int = 0) -> torch.Tensor:
    found = weights(draw, size, zeros)
    return found / found.sum()


def pair(draw: random.Random, size: int, zeros: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """p_target and q_draft, with so many zeros each."""
    return distribution(draw, size, zeros), distribution(draw, size, zeros)


def short(numbers: torch.Tensor | list) -> list:
    """For a title: four digits."""
    return [float(f"{x:.4g}") for x in (numbers.tolist() if isinstance(numbers, torch.Tensor) else numbers)]
