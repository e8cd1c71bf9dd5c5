"""What rounding does to a greedy text: how far it moves the gap between two logits, measured, and
how far each token of a text lies below the likeliest one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nanospec.errors import check_finite
from nanospec.fast.autotune import copy_of
from nanospec.fast.int8 import LARGEST, LEAST

# Each rounds more than the one before.
DTYPES = ("float64", "float32", "float16", "bfloat16", "int8")
SEVERAL, BLOCK = 5, 64          # tokens in a call: as one that verifies, and as the float call
EXPLAINED, BEYOND = 1.0, 8.0    # times what was measured
KNOWN = 16                      # of the likeliest tokens are looked at


@torch.inference_mode()
def rows(model: Any, prompt: Sequence[int], tokens: Sequence[int], at_once: int, first: int = 0
         ) -> Iterator[Tensor]:
    """The logits (m, V) that choose the tokens from place `first` on, in calls on `at_once`."""
    ids = torch.tensor([[*prompt, *tokens]], device=model.device)
    cache, start, end = model.new_cache(1, ids.shape[1]), len(prompt) + first - 1, ids.shape[1] - 1
    if start:
        model(ids[:, :start], cache, start, scored=0)
        cache.length += start
    for at in range(start, end, at_once):
        call = ids[:, at:min(at + at_once, end)]
        yield model(call, cache, at + call.shape[1])[0]
        cache.length += call.shape[1]


class Read(NamedTuple):
    """A text of n tokens by a float call. behind (n,): how far a token's logit is below the best.
    best, gaps (n, KNOWN): the likeliest tokens, and how far their logits are below the best.
    """

    tokens: list[int]
    behind: Tensor
    best: Tensor
    gaps: Tensor

    def off(self, more: float) -> list[int]:
        """The places whose tokens are further below the best than that."""
        return (self.behind > more).nonzero()[:, 0].tolist()

    def near(self, place: int, gap: float) -> list[int]:
        """The likeliest tokens there, those that are no further below the best than that."""
        return self.best[place][self.gaps[place] <= gap].tolist()

    def until(self, place: int) -> "Read":
        return Read(self.tokens[:place], self.behind[:place], self.best[:place], self.gaps[:place])


def choices(model: Any, prompt: Sequence[int], tokens: Sequence[int], ends: Sequence[int] = (),
            change: Callable[[Tensor, int], Tensor] = lambda logits, place: logits
            ) -> Iterator[tuple[Tensor, Tensor]]:
    """The logits (m, V) that choose the tokens, and these (m, 1).

    ends: where the text goes on, an end of text is not the best token: a program may have been
    asked to go on. change: of the logits (m, V) from a place on.
    """
    for number, logits in enumerate(rows(model, prompt, tokens, BLOCK)):
        logits = change(logits, number * BLOCK).double()
        own = torch.tensor(tokens[number * BLOCK:][:len(logits)], device=logits.device)[:, None]
        for end in [end for end in ends if end < logits.shape[1]]:     # one at least has a row
            logits[own[:, 0] != end, end] = float("-inf")
        yield logits, own


@torch.inference_mode()
def read(model: Any, prompt: Sequence[int], tokens: Sequence[int], *how: Any) -> Read:
    """A text of one token or more. how: as for `choices`. LogitsError where logits are NaN or
    infinite.
    """
    found = list[tuple[Tensor, Tensor, Tensor]]()
    for logits, own in choices(model, prompt, tokens, *how):
        best = logits.topk(min(KNOWN, logits.shape[1]))
        check_finite(float(best.values[:, 0].sum()))
        found.append(((best.values[:, :1] - logits.gather(1, own))[:, 0], best.indices,
                      best.values[:, :1] - best.values))
    return Read([*tokens], *(torch.cat(part).cpu() for part in zip(*found)))


@dataclass
class Compared:
    """What became of a task. said: "same", "rounding", "close" (between rounding and a bug), "bug",
    "spelling" (off, if these are its tokens), or "neither" is the target's.

    off: the first place of each that no rounding explains. at: the place where they first differ,
    from 0; there the target's two best tokens are `best`, `gap` apart, and theirs `behind` it.
    lengths: tokens that were given. By its end "same" may be another word of ends.py; longer: which
    of the two has more then, 0 or 1.
    """

    verdict: str
    reads: tuple[Read, Read]
    sure: tuple[int, int]
    off: tuple[int | None, int | None]
    at: int | None = None
    best: tuple[int, int] = (0, 0)
    gap: float = 0.0
    behind: tuple[float, float] = (0.0, 0.0)
    lengths: tuple[int, int] = (0, 0)
    longer: int = 0


def parting(a: Sequence[int], b: Sequence[int]) -> int | None:
    """The first place where they differ; None if there is none as far as both go."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), None)


