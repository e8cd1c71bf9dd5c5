"""The index of the rooms: every drafter and every rule, by name.

Not part of the core: nothing that stands below imports it. A new drafter is one file and one line
here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nanospec.cache import LanguageModel
from nanospec.draft import Drafter, Rule
from nanospec.errors import RequestError
from nanospec.methods.copies.hybrid import Hybrid
from nanospec.methods.copies.lookahead import Lookahead
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.copies.suffix import SuffixDrafter
from nanospec.methods.copies.token_recycling import TokenRecycling
from nanospec.methods.lengths.by_load import ByLoad
from nanospec.methods.lengths.by_survival import BySurvival
from nanospec.methods.lengths.dynamic import DynamicDrafter
from nanospec.methods.lengths.stopping import Confidence, Entropy, Goodput, Heuristic
from nanospec.methods.rules.block import verify_block
from nanospec.methods.rules.traversal import verify_traversal
from nanospec.methods.settings import GAMMA, Options
from nanospec.methods.stack import Stack
from nanospec.methods.trees.drawn import TopTree, TreeDrafter
from nanospec.methods.trees.dynamic_tree import DynamicTree
from nanospec.methods.trees.tree_reader import longest_chain
from nanospec.speculate import ModelDrafter, Round, speculate


class Entry:
    """A drafter's class, how one is made of a draft model, and what the class says of itself.

    takes: what says how much it drafts: "gamma", a "shape", or "", where it alone does.
    needs_draft_model: whether it is made with one.
    learns: what of a draft depends on earlier rounds: its "length", its "tokens", or "", nothing.
    looks_around: whether a draft's length depends on the other texts of the batch.
    remembers: whether it copies from earlier requests, too.
    What it does not say is as of a chain of gamma draft tokens.
    """

    def __init__(self, kind: Any, make: Callable[[Any, Options], Drafter]):
        self.kind, self.make = kind, make
        self.takes: str = getattr(kind, "takes", "gamma")
        self.needs_draft_model: bool = getattr(kind, "needs_draft_model", True)
        self.learns: str = getattr(kind, "learns", "")
        self.looks_around: bool = getattr(kind, "looks_around", False)
        self.remembers: bool = getattr(kind, "remembers", False)


def _dynamic(rule: Callable[[Options], Any]) -> Entry:
    return Entry(DynamicDrafter, lambda model, o: DynamicDrafter(model, rule(o), o.gamma))


def _hybrid(draft_model: Any, o: Options) -> Drafter:
    return Hybrid(ByLoad(draft_model, o.seconds(), longest_chain(draft_model, min(o.gamma, GAMMA))),
                  o.measured()[1], o.remember)


DRAFTERS: dict[str, Entry] = {
    "chain": Entry(ModelDrafter, lambda model, o: ModelDrafter(model, o.gamma)),
    "heuristic": _dynamic(lambda o: Heuristic()),
    "confidence": _dynamic(lambda o: Confidence()),
    "entropy": _dynamic(lambda o: Entropy()),
    "goodput": _dynamic(lambda o: Goodput(*o.measured())),
    "by-load": Entry(ByLoad, lambda model, o: ByLoad(model, o.seconds(), o.gamma)),
    "by-survival": Entry(BySurvival, lambda model, o: BySurvival(model, o.gamma)),
    "tree": Entry(TreeDrafter, lambda model, o: TreeDrafter(model, o.topology)),
    "independent": Entry(TreeDrafter,
                         lambda model, o: TreeDrafter(model, o.topology, independent=True)),
    "top": Entry(TopTree, lambda model, o: TopTree(model, o.topology)),
    "dynamic-tree": Entry(
        DynamicTree, lambda model, o: DynamicTree(model, **{"count": o.gamma, **o.grown})),
    "lookup": Entry(PromptLookup, lambda model, o: PromptLookup(o.gamma)),
    "suffix": Entry(SuffixDrafter, lambda model, o: SuffixDrafter(o.gamma, remember=o.remember)),
    "suffix-tree": Entry(SuffixDrafter, lambda model, o: SuffixDrafter(
        o.gamma, tree=True, remember=o.remember)),
    "lookahead": Entry(Lookahead, lambda model, o: Lookahead()),
    "recycling": Entry(TokenRecycling, lambda model, o: TokenRecycling(o.topology)),
    "stack": Entry(Stack, lambda model, o: Stack(model, PromptLookup(o.gamma), o.gamma)),
    "hybrid": Entry(Hybrid, _hybrid),
}
WITHOUT_DRAFT_MODEL = [name for name, entry in DRAFTERS.items() if not entry.needs_draft_model]
REMEMBERING = [name for name, entry in DRAFTERS.items() if entry.remembers]
RULES: dict[str, Rule | None] = {"token": None, "block": verify_block,
                                 "traversal": verify_traversal}
"""None: the drafter's own, which judges token by token."""


def is_fixed(drafter: str, rule: str) -> bool:
    """Whether all rounds have the same operations and shapes, so that they can be compiled."""
    kind, judge = DRAFTERS[drafter].kind, RULES[rule]
    chain = kind.rule is None
    return kind.fixed and (judge is None or chain and getattr(judge, "fixed_for_chains", False))


def most_drafted(drafter: str, draft_model: Any, most: int = GAMMA) -> int:
    """`most` draft tokens a round, or if this drafter makes chains, as many as the model can."""
    is_chain = issubclass(DRAFTERS[drafter].kind, ModelDrafter)
    return longest_chain(draft_model, most) if is_chain else most


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


def method_of(target: LanguageModel, draft_model: Any, drafter: str = "chain", rule: str = "token",
              **options) -> Method:
    """A drafter and a rule by their names; options: gamma, topology, costs, remember, as in
    Options.

    RequestError for a name that is not known, and for a size that cannot be.
    """
    for name, names in (drafter, DRAFTERS), (rule, RULES):
        if not isinstance(name, str) or name not in names:
            raise RequestError(f"no {name!r} here: there are {', '.join(names)}")
    make = partial(DRAFTERS[drafter].make, draft_model, Options(**options))

    def run(ids: Sequence[int], **request) -> Iterator[Round]:
        used = make()
        return speculate(target, used, ids, **{"rule": RULES[rule]} | request)

    return Method(drafter, rule, make().most, make, run)
