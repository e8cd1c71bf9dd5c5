"""The shape of a draft tree of which most tokens are accepted, found by dynamic programming.

Sequoia, Chen et al. 2024 (arXiv 2402.12374): the best tree, and its size on given hardware. The
recursion is that of their tree_search.py. One assumption carries it all: a node that is reached
has its i-th child accepted with probability accepted[i], whatever the node. `accepted` is measured:
draft that many children in many places, and count.

A topology is a list of parents, -1 for node 0, breadth first: all nodes of a depth stand together,
the children of a node in the order in which they will be drawn. Left out: the tokens. A drafter
draws them, a rule judges them.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import product
from numbers import Integral, Real

from nanospec.errors import MOST_NODES, RequestError, check_gamma, quoted

Topology = list[int]


def shape(*branches: int) -> Topology:
    """Each node at depth d has branches[d] children: shape(2, 1) = [-1, 0, 0, 1, 2]."""
    topology, level = [-1], range(1)
    for branch in branches:
        parents = [node for node in level for _ in range(branch)]
        level = range(len(topology), len(topology) + len(parents))
        topology += parents
    return topology


def of_paths(paths: Iterable[tuple[int, ...]]) -> Topology:
    """A tree by its nodes' paths, ranks of children: (0,), (1,), (0, 0) are [-1, 0, 0, 1]."""
    number: dict[tuple[int, ...], int] = {(): 0}
    number |= {path: node
               for node, path in enumerate(sorted(paths, key=lambda path: (len(path), path)), 1)}
    return [-1, *(number[path[:-1]] for path in list(number)[1:])]


def published(tree: list) -> Topology:
    """A tree as papers and programs print it: the parents of its nodes, or Medusa's choices,
    which are paths.

    ValueError for what is neither: a node before its parent, a path without its beginning or
    without an elder sibling.
    Examples: [-1, 0, 1, 0] and [[0], [0, 0], [1]] are both [-1, 0, 0, 1].
    """
    if len(tree) > MOST_NODES or any(isinstance(path, list) and len(path) > MOST_NODES
                                     for path in tree):
        raise ValueError(f"a tree has at most {MOST_NODES} nodes")
    if tree[:1] == [-1] and all(type(parent) is int for parent in tree):
        paths: list[tuple[int, ...]] = [()]
        for node, parent in enumerate(tree[1:], 1):
            if not 0 <= parent < node:
                raise ValueError(f"node {node} has the parent {parent}")
            paths.append((*paths[parent], tree[1:node].count(parent)))
        tree = paths[1:]
    if not all(isinstance(path, Sequence) for path in tree):
        raise ValueError("a tree is a list of its nodes' parents, or of paths")
    paths = [tuple(path) for path in tree]
    known = {(), *paths}
    for path in paths:
        if not path or not all(type(rank) is int and rank >= 0 for rank in path):
            raise ValueError(f"{path} is no path")
        if path[:-1] not in known or path[-1] and (*path[:-1], path[-1] - 1) not in known:
            raise ValueError(f"{path} has no parent, or no elder sibling")
    if not paths or len(set(paths)) < len(paths):
        raise ValueError("a tree has a child, and none twice")
    return of_paths(paths)


def check_topology(topology: Sequence[int]) -> Topology:
    """It, if these are the parents of a tree's nodes, breadth first or not; or RequestError."""
    if not isinstance(topology, Sequence) or not all(isinstance(node, Integral)
                                                     for node in topology):
        raise RequestError("a topology is a list of every node's parent, got "
                           f"{quoted(topology)}")
    check_gamma(len(topology) - 1, "the nodes of a topology but its root")
    if topology[0] != -1 or any(not 0 <= parent < node
                                for node, parent in enumerate(topology[1:], 1)):
        raise RequestError("a topology has -1 for its root and an earlier node for every other, "
                           f"got {quoted(topology)}")
    return list(topology)


def check_chances(accepted: Sequence[float], size: int) -> None:
    """RequestError unless these are chances, from 0 to 1, and `size` a number of nodes."""
    check_gamma(size, "the nodes of a tree")
    if not isinstance(accepted, Sequence) or not accepted or not all(
            isinstance(chance, Real) and 0 <= chance <= 1 for chance in accepted):
        raise RequestError("a tree needs the chance of each child, from 0 to 1, got "
                           f"{quoted(accepted)}")


