"""Which shape should a tree of guesses have? The one that keeps the most tokens, by dynamic programming.

Sequoia, Chen et al. 2024 (arXiv 2402.12374): the optimal tree, and its size on given hardware; the recursion is that of
the authors' tree_search.py. One assumption carries it all: the i-th child of a node, reached, is the one kept with
probability accepted[i], whatever the node. It is measured by drafting that many children at many nodes, and counting.

A topology is a list of parents, -1 for row 0, breadth first: all rows of a depth stand together, the children of a row
in the order in which they will be drawn. Left out: the tokens. A drafter draws them, a rule judges them.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count, product

Topology = list[int]


def shape(*branches: int) -> Topology:
    """Every row of depth d has branches[d] children: shape(2, 1) = [-1, 0, 0, 1, 2]; shape(1, 1, 1) is a chain."""
    topology, level = [-1], range(1)
    for branch in branches:
        parents = [row for row in level for _ in range(branch)]
        level = range(len(topology), len(topology) + len(parents))
        topology += parents
    return topology


def expected_of(topology: Topology, accepted: Sequence[float]) -> float:
    """Tokens a round emits: for every row the chance that all of its path is kept, added up.

    The root counts 1, for the replacement or the bonus. Example: expected_of(shape(2, 1), [.6, .2]) =
    1 + .6 + .2 + .36 + .12 = 2.28.
    """
    kept, drawn = [1.0], Counter()
    for parent in topology[1:]:
        kept.append(kept[parent] * accepted[drawn[parent]])
        drawn[parent] += 1
    return sum(kept)


def best_tree(accepted: Sequence[float], size: int, depth: int | None = None) -> tuple[float, Topology]:
    """(expected tokens, topology) of the best tree of `size` rows, the root among them.

    depth: the most rows on a path, the root among them. No row has more than len(accepted) children; where the two
    leave no room for `size` rows, the tree is as large as they let it be. Example: best_tree([.6, .2, .1], 4) is a
    chain, 2.176 tokens; of depth 3 at most it is [-1, 0, 0, 1], 2.16 tokens.
    """
    depth = size if depth is None else min(depth, size)
    trees = {1: (1.0, ())}                      # rows -> the best tree so deep: (expected tokens, the trees behind it)
    for _ in range(depth - 1):
        forests = {0: (0.0, ())}                # rows -> the same for the children from the i-th on; i falls to 0
        for chance in reversed(accepted):
            forests = _one_child_more(chance, trees, forests, size - 1)
        trees = {rows + 1: (1 + expected, behind) for rows, (expected, behind) in forests.items()}
    expected, behind = trees[max(trees)]
    return expected, _breadth_first(behind)


def _one_child_more(chance: float, trees: dict, forests: dict, most: int) -> dict:
    """A child that is kept with `chance`, and its younger siblings: T[m][l][b], for all m up to `most` at once."""
    best = {0: (0.0, ())}                       # without this child there are none behind it: they are drawn in order
    for (m, (tree, behind)), (n, (forest, siblings)) in product(trees.items(), forests.items()):
        expected = chance * tree + forest
        if m + n <= most and (m + n not in best or expected > best[m + n][0]):
            best[m + n] = expected, (behind, *siblings)
    return best


def heap_tree(accepted: Sequence[float], size: int, depth: int | None = None) -> tuple[float, Topology]:
    """`best_tree` made greedily: the next row is always the one whose path is likeliest to be kept.

    Where `accepted` falls, a row ranks behind its parent and its elder sibling, so the likeliest rows form a tree, and
    no other has more. Where it does not, a poor child hides a good one: of [.3, .05, .9] and 4 rows the heap makes 1.44
    tokens, the best tree 2.25. The same heap, with a confidence for every node, is EAGLE-2's (arXiv 2406.16858).
    """
    depth = size if depth is None else depth
    expected, rows, behind, number = 1.0, 1, [], count()                # equals leave the heap as they came
    heap = [(-accepted[0], next(number), 0, 2, 1.0, behind)]
    while rows < size and heap:
        minus_kept, _, i, level, parent_kept, siblings = heapq.heappop(heap)
        if level > depth:
            continue
        siblings.append([])
        expected, rows = expected - minus_kept, rows + 1
        heapq.heappush(heap, (minus_kept * accepted[0], next(number), 0, level + 1, -minus_kept, siblings[-1]))
        if i + 1 < len(accepted):
            heapq.heappush(heap, (-parent_kept * accepted[i + 1], next(number), i + 1, level, parent_kept, siblings))
    return expected, _breadth_first(behind)


def best_size(accepted: Sequence[float], target_seconds: dict[int, float], draft_seconds: float,
              depths: Sequence[int]) -> tuple[Topology, float]:
    """(topology, expected tokens per second) of the best size and depth: what a round keeps over what it takes.

    target_seconds[rows]: one target call on so many rows, measured; the sizes tried are its keys. draft_seconds: one
    draft step; a round takes one for every level but the last, whose rows nobody needs to read. (The authors count one
    more.) Example: accepted [.6, .2], 1 ms a draft step, 10 ms a call on 2 rows, 11 ms on 4: best are 4 rows of depth
    3, 2.16 tokens in 13 ms, 166 a second.
    """
    tried = [(best_tree(accepted, size, depth), (depth - 1) * draft_seconds + seconds)
             for size, seconds in target_seconds.items() for depth in depths]
    (expected, topology), seconds = max(tried, key=lambda one: one[0][0] / one[1])
    return topology, expected / seconds


def _breadth_first(behind: Iterable) -> Topology:
    """The trees behind the root, each given by the trees behind it in turn -> the topology."""
    queue = [(-1, behind)]
    for row, (_, trees) in enumerate(queue):    # grows while it is read
        queue += [(row, tree) for tree in trees]
    return [parent for parent, _ in queue]
