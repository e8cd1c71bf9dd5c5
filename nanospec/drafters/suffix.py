"""Suffix decoding: guesses from how often each continuation followed, in this text and in past ones.

Oliaro et al. 2024, SuffixDecoding (arXiv 2411.04975). Prompt lookup copies from one place; here every place where the
last tokens stand has a say. A guess is as likely as its share of the places that agree so far:
share(child) = share(parent) * places of the child / places of the parent, the paper's D. The likeliest guess is taken
first (a heap), and the sum of all shares is how many are expected to be kept, should the target go on as the texts did.
Every length of the match, in past texts and in this one, has its candidate; the one of the greatest sum is proposed.

Why it is lossless: no guess is drawn, so its law is certain of it, whatever its share. Shares choose and must not
judge: reported as the law of a draw, they would make the text wrong. And what is counted knows nothing of the dice to
come: text that stands, and past texts, if they were written with other seeds than this one.

The paper keeps its counts in suffix trees. Here a node is the list of its places, and its children are that list sorted
by the next token: memory grows with the texts and no faster, and a round takes time in proportion to the places of the
last token. Left out: several texts at once; more guesses behind longer matches; learning from one request for the next:
make a new drafter with that text in `past`.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count as numbers

from torch import Tensor

from nanospec.dice import Dice
from nanospec.drafters.guesses import Tree
from nanospec.errors import RequestError
from nanospec.generate import Law, Text

Place = tuple[list[int], int]                               # a text, and how many of its tokens stand before the place
Index = dict[int, list[Place]]                              # token -> the places behind it at which something stands


class SuffixDrafter:
    """A drafter of trees (drafters/tree.py): at most `count` guesses, each with a share of at least `least`.

    past: texts to copy from besides the one being written; no request changes them. Drawn with the seed of this request
    they would betray how its dice fall. tree: several guesses behind a row, else a path, always the likeliest. longest:
    at most so many of the last tokens are matched.
    Example: in 5 1 2 6 1 3 7 1 2 8 1 the last token was followed by 2, 3 and 2. Of two guesses the first is 2, share
    2/3. On a path the second is 8 behind it, the later of two that followed; in a tree it is 3 beside it; share 1/3.
    """

    def __init__(self, count: int = 8, past: Sequence[Sequence[int]] = (), tree: bool = False, longest: int = 8,
                 least: float = 0.1):
        if count < 1 or longest < 1 or not 0 < least <= 1:
            raise RequestError(f"count and longest must be at least 1 and least in (0, 1], got {count}, {longest} and "
                               f"{least}")
        self.count, self.tree, self.longest, self.least, self.size = count, tree, longest, least, count + 1
        self.known = {token for ids in past for token in ids}
        self.past: Index = defaultdict(list)
        for ids in map(list, past):
            for at in range(1, len(ids)):
                self.past[ids[at - 1]].append((ids, at))

    def begin(self, text: Text, vocab_size: int) -> None:
        """A new request, of one text: forget the last one, not the past."""
        if not all(0 <= token < vocab_size for token in self.known):
            raise RequestError(f"a past text has a token outside 0..{vocab_size - 1}: is it this target's tokenizer?")
        self.ids: list[int] = []                            # the committed text
        self.own: Index = defaultdict(list)

    def propose(self, text: Text, law: Law, dice: Dice) -> Tree:
        """The best candidate; of equals the longest match, and this text before the past."""
        for token in text.tokens[0, len(self.ids):int(text.length)].tolist():
            if self.ids:
                self.own[self.ids[-1]].append((self.ids, len(self.ids)))
            self.ids.append(token)
        best, tree = 0.0, Tree(self.ids[-1:])
        for index in self.past, self.own:
            places, found = index.get(self.ids[-1], [])[::-1], {}               # [::-1]: the last place first
            for n in range(1, min(self.longest, len(self.ids)) + 1):
                places = [(ids, at) for ids, at in places if at >= n and ids[at - n] == self.ids[-n]]
                found[len(places)] = places                 # a longer match with as many places has the same ones
            for places in found.values():
                expected, candidate = self._grow(places)
                if expected >= best:
                    best, tree = expected, candidate
        return tree

    def commit(self, path: Sequence[int], p_target: Tensor) -> None:
        """What was kept is read from the text, in the next round."""

    def _grow(self, places: list[Place]) -> tuple[float, Tree]:
        """How many guesses are expected to be kept, and the guesses."""
        expected, tree, heap, number = 0.0, Tree(self.ids[-1:]), [], numbers()  # number: equals leave as they came
        row, share = 0, 1.0
        while True:
            for part, token, there in self._children(places):
                heapq.heappush(heap, (-share * part, next(number), row, token, there))
            if not heap or -heap[0][0] < self.least or len(tree.tokens) == self.size:
                return expected, tree
            minus_share, _, parent, token, places = heapq.heappop(heap)
            row, share = tree.add(parent, token), -minus_share
            expected += share

    def _children(self, places: list[Place]) -> Iterator[tuple[float, int, list[Place]]]:
        """What stands at these places: (which part of them has it, the token, the places behind it)."""
        behind: Index = defaultdict(list)
        for ids, at in places:
            if at < len(ids):
                behind[ids[at]].append((ids, at + 1))
        total = sum(map(len, behind.values()))
        for token in behind if self.tree else sorted(behind, key=lambda token: -len(behind[token]))[:1]:
            yield len(behind[token]) / total, token, behind[token]
