"""Every way to speculate that demo.py and the bench know by name: who drafts, and which rule decides."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import NamedTuple

from nanospec.cache import LanguageModel
from nanospec.draft import Drafter, Rule, check_size
from nanospec.draft_models import DraftModel
from nanospec.draft_models.gpt import reader_of
from nanospec.draft_models.reader import longest_chain
from nanospec.drafters.by_load import ByLoad
from nanospec.drafters.by_survival import BySurvival
from nanospec.drafters.dynamic import DynamicDrafter
from nanospec.drafters.dynamic_tree import BudgetTree, DynamicTree
from nanospec.drafters.hybrid import Hybrid
from nanospec.drafters.lookahead import Lookahead
from nanospec.drafters.lookup import PromptLookup
from nanospec.drafters.merged import MergedDrafter
from nanospec.drafters.stack import Stack
from nanospec.drafters.stopping import Confidence, Entropy, Goodput, Heuristic, StoppingRule
from nanospec.drafters.suffix import SuffixDrafter
from nanospec.drafters.top import TopTree
from nanospec.drafters.tree import TreeDrafter
from nanospec.errors import RequestError
from nanospec.rules.block import verify_block
from nanospec.rules.traversal import verify_traversal
from nanospec.speculate import ModelDrafter, Round, speculate, verify
from nanospec.topology import shape

Run = Callable[..., Iterator[Round]]        # (ids, **request), the request as `speculate` takes it
GAMMA = 8                                   # draft tokens a round, where nobody says how many and no formula does


@dataclass
class Setting:
    """What a drafter can be made of.

    gamma: the most draft tokens a round. topology: the shape of a tree. costs: c, and v(m) for every m from 2 to
    gamma + 1; by default a plausible machine's.
    """

    draft: DraftModel
    gamma: int = GAMMA
    topology: Sequence[int] = tuple(shape(2, 1, 1))
    costs: tuple[float, Mapping[int, float]] | None = None

    def measured(self) -> tuple[float, dict[int, float]]:
        """c, and v(m) of every call that a draft of gamma tokens may lead to."""
        tokens = range(2, check_size(self.gamma + 1, "gamma") + 1)
        c, v = self.costs or (0.1, {m: 1 + 0.05 * (m - 1) for m in tokens})
        if any(m not in v for m in tokens):
            raise RequestError(f"the costs of calls on 2 to {self.gamma + 1} tokens are wanted, got {sorted(v)}")
        return c, {m: v[m] for m in tokens}

    def seconds(self) -> Callable[[int, int], float]:
        """(rows, gamma) -> a round's, in target steps; of any number of texts as of one."""
        c, v = self.measured()
        return lambda rows, gamma: gamma * c + (v[gamma + 1] if gamma else 1.0)


class Way(NamedTuple):
    """How a drafter is made, and what can be said of it beforehand.

    size: what says how many tokens it drafts: a gamma, a shape, or itself alone.
    dynamic: it is a chain that decides its length on the way.
    costs: it decides by what calls cost.
    fixed: every draft has the same shape.
    """

    make: Callable[[Setting], Drafter]
    size: str = "gamma"
    dynamic: bool = False
    costs: bool = False
    fixed: bool = False


def _dynamic(rule: Callable[[Setting], StoppingRule], costs: bool = False) -> Way:
    return Way(lambda s: DynamicDrafter(s.draft, rule(s), s.gamma), dynamic=True, costs=costs)


def _hybrid(s: Setting) -> Drafter:
    chain = longest_chain(reader_of(s.draft), min(s.gamma, GAMMA))
    return Hybrid(ByLoad(s.draft, s.seconds(), chain), s.measured()[1])


DRAFTERS: dict[str, Way] = {
    "chain": Way(lambda s: ModelDrafter(s.draft, s.gamma), fixed=True),
    "heuristic": _dynamic(lambda s: Heuristic()),
    "confidence": _dynamic(lambda s: Confidence()),
    "entropy": _dynamic(lambda s: Entropy()),
    "goodput": _dynamic(lambda s: Goodput(*s.measured()), costs=True),
    "by-load": Way(lambda s: ByLoad(s.draft, s.seconds(), s.gamma), dynamic=True, costs=True),
    "by-survival": Way(lambda s: BySurvival(s.draft, s.gamma)),
    "tree": Way(lambda s: TreeDrafter(s.draft, s.topology), "shape", fixed=True),
    "independent": Way(lambda s: TreeDrafter(s.draft, s.topology, independent=True), "shape", fixed=True),
    "top": Way(lambda s: TopTree(s.draft, s.topology), "shape", fixed=True),
    "dynamic-tree": Way(lambda s: DynamicTree(s.draft, s.gamma), fixed=True),
    "budget-tree": Way(lambda s: BudgetTree(s.draft, s.measured(), s.gamma), costs=True),
    "lookup": Way(lambda s: PromptLookup(s.gamma)),
    "suffix": Way(lambda s: SuffixDrafter(s.gamma)),
    "suffix-tree": Way(lambda s: SuffixDrafter(s.gamma, tree=True)),
    "lookahead": Way(lambda s: Lookahead(), "itself"),
    "stack": Way(lambda s: Stack(s.draft, PromptLookup(s.gamma), s.gamma)),
    "hybrid": Way(_hybrid, costs=True),
    "merged": Way(lambda s: MergedDrafter([ModelDrafter(s.draft, min(s.gamma, 4)), PromptLookup(s.gamma)])),
}
RULES: dict[str, Rule] = {"token": verify, "block": verify_block, "traversal": verify_traversal}


def check_fixed(drafters: Iterable[str], rules: Iterable[str], option: str) -> None:
    """Raise RequestError unless every round does the same operations, whatever it finds: then it can be captured."""
    for drafter, rule in product(drafters, rules):
        way = DRAFTERS[drafter]
        branches = rule == "traversal" or (rule, way.size) == ("block", "shape")        # which is traversal, too
        if branches or not way.fixed:
            names = ", ".join(name for name, way in DRAFTERS.items() if way.fixed)
            raise RequestError(f"{option} is for rounds without a branch: drafters {names}, by rule token; a chain by "
                               f"rule block, too; not for {drafter} by rule {rule}")


def most_drafted(drafter: str, draft: DraftModel, most: int = GAMMA) -> int:
    """`most` draft tokens a round, or as many as the draft model can say, if this drafter makes a chain of them."""
    chain = drafter == "chain" or DRAFTERS[drafter].dynamic
    return longest_chain(reader_of(draft), most) if chain else most


@dataclass
class Method:
    """gamma: the most draft tokens a round. make: a new drafter of this kind. run: a whole request with a new one."""

    drafter: str
    rule: str
    gamma: int
    make: Callable[[], Drafter]
    run: Run

    @property
    def name(self) -> str:
        return f"{self.drafter} {self.gamma}" + f", {self.rule}" * (self.rule != "token")


def method_of(target: LanguageModel, draft: DraftModel, drafter: str = "chain", rule: str = "token",
              **setting) -> Method:
    """A drafter and a rule by their names; setting: gamma, topology, costs, as in Setting.

    Raises RequestError for a name that is not known, and for a size that cannot be.
    """
    for name, names in (drafter, DRAFTERS), (rule, RULES):
        if name not in names:
            raise RequestError(f"no {name!r} here: there is {', '.join(names)}")
    make = partial(DRAFTERS[drafter].make, Setting(draft, **setting))

    def run(ids: Sequence[int], **request) -> Iterator[Round]:
        return speculate(target, make(), ids, **{"rule": RULES[rule]} | request)

    return Method(drafter, rule, make().size - 1, make, run)