def best_tree(accepted: Sequence[float], size: int,
              depth: int | None = None) -> tuple[float, Topology]:
    """(expected tokens, topology) of the best tree of `size` nodes, the root among them.

    depth: the most nodes on a path, the root among them. No node has more than len(accepted)
    children. Where the two leave no room for `size` nodes, the tree is as large as they let it be.
    Example: best_tree([.6, .2, .1], 4) is a chain, 2.176 tokens; of depth 3 at most it is [-1, 0,
    0, 1], 2.16 tokens.
    """
    check_chances(accepted, size)
    depth = size if depth is None else min(check_gamma(depth, "depth"), size)
    trees = {1: (1.0, ())}          # nodes -> the best tree so deep: expected tokens, its subtrees
    for _ in range(depth - 1):
        # nodes -> the same for the children from the i-th on; i falls to 0
        forests = {0: (0.0, ())}
        for chance in reversed(accepted):
            forests = _one_child_more(chance, trees, forests, size - 1)
        trees = {nodes + 1: (1 + expected, subtrees)
                 for nodes, (expected, subtrees) in forests.items()}
    expected, subtrees = trees[max(trees)]
    return expected, _breadth_first(subtrees)


def grown_tree(accuracies: Sequence[Sequence[float]], size: int) -> tuple[float, Topology]:
    """(expected tokens, topology) of the best tree of `size` nodes where each depth has chances
    of its own: Medusa's.

    accuracies[d][i]: how often the i-th best draft token at depth d is the right one, falling with
    i. A node is worth the product along its path. No node is worth more than its parent or an elder
    sibling. So taking the most valuable node, again and again, is best (Cai et al. 2024, arXiv
    2401.10774, section 2.3.3).
    Example: grown_tree([[.6, .2], [.5, .1]], 4) takes .6, .6 * .5 and .2: [-1, 0, 0, 1], 2.1
    tokens.
    """
    for chances in accuracies or [[]]:
        check_chances(chances, size)
    paths = []                                      # a path: at every depth, the how manieth child
    heap: list[tuple[float, tuple[int, ...]]] = [(-accuracies[0][0], (0,))]
    while heap and len(paths) < size - 1:
        value, path = heappop(heap)
        paths.append((path, -value))
        depth, rank = len(path), path[-1]
        if rank + 1 < len(accuracies[depth - 1]) and accuracies[depth - 1][rank]:
            heappush(heap, (value / accuracies[depth - 1][rank] * accuracies[depth - 1][rank + 1],
                            (*path[:-1], rank + 1)))
        if depth < len(accuracies):
            heappush(heap, (value * accuracies[depth][0], (*path, 0)))
    return 1 + sum(value for _, value in paths), of_paths(path for path, _ in paths)


def _one_child_more(chance: float, trees: dict, forests: dict, most: int) -> dict:
    """A child that is accepted with `chance`, and its younger siblings: T[m][l][b], for all m."""
    best = {0: (0.0, ())}   # without this child there are no younger ones: they are drawn in order
    for (m, (tree, subtrees)), (n, (forest, siblings)) in product(trees.items(), forests.items()):
        expected = chance * tree + forest
        if m + n <= most and (m + n not in best or expected > best[m + n][0]):
            best[m + n] = expected, (subtrees, *siblings)
    return best


def best_size(accepted: Sequence[float], target_seconds: dict[int, float], draft_seconds: float,
              depths: Sequence[int]) -> tuple[Topology, float]:
    """(topology, expected tokens per second) of the best size and depth: what a round emits over
    what it takes.

    target_seconds[nodes]: one target call on that many tokens, measured; its keys are the sizes
    tried.
    draft_seconds: one draft step; a round takes one for every level but the last, whose nodes need
    not be read. (The authors count one more.) Example: accepted [.6, .2], 1 ms a draft step, 10 ms
    a call on 2 tokens, 11 ms on 4: best are 4 nodes of depth 3, 2.16 tokens in 13 ms, 166 a second.
    """
    if not target_seconds or not depths:
        raise RequestError("the best of no sizes or no depths was asked for")

    def pace(nodes: int, depth: int) -> tuple[float, Topology]:
        expected, topology = best_tree(accepted, nodes, depth)
        return expected / ((depth - 1) * draft_seconds + target_seconds[nodes]), topology

    rate, topology = max((pace(nodes, depth) for nodes in target_seconds for depth in depths),
                         key=lambda tried: tried[0])
    return topology, rate


def grown_by(table: dict) -> dict[str, int]:
    """EAGLE-2's size, width and depth, as DynamicTree takes them. ValueError for anything else."""
    names = {"size": "count", "width": "width", "depth": "depth"}
    counts = all(type(number) is int and number > 0 for number in table.values())
    if table.keys() != names.keys() or not counts:
        raise ValueError(f"a tree that is grown has a size, a width and a depth, got {table}")
    return {names[name]: number for name, number in table.items()}


def _breadth_first(subtrees: Iterable) -> Topology:
    """The subtrees of the root, each given by its own subtrees in turn -> the topology."""
    queue = [(-1, subtrees)]
    for node, (_, trees) in enumerate(queue):   # grows while it is read
        queue += [(node, tree) for tree in trees]
    return [parent for parent, _ in queue]
