"""Several draft tokens at one place, drawn independently from one distribution: SpecTr's rule, and what any could do.

Sun et al. 2023 (arXiv 2310.15141, Algorithm 2). `k_seq` is the rule. How often one of the draft tokens is accepted is
computed without dice: at the very best, `best_acceptance`; by the node rule, which tries one after the other and goes
on with the residual, `sequential_acceptance`.
With p_target [.5, .5], q_draft [.8, .2] and two draft tokens, where one alone is accepted with .7:
    one after the other  .76     k_seq  .79     at the very best  .86     without replacement  1

Left out: the rule that reaches the optimum (a linear program over all V^k draws), and draft tokens behind these.
"""

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.errors import RequestError
from nanospec.probs import residual
from nanospec.theory import acceptance

LARGEST_V = 16      # 65,536 subsets


def k_seq(drawn: list[int], p_target: Tensor, q_draft: Tensor, dice: Dice) -> tuple[int | None, int]:
    """k-SEQ: accept the first of k draft tokens whose coin stands. Its index, or None, and the token that comes out.

    drawn: k tokens, each drawn from q_draft (V,), independently: of draws without replacement it would be wrong.
    p_target (V,). Takes one flip for each draft token up to the one accepted; if all are rejected, one pick.

    Every x has the same odds, min(1, p_target(x) / (rho q_draft(x))), in whichever place it was drawn; rho >= 1 holds
    them back so that k tries never give a token more than its share. One try emits y with min(q_draft, p_target / rho),
    whose sum is b; all of them with that times 1 + (1 - b) + ... + (1 - b)^(k - 1); the residual is what p_target has
    beyond it. Example: p_target [.5, .5], q_draft [.8, .2], k = 2: rho = 1.457, a draft token 0 is accepted with
    probability .429, a 1 always; if both are rejected, the residual is [0, 1], so token 1.
    """
    rho = least_rho(p_target, q_draft, len(drawn))
    for i, x in enumerate(drawn):
        if dice.flip((p_target[x] / (rho * q_draft[x])).view(1, 1)):
            return i, x
    one_try = q_draft.minimum(p_target / rho)
    tries = sum((1 - one_try.sum()) ** i for i in range(len(drawn)))
    return None, int(dice.pick(residual(p_target, one_try * tries)[None]))


def least_rho(p_target: Tensor, q_draft: Tensor, k: int) -> float:
    """The least rho in [1, k] at which no token comes out too often.

    One try is accepted with b = sum min(q_draft, p_target / rho), one of k tries with 1 - (1 - b)^k. Were that more
    than rho b, some token would come out too often; any greater rho is exact too and accepts no more. The one falls
    with rho, the other rises: bisection, returning the safe end.
    Example: p_target [.5, .5], q_draft [.8, .2] and k = 2 give 1.4568; there 1 - (1 - b)^2 = rho b = .7914.
    """
    low, high = 1.0, float(k)
    for _ in range(52):
        rho = (low + high) / 2
        b = acceptance(p_target / rho, q_draft).item()
        low, high = (low, rho) if 1 - (1 - b) ** k <= rho * b else (rho, high)
    return high


def best_acceptance(p_target: Tensor, q_draft: Tensor, k: int) -> float:
    """The greatest probability with which any exact rule accepts one of k independent draft tokens.

    p_target, q_draft (V,). It is the minimum over sets S of 1 + p_target(S) - q_draft(S)^k: all k fall into S with
    q_draft(S)^k, and of that no more than p_target(S) can be accepted. That nothing else stands in the way is
    max-flow = min-cut.
    Example: p_target [.5, .5], q_draft [.8, .2], k = 2: S = {0} gives 1 + .5 - .64 = .86; at k = 1 it is 1 - TV, .7.
    Raises RequestError where V exceeds 16: it looks at every S.
    """
    if len(p_target) > LARGEST_V:
        raise RequestError(f"the optimum looks at all 2^V sets of tokens: V at most {LARGEST_V}, got {len(p_target)}")
    p_of, q_of = torch.zeros(2, 1, dtype=p_target.dtype, device=p_target.device)           # of the empty set
    for p_x, q_x in zip(p_target, q_draft):                                                # without x, and with it
        p_of, q_of = torch.cat([p_of, p_of + p_x]), torch.cat([q_of, q_of + q_x])
    return (1 + p_of - q_of ** k).min().item()


def sequential_acceptance(p_target: Tensor, q_draft: Tensor, k: int, replacement: bool) -> float:
    """How often the node rule accepts one of k draft tokens: it tries each against what the rejected ones have left.

    p_target, q_draft (V,). replacement: the draft tokens are drawn independently; otherwise each from q_draft without
    those before it, renormalised (fewer than k where q_draft has fewer tokens), which walks all orders: V^(k-1) steps.
    Example: p_target [.5, .5], q_draft [.8, .2], k = 2: .7, and of the .3 rejected, whose residual is [0, 1], a second
    draft token from q_draft saves a fifth: .76. Without replacement it can only be token 1: always accepted.
    """
    beta = acceptance(p_target, q_draft).item()
    if k == 1:
        return beta
    p_next = residual(p_target, q_draft)
    if replacement:
        return beta + (1 - beta) * sequential_acceptance(p_next, q_draft, k - 1, replacement)
    for x, rejected in enumerate((q_draft - p_target).clamp(min=0).tolist()):              # drawn and rejected
        q_next = q_draft.index_fill(0, torch.tensor(x, device=q_draft.device), 0.0)
        if rejected > 0 and q_next.sum() > 0:
            beta += rejected * sequential_acceptance(p_next, q_next / q_next.sum(), k - 1, replacement)
    return beta
