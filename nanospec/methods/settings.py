"""What a drafter is made with: how many tokens, which tree, what calls cost, what it remembers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from nanospec.errors import RequestError, check_gamma, quoted
from nanospec.methods.trees.shapes import shape
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
            raise RequestError(f"costs are c and v(m) for every m, got {quoted(costs)}")
        c, v = costs or (0.1, {m: 1 + 0.05 * (m - 1) for m in calls})
        if any(m not in v for m in calls):
            raise RequestError(f"the costs of calls on 2 to {self.gamma + 1} tokens are needed, "
                               f"got {sorted(v)}")
        check_formula(c=c, **{f"v({m})": v[m] for m in calls})
        if not all(v[m] > 0 for m in calls):
            raise RequestError(f"a call takes time: every v(m) must be above 0, got {quoted(v)}")
        return c, {m: v[m] for m in calls}

    def seconds(self) -> Callable[[int, int], float]:
        """(rows, gamma) -> a round's, in target steps; of any number of texts as of one."""
        c, v = self.measured()
        return partial(steps_of_round, c, v)


def steps_of_round(c: float, v: Mapping[int, float], rows: int, gamma: int) -> float:
    return gamma * c + (v[gamma + 1] if gamma else 1.0)
