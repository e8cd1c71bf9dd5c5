"""Exercise 17: the best tree for heads of known accuracies. Held to every tree there is."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from heapq import heappop, heappush
from itertools import product
from math import prod

from lessons.check import seeds
from lessons.check.answered import wholes
from lessons.check.engine import Exercise, wrong
from lessons.check.seen import Failure, Seen, values
from nanospec.methods.trees.shapes import grown_tree

Path = tuple[int, ...]
Accuracies = Sequence[Sequence[float]]

CASES = {       # accuracies, size
    "worked example": ([[.6, .2], [.5, .1]], 4),
    "the root alone": ([[.6, .2], [.5, .1]], 1),
    "one head": ([[.5, .3, .1]], 3),
    "heads that are sure of themselves": ([[.9, .06], [.8, .1], [.8, .1]], 4),
    "heads that are not so sure": ([[.3, .25, .2], [.2, .1, .05]], 4),
    "a second head that is the better one": ([[.4, .35, .05], [.9, .08, .01]], 5),
    "two nodes worth the same": ([[.5, .25], [.5, .2]], 3),
    "a head that is always right": ([[1., 0.], [.6, .3], [.5, .2]], 5),
    "a head that is never right": ([[.5, .2, .1], [0., 0., 0.]], 5),
    "three heads": ([[.5, .3, .1], [.4, .3, .1], [.4, .2, .1]], 6),
    "other accuracies at other depths": ([[.7, .1, .05], [.5, .3, .1], [.3, .25, .2]], 6),
}
HEADS = [[.62, .14, .07, .04], [.44, .13, .07, .05], [.31, .11, .07, .05], [.24, .10, .06, .04], [.19, .09, .06, .04]]
SIZE = 16


def nodes_of(f, accuracies: Accuracies, size: int) -> list[Path]:
    """The paths that grow returned. Whether they are a tree, and how large, is seen elsewhere."""
    found = f.grow(accuracies, size)
    if not isinstance(found, (list, tuple, set, frozenset)):
        raise Failure(f"grow must return a list of paths; it returned {found!r:.80}")
    nodes = [tuple(wholes(path, "grow, for each node,")) for path in found]
    for path in nodes:
        if len(path) > len(accuracies):
            raise Failure(f"grow returned the path {path}, and there are only {len(accuracies)} heads")
        if any(not 0 <= i < len(head) for i, head in zip(path, accuracies)):
            raise Failure(f"grow returned the path {path}; heads have tokens from 0 on: {[*map(len, accuracies)]}")
    if len(set(nodes)) < len(nodes):
        raise Failure(f"grow returned a node twice: {next(path for path in nodes if nodes.count(path) > 1)}")
    if () not in nodes:
        raise Failure("grow must return the root as well, the path ()")
    return nodes


def has_its_parents(path: Path, nodes: Sequence[Path]) -> bool:
    return all(path[:depth] in nodes for depth in range(len(path)))


def worth(accuracies: Accuracies, path: Path) -> float:
    """How often that node is accepted."""
    return prod(head[i] for head, i in zip(accuracies, path))


def tokens_of(accuracies: Accuracies, nodes: Sequence[Path]) -> float:
    """Tokens per target call. A node that lacks a parent is never reached."""
    return sum(worth(accuracies, path) for path in nodes if has_its_parents(path, nodes))


@lru_cache(maxsize=None)
def best_of_all(name: str) -> float:
    """The most tokens that any tree has: all are listed."""
    accuracies, size = CASES[name]
    every, trees = every_path(accuracies), {frozenset({()})}
    for _ in range(size - 1):
        trees = {tree | {path} for tree in trees for path in every if path not in tree and path[:-1] in tree}
    return max(tokens_of(accuracies, tree) for tree in trees)


def every_path(accuracies: Accuracies) -> list[Path]:
    """Shallow ones first, and of one depth those of low ranks."""
    return [path for depth in range(len(accuracies) + 1) for path in product(*map(range, map(len, accuracies[:depth])))]


def contract(f) -> None:
    nodes_of(f, *CASES["worked example"])


def seen_in(f, name: str) -> Seen:
    return seen_of(f, name, *CASES[name], best_of_all(name))


def seen_of(f, name: str, accuracies: Accuracies, size: int, most: float) -> Seen:
    def found() -> dict:
        nodes = nodes_of(f, accuracies, size)
        orphans = sum(not has_its_parents(path, nodes) for path in nodes)
        return {"nodes": len(nodes), "nodes without their parent": orphans,
                "tokens per target call": tokens_of(accuracies, nodes)}
    return values(f"{name}: accuracies {accuracies}, size {size}", found,
                  {"nodes": size, "nodes without their parent": 0, "tokens per target call": most})


@lru_cache(maxsize=None)
def drawn_cases() -> list[tuple]:
    """Heads of any number, as wide as they like, sure or not; the library says what the best tree has."""
    draw, found = seeds.chance(17), []
    for widths, size in (((3, 3), 1), ((2, 2), 2), ((8,), 6), ((6, 5), 12), ((2, 3, 4, 5), 20), ((9, 2, 2), 15),
                         ((3, 3, 3, 3, 3), 25), ((1, 1, 1, 1, 1, 1), 6), ((4, 4, 4), 40)):
        sure = draw.uniform(.3, 3)
        shares = [sorted((draw.random() ** sure for _ in range(width)), reverse=True) for width in widths]
        accuracies = [[float(f"{share / (sum(head) + .2):.3g}") for share in head] for head in shares]
        found.append((accuracies, size, grown_tree(accuracies, size)[0] if size > 1 else 1.0))
    return found


def by_seed(f) -> list[Seen]:
    return [seen_of(f, "by a seed", *case) for case in drawn_cases()]


def worked(f) -> list[Seen]:
    return [seen_in(f, "worked example")]


def best(f) -> list[Seen]:
    return [seen_in(f, name) for name in CASES]


def number_to_reach(f) -> str:
    """A larger tree, beside two that look at no accuracy."""
    nodes, most = nodes_of(f, HEADS, SIZE), grown_tree(HEADS, SIZE)[0]
    yours = tokens_of(HEADS, nodes)
    if len(nodes) != SIZE or yours < most - 1e-9:
        raise Failure(f"five heads, {SIZE} nodes: {len(nodes)} nodes with {yours:.3f} tokens per target call; "
                      f"{most:.3f} can be had")
    full = every_path([head[:2] for head in HEADS[:3]])
    chain = [(0,) * depth for depth in range(len(HEADS) + 1)]
    return (f"{yours:.2f} tokens per target call with {SIZE} nodes of {len(HEADS)} heads; to reach: {most:.2f}. A full "
            f"2-2-2 tree has {tokens_of(HEADS, full):.2f} with {len(full)} nodes, a chain of all heads "
            f"{tokens_of(HEADS, chain):.2f} with {len(chain)}")


def grown(accuracies: Accuracies, size: int, value: Callable = worth, choose: Callable = max,
          siblings: bool = True) -> list[Path]:
    """grow with another value of a node, with another node chosen, or without siblings."""
    tree, waiting = [], [()]
    while waiting and len(tree) < size:
        one = choose(waiting, key=partial(value, accuracies))
        waiting.remove(one)
        tree.append(one)
        if len(one) < len(accuracies):
            waiting.append((*one, 0))
        if siblings and one and one[-1] + 1 < len(accuracies[len(one) - 1]):
            waiting.append((*one[:-1], one[-1] + 1))
    return tree


def whole_paths(accuracies: Accuracies, size: int) -> list[Path]:
    """Paths from the root down to the last head, the likeliest first, as far as there are nodes for them."""
    tree, heads = [()], len(accuracies)
    for path in sorted(product(*map(range, map(len, accuracies))), key=partial(worth, accuracies), reverse=True):
        tree += [path[:depth] for depth in range(1, heads + 1) if path[:depth] not in tree]
    return tree[:size]


def own(accuracies: Accuracies, path: Path) -> float:
    """The accuracy of its last draft token alone."""
    return accuracies[len(path) - 1][path[-1]] if path else 1.0


def after_elder_siblings(accuracies: Accuracies, path: Path) -> float:
    return prod(head[i] * prod(1 - elder for elder in head[:i]) for head, i in zip(accuracies, path))


def by_a_heap_of_own(accuracies: Accuracies, size: int) -> list[Path]:
    waiting, tree = [(-1.0, ())], []
    while waiting and len(tree) < size:
        one = heappop(waiting)[1]
        tree.append(one)
        for i, accuracy in enumerate(accuracies[len(one)] if len(one) < len(accuracies) else ()):
            heappush(waiting, (-accuracy, (*one, i)))
    return tree


def by(value: Callable) -> dict:
    return {"grow": partial(grown, value=value)}


EXERCISE = Exercise(
    "ex17_medusas_tree.py", ("grow",), contract, {"worked number": worked, "the best of all trees": best,
                                                     "larger trees": by_seed},
    [wrong("own-accuracy-only", "you choose a node by its own accuracy; it is accepted only if its whole path is: take "
           "the product", **by(own)),
     wrong("own-accuracy-only", "you choose a node by its own accuracy; it is accepted only if its whole path is: take "
           "the product", grow=by_a_heap_of_own),
     wrong("nodes-without-their-parents", "you take the best draft tokens of all heads, and the target never comes to "
           "a node whose parent is missing. With the product along the path no node is worth more than its parent",
           grow=lambda accuracies, size: sorted(every_path(accuracies), key=partial(own, accuracies),
                                                reverse=True)[:size]),
     wrong("added-along-the-path", "you add the accuracies along the path, so that a longer one is always worth more: "
           "multiply them", **by(lambda accuracies, path: sum(head[i] for head, i in zip(accuracies, path)))),
     wrong("first-head-everywhere", "you use the accuracies of the first head at every depth; each depth has a head "
           "of its own", **by(lambda accuracies, path: prod(accuracies[0][i] for i in path))),
     wrong("elder-siblings-counted-twice", "you multiply by the chance that the elder siblings are wrong; the accuracy "
           "of the i-th best draft token says already how often that one is right", **by(after_elder_siblings)),
     wrong("one-node-too-many", "the root is one of the nodes: beside it there are size - 1",
           grow=lambda accuracies, size: grown(accuracies, size + 1)),
     wrong("breadth-first-only", "you fill one depth before you begin the next; the best child of the best node is "
           "often worth more than the third best node beside it",
           grow=lambda accuracies, size: every_path(accuracies)[:size]),
     wrong("a-chain-only", "you take the best draft token of every head and no other: a tree has siblings",
           grow=partial(grown, siblings=False)),
     wrong("whole-paths-first", "you take whole paths, down to the last head, the likeliest first; each node counts "
           "for itself, and a short path may be worth more than the end of a long one", grow=whole_paths),
     wrong("least-first", "you take the node that is worth least; a heap hands out its smallest, so put in minus the "
           "worth", grow=partial(grown, choose=min))],
    ("What is node (0, 1) worth? And (0,)? Can a node be worth more than its parent, or more than a sibling with a "
     "lower rank?",
     "Begin with the root. Again and again take the node that is worth most, of all that could be the next. Taking it "
     "opens two more: its best child, and its next sibling.",
     "waiting = {(): 1.0}; best = max(waiting, key=waiting.get). Behind it wait (*best, 0), if there is a head for it, "
     "and (*best[:-1], best[-1] + 1), if its head has one. Each is worth its parent's worth times its own accuracy"),
    [("nanospec.methods.trees.shapes", "grown_tree", "paths = []", "(*path, 0)))")],
    {"number to reach": number_to_reach})
