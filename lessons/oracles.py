"""What lessons, exercises and the proof are compared with: several texts at once, a text that the target completes, a
mixture of two models, how much a rule and a tree accept.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import torch

from nanospec.probs import probs, residual
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import Distribution, target_distribution
from nanospec.theory import acceptance


def completed(found: Distribution, target, ids: Sequence[int], new: int, **settings) -> Distribution:
    """Every shorter outcome in `found` continued to `new` tokens by the target itself."""
    longer: Distribution = defaultdict(float)
    for tokens, weight in found.items():
        rest: Distribution = {(): 1.0}
        if len(tokens) < new:
            rest = target_distribution(target, [*ids, *tokens], new - len(tokens), **settings)
        for more, probability in rest.items():
            longer[tokens + more] += weight * probability
    return dict(longer)


def product_of(*parts: Distribution) -> Distribution:
    """The joint distribution of independent outcomes."""
    return {tuple(outcome for outcome, _ in outcomes): prod(probability for _, probability in outcomes)
            for outcomes in product(*(part.items() for part in parts))}


class Mixture:
    """The language model of a mixture of two tables. mix: (q_draft (..., V), p_target (..., V)) -> pi (..., V)."""

    def __init__(self, target: TableModel, draft_model: TableModel, mix: Callable):
        self.target, self.draft_model, self.mix = target, draft_model, mix
        self.config, self.new_cache = target.config, target.new_cache
        self.device, self.dtype = target.device, target.dtype

    def __call__(self, *call, layers: Sequence[int] = (), **more) -> torch.Tensor:
        p_target, q_draft = (model(*call, **more).softmax(-1) for model in (self.target, self.draft_model))
        return self.mix(q_draft, p_target).log()


def expected_accepted(target, draft_model, prefix: list[int], gamma: int, **settings) -> float:
    """Draft tokens accepted on average of gamma, after `prefix`, without a cache."""
    if gamma == 0:
        return 0.0
    p_target, q_draft = (probs(model(torch.tensor([prefix]))[0, -1], **settings) for model in (target, draft_model))
    return sum(weight * (1 + expected_accepted(target, draft_model, [*prefix, x], gamma - 1, **settings))
               for x, weight in enumerate(p_target.minimum(q_draft).tolist()) if weight > 0)


def best_acceptance(p_target: torch.Tensor, q_draft: torch.Tensor, k: int) -> float:
    """The greatest probability with which any exact rule accepts one of k independent draft tokens.

    p_target, q_draft (V,). The answer is the minimum of 1 + p_target(S) - q_draft(S)^k over all sets S of tokens, so V
    must be small.

    Claim: no exact rule does better.
    Proof.
    1. All k draft tokens lie in S with probability q_draft(S)^k. Then an accepted token lies in S, too.
    2. A token in S may come out with probability p_target(S), and no more.
    3. So a rule fails to accept with probability q_draft(S)^k - p_target(S) at least.
    Some rule does reach the minimum over S. This is the theorem max-flow = min-cut.
    Example: p_target [.5, .5], q_draft [.8, .2], k = 2. S = {0} gives 1 + .5 - .64 = .86. For k = 1 it is 1 - TV = .7.
    """
    p_of, q_of = torch.zeros(2, 1, dtype=p_target.dtype)                    # of the empty set
    for p_x, q_x in zip(p_target, q_draft):                                 # without x, and with it
        p_of, q_of = torch.cat([p_of, p_of + p_x]), torch.cat([q_of, q_of + q_x])
    return (1 + p_of - q_of ** k).min().item()


def sequential_acceptance(p_target: torch.Tensor, q_draft: torch.Tensor, k: int, replacement: bool,
                          tried: tuple[int, ...] = ()) -> float:
    """How often the node rule accepts one of k draft tokens. It tries each against what the rejected ones have left.

    p_target, q_draft (V,). replacement: the draft tokens are drawn independently. Otherwise each is drawn from q_draft
    without those `tried` before it, renormalised, or if nothing is left of it, evenly from all tokens that were not
    tried, as in trees/drawn.py. That walks all orders, in V^(k-1) steps.
    Example: p_target [.5, .5], q_draft [.8, .2], k = 2. The first draft token is accepted with .7. If it is rejected,
    with .3, [0, 1] is left. A second one from q_draft is then accepted with .2: in all .7 + .3 x .2 = .76. Without
    replacement the second one can only be token 1, which is always accepted: 1.
    """
    beta = acceptance(p_target, q_draft).item()
    if k == 1:
        return beta
    p_next = residual(p_target, q_draft)
    if replacement:
        return beta + (1 - beta) * sequential_acceptance(p_next, q_draft, k - 1, True)
    for x, rejected in enumerate((q_draft - p_target).clamp(min=0).tolist()):       # drawn and rejected
        now = torch.tensor([*tried, x])
        q_next, others = q_draft.index_fill(0, now, 0.0), torch.ones_like(q_draft).index_fill(0, now, 0.0)
        q_next = q_next if q_next.sum() > 0 else others
        if rejected > 0 and others.any():
            beta += rejected * sequential_acceptance(p_next, q_next / q_next.sum(), k - 1, False, (*tried, x))
    return beta


def expected_of(topology: Sequence[int], accepted: Sequence[float]) -> float:
    """Tokens that a round emits: for every node the chance that its whole path is accepted, added up.

    A node that is reached has its i-th child accepted with accepted[i]. The root counts 1, for the replacement or the
    bonus token. Example: expected_of(shape(2, 1), [.6, .2]) = 1 + .6 + .2 + .36 + .12 = 2.28.
    """
    chance = [1.0]                              # of every node
    children: Counter[int] = Counter()          # of every node, those met so far
    for parent in topology[1:]:
        chance.append(chance[parent] * accepted[children[parent]])
        children[parent] += 1
    return sum(chance)
