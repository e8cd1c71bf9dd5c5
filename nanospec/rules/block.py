"""Block verification: the same draft, the same target pass, the same law of the text, and on average never fewer kept.

Sun et al. 2024 (arXiv 2403.10444, ICLR 2025). `verify` in speculate.py judges one guess at a time, and what a guess
has too much of, p_target(x) / q_draft(x) above 1, is lost. Here it makes good for what earlier guesses had too little
of. With weights w_0 = 1 and w_i = min(1, w_(i-1) p_target(x_i) / q_draft(x_i)), place i holds
    Z_i = sum of max(0, w_i p_target - q_draft) over the laws one place further
    h_i = Z_i / (Z_i + 1 - w_i), the chance of a cut behind guess i where no later cut stands; behind the last, w
Why it is lossless: guesses 1..i, once drawn, all stay with probability w_i. This is so at the end; and if it is so one
place further, the next guess stays too with sum min(q_draft, w_i p_target) = w_i - Z_i, and of the other
Z_i + 1 - w_i, h_i is just Z_i. Now y comes next as a guess with min(q_draft(y), w_i p_target(y)) and behind a cut with
max(0, w_i p_target(y) - q_draft(y)): together w_i p_target(y), which is p_target among those that stay.
Why it is never shorter: w_i is at least the product of min(1, p_target(x) / q_draft(x)) over the guesses up to i.

Left out: trees. Of guesses that are certain (all q_draft on one token) it keeps what `verify` keeps.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice


def verify_block(drafted: Tensor, q_draft: Tensor, p_target: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
    """Flip a coin for every length the draft could be cut to, keep the greatest that stands, say what follows it.

    drafted (B, gamma); q_draft (B, gamma, V), the laws they were drawn from; p_target (B, gamma + 1, V), the target's
    laws at the same places and one further -> kept (B,) in 0..gamma, token (B,). As `verify`, gamma + 1 uniforms a row.

    Unlike there, a coin that falls refuses nothing: a later one may stand, and all before it stays. The token is drawn
    from max(0, w p_target - q_draft) at the cut. Example (the paper's): p_target [1/3, 2/3], q_draft [2/3, 1/3] at
    every place, drafted 0, 1: w = 1, 1/2, 1, so both are kept, always, and token by token every other time. Of two
    guesses 11/9 are kept on average, token by token 10/9.
    """
    at = drafted[:, :, None]
    p_guess, q_guess = p_target[:, :-1].gather(-1, at)[:, :, 0], q_draft.gather(-1, at)[:, :, 0]      # (B, gamma)
    w = [p_target.new_ones(len(p_target))]
    for i in range(drafted.shape[1]):       # no cumprod: the minimum is taken at every step
        w.append((w[i] * p_guess[:, i] / q_guess[:, i]).clamp(max=1))
    w = torch.stack(w, 1)                                                                  # (B, gamma + 1)

    q_draft = F.pad(q_draft, (0, 0, 0, 1))      # behind the draft, a guess of nothing: the last coin's odds become w
    residual = (w[:, :, None] * p_target - q_draft).clamp(min=0)                           # (B, gamma + 1, V)
    covered = residual.sum(-1)                                                             # Z
    reached = covered + 1 - w       # how often no later cut stands; 0 where w = 1 and p = q, and a later one will
    h = torch.where(reached == 0, 1.0, covered / reached)
    stands = dice.flip(h[:, 1:])                                                           # (B, gamma); length 0 may
    kept = F.pad(stands * torch.arange(1, w.shape[1], device=w.device), (1, 0)).amax(-1)   # always be cut to

    row = torch.arange(len(kept), device=kept.device)
    p_there, residual = p_target[row, kept], residual[row, kept]                           # (B, V)
    nothing_left = residual.sum(-1, keepdim=True) == 0                                     # p = q up to rounding
    return kept, dice.pick(torch.where(nothing_left, p_there, residual))
