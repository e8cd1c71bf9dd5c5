"""Exercise 6: the token behind the kept ones."""

from collections.abc import Callable

import torch

from lessons.check.block import walked_block
from lessons.check.engine import Exercise, wrong
from lessons.check.pairs import vector
from lessons.check.seen import Seen, values, weights_like

WORKED = torch.stack([vector(.5, .5), vector(.9, .1)]), vector(.8, .2)[None]           # p_target, q_draft


def contract(f) -> None:
    p_target, q_draft = WORKED
    for kept in (0, 1):
        weights_like(f.next_weights(kept, p_target.clone(), q_draft.clone()), (2,), "next_weights")


def worked(f) -> list[Seen]:
    p_target, q_draft = WORKED
    right = {0: [0, .3], 1: [.9, .1]}

    def shares(kept):
        found = weights_like(f.next_weights(kept, p_target.clone(), q_draft.clone()), (2,), "next_weights")
        return (found / found.sum()).tolist()
    return [values(f"kept {kept}, as shares of their total", lambda kept=kept: dict(zip("01", shares(kept))),
                   {name: weight / sum(right[kept]) for name, weight in zip("01", right[kept])}) for kept in (0, 1)]


def exact(f) -> list[Seen]:
    def weights(kept, p_target, q_draft):
        found = weights_like(f.next_weights(kept, p_target, q_draft), (3,), "next_weights")
        return found if found.sum() > 0 or bool((found < 0).any()) else p_target[kept]      # p = q: never refused
    return walked_block("a block of two guesses and your token: the law of three tokens", next_of=weights)


def residual_at(row_p: Callable, row_q: Callable) -> Callable:
    def next_weights(kept, p, q):
        return p[kept] if kept == len(q) else (p[row_p(kept)] - q[row_q(kept)]).clamp(min=0)
    return next_weights


EXERCISE = Exercise(
    "ex06_bonus.py", ("next_weights",), contract,
    {"worked number": worked, "exact distribution": exact},
    [wrong("bonus-from-draft", "where all were kept you still take the draft's last law away; nothing was guessed "
           "there, so nothing is covered", next_weights=lambda k, p, q: (p[k] - q[min(k, len(q) - 1)]).clamp(min=0)),
     wrong("bonus-is-the-drafts", "the bonus token must come from the target's last row, not from the draft",
           next_weights=lambda k, p, q: q[-1] if k == len(q) else (p[k] - q[k]).clamp(min=0)),
     wrong("residual-is-target", "after a refusal you return the target's own law; what the draft covered must go",
           next_weights=lambda k, p, q: p[k]),
     wrong("resample-from-last-row", "the replacement comes from the target's last row; it belongs to the first "
           "refused guess", next_weights=lambda k, p, q: p[-1]),
     wrong("row-before", "you look one row too early: row `kept` is the first refused guess",
           next_weights=lambda k, p, q: p[k] if k == len(q) else (p[max(0, k - 1)] - q[max(0, k - 1)]).clamp(min=0)),
     wrong("replacement-from-the-last-row", "the target's row is the last one; it belongs to the first refused guess",
           next_weights=residual_at(lambda k: -1, lambda k: k)),
     wrong("residual-unclamped", "you left the negative differences in: cut them off at 0",
           next_weights=lambda k, p, q: p[k] if k == len(q) else p[k] - q[k]),
     wrong("row-behind", "the target's row is one too late: row `kept` is the first refused guess",
           next_weights=residual_at(lambda k: k + 1, lambda k: k)),
     wrong("bonus-one-row-early", "where all were kept you return the row of the last guess; the bonus stands one "
           "further",
           next_weights=lambda k, p, q: p[k - 1] if k == len(q) else (p[k] - q[k]).clamp(min=0))],
    ("Which place of the text is the new token for, and has the draft had its chance there?",
     "At the first refused guess, the residual. If none was refused there is no guess at the place behind: what has "
     "the draft covered there?",
     "if kept == gamma: the last row of p_target; else (p_target[kept] - q_draft[kept]).clamp(min=0)"),
    [("nanospec.speculate", "verify", "# What is replaced", "return accepted")])
