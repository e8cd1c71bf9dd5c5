"""Lookahead decoding: the target guesses its own future, in rows that ride along in its passes. No draft model.

Fu et al. 2024 (arXiv 2402.02057). A window of guessed tokens stands behind the text, W columns of N - 1 levels, and a
pass of the target says what would follow each column: the next level. The oldest level then goes. What a column held,
from its oldest token to the answer, is an n-gram that the target has written itself, though behind a guessed past. The
pool keeps it by its first token; when the text comes to end with that token, the rest is a guess.

    root - a1 - a2          level 0, a chain          W = 2, N = 3. The later levels of a column hang from its token of
            |    |                                    level 0, each a place further on: the paper's mask is a tree's.
           b1   b2          level 1                   In brackets what the target answers. In the next pass b and c are
            |    |                                    the levels, and a1 b1 c1 and a2 b2 c2 are in the pool: b1 c1
          (c1) (c2)                                   waits for a text that ends with a1.

So the window and the pool's n-grams make one tree, which the loop of rules/tree.py judges as any other. It is lossless
because there is no chance in a guess: all follow from the text and the target's earlier answers, and are judged as
certain. The window's tokens are judged too, at no cost, and are seldom right: without the pool this is little else than
Jacobi decoding, 1.02 tokens a call on the pair that ships. With it 1.87, at temperature 0; at 1 only 1.14, for the
target's likeliest n-gram is then not often the one that it draws.

In the authors' code the first column begins with the text's last token; here all begin with a guess, so that each is a
text of its own, which the target writes on by a token a pass. On that pair it keeps more. Where a round keeps several
tokens the window stands still, as theirs can; moving it along kept no more. Left out: n-grams of the prompt (copying
is lookup.py's part), and rows spread over several devices.
"""

from collections.abc import Sequence

from torch import Tensor

from nanospec.dice import Dice
from nanospec.drafters.guesses import Tree
from nanospec.errors import RequestError
from nanospec.generate import Law, Text


class Lookahead:
    """A drafter of trees (drafters/tree.py). window: W, columns; ngram: N, tokens of an n-gram; guesses: G, how many
    n-grams are kept for each first token, the newest ones.

    A tree has at most 1 + (W + G) (N - 1) rows, by default 16, and about 9 as a rule: guesses that begin alike share
    rows. A target whose call on 30 rows costs what one row costs gains more from (7, 5, 7).
    """

    def __init__(self, window: int = 2, ngram: int = 4, guesses: int = 3):
        if window < 1 or ngram < 2 or guesses < 0:
            raise RequestError("lookahead needs a window of 1 or more, n-grams of 2 or more tokens and 0 or more "
                               f"guesses, got {window}, {ngram}, {guesses}")
        self.window, self.ngram, self.guesses = window, ngram, guesses
        self.size = 1 + (window + guesses) * (ngram - 1)

    def begin(self, text: Text, vocab_size: int) -> None:
        """A new request: an empty pool. The first window repeats the end of the prompt; any filling would do."""
        end = text.last(self.window + self.ngram - 2)[0].tolist()
        self.levels = [end[level:level + self.window] for level in range(self.ngram - 1)]   # levels[level][column]
        self.pool: dict[int, list[list[int]]] = {}      # first token -> the N - 1 that followed it, the newest first

    def propose(self, text: Text, law: Law, dice: Dice) -> Tree:
        """The window, and the n-grams that begin with the text's last token."""
        tree, column, self.ends = Tree(text.last(1)[0].tolist()), 0, []     # ends: the last row of every column
        for first, *later in zip(*self.levels):
            column = _behind(tree, column, [first])
            self.ends.append(_behind(tree, column, later))
        for guess in self.pool.get(tree.tokens[0], []):
            _behind(tree, 0, guess)
        return tree

    def commit(self, path: Sequence[int], p_target: Tensor) -> None:
        """What the target finds likeliest behind every column is the next level; columns go into the pool."""
        newest = p_target[self.ends].argmax(-1).tolist()
        for first, *guess in zip(*self.levels, newest):
            known = [guess] + [other for other in self.pool.get(first, []) if other != guess]
            self.pool[first] = known[:self.guesses]
        self.levels = [*self.levels[1:], newest]


def _behind(tree: Tree, row: int, tokens: Sequence[int]) -> int:
    """Guess `tokens` one after the other behind `row`, and give back the last row; a guess that is there is shared."""
    for token in tokens:
        known = tree.find(row, token)
        row = tree.add(row, token) if known is None else known
    return row
