"""Several drafters behind one text, their trees joined into one: a target pass judges the guesses of all.

Miao et al. 2023, SpecInfer (arXiv 2305.09781): the merged token tree of several small models. Here any drafters of
trees may join: a draft model and a copier, say, of which one is good at prose and the other at what was said before.

A guess that two of them share has one row and both their subtrees behind it: a row's children are drawn given its path
alone, so whose path it was does not matter. Siblings stand in the order in which they were drawn, the first drafter's
first, and each keeps the law that its own drafter drew it from. That is all the node rule asks for, so the text is
lossless.

What is shared keeps a coin for each drafter that drew it, the later ones as rows of their own with nothing behind. Such
a coin cannot stand: the first fell, so p_target(x) < q_draft(x) and nothing is left of x. It is there to fall: then its
law is taken from what is left, as for any other token that drafter could have drawn. Without it the text is wrong,
because whether a draw is counted would depend on what was drawn. A chosen guess takes away x alone, which is gone.

Left out: drawing a second law without what the first has drawn, which would spare those rows; drafting side by side.
"""

from collections.abc import Sequence

from torch import Tensor

from nanospec.dice import Dice
from nanospec.drafters.guesses import Tree
from nanospec.errors import RequestError
from nanospec.generate import Law, Text


class MergedDrafter:
    """A drafter of trees (drafters/tree.py) made of others, each an object of its own.

    Those that choose stand best behind those that draw: what they share then takes no row. A round may keep what one
    guessed and another did not; a drafter with a cache then has to read that from the text, as TreeDrafter does.
    Example: of a chain 5 6, drawn, and a chain 5 7, chosen, the tree is 5, and 6 and 7 behind it; were 5 7 drawn too,
    it would have a fourth row, the second coin for 5.
    """

    def __init__(self, drafters: Sequence):
        if not drafters or len(set(map(id, drafters))) < len(drafters):
            raise RequestError("a merged drafter needs one drafter or more, and none of them twice: each remembers "
                               "what it has guessed")
        self.drafters, self.size = drafters, 1 + sum(one.size - 1 for one in drafters)

    def begin(self, text: Text, vocab_size: int) -> None:
        """A new request, for all of them."""
        for one in self.drafters:
            one.begin(text, vocab_size)

    def propose(self, text: Text, law: Law, dice: Dice) -> Tree:
        """All their guesses behind one root."""
        self.trees = [one.propose(text, law, dice) for one in self.drafters]
        joined = Tree(self.trees[0].tokens[:1], steps=sum(tree.steps for tree in self.trees))
        self.rows = [_join(joined, tree) for tree in self.trees]
        return joined

    def commit(self, path: Sequence[int], p_target: Tensor) -> None:
        """Tell each of them how far the kept path was its own, and what the target thought behind its own rows."""
        for one, tree, rows in zip(self.drafters, self.trees, self.rows):
            deepest = next((rows.index(row) for row in reversed(path) if row in rows), 0)
            one.commit(tree.path(deepest), p_target[rows])


def _join(joined: Tree, tree: Tree) -> list[int]:
    """Put the guesses of `tree` into `joined`: the row at which each of its rows stands there, the root's first."""
    rows = [0]
    for parent, token, q_draft in zip(tree.parents[1:], tree.tokens[1:], tree.q_draft[1:]):
        elder = joined.find(rows[parent], token)
        if elder is None or q_draft is not None:
            row = joined.add(rows[parent], token, q_draft)
        rows.append(row if elder is None else elder)
    return rows
