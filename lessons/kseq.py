"""Several draft tokens at one place, drawn independently from one distribution: SpecTr's rule.

Sun et al. 2023 (arXiv 2310.15141, Algorithm 2). It is exact, and no drafter uses it. The lesson
*How close a rule can come* computes how near it comes to the most that any rule can accept.
Example: p_target [.5, .5], q_draft [.8, .2]. One draft token is accepted with .7. One of two is
accepted with:
    one after the other  .76     k_seq  .79     at the very best  .86     without replacement  1

Left out: the rule that reaches the optimum (a linear program over all V^k draws), and draft tokens
after these.
"""

from torch import Tensor

from nanospec.dice import Dice
from nanospec.errors import check_gamma
from nanospec.probs import residual
from nanospec.theory import acceptance


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