def compared(reads: tuple[Read, Read], most: float, sure: tuple[int, int]) -> Compared:
    """most: what rounding moves. sure: how many tokens of both are certain; no other accuses."""
    a, b = reads
    found = [one.off(BEYOND * most) for one in reads]
    off = [next((i for i in where_off if i < end), None) for where_off, end in zip(found, sure)]
    at = parting(a.tokens, b.tokens)
    if None not in off:
        verdict = "neither"
    elif off != [None, None]:
        verdict = "bug"
    elif at is None:
        verdict = "same"
    elif any(i < len(one.tokens) - 1 for one, where_off in zip(reads, found) for i in where_off):
        verdict = "spelling"               # not by its last token, of which a part may be lacking
    else:
        verdict = "close" if max(a.behind[at], b.behind[at]) > EXPLAINED * most else "rounding"
    result = Compared(verdict, reads, sure, (off[0], off[1]), at)
    if at is not None:
        result.best, result.gap = (int(a.best[at, 0]), int(a.best[at, 1])), float(a.gaps[at, 1])
        result.behind = float(a.behind[at]), float(b.behind[at])
    return result


class Moved(NamedTuple):
    """How far rounding moves the gap between two logits, at most: `most` from those of the float
    call or between calls on one token and on several, `calls` between those alone.
    """

    most: float = 0.0
    calls: float = 0.0
    places: int = 0

    def __or__(self, other: Any) -> "Moved":
        return Moved(max(self.most, other.most), max(self.calls, other.calls),
                     self.places + other.places)


@torch.inference_mode()
def moved(exact: Any, rounded: Any, prompt: Sequence[int], tokens: Sequence[int], first: int
          ) -> Moved:
    """On the places from `first` on: of the best token, and each of the likeliest and the text's.
    exact, rounded: one model, to compute with more bits and with those that are measured.
    """
    logits = torch.cat([*rows(exact, prompt, tokens, BLOCK, first)]).double()
    own = torch.tensor(tokens[first:], device=logits.device)[:, None]
    asked = torch.cat([logits.topk(min(KNOWN, logits.shape[1])).indices, own], 1)

    def gaps(logits: Tensor) -> Tensor:
        picked = logits.double().gather(1, asked)
        return picked[:, :1] - picked

    answers = [gaps(torch.cat([*rows(rounded, prompt, tokens, many, first)]))
               for many in (1, SEVERAL)]
    found = [float((x - y).abs().max()) for x, y in combinations([*answers, gaps(logits)], 2)]
    check_finite(sum(found))
    return Moved(max(found), found[0], len(own))


def in_type(target: Any, name: str) -> Any:
    """The target as engines have it in a data type, one of DTYPES. int8: weights and what they are
    multiplied with are rounded to 8 bits, each row to its own scale, and all else is bfloat16.
    """
    copy = copy_of(target, torch.bfloat16 if name == "int8" else getattr(torch, name))
    for part in copy.modules() if name == "int8" else ():
        if isinstance(part, nn.Linear):
            part.weight = nn.Parameter(in_8_bits(part.weight), requires_grad=False)
            part.register_forward_pre_hook(lambda _, given: (in_8_bits(given[0]),))
    return copy


def in_8_bits(x: Tensor) -> Tensor:
    scale = x.abs().amax(-1, keepdim=True).clamp(min=LEAST) / LARGEST
    return (x / scale).round() * scale


def exact_type(name: str) -> str:
    """In which a call is exact beside this data type."""
    return "float64" if name in DTYPES[:2] else "float32"


def finer(target: Any, name: str) -> Any:
    return copy_of(target, getattr(torch, exact_type(name)))
