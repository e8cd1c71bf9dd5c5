"""What a drafter asks a draft model for: the page to read before writing one.

A draft model is a network. A reader is what runs it: it keeps what the network has read of B texts.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from nanospec.cache import Cache, LanguageModel
from nanospec.draft import Draft
from nanospec.errors import RequestError
from nanospec.text import Text


class Reader(Protocol):
    """A draft model, and what it keeps of the B texts that it reads. A drafter asks it what may come next.

    layers: the target's layers whose features it reads; () for none.
    deepest: the most tokens that it drafts behind one another; None if it does not mind.
    rereads: whether it reads its own draft tokens again when they were accepted, with the target's features of them.
    """

    layers: Sequence[int] = ()
    deepest: int | None = None
    rereads: bool = False

    def share(self, target: LanguageModel, cache: Cache) -> Callable:
        """As for Drafter."""
        return target

    def begin(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        """New requests, as for Drafter: meet them and read their prompts."""
        self.meet(text, rows, features)
        self.read_prompts(rows)

    def meet(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        """New requests. Keep what is needed to read them, and read nothing. They are unread, the whole of them."""

    def read_prompts(self, rows: Sequence[int]) -> None:
        """Read the texts in these rows but for their last token."""
        return

    def move(self, rows: Sequence[int], count: int) -> None:
        """As for Drafter."""

    def root(self, text: Text, unread: int, upto: int) -> Tensor:
        """Logits (B, 1, V) of what follows the committed text. Whatever else was read is forgotten.

        unread, upto: as in Drafter.
        """

    def behind(self, tokens: Tensor, upto: int, parents: Tensor | None = None) -> Tensor:
        """Read draft tokens (B, m), one level of a tree at a time: logits (B, m, V) of what follows each.

        parents: (m,) or (B, m), behind which of the tokens of the call before each stands. None: a chain, whose token
        stands behind the one before it.
        """

    def commit(self, text: Text, draft: Draft, accepted: Tensor, features: Tensor | None) -> None:
        """How the round ended, as for Drafter. What was accepted stands in `text` already."""


def longest_chain(reader: Reader, most: int) -> int:
    """`most` draft tokens behind one another, or as many as this draft model can say, if they are fewer."""
    return min(most, reader.deepest or most)


def check_depth(reader: Reader, tokens: int) -> None:
    """RequestError if so many draft tokens behind one another are more than this draft model can say."""
    if tokens > longest_chain(reader, tokens):
        raise RequestError(f"this draft model drafts at most {reader.deepest} tokens behind one another, asked for "
                           f"{tokens}")
