"""What a drafter remembers of texts that it helped to write: earlier ones, and those of other rows.

Oliaro et al. 2024, SuffixDecoding (arXiv 2411.04975, section 3): beside a request's own text, all
earlier outputs. Requests to a server often resemble one another. Here texts are kept whole, prompt
and answer, at most `most` tokens of them; where there are more, the text that began first goes.

Why it is lossless: a copied token is not drawn, and what is copied must know nothing of the dice
that will judge it. Text that was written with another seed knows nothing of them. But if an earlier
request had the same seed, its text, and through it all that is kept here, has seen this request's
dice. Such a request may not copy from memory, unless it is greedy and so has no dice. So requests
that draw should have seeds of their own: if all have the default seed, none of them copies from
memory. (All seeds are kept, also those of texts that are gone: later texts may have copied from
them.)
"""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

from torch import Tensor

from nanospec.dice import Dice
from nanospec.errors import SEEDS, RequestError, check_numbers
from nanospec.methods.copies.lookup import IndexedText


class Memory:
    """seen: of every row the text written there.  open: whether it may copy from others."""

    per_row = ("seen", "open")

    def __init__(self, most: int):
        check_numbers(Integral, remember=most)
        if most < 0:
            raise RequestError(f"remember must not be negative, got {most}")
        self.most = most
        self.seen: dict[int, IndexedText] = {}
        self.open: dict[int, bool] = {}
        self.texts: list[IndexedText] = []                  # in the order in which they began
        self.seeds: set[int] = set()                        # of all requests so far

    @property
    def tokens(self) -> int:
        """How many are remembered."""
        return sum(len(text.ids) for text in self.texts)

    def begin(self, b: int) -> None:
        """A new request in row b."""
        self.seen.pop(b, None)

    def read_all(self, texts: Sequence[list[int]], dice: Any, sampling: Any) -> None:
        """All rows have come to these texts, with these dice and settings."""
        for b, seed in enumerate(seeds_of(dice, sampling, len(texts))):
            self.read(b, texts[b], seed)

    def read(self, b: int, ids: list[int], seed: int | None) -> None:
        """Row b has come to `ids`, with this seed or greedily. A changed text is a new one."""
        known = self.seen.get(b)
        self.seen[b] = (known or IndexedText()).read(ids)
        if self.most and self.seen[b] is not known:
            self.open[b] = seed not in self.seeds
            self.seeds |= set() if seed is None else {seed}
            self.texts.append(self.seen[b])
        while self.tokens > self.most:
            self.texts.pop(0)

    def others(self, b: int) -> list[IndexedText]:
        """The texts that row b may copy from, the oldest first."""
        return [text for text in self.texts if self.open[b] and text is not self.seen[b]]

    def copy(self, b: int, longest: int, count: int) -> tuple[int, list[int]]:
        """How many of row b's last tokens, at most `longest`, stand in another text, and up to
        `count` tokens from after them there, in the latest of the longest matches; 0 and none if
        there is no match.
        """
        best, copied = 0, list[int]()
        for text in self.others(b):
            n, at = text.match(self.seen[b].ids, longest)
            if n and n >= best:
                best, copied = n, text.ids[at:at + count]
        return best, copied


def seeds_of(dice: Dice | Any, sampling: Callable[[Tensor], Tensor] | Any,
             count: int) -> list[int | None]:
    """Of each text; None for a greedy one, and for dice without seeds, which are walked."""
    generators = getattr(dice, "generators", None)
    greedy = {b for b, one in enumerate(getattr(sampling, "of_rows", [sampling] * count))
              if getattr(one, "temperature", 1) == 0}
    return [None if b in greedy or not generators else generators[b].initial_seed() % SEEDS
            for b in range(count)]
