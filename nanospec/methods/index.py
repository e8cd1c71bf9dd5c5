"""The index of the rooms: every drafter and every rule that demo.py and the bench know by name.

Not part of the core: nothing that stands below imports it. A new drafter is one file and one row
here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from nanospec.cache import LanguageModel
from nanospec.draft import Drafter, Rule
from nanospec.errors import RequestError, check_gamma, one_line
from nanospec.methods.copies.hybrid import Hybrid
from nanospec.methods.copies.lookahead import Lookahead
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.copies.suffix import SuffixDrafter
from nanospec.methods.draft_models.early_exit import target_for
from nanospec.methods.lengths.by_load import ByLoad
from nanospec.methods.lengths.by_survival import BySurvival
from nanospec.methods.lengths.dynamic import DynamicDrafter
from nanospec.methods.lengths.stopping import Confidence, Entropy, Goodput, Heuristic
from nanospec.methods.rules.block import verify_block
from nanospec.methods.rules.traversal import verify_traversal
from nanospec.methods.stack import Stack
from nanospec.methods.trees.drawn import TopTree, TreeDrafter
from nanospec.methods.trees.dynamic_tree import DynamicTree
from nanospec.methods.trees.shapes import shape
from nanospec.methods.trees.tree_reader import longest_chain
from nanospec.speculate import ModelDrafter, Round, speculate
from nanospec.theory import check_formula

GAMMA = 8                       # draft tokens a round, where neither the user nor a formula decides
StepCosts = tuple[float, Mapping[int, float]]           # c, and v(m) of each m


@dataclass
class Options:
    """What the user may choose.

    gamma: the most draft tokens a round. topology: the shape of a tree. grown: count, width and
    depth of one that is grown, as DynamicTree takes them, where gamma alone does not say it. costs:
    c, and v(m) for every m from 2 to gamma + 1, or a function that measures them when a drafter
    asks; None: those of a plausible machine.
    remember: how many tokens of earlier requests a drafter that copies keeps.
    """

    gamma: int = GAMMA
    topology: Sequence[int] = tuple(shape(2, 1, 1))
    grown: Mapping[str, int] = field(default_factory=dict)
    costs: StepCosts | Callable[[], StepCosts] | None = None
    remember: int = 0

    def measured(self) -> tuple[float, dict[int, float]]:
        """c, and v(m) of every call that a draft of gamma tokens may lead to."""
        calls = range(2, check_gamma(self.gamma, "gamma") + 2)
        costs = self.costs() if callable(self.costs) else self.costs
        if costs is not None and not (isinstance(costs, tuple) and len(costs) == 2
                                      and isinstance(costs[1], Mapping)):
            raise RequestError(f"costs are c and v(m) for every m, got {one_line(repr(costs))}")
        c, v = costs or (0.1, {m: 1 + 0.05 * (m - 1) for m in calls})
        if any(m not in v for m in calls):
            raise RequestError(f"the costs of calls on 2 to {self.gamma + 1} tokens are needed, "
                               f"got {sorted(v)}")
        return c, {m: v[m] for m in calls}

    def seconds(self) -> Callable[[int, int], float]:
        """(rows, gamma) -> a round's, in target steps; of any number of texts as of one."""
        c, v = self.measured()
        check_formula(c=c)

        def of_round(rows: int, gamma: int) -> float:
            return gamma * c + (v[gamma + 1] if gamma else 1.0)

        return of_round


class Entry(NamedTuple):
    """A drafter's class, which knows the facts (`fixed`, `sized_by`), and how one is made of a
    draft model.

    needs_draft: False for one that is made without a draft model.
    """

    kind: Any
    make: Callable[[Any, Options], Drafter]
    needs_draft: bool = True

    @property
    def sized_by(self) -> str:
        """What says how many tokens it drafts: "gamma", a "topology", or "itself" alone."""
        return getattr(self.kind, "sized_by", "gamma")


def _dynamic(rule: Callable[[Options], Any]) -> Entry:
    return Entry(DynamicDrafter, lambda draft, o: DynamicDrafter(draft, rule(o), o.gamma))


def _hybrid(draft: Any, o: Options) -> Drafter:
    return Hybrid(ByLoad(draft, o.seconds(), longest_chain(draft, min(o.gamma, GAMMA))),
                  o.measured()[1], o.remember)


