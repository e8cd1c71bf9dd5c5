"""Every way to speculate that demo.py and the bench know by name: who guesses (a drafter) and who decides (a rule)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from nanospec.drafters.dynamic import DynamicDrafter
from nanospec.drafters.lookahead import Lookahead
from nanospec.drafters.lookup import PromptLookup
from nanospec.drafters.merged import MergedDrafter
from nanospec.topology import shape
from nanospec.drafters.stopping import Confidence, Entropy, Goodput, Heuristic
from nanospec.drafters.suffix import SuffixDrafter
from nanospec.drafters.tree import TreeDrafter
from nanospec.errors import RequestError
from nanospec.model import GPT
from nanospec.rules.block import verify_block
from nanospec.rules.traversal import verify_traversal
from nanospec.rules.tree import speculate_tree, verify_tree
from nanospec.speculate import ModelDrafter, Round, speculate, verify

Run = Callable[..., Iterator[Round]]        # (ids, **request), the request as `speculate` takes it

CHAIN_RULES = {"token": verify, "block": verify_block}
TREE_RULES = {"token": verify_tree, "traversal": verify_traversal}
RULES = [*CHAIN_RULES, "traversal"]

GUESSES = 8             # a round, where nobody says how many and no formula does
SHAPED = ("tree", "independent")                                # these want a topology,
SIZED = (*SHAPED, "lookahead")                                  # these have a size of their own, the others a gamma
DYNAMIC = ("heuristic", "confidence", "entropy", "goodput")     # these decide their length on the way
PLAUSIBLE = 0.1, {m: 1 + 0.05 * (m - 1) for m in range(1, 65)}


@dataclass
class Setting:
    """What a drafter can be made of.

    gamma: the most guesses a round. topology: the shape of a tree. costs: c, and v(m) for every m up to gamma + 1.
    """

    draft: GPT
    gamma: int = GUESSES
    topology: Sequence[int] = tuple(shape(2, 1, 1))
    costs: tuple[float, Mapping[int, float]] = PLAUSIBLE


# Drafters of chains, and of trees, by name.
CHAINS: dict[str, Callable[[Setting], ModelDrafter]] = {
    "chain": lambda s: ModelDrafter(s.draft),
    "heuristic": lambda s: DynamicDrafter(s.draft, Heuristic()),
    "confidence": lambda s: DynamicDrafter(s.draft, Confidence()),
    "entropy": lambda s: DynamicDrafter(s.draft, Entropy()),
    "goodput": lambda s: DynamicDrafter(s.draft, Goodput(
        s.costs[0], {tokens: s.costs[1][tokens] for tokens in range(2, s.gamma + 2)})),
}
TREES: dict[str, Callable[[Setting], object]] = {
    "tree": lambda s: TreeDrafter(s.draft, s.topology),
    "independent": lambda s: TreeDrafter(s.draft, s.topology, independent=True),
    "lookup": lambda s: PromptLookup(s.gamma),
    "suffix": lambda s: SuffixDrafter(s.gamma),
    "suffix-tree": lambda s: SuffixDrafter(s.gamma, tree=True),
    "lookahead": lambda s: Lookahead(),
    "merged": lambda s: MergedDrafter([TreeDrafter(s.draft, shape(*[1] * min(s.gamma, 4))), PromptLookup(s.gamma)]),
}
DRAFTERS = [*CHAINS, *TREES]


@dataclass
class Method:
    """gamma: the most guesses a round."""

    drafter: str
    rule: str
    gamma: int
    run: Run

    @property
    def name(self) -> str:
        return f"{self.drafter} {self.gamma}" + f", {self.rule}" * (self.rule != "token")


def method_of(target: GPT, draft: GPT, drafter: str = "chain", rule: str = "token", **setting) -> Method:
    """A drafter and a rule by their names; setting: gamma, topology, costs, as in Setting.

    Raises RequestError for a gamma below 1, and for a rule that does not judge what this drafter makes.
    """
    setting = Setting(draft, **setting)
    if setting.gamma < 1:
        raise RequestError(f"gamma must be at least 1, got {setting.gamma}")
    make = partial((CHAINS | TREES)[drafter], setting)
    if drafter in CHAINS:
        rules, gamma = CHAIN_RULES, setting.gamma

        def run(ids, **request):
            return speculate(target, make(), ids, gamma, **request)
    else:
        rules, gamma = TREE_RULES, make().size - 1

        def run(ids, **request):
            return speculate_tree(target, make(), ids, **request)
    if rule not in rules:
        raise RequestError(f"the rule {rule!r} does not judge what {drafter!r} drafts: {' or '.join(rules)} does")
    return Method(drafter, rule, gamma, partial(run, rule=rules[rule]))
