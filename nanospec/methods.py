"""Every way to speculate that demo.py and the bench know by name: who guesses (a drafter) and who decides (a rule)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from nanospec.drafters.sequoia import Topology, shape
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

# By name: a drafter of trees out of the draft model, the most guesses a round, and the shape of a tree.
TREES: dict[str, Callable[[GPT, int, Topology], object]] = {
    "tree": lambda draft, gamma, topology: TreeDrafter(draft, topology),
    "independent": lambda draft, gamma, topology: TreeDrafter(draft, topology, independent=True),
}
DRAFTERS = ["chain", *TREES]
GUESSES = 8             # a round, where nobody says how many and no formula does
SHAPED = ("tree", "independent")        # these want a topology, the others a gamma


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


def method_of(target: GPT, draft: GPT, drafter: str = "chain", rule: str = "token", gamma: int = 4,
              topology: Sequence[int] = tuple(shape(2, 1, 1))) -> Method:
    """A drafter and a rule by their names. gamma: guesses a round; topology: of a tree, whose size then is the gamma.

    Raises RequestError for a rule that does not judge what this drafter makes.
    """
    if drafter == "chain":
        rules, run = CHAIN_RULES, lambda ids, **request: speculate(target, ModelDrafter(draft), ids, gamma, **request)
    else:
        make = partial(TREES[drafter], draft, gamma, list(topology))
        rules, run = TREE_RULES, lambda ids, **request: speculate_tree(target, make(), ids, **request)
        gamma = make().size - 1
    if rule not in rules:
        raise RequestError(f"the rule {rule!r} does not judge what {drafter!r} drafts: {' or '.join(rules)} does")
    return Method(drafter, rule, gamma, partial(run, rule=rules[rule]))