DRAFTERS: dict[str, Entry] = {
    "chain": Entry(ModelDrafter, lambda draft, o: ModelDrafter(draft, o.gamma)),
    "heuristic": _dynamic(lambda o: Heuristic()),
    "confidence": _dynamic(lambda o: Confidence()),
    "entropy": _dynamic(lambda o: Entropy()),
    "goodput": _dynamic(lambda o: Goodput(*o.measured())),
    "by-load": Entry(ByLoad, lambda draft, o: ByLoad(draft, o.seconds(), o.gamma)),
    "by-survival": Entry(BySurvival, lambda draft, o: BySurvival(draft, o.gamma)),
    "tree": Entry(TreeDrafter, lambda draft, o: TreeDrafter(draft, o.topology)),
    "independent": Entry(TreeDrafter,
                         lambda draft, o: TreeDrafter(draft, o.topology, independent=True)),
    "top": Entry(TopTree, lambda draft, o: TopTree(draft, o.topology)),
    "dynamic-tree": Entry(
        DynamicTree, lambda draft, o: DynamicTree(draft, **{"count": o.gamma, **o.grown})),
    "lookup": Entry(PromptLookup, lambda draft, o: PromptLookup(o.gamma), needs_draft=False),
    "suffix": Entry(SuffixDrafter, lambda draft, o: SuffixDrafter(o.gamma, remember=o.remember),
                    needs_draft=False),
    "suffix-tree": Entry(SuffixDrafter, lambda draft, o: SuffixDrafter(
        o.gamma, tree=True, remember=o.remember), needs_draft=False),
    "lookahead": Entry(Lookahead, lambda draft, o: Lookahead(), needs_draft=False),
    "stack": Entry(Stack, lambda draft, o: Stack(draft, PromptLookup(o.gamma), o.gamma)),
    "hybrid": Entry(Hybrid, _hybrid),
}
WITHOUT_DRAFT = [name for name, entry in DRAFTERS.items() if not entry.needs_draft]
REMEMBERING = [name for name, entry in DRAFTERS.items()
               if "memory" in getattr(entry.kind, "per_row", ())]
RULES: dict[str, Rule | None] = {"token": None, "block": verify_block,
                                 "traversal": verify_traversal}
"""None: the drafter's own, which judges token by token."""


def check_fixed(drafters: Iterable[str], rules: Iterable[str], option: str) -> None:
    """RequestError unless all rounds have the same operations and shapes, to be compiled."""
    for drafter, rule in product(drafters, rules):
        entry = DRAFTERS[drafter]
        # Of a tree it is traversal.
        branches = rule == "traversal" or rule == "block" and drafter != "chain"
        if branches or not entry.kind.fixed:
            names = ", ".join(name for name, entry in DRAFTERS.items() if entry.kind.fixed)
            raise RequestError(f"{option} is for rounds without a branch: drafters {names}, by "
                               f"rule token; a chain by rule block, too; not for {drafter} by rule "
                               f"{rule}")


def check_remember(drafters: Iterable[str], remember: int) -> None:
    """RequestError if one that is to remember copies from no earlier request."""
    others = [name for name in drafters if name not in REMEMBERING]
    if remember and others:
        raise RequestError("--remember is for drafters that copy from earlier requests: "
                           f"{', '.join(REMEMBERING)}; not for {others[0]}")


def most_drafted(drafter: str, draft: Any, most: int = GAMMA) -> int:
    """`most` draft tokens a round, or if this drafter makes chains, as many as the model can."""
    return longest_chain(draft, most) if issubclass(DRAFTERS[drafter].kind, ModelDrafter) else most


@dataclass
class Method:
    """gamma: the most draft tokens a round. make: a new drafter of this kind. run: (ids,
    **request), the request as `speculate` takes it: its rounds, by a new drafter.
    """

    drafter: str
    rule: str
    gamma: int
    make: Callable[[], Drafter]
    run: Callable[..., Iterator[Round]]

    @property
    def name(self) -> str:
        return f"{self.drafter} {self.gamma}" + f", {self.rule}" * (self.rule != "token")


def method_of(target: LanguageModel, draft: Any, drafter: str = "chain", rule: str = "token",
              **options) -> Method:
    """A drafter and a rule by their names; options: gamma, topology, costs, remember, as in
    Options.

    RequestError for a name that is not known, and for a size that cannot be.
    """
    for name, names in (drafter, DRAFTERS), (rule, RULES):
        if not isinstance(name, str) or name not in names:
            raise RequestError(f"no {name!r} here: there are {', '.join(names)}")
    make = partial(DRAFTERS[drafter].make, draft, Options(**options))

    def run(ids: Sequence[int], **request) -> Iterator[Round]:
        used = make()
        return speculate(target_for(target, used), used, ids, **{"rule": RULES[rule]} | request)

    return Method(drafter, rule, make().most, make, run)
