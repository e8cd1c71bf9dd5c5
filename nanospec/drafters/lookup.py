"""Prompt lookup: a draft that costs nothing. What followed the last few tokens when they stood here before?

Saxena 2023, prompt lookup decoding (github.com/apoorvumang/prompt-lookup-decoding). Text repeats itself: names, lines
of a table, the quotation of a document. Why it is lossless: a copied guess is no draw, so its law is certain of it, and
the node rule of rules/tree.py keeps it with p_target(x) and otherwise leaves x out. What was proposed depends on
committed tokens alone.

Two things differ from the original. It takes the earliest place; here it is the latest unless asked, because that keeps
more. And it drops a copy that would run past the end of the text; here a copy that reaches the end goes on with what it
has copied. Left out: several texts at once; other texts to copy from, which is suffix.py.
"""

from collections.abc import Sequence

from torch import Tensor

from nanospec.dice import Dice
from nanospec.drafters.guesses import Tree
from nanospec.errors import RequestError
from nanospec.generate import Law, Text


class PromptLookup:
    """A drafter of trees (drafters/tree.py) whose tree is a chain of at most `count` guesses, none of them drawn.

    longest: how many of the last tokens are looked for; where they stand nowhere else, one fewer, down to 1.
    earliest: of several places the first one, not the last. Example: behind 7 8 9 7 8 five guesses are 9 7 8 9 7: 7 8
    was followed by 9 7 8, and there the text ends and the copy goes on with its own.
    """

    def __init__(self, count: int = 8, longest: int = 3, earliest: bool = False):
        if count < 1 or longest < 1:
            raise RequestError(f"count and longest must be at least 1, got {count} and {longest}")
        self.count, self.longest, self.earliest, self.size = count, longest, earliest, count + 1

    def begin(self, text: Text, vocab_size: int) -> None:
        """A new request, of one text: forget the last one."""
        self.ids: list[int] = []                            # the committed text
        self.behind: dict[tuple[int, ...], int] = {}        # up to `longest` tokens -> the place behind them

    def propose(self, text: Text, law: Law, dice: Dice) -> Tree:
        """What followed the longest match; a root alone where there is none."""
        for token in text.tokens[0, len(self.ids):int(text.length)].tolist():
            self._append(token)
        tree, row, end = Tree(self.ids[-1:]), 0, len(self.ids)
        matches = (self.behind.get(tuple(self.ids[-n:])) for n in range(min(self.longest, end), 0, -1))
        start = next((at for at in matches if at is not None), None)
        if start is not None:
            for i in range(self.count):
                row = tree.add(row, self.ids[start + i % (end - start)])
        return tree

    def commit(self, path: Sequence[int], p_target: Tensor) -> None:
        """What was kept is read from the text, in the next round."""

    def _append(self, token: int) -> None:
        """One token more, and so one place more: behind the tokens that stand before it. The text's last tokens have
        none, for nothing stands behind them yet: they are no earlier place of themselves.
        """
        at = len(self.ids)
        for n in range(1, min(self.longest, at) + 1):
            tokens = tuple(self.ids[-n:])
            if not (self.earliest and tokens in self.behind):
                self.behind[tokens] = at
        self.ids.append(token)
