"""What a method is made of where the user names nothing: a tree's shape, and calls' costs."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import product
from typing import Any

from nanospec.cli.bench.measure import measure_costs
from nanospec.cli.show.terminal import note
from nanospec.errors import RequestError, check_gamma
from nanospec.fast.announce import announced
from nanospec.files.checkpoint import Pair, find_draft_model, load_pair
from nanospec.files.kept import digest_of
from nanospec.files.sources import Source
from nanospec.methods.index import DRAFTERS, REMEMBERING, WITHOUT_DRAFT_MODEL, is_fixed
from nanospec.methods.settings import GAMMA
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.dynamic_tree import DynamicTree
from nanospec.methods.trees.shapes import Topology, best_size, shape
from nanospec.methods.trees.tree_reader import longest_chain
from nanospec.model import GPT
from nanospec.speculate import speculate

CHILDREN = 4                    # of a node, at most, in the trees that are compared
SIZES = range(2, 13)            # nodes of these trees
TURNS = 10                      # in which calls' costs are measured
Keep = Callable[..., Any]
"""(what, find, **about) -> what find() returned, now or earlier, as JSON has it."""


def chosen_drafters(names: Sequence[str], source: Source, draft_models: Sequence[str], option: str,
                    usual: str = "chain") -> list[str]:
    """The drafters of these names, "all" among them; where none is named the usual one, or for a
    target that comes with no draft model "suffix", and a line that says so.

    RequestError, before any weight is read, if one needs a draft model and there is none.
    """
    has_draft_model = all(name != "gpt" or find_draft_model(source) for name in draft_models)
    if "all" in names:
        return list(DRAFTERS) if has_draft_model else WITHOUT_DRAFT_MODEL
    for name in names:
        if DRAFTERS[name].needs_draft_model and not has_draft_model:
            raise RequestError(f"{option} {name} needs a draft model, and there is none beside "
                               f"this target: {', '.join(WITHOUT_DRAFT_MODEL)} need none")
    if not names and not has_draft_model:
        note(f"{source.path.name} comes without a draft model: {option} suffix, which copies from "
             "the text")
    return list(names) or [usual if has_draft_model else "suffix"]


def check_fixed(drafters: Iterable[str], rules: Iterable[str]) -> None:
    """RequestError unless all rounds can be compiled."""
    for drafter, rule in product(drafters, rules):
        if not is_fixed(drafter, rule):
            names = ", ".join(name for name, entry in DRAFTERS.items() if entry.kind.fixed)
            raise RequestError(f"--compile is for rounds without a branch: drafters {names}, by "
                               f"rule token; a chain by rule block, too; not for {drafter} by rule "
                               f"{rule}")


def check_remember(drafters: Iterable[str], remember: int) -> None:
    """RequestError if one that is to remember copies from no earlier request."""
    others = [name for name in drafters if name not in REMEMBERING]
    if remember and others:
        raise RequestError("--remember is for drafters that copy from earlier requests: "
                           f"{', '.join(REMEMBERING)}; not for {others[0]}")


def read_pair(source: Source, device: str = "cpu", draft_model: str = "gpt") -> Pair:
    """Its weights, with a line while they are read, and what there is to know about them."""
    with announced(f"reading {source.path.name}", at_once=False):
        pair = load_pair(source, device, draft_model=draft_model)
    if pair.note:
        note(pair.note)
    return pair


def options_of(target: GPT, draft_model: Any, prompts: Sequence[Sequence[int]],
               drafters: Iterable[str],
               given: dict, most: int = GAMMA, keep: Keep | None = None, turns: int = TURNS,
               **sampling) -> dict:
    """The options of `method_of` besides gamma: those given, and for drafters of these names what
    is missing.

    The best tree is measured at once, if one of them drafts one with a draft model; costs when a
    drafter asks for them, of calls on up to `most` draft tokens, in so many turns. keep: where
    earlier measurements may be used.
    """
    keep = keep or (lambda what, find, **about: find())

    longest = max(map(len, prompts))

    def find_costs() -> tuple[float, list[tuple[int, float]]]:
        found = measure_costs(target, draft_model, range(1, most + 2), longest, turns, **sampling)
        return found.c, [*found.v.items()]

    @cache
    def costs() -> tuple[float, dict[int, float]]:
        c, v = keep("costs", find_costs, most=most, context=longest, **sampling)
        return c, dict(v)

    trees = [name for name in drafters
             if DRAFTERS[name].takes == "shape" and DRAFTERS[name].needs_draft_model]
    if trees and "topology" not in given:
        find_tree = partial(best_topology, target, draft_model, prompts, **sampling)
        given = given | {"topology": keep("tree", find_tree, prompts=digest_of("", prompts),
                                          **sampling)}
    return given | {"costs": costs}


def takes_shape(drafter: str, branches: Sequence[Any]) -> bool:
    """Whether a drafter of this name drafts trees of such a shape: one that is given, or grown."""
    grown = any(isinstance(branch, dict) for branch in branches)
    entry = DRAFTERS[drafter]
    return entry.kind is DynamicTree if grown else entry.takes == "shape"


def topology_of(branches: Sequence[int | Topology | dict[str, int]] | None) -> dict:
    """The option for a tree whose nodes at depth d have branches[d] children, or a whole one; {}
    where none is given.

    RequestError if it has more nodes than can be verified. They are counted before they are built.
    """
    counts = [branch for branch in branches or () if isinstance(branch, int)]
    whole: list[Any] = [branch for branch in branches or () if not isinstance(branch, int)]
    if len(whole) + bool(counts) > 1:
        raise RequestError("--shape: a whole tree stands alone")
    for topology in whole:
        grown = isinstance(topology, dict)
        check_gamma(topology["count"] if grown else len(topology) - 1, "--shape")
        return {"grown" if grown else "topology": topology}
    level, tokens = 1, 0
    for branch in counts:
        level *= branch
        tokens = check_gamma(tokens + level, "--shape")
    return {"topology": shape(*counts)} if counts else {}


def best_topology(target: GPT, draft_model: Any, prompts: Sequence[Sequence[int]],
                  **sampling) -> Topology:
    """Sequoia's tree for this pair on this machine: acceptances counted, seconds measured. It takes
    a child to be accepted as often at every depth.
    """
    room = target.config.context - max(map(len, prompts))
    settings = {"max_new_tokens": max(1, min(96, room))} | sampling
    costs = measure_costs(target, draft_model, SIZES, len(prompts[0]), **sampling)
    with announced("measuring which tree is best", steps=len(prompts)) as step:
        accepted = measure_accepted(target, draft_model, prompts, step, **settings)
    seconds = {size: costs.seconds * costs.v[size] for size in SIZES}
    depths = range(2, 2 + longest_chain(draft_model, 6))
    return best_size(accepted, seconds, costs.seconds * costs.c, depths)[0]


def measure_accepted(target: GPT, draft_model: Any, prompts: Iterable[Sequence[int]],
                     step: Callable[[], None] = lambda: None, **settings) -> list[float]:
    """How often the i-th of CHILDREN is accepted: what Sequoia makes its tree from. step is called
    after each prompt.
    """
    drafter, paths = TreeDrafter(draft_model, shape(CHILDREN)), []
    for seed, ids in enumerate(prompts):
        paths += [done.path for done in speculate(target, drafter, ids, seed=seed, **settings)]
        step()
    return [sum(node in path for path in paths) / len(paths) for node in range(1, CHILDREN + 1)]
