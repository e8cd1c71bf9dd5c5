"""Block verification: the same draft, call and distribution, and on average never fewer accepted.

Sun et al. 2024 (arXiv 2403.10444, ICLR 2025). `verify` in speculate.py judges each draft token
alone. It limits the ratio p_target(x) / q_draft(x) to 1, and what is above 1 is lost. Here the
running product is limited to 1. So a high ratio makes up for low ratios before it. For draft tokens
x_1, x_2, ... let
    w_0 = 1, w_i = min(1, w_(i-1) p_target(x_i) / q_draft(x_i))
    Z_i = the sum of max(0, w_i p_target - q_draft), with the distributions after token i
    h_i = Z_i / (Z_i + 1 - w_i); after the last token, w
The rule works from the last token to the front. With probability h_i the draft is cut after token
i. Then tokens 1 to i are accepted, and the next is drawn from max(0, w_i p_target - q_draft); after
the last token, from p_target.

Claim 1: draft tokens 1 to i, once drawn, are all accepted with probability w_i; if so, the next
comes from p_target.
Proof, from the last token to the front.
1. After the last token this is true: the coin is w, and the bonus token comes from p_target.
2. Let it be true after token i + 1. After token i, token y is wanted next with probability w_i
   p_target(y).
3. The draft has y next with q_draft(y). It is accepted with w_(i+1) = min(1, w_i p_target(y) /
   q_draft(y)).
4. So y comes as a draft token with min(q_draft(y), w_i p_target(y)). For all y together that is w_i
   - Z_i.
5. In the other Z_i + 1 - w_i of all cases, the coin h_i is flipped. So a cut is made here with
   probability Z_i.
6. After this cut, y comes with max(0, w_i p_target(y) - q_draft(y)). With step 4, that is w_i
   p_target(y).
At the front w_0 = 1: the text has the target's distribution.

Claim 2: never fewer are accepted. That is, w_i is at least the product of min(1, p_target(x) /
q_draft(x)) up to i.
Proof. w_i is at least w_(i-1) min(1, p_target(x_i) / q_draft(x_i)), because w_(i-1) is at most 1.

Example (the paper's): p_target [1/3, 2/3], q_draft [2/3, 1/3] at every place.
    after a first token     w      wanted         as a draft token    missing     Z      h
    0                       1/2    [1/6, 1/3]     [1/6, 1/3]          [0, 0]      0      0
    1                       1      [1/3, 2/3]     [1/3, 1/3]          [0, 1/3]    1/3    1

A draft tree is judged by traversal.py, which is the same idea. Of tokens that were not drawn
(q_draft all on one token) it accepts what `verify` accepts. The lesson *Block verification* goes
through all of this by hand.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.errors import check_scored
from nanospec.methods.rules.traversal import verify_traversal
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.probs import residual


def verify_block(draft: Draft, p_target: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
    """Flip a coin for every cut that could be made, make the longest that may be made, and say what
    follows it.

    draft: n = gamma + 1 nodes; p_target (B, n, V) -> accepted (B,) in 0..gamma, token (B,). As
    `verify`, gamma + 1 uniforms a text.

    In `verify`, one rejected token rejects all after it. Here a coin that says no rejects nothing:
    if the coin of a longer cut says yes, all tokens before that cut are accepted. Example (the
    paper's, see above), draft tokens 0, 1: w = 1, 1/2, 1, so both are accepted, always, and by
    `verify` every other time. Of two draft tokens 11/9 are accepted on average, by `verify` 10/9.
    """
    if isinstance(draft, TreeDraft):
        return verify_traversal(draft, p_target, dice)
    check_scored(draft, p_target, Draft)
    x = draft.tokens[:, 1:, None]
    p_of_x = p_target[:, :-1].gather(-1, x)[:, :, 0]                            # (B, gamma)
    q_of_x = draft.q_draft[:, 1:].gather(-1, x)[:, :, 0]
    ws = [p_target.new_ones(len(p_target))]
    for i in range(x.shape[1]):             # no cumprod: the minimum is taken at every step
        # A node that a text lacks has a q_draft of zeros, and is never reached.
        drawn = q_of_x[:, i] > 0
        ws.append(torch.where(drawn, ws[i] * p_of_x[:, i] / q_of_x[:, i], 0.0).clamp(max=1))
    w = torch.stack(ws, 1)                                                                  # (B, n)

    # What the token after every node was drawn from; zeros after the last, as in `verify`.
    q_after = F.pad(draft.q_draft[:, 1:], (0, 0, 0, 1))
    covered = (w[:, :, None] * p_target - q_after).clamp(min=0).sum(-1)     # Z; at the last node, w
    # How often no longer cut is made; 0 where w = 1 and p = q: a longer one always is.
    reached = covered + 1 - w
    h = torch.where(reached == 0, 1.0, covered / reached)
    coins = dice.flip(h[:, 1:])     # (B, gamma); the cut at the front, length 0, may always be made
    accepted = F.pad(coins * torch.arange(1, w.shape[1], device=w.device), (1, 0)).amax(-1)

    b = torch.arange(len(accepted), device=accepted.device)
    weight = w[b, accepted, None]
    # Where nothing is left, `residual` returns w p_target, and that is the bonus token's.
    left = residual(weight * p_target[b, accepted], q_after[b, accepted])
    return accepted, dice.pick(left)


verify_block.fixed_for_chains = True        # type: ignore[attr-defined]    # of a tree it is not
