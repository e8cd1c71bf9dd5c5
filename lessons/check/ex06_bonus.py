"""Exercise 6: the token after the accepted ones."""

from collections.abc import Callable

import torch

from lessons.check.answered import weights_like
from lessons.check.engine import Exercise, wrong
from lessons.check.pairs import BY_A_HAIR, HAIR, vector
from lessons.check.rounds import walked_round
from lessons.check.seen import Seen, values

WORKED = torch.stack([vector(.5, .5), vector(.9, .1)]), vector(.8, .2)[None]           # p_target, q_draft
APART = torch.stack([vector(.5 + HAIR, .5 - HAIR), vector(.9, .1)]), vector(.5, .5)[None]


def weights_of(f, accepted: int, p_target, q_draft) -> torch.Tensor:
    return weights_like(f.next_weights(accepted, p_target, q_draft), (p_target.shape[1],), "next_weights")


def contract(f) -> None:
    weights_of(f, 0, *WORKED)


def worked(f) -> list[Seen]:
    right = {0: [0, .3], 1: [.9, .1]}

    def shares(accepted, p_target, q_draft):
        found = weights_of(f, accepted, p_target, q_draft)
        return dict(zip(("token 0", "token 1"), (found / found.sum()).tolist()))
    return [*(values(f"accepted {accepted}, as shares of their total", lambda accepted=accepted: shares(
                accepted, *WORKED), {f"token {i}": weight / sum(weights) for i, weight in enumerate(weights)})
              for accepted, weights in right.items()),
            values(f"accepted 0, where p_target and q_draft are {BY_A_HAIR}: {APART[0][0].tolist()} and [.5, .5]",
                   lambda: shares(0, *APART), {"token 0": 1.0, "token 1": 0.0})]


def exact(f) -> list[Seen]:
    def weights(accepted, p_target, q_draft):
        found = weights_of(f, accepted, p_target, q_draft)
        # where p = q nothing is ever rejected, so nothing is drawn from the zeros
        return found if found.sum() > 0 or bool((found < 0).any()) else p_target[accepted]
    return walked_round("a draft of two tokens, and yours after it: the distribution of three tokens", next_of=weights)


def residual_at(row_p: Callable = int, row_q: Callable = int, bonus: int = -1,
                made: Callable = lambda difference: difference.clamp(min=0)) -> Callable:
    """next_weights from other rows than `accepted`, or with something else made of their difference."""
    def next_weights(accepted, p, q):
        return p[bonus] if accepted == len(q) else made(p[row_p(accepted)] - q[row_q(accepted)])
    return next_weights


EXERCISE = Exercise(
    "ex06_bonus.py", ("next_weights",), contract,
    {"worked number": worked, "exact distribution": exact},
    [wrong("bonus-forgotten", "where all were accepted there is no draft token to replace, and q_draft has no such "
           "row: the bonus token comes from the last row of p_target, and nothing is taken away",
           next_weights=lambda k, p, q: (p[k] - q[k]).clamp(min=0)),
     wrong("bonus-from-draft", "where all were accepted you still take the draft's last distribution away; nothing was "
           "drafted there, so nothing is covered",
           next_weights=lambda k, p, q: (p[k] - q[min(k, len(q) - 1)]).clamp(min=0)),
     wrong("bonus-is-the-drafts", "the bonus token must come from the target's last row, not from the draft",
           next_weights=lambda k, p, q: q[-1] if k == len(q) else (p[k] - q[k]).clamp(min=0)),
     wrong("residual-is-target", "after a rejection you return the target's own distribution; what the draft covered "
           "must go", next_weights=lambda k, p, q: p[k]),
     wrong("residual-absolute", "you take |p_target - q_draft|: where the draft has more, nothing is left, not more",
           next_weights=residual_at(made=torch.abs)),
     wrong("residual-reversed", "you take max(0, q_draft - p_target): the letters are the wrong way round",
           next_weights=residual_at(made=lambda d: (-d).clamp(min=0))),
     wrong("guard-too-wide", "where little is left you return p_target: where something was rejected, something is "
           "left, and that is right however little it is", next_weights=lambda k, p, q: p[k] if k == len(q) or (
               p[k] - q[k]).clamp(min=0).sum() < 1e-6 else (p[k] - q[k]).clamp(min=0)),
     *(wrong("residual-softmaxed", "you softmax the residual: it holds weights, not logits, and its zeros must stay "
             "zeros", next_weights=residual_at(made=made)) for made in (
           lambda d: d.clamp(min=0).softmax(-1), lambda d: d.softmax(-1))),
     wrong("residual-argmax", "you leave only the likeliest token of the residual; all its tokens may be drawn",
           next_weights=residual_at(made=lambda d: (d == d.max()).double())),
     wrong("replaced-from-draft", "you replace a rejected draft token by a new draw from the draft; the target must "
           "decide", next_weights=lambda k, p, q: p[k] if k == len(q) else q[k]),
     wrong("resample-from-last-row", "the replacement comes from the target's last row; it belongs to the first "
           "rejected draft token", next_weights=lambda k, p, q: p[-1]),
     wrong("row-before", "you look one row too early: row `accepted` is the first rejected draft token",
           next_weights=lambda k, p, q: p[k] if k == len(q) else (p[max(0, k - 1)] - q[max(0, k - 1)]).clamp(min=0)),
     *(wrong("row-before", "you look one row too early, and row -1 is the last one: row `accepted` is the first "
             "rejected draft token", next_weights=residual_at(lambda k, p=p: k - p, lambda k, q=q: k - q, bonus=bonus))
       for p, q, bonus in ((1, 1, -1), (1, 1, -2), (1, 0, -1), (0, 1, -1))),
     wrong("bonus-too-early", "you take the last draft token for the end of the draft: `accepted` counts up to gamma, "
           "and only at gamma were all accepted", next_weights=lambda k, p, q: (
               p[-1] if k == len(q) - 1 else (p[k] - q[k]).clamp(min=0))),
     wrong("replacement-from-the-last-row", "the target's row is the last one; it belongs to the first rejected draft "
           "token", next_weights=residual_at(lambda k: -1)),
     wrong("residual-unclamped", "you left the negative differences in: cut them off at 0",
           next_weights=lambda k, p, q: p[k] if k == len(q) else p[k] - q[k]),
     wrong("next-row", "the target's row is one too late: row `accepted` is the first rejected draft token",
           next_weights=residual_at(lambda k: k + 1)),
     wrong("bonus-one-row-early", "where all were accepted you return the row of the last draft token; the bonus "
           "stands one further",
           next_weights=lambda k, p, q: p[k - 1] if k == len(q) else (p[k] - q[k]).clamp(min=0))],
    ("Which place of the text is the new token for, and has the draft had its chance there?",
     "At the first rejected draft token, the residual. If none was rejected there is no draft token at the place "
     "further: what has the draft covered there?",
     "if accepted == gamma: the last row of p_target; else (p_target[accepted] - q_draft[accepted]).clamp(min=0)"),
    [("nanospec.speculate", "verify", "# 4. The row after the accepted ones", "return accepted")])
