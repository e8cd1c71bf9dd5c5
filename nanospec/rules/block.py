"""Block verification: the same draft, the same target pass, the same distribution, and on average never fewer accepted.

Sun et al. 2024 (arXiv 2403.10444, ICLR 2025). `verify` in speculate.py judges each draft token alone. What a token has
too much of, p_target(x) / q_draft(x) above 1, is lost there. Here it makes good for what earlier tokens had too little
of. Let w_0 = 1 and w_i = min(1, w_(i-1) p_target(x_i) / q_draft(x_i)). At the place behind draft token i let
    Z_i = sum of max(0, w_i p_target - q_draft), with the distributions there
    h_i = Z_i / (Z_i + 1 - w_i), the chance of a cut behind token i where no later cut stands; behind the last, w

Claim: the text has the target's distribution.
Proof, from the end to the front. Draft tokens 1..i, once drawn, are all accepted with probability w_i.
1. At the end this is so by definition.
2. If it is so one place further, the next token is accepted too with sum min(q_draft, w_i p_target) = w_i - Z_i.
3. Of the other Z_i + 1 - w_i, the part h_i is just Z_i. So tokens 1..i stand with w_i - Z_i + Z_i = w_i.
4. Token y comes next as a draft token with min(q_draft(y), w_i p_target(y)), and behind a cut with
   max(0, w_i p_target(y) - q_draft(y)). Together that is w_i p_target(y): among those that stand, p_target(y).
Never shorter: w_i is at least the product of min(1, p_target(x) / q_draft(x)) over the tokens up to i.

A draft tree is judged by traversal.py, which is the same idea. Of tokens that were not drawn (q_draft all on one token)
it accepts what `verify` accepts.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.probs import residual
from nanospec.rules.traversal import verify_traversal


def verify_block(draft: Draft, p_target: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
    """Flip a coin for every length the draft could be cut to, keep the greatest that stands, say what follows it.

    draft: n = gamma + 1 rows; p_target (B, n, V) -> accepted (B,) in 0..gamma, token (B,). As `verify`, gamma + 1
    uniforms a row.

    Unlike there, a coin that falls rejects nothing: a later one may stand, and all before it is accepted. The token is
    drawn from max(0, w p_target - q_draft) at the cut. Example (the paper's): p_target [1/3, 2/3], q_draft [2/3, 1/3]
    at every place, draft tokens 0, 1: w = 1, 1/2, 1, so both are accepted, always, and by `verify` every other time. Of
    two draft tokens 11/9 are accepted on average, by `verify` 10/9.
    """
    if draft.parents is not None:
        return verify_traversal(draft, p_target, dice)
    x = draft.tokens[:, 1:, None]
    p_of_x, q_of_x = p_target[:, :-1].gather(-1, x)[:, :, 0], draft.q_draft[:, 1:].gather(-1, x)[:, :, 0]
    w = [p_target.new_ones(len(p_target))]
    for i in range(x.shape[1]):             # no cumprod: the minimum is taken at every step
        w.append((w[i] * p_of_x[:, i] / q_of_x[:, i]).clamp(max=1))
    w = torch.stack(w, 1)                                                                   # (B, n)

    q_behind = draft.q_draft.roll(-1, 1)    # of every row, what the token behind it was drawn from; zeros for the last
    covered = (w[:, :, None] * p_target - q_behind).clamp(min=0).sum(-1)                    # Z; of the last row, w
    reached = covered + 1 - w       # how often no later cut stands; 0 where w = 1 and p = q, and a later one will
    h = torch.where(reached == 0, 1.0, covered / reached)
    stands = dice.flip(h[:, 1:])                                                            # (B, gamma); length 0 may
    accepted = F.pad(stands * torch.arange(1, w.shape[1], device=w.device), (1, 0)).amax(-1)    # always be cut to

    row = torch.arange(len(accepted), device=accepted.device)
    weight = w[row, accepted, None]
    left = residual(weight * p_target[row, accepted], q_behind[row, accepted])              # w p where nothing is left
    return accepted, dice.pick(left)
