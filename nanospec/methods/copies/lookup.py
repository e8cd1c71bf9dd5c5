"""Prompt lookup, a draft at no cost: what followed the last tokens when they stood here before?

Saxena 2023, prompt lookup decoding (github.com/apoorvumang/prompt-lookup-decoding). Text repeats
itself: names, lines of a table, quotations from a document. Why it is lossless: a copied token is
not drawn, so its q_draft is one-hot, and the rule accepts it with p_target(x) and otherwise leaves
x out. What was proposed depends on committed tokens alone.

Two things differ from the original. It takes the earliest place; here it is the latest unless
asked, because that is accepted more often. And it drops a copy that would run past the end of the
text; here a copy that reaches the end goes on with what it has copied. Left out: other texts to
copy from, which is suffix.py.
"""

from collections import defaultdict
from collections.abc import Sequence

from torch import Tensor

from nanospec.errors import check_gamma
from nanospec.methods.trees.tree_draft import CopyingDrafter, Tree
from nanospec.text import Text


class PromptLookup(CopyingDrafter):
    """A chain of at most `count` copied tokens; none where the last token stands nowhere else.

    longest: how many of the last tokens are looked for; where they stand nowhere else, one fewer,
    down to 1.
    earliest: of several places the first one, not the last. Example: after 7 8 9 7 8 five draft
    tokens are 9 7 8 9 7: 7 8 was followed by 9 7 8, and there the text ends and the copy goes on
    with its own.
    """

    per_row = ("seen",)

    def __init__(self, count: int = 8, longest: int = 3, earliest: bool = False):
        self.most = check_gamma(count, "count")
        self.longest, self.earliest = check_gamma(longest, "longest"), earliest
        self.seen: dict[int, IndexedText] = {}

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """New requests: forget the last ones of these rows."""
        for b in rows:
            self.seen[b] = IndexedText()

    def tree(self, b: int, ids: list[int]) -> Tree:
        """What followed the longest match; node 0 alone where there is none."""
        self.seen[b] = self.seen[b].read(ids)
        tree = Tree(ids[-1])
        tree.extend(0, self.seen[b].copy(self.most, self.longest, self.earliest)[1])
        return tree


class IndexedText:
    """One text, and the places where each of its tokens stands."""

    def __init__(self):
        self.ids: list[int] = []
        self.places: dict[int, list[int]] = defaultdict(list)       # token -> the places after it

    def read(self, ids: list[int]) -> "IndexedText":
        """Itself, up to the end of the committed text; another one for a text that has changed."""
        if ids[:len(self.ids)] != self.ids:
            return IndexedText().read(ids)
        for token in ids[len(self.ids):]:
            if self.ids:    # nothing follows the last token yet: it is no earlier place of itself
                self.places[self.ids[-1]].append(len(self.ids))
            self.ids.append(token)
        return self

    def match(self, own: list[int], longest: int, earliest: bool = False) -> tuple[int, int]:
        """How many of the last tokens of `own`, at most `longest`, stand in this text, and the
        place after them; 0 and 0 where the last one stands nowhere.
        """
        best, place = 0, 0
        places = self.places.get(own[-1], [])
        for at in places if earliest else reversed(places):
            n = 1
            while n < min(longest, at, len(own)) and self.ids[at - n - 1] == own[-n - 1]:
                n += 1
            if n > best:
                best, place = n, at
            if best == longest:
                break
        return best, place

    def copy(self, count: int, longest: int, earliest: bool = False) -> tuple[int, list[int]]:
        """How many of the text's last tokens stand earlier in it, and `count` tokens from there;
        0 and none if the last one stands nowhere else.
        """
        best, start = self.match(self.ids, longest, earliest)
        end = len(self.ids)
        return best, [self.ids[start + i % (end - start)] for i in range(count if best else 0)]
