"""Exercise 17: Medusa's tree: the nodes that are worth most.

difficulty 3 of 5, about 20 minutes, about 10 lines; after the lesson *What the target knows ahead*
check: python -m lessons.check 17
"""

import torch


def grow(accuracies, size):
    """The best tree for Medusa's heads: of all trees of `size` nodes, one with the most tokens per target call.

    accuracies: list of lists of floats. accuracies[d][i] is how often the i-th best draft token of head d is the right
    one, and it falls with i.  size: nodes of the tree including the root. There are always enough draft tokens for it.

    Each node has a path from the root, which is (). Node (0, 2) follows node (0,) and has the third best draft token of
    head 1. A node needs its parent: (0, 2) can be in the tree only if (0,) is.
    A node is accepted if every draft token along its path is the right one. Medusa takes the probability of that to be
    the product of their accuracies, and 1 for the root. The sum over all nodes is the number of tokens per target call.
    Returns the paths of all nodes, a list of `size` tuples, in any order.

    Worked: accuracies [[.6, .2], [.5, .1]], size 4: (), (0,), (0, 0) and (1,) bring 1 + .6 + .6 * .5 + .2 = 2.1 tokens.
    """
    raise NotImplementedError
