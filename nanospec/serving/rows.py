"""What happens to the rows of a batch when requests come and go: everything kept for a text moves
with it.

The core knows nothing of this. A class that keeps something for every text of a batch names these
attributes in `per_row`; for the core's own classes PER_ROW does. Such an attribute is

    a tensor            whose dimension 0 are the texts
    a dict              with a text's row as its key
    another object      that keeps something itself: a Cache (one of another kind may name more),
                        a Text, a reader, a drafter
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nanospec.cache import Cache
from nanospec.dice import Dice
from nanospec.errors import check_seed
from nanospec.probs import Sampling
from nanospec.reader import GPTReader
from nanospec.speculate import ModelDrafter
from nanospec.text import Text

PER_ROW: dict[type, tuple[str, ...]] = {
    Text: ("tokens", "length"), GPTReader: ("cache",), ModelDrafter: ("reader",)}


def move(thing: Any, rows: Sequence[int], count: int) -> None:
    """From now on there are `count` texts: what belonged to row rows[i] belongs to row i. rows[i]
    >= i.

    The other rows are empty, until a request begins there.
    """
    if isinstance(thing, Cache):
        # As it lies in memory.
        thing.kv = moved(thing.kv.transpose(3, 4), rows, count, 2).transpose(3, 4)
        thing.length = moved(thing.length, rows, count)
        thing.index()
    if isinstance(thing, Dice):
        new = [torch.Generator("cpu") for _ in range(count - len(rows))]
        thing.generators = [thing.generators[b] for b in rows] + new
        thing.u = thing.u.new_empty(count, 0)
    else:
        for name in per_row(thing):
            kept = getattr(thing, name)
            if isinstance(kept, Tensor):
                setattr(thing, name, moved(kept, rows, count))
            elif isinstance(kept, dict):
                setattr(thing, name, {i: kept[b] for i, b in enumerate(rows) if b in kept})
            else:
                move(kept, rows, count)
        if isinstance(thing, Text):
            thing.length[len(rows):] = 1


def per_row(thing: Any) -> tuple[str, ...]:
    """The attributes in which `thing` keeps something for every text of a batch."""
    own = getattr(thing, "per_row", None)
    return (own if own is not None
            else next((PER_ROW[kind] for kind in type(thing).__mro__ if kind in PER_ROW), ()))


def moved(of_rows: Tensor, rows: Sequence[int], count: int, dim: int = 0) -> Tensor:
    """A tensor of `count` rows (dimension `dim`): row rows[i] of `of_rows` becomes row i. The
    others are zeros.

    In place where there is room, so that a row that stays where it is costs nothing. Then rows[i]
    >= i for every i.
    """
    before = of_rows.shape[dim]
    out = (of_rows.narrow(dim, 0, count) if count <= before else
           of_rows.new_zeros(*of_rows.shape[:dim], count, *of_rows.shape[dim + 1:]))
    for i, b in enumerate(rows):            # none moves up, so no row is written before it was read
        if i != b or count > before:
            out.select(dim, i).copy_(of_rows.select(dim, b))
    out.narrow(dim, len(rows), count - len(rows)).zero_()
    return out


def begin(text: Text, dice: Any, b: int, ids: Sequence[int], seed: int) -> None:
    """A new request in row b: its prompt, and uniforms of its own, as a Dice of this seed."""
    text.tokens[b, :len(ids)] = torch.tensor(ids, dtype=torch.int64, device=text.tokens.device)
    text.length[b] = len(ids)
    if isinstance(dice, Dice):
        dice.generators[b] = torch.Generator("cpu").manual_seed(check_seed(seed))


class SamplingByRow:
    """Logits become probabilities with settings of each row's own.

    device: where the logits will be. Which rows have which settings is sent there at once, and not
    in every call.
    Example: SamplingByRow([Sampling(0), Sampling(1)]) makes row 0 greedy and samples row 1.
    """

    def __init__(self, of_rows: Sequence[Sampling], device: torch.device | str = "cpu"):
        rows_of: dict[Sampling, list[int]] = {}
        for b, sampling in enumerate(of_rows):
            rows_of.setdefault(sampling, []).append(b)
        self.of_rows, self.count = of_rows, len(of_rows)
        self.rows_of = {sampling: torch.tensor(rows, device=device)
                        for sampling, rows in rows_of.items()}

    def __call__(self, logits: Tensor) -> Tensor:
        """logits (B, ..., V) -> probabilities (B, ..., V), as `probs`."""
        if len(logits) != self.count:
            raise ValueError(f"settings for {self.count} rows, logits of {len(logits)}")
        if len(self.rows_of) == 1:
            return next(iter(self.rows_of))(logits)
        out = torch.empty_like(logits, dtype=torch.promote_types(logits.dtype, torch.float32))
        for sampling, rows in self.rows_of.items():
            out[rows] = sampling(logits[rows])
        return out
