"""Exercise 17: Medusa's tree: the rows that are worth most.

difficulty 3 of 5, about 20 minutes, about 10 lines; after the lesson *What the target knows ahead*
check: python -m lessons.check 17
"""


def grow(accuracies, size):
    """The best tree for Medusa's heads: of all trees of `size` rows, one with the most tokens per target call.

    accuracies: list of lists of floats. accuracies[d][i] is how often the i-th best draft token of head d is the right
    one. It falls with i.  size: rows of the tree, the root among them. There are always enough draft tokens for it.

    A row has a path from the root. (0, 2) stands behind row (0,), and has the third best draft token of head 1. The
    root is (). A row needs its parent: (0, 2) can only be in the tree if (0,) is.
    A row is accepted if every draft token along its path is the right one. Medusa takes the chance of that to be the
    product of their accuracies. For the root it is 1. Added up over all rows, it gives the tokens per target call.
    Returns the paths of all rows, a list of `size` tuples, in any order.

    Worked: accuracies [[.6, .2], [.5, .1]], size 4: (), (0,), (0, 0) and (1,) bring 1 + .6 + .6 * .5 + .2 = 2.1 tokens.
    """
    def wait(parent, rank):
        """That row could be the next one, if there is a draft token for it."""
        depth = len(parent)
        if depth < len(accuracies) and rank < len(accuracies[depth]):
            waiting[(*parent, rank)] = tree[parent] * accuracies[depth][rank]

    tree, waiting = {}, {(): 1.0}               # path -> how often that row is accepted
    while len(tree) < size:
        best = max(waiting, key=waiting.get)
        tree[best] = waiting.pop(best)
        wait(best, 0)                                           # its best child
        if best:
            wait(best[:-1], best[-1] + 1)                       # its next sibling
    return list(tree)
