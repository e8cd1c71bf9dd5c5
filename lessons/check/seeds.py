"""The seeds of all that is drawn for the exercises, in one place, so that a class can have a variant of its own.

A variant is known by its name alone: the same name draws the same tables on every machine.
"""

import random
from hashlib import sha256

from lessons.check import envelope

SHIPPED = 20261         # the seed of the cases that ship
NAME = envelope.opened().get(envelope.VARIANT, "")      # of the variant; "" is the exercises as they ship


def seed(number: int) -> int:
    """The seed to use for this one."""
    return int.from_bytes(sha256(f"{NAME} {number}".encode()).digest()[:4], "big") if NAME else number


def table(vocab_size: int, number: int, zeros: float = 0.25):
    """The TableModel of that seed."""
    from nanospec.proof.tables import TableModel            # torch: no list of titles waits for it
    return TableModel(vocab_size, seed(number), zeros=zeros)


def chance(exercise: int | str) -> random.Random:
    """Python's generator for what an exercise draws beside its own few examples, so that no answer can be made to fit
    them: its own, whatever the others draw.
    """
    return random.Random(f"{NAME or SHIPPED}, exercise {exercise}")


def letters(count: int, number: int) -> dict[str, str]:
    """The letters of the rules that an exercise shows: as they ship -> in this variant."""
    old = [chr(ord("a") + i) for i in range(count)]
    new = list(old)
    if NAME:
        chance(number).shuffle(new)
    return dict(zip(old, new))
