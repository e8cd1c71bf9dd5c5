"""Suffix decoding: drafts by how often each continuation followed, in this text and in past ones.

Oliaro et al. 2024, SuffixDecoding (arXiv 2411.04975). Prompt lookup copies from one place. Here
every place where the last tokens stand has a say. A draft token is as likely as its share of the
places that agree so far: share(child) = share(parent) * places of the child / places of the parent,
the paper's D. The likeliest is taken first (a heap). The sum of all shares is how many are expected
to be accepted, should the target go on as the texts did. Every length of the match, in past texts
and in this one, has its candidate; the one of the greatest sum is proposed.

Why it is lossless: no token is drawn, so every q_draft is one-hot, whatever the share. Shares
choose and must not judge: reported as q_draft, they would make the text wrong. And what is counted
knows nothing of the dice to come: it is text that stands, and past texts, if they were written with
other seeds than this one.

The paper keeps its counts in suffix trees. Here a node is the list of its places, and its children
are that list sorted by the next token: memory grows with the texts and no faster, and a round looks
at every place of the last token. With `remember` it copies from earlier requests,
too (memory.py). Left out: more draft tokens after longer matches.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import count as numbers
from numbers import Real

from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.errors import RequestError, check_gamma, check_ids, check_numbers
from nanospec.methods.copies.lookup import IndexedText
from nanospec.methods.copies.memory import Memory
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.tree_draft import Tree, drafts_of
from nanospec.text import Text

Place = tuple[list[int], int]           # a text, and how many of its tokens stand before the place


class SuffixDrafter(Drafter):
    """Drafts at most `count` tokens, each with a share of at least `least`.

    past: texts to copy from besides the one being written; no request changes them. Drawn with the
    seed of this request they would betray how its dice fall. tree: several draft tokens after a
    node, else a chain, always the likeliest.
    longest: at most that many of the last tokens are matched.
    remember: how many tokens of earlier requests are kept.
    Example: in 5 1 2 6 1 3 7 1 2 8 1 the last token was followed by 2, 3 and 2. Of two draft tokens
    the first is 2, share 2/3. In a chain the second is 8 after it, the later of two that followed;
    in a tree it is 3 beside it; share 1/3.
    """

    needs_draft_model, remembers, per_row = False, True, ("memory",)

    def __init__(self, count: int = 8, past: Sequence[Sequence[int]] = (), tree: bool = False,
                 longest: int = 8, least: float = 0.1, remember: int = 0):
        check_numbers(Real, least=least)
        for ids in past if isinstance(past, Sequence) else [past]:
            check_ids("a past text", ids)
        if not 0 < least <= 1:
            raise RequestError(f"least must lie in (0, 1], got {least}")
        self.most, self.longest = check_gamma(count, "count"), check_gamma(longest, "longest")
        self.tree, self.least, self.rule = tree, least, verify_tree if tree else None
        self.past, self.memory = [IndexedText().read([*ids]) for ids in past], Memory(remember)

    def begin(self, text: Text) -> None:
        """A batch begins. RequestError for past texts of another vocabulary."""
        if not all(0 <= token < text.vocab_size for past in self.past for token in past.ids):
            raise RequestError(f"a past text has a token outside 0..{text.vocab_size - 1}: is it "
                               "this target's tokenizer?")

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """New requests: forget the last ones of these rows, not the past."""
        for b in rows:
            self.memory.begin(b)

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        """Each row's best candidate; of equals the longest match, this text before the past."""
        texts = text.ids()
        self.memory.read_all(texts, dice, sampling)
        return drafts_of([self._tree(b, ids) for b, ids in enumerate(texts)], text)

    def _tree(self, b: int, ids: list[int]) -> Tree:
        best, tree = 0.0, Tree(ids[-1])
        for texts in [*self.past, *self.memory.others(b)], [self.memory.seen[b]]:
            places = [(one.ids, at) for one in texts for at in one.places.get(ids[-1], ())]
            places, found = places[::-1], {}                        # [::-1]: the last place first
            for n in range(1, min(self.longest, len(ids)) + 1):
                places = [(source, at) for source, at in places
                          if at >= n and source[at - n] == ids[-n]]
                found[len(places)] = places  # a longer match with as many places has the same ones
            for places in found.values():
                expected, candidate = self._grow(ids[-1], places)
                if expected >= best:
                    best, tree = expected, candidate
        return tree

    def _grow(self, last: int, places: list[Place]) -> tuple[float, Tree]:
        """How many draft tokens are expected to be accepted, and the draft."""
        # Equal shares leave the heap by `number`, in the order in which they came.
        expected, tree, heap, number = 0.0, Tree(last), [], numbers()
        node, share = 0, 1.0
        while True:
            for part, token, further in self._children(places):
                heapq.heappush(heap, (-share * part, next(number), node, token, further))
            if not heap or -heap[0][0] < self.least or len(tree.tokens) > self.most:
                return expected, tree
            minus_share, _, parent, token, places = heapq.heappop(heap)
            node, share = tree.add(parent, token), -minus_share
            expected += share

    def _children(self, places: list[Place]) -> Iterator[tuple[float, int, list[Place]]]:
        """What stands at these places: (its part of them, the token, the places after it)."""
        after: dict[int, list[Place]] = defaultdict(list)
        for ids, at in places:
            if at < len(ids):
                after[ids[at]].append((ids, at + 1))
        total = sum(map(len, after.values()))
        if not self.tree:
            after = dict(sorted(after.items(), key=lambda found: -len(found[1]))[:1])
        for token in after:
            yield len(after[token]) / total, token, after[token]
