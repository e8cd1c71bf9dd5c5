"""Several draft tokens at one place, drawn independently from one distribution: SpecTr's rule, and
its limits.

Sun et al. 2023 (arXiv 2310.15141, Algorithm 2). `k_seq` is the rule. Two functions compute how
often one of the draft tokens is accepted. They need no dice. `best_acceptance` is the most that any
rule reaches. `sequential_acceptance` is what the node rule reaches, which tries one draft token
after the other, each against the residual distribution.
Example: p_target [.5, .5], q_draft [.8, .2]. One draft token is accepted with .7. One of two is
accepted with:
    one after the other  .76     k_seq  .79     at the very best  .86     without replacement  1

Left out: the rule that reaches the optimum (a linear program over all V^k draws), and draft tokens
after these.
"""

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.errors import RequestError, check_gamma
from nanospec.probs import residual
from nanospec.theory import acceptance

LARGEST_V = 16      # 65,536 subsets


def k_seq(drawn: list[int], p_target: Tensor, q_draft: Tensor,
          dice: Dice) -> tuple[int | None, int]:
    """k-SEQ: try k draft tokens in turn, and accept the first whose coin says so. Its index or
    None, and the token.

    drawn: k tokens, each drawn from q_draft (V,), independently. For draws without replacement the
    rule is wrong. p_target (V,). Takes one flip for each draft token up to the accepted one. If all
    are rejected, takes one pick.

    Claim: the token is distributed as p_target.
    Proof.
    1. A draft token x is accepted with min(1, p_target(x) / (rho q_draft(x))), in whichever try it
       comes.
    2. So one try emits y with probability one_try(y) = min(q_draft(y), p_target(y) / rho). The sum
       over y is b.
    3. Try i takes place if all before it have rejected: with probability (1 - b)^(i - 1).
    4. So all tries together emit y with one_try(y) (1 + (1 - b) + ... + (1 - b)^(k - 1)).
    5. rho is large enough that this is at most p_target(y). See `least_rho`.
    6. If all are rejected, the residual distribution adds to each y just what p_target(y) has
       beyond that.
    Example: p_target [.5, .5], q_draft [.8, .2], k = 2 give rho = 1.457. A draft token 0 is
    accepted with probability .429, and a draft token 1 always. If both are rejected, the residual
    distribution is [0, 1], so token 1.
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

    1. One try is accepted with b = sum min(q_draft, p_target / rho). One of k tries is accepted
       with 1 - (1 - b)^k.
    2. If 1 - (1 - b)^k is more than rho b, some token comes out too often: one with p_target(x) /
       rho <= q_draft(x).
    3. When rho grows, 1 - (1 - b)^k falls and rho b grows. So a greater rho is exact too, and
       accepts no more.
    4. The least rho is where the two meet. Bisection finds it, and returns the safe end.
    Example: p_target [.5, .5], q_draft [.8, .2] and k = 2 give 1.4568. There 1 - (1 - b)^2 = rho b
    = .7914.
    """
    check_gamma(k, "k")
    low, high = 1.0, float(k)
    for _ in range(52):
        rho = (low + high) / 2
        b = acceptance(p_target / rho, q_draft).item()
        low, high = (low, rho) if 1 - (1 - b) ** k <= rho * b else (rho, high)
    return high


def best_acceptance(p_target: Tensor, q_draft: Tensor, k: int) -> float:
    """The greatest probability with which any exact rule accepts one of k independent draft tokens.

    p_target, q_draft (V,). The answer is the minimum of 1 + p_target(S) - q_draft(S)^k over all
    sets S of tokens.

    Claim: no exact rule does better.
    Proof.
    1. All k draft tokens lie in S with probability q_draft(S)^k. Then an accepted token lies in S,
       too.
    2. A token in S may come out with probability p_target(S), and no more.
    3. So a rule fails to accept with probability q_draft(S)^k - p_target(S) at least.
    Some rule does reach the minimum over S. This is the theorem max-flow = min-cut.
    Example: p_target [.5, .5], q_draft [.8, .2], k = 2. S = {0} gives 1 + .5 - .64 = .86. For k = 1
    it is 1 - TV = .7. Raises RequestError where V exceeds 16, because it looks at every S.
    """
    check_gamma(k, "k")
    if len(p_target) > LARGEST_V:
        raise RequestError(f"the optimum looks at all 2^V sets of tokens: V at most {LARGEST_V}, "
                           f"got {len(p_target)}")
    p_of, q_of = torch.zeros(2, 1, dtype=p_target.dtype, device=p_target.device)  # of the empty set
    for p_x, q_x in zip(p_target, q_draft):                                 # without x, and with it
        p_of, q_of = torch.cat([p_of, p_of + p_x]), torch.cat([q_of, q_of + q_x])
    return (1 + p_of - q_of ** k).min().item()


def sequential_acceptance(p_target: Tensor, q_draft: Tensor, k: int, replacement: bool) -> float:
    """How often the node rule accepts one of k draft tokens. It tries each against what the
    rejected ones have left.

    p_target, q_draft (V,). replacement: the draft tokens are drawn independently. Otherwise each is
    drawn from q_draft without those before it, renormalised, or if nothing is left of it, evenly
    from all tokens that were not tried, as in drawn.py. That walks all orders, in V^(k-1) steps.
    Example: p_target [.5, .5], q_draft [.8, .2], k = 2. The first draft token is accepted with .7.
    If it is rejected, with .3, [0, 1] is left. A second one from q_draft is then accepted with .2:
    in all .7 + .3 x .2 = .76. Without replacement the second one can only be token 1, which is
    always accepted: 1.
    """
    check_gamma(k, "k")
    tried = torch.zeros_like(q_draft, dtype=torch.bool)
    return _accepted_in_turn(p_target, q_draft, k, None if replacement else tried)


def _accepted_in_turn(p_target: Tensor, q_draft: Tensor, k: int, tried: Tensor | None) -> float:
    """tried (V,): the tokens drawn before, none of which is drawn again; None: with replacement."""
    beta = acceptance(p_target, q_draft).item()
    if k == 1:
        return beta
    p_next = residual(p_target, q_draft)
    if tried is None:
        return beta + (1 - beta) * _accepted_in_turn(p_next, q_draft, k - 1, tried)
    for x, rejected in enumerate((q_draft - p_target).clamp(min=0).tolist()):   # drawn and rejected
        now = tried.index_fill(0, torch.tensor(x, device=tried.device), True)
        q_next = torch.where(now, 0.0, q_draft)
        q_next = q_next if q_next.sum() > 0 else (~now).to(q_draft)
        if rejected > 0 and not now.all():
            beta += rejected * _accepted_in_turn(p_next, q_next / q_next.sum(), k - 1, now)
    return beta
