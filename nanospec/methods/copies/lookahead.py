"""Lookahead decoding: no draft model; nodes that ride along in the target's passes draft.

Fu et al. 2024 (arXiv 2402.02057). A window of guessed tokens stands after the text, W columns of N
- 1 levels, and a pass of the target says what would follow each column: the next level. The oldest
level then goes. What a column held, from its oldest token to the answer, is an n-gram that the
target has written itself, though after a guessed past. The pool keeps it by its first token. When
the text comes to end with that token, the rest is drafted.

    root - a1 - a2      level 0, a chain        W = 2, N = 3. The later levels of a column hang
            |    |                              from its token of level 0, each a place further on:
           b1   b2      level 1                 the paper's mask is a tree's. In brackets what the
            |    |                              target answers. In the next pass b and c are the
          (c1) (c2)                             levels, and a1 b1 c1 and a2 b2 c2 are in the pool:
                                                b1 c1 waits for a text that ends with a1.

So the window and the pool's n-grams make one tree, which the rule judges as any other. It is
lossless because nothing is drawn: all follows from the text and the target's earlier answers, and
every q_draft is one-hot. The window's tokens are judged too, at no cost, and are seldom right:
without the pool this is little else than Jacobi decoding, hardly more than a token a call on the
pair that ships. With it 1.83, at temperature 0, where that pair repeats itself; at 1 only 1.19, for
the target's likeliest n-gram is then not often the one that it draws.

In the authors' code the first column begins with the text's last token; here all begin with a
guess, so that each is a text of its own, which the target writes on by a token a pass. On that pair
more is accepted. Where a round accepts several tokens the window stands still, as theirs can;
moving it along gained nothing. Left out: n-grams of the prompt (copying is lookup.py's part), and
nodes spread over several devices.
"""

from collections.abc import Sequence
from numbers import Integral

from torch import Tensor

from nanospec.draft import Draft
from nanospec.errors import RequestError, check_gamma, check_numbers
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.tree_draft import CopyingDrafter, Tree
from nanospec.text import Text


class Lookahead(CopyingDrafter):
    """Drafts a tree: the window, and the n-grams that begin with the text's last token.

    window: W, columns; ngram: N, tokens of an n-gram; guesses: G, how many n-grams are kept for
    each first token, the newest ones. A tree has at most 1 + (W + G) (N - 1) nodes, by default 16,
    and about 9 as a rule: n-grams that begin alike share nodes. A target whose call on 30 tokens
    costs what a call on one costs gains more from (7, 5, 7). Besides at the end of a round it waits
    for the device when the target has answered: the answers become lists.
    """

    takes, learns, per_row = "", "tokens", ("columns",)
    rule = staticmethod(verify_tree)

    def __init__(self, window: int = 2, ngram: int = 4, guesses: int = 3):
        check_numbers(Integral, window=window, ngram=ngram, guesses=guesses)
        if window < 1 or ngram < 2 or guesses < 0:
            raise RequestError("lookahead needs a window of 1 or more, n-grams of 2 or more tokens "
                               f"and 0 or more guesses, got {window}, {ngram}, {guesses}")
        self.window, self.ngram, self.guesses = window, ngram, guesses
        self.most = check_gamma((window + guesses) * (ngram - 1), "the draft tokens of lookahead")
        self.columns: dict[int, Columns] = {}

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """New requests: empty pools, and the prompt's end as first window; any would do."""
        end = text.last(self.window + self.ngram - 2).tolist()
        for b in rows:
            self.columns[b] = Columns([end[b][level:level + self.window]
                                       for level in range(self.ngram - 1)], self.guesses)

    def tree(self, b: int, ids: list[int]) -> Tree:
        """Its window and its pool's n-grams."""
        return self.columns[b].tree(ids[-1])

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None, logits: Tensor) -> None:
        """The target's likeliest tokens after the columns are a level; columns go into the pool."""
        for b, likeliest in enumerate(p_target.argmax(-1).tolist()):
            self.columns[b].advance(likeliest)


class Columns:
    """The window and the pool of one text."""

    def __init__(self, levels: list[list[int]], guesses: int):
        self.levels, self.guesses = levels, guesses                 # levels[level][column]
        # First token -> the N - 1 after it, newest first.
        self.pool: dict[int, list[list[int]]] = {}

    def tree(self, last: int) -> Tree:
        """The window and the n-grams that begin with `last`, the text's last token."""
        tree, column, self.ends = Tree(last), 0, []            # ends: the last node of every column
        for first, *later in zip(*self.levels):
            column = tree.extend(column, [first])
            self.ends.append(tree.extend(column, later))
        for guess in self.pool.get(last, []):
            tree.extend(0, guess)
        return tree

    def advance(self, likeliest: list[int]) -> None:
        """likeliest: after every node of the tree, the target's likeliest token."""
        newest = [likeliest[end] for end in self.ends]
        for first, *guess in zip(*self.levels, newest):
            known = [guess] + [other for other in self.pool.get(first, []) if other != guess]
            self.pool[first] = known[:self.guesses]
        self.levels = [*self.levels[1:], newest]
