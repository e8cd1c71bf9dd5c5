"""Exercise 6: the token after the accepted ones."""

from collections.abc import Callable

import torch

from lessons.check import seeds
from lessons.check.answered import weights_like
from lessons.check.engine import Exercise, wrong
from lessons.check.pairs import BY_A_HAIR, GUARDS, HAIR, HALVES, distribution, vector
from lessons.check.rounds import walked_round
from lessons.check.seen import Seen, values

WORKED = torch.stack([vector(.5, .5), vector(.9, .1)]), vector(.8, .2)[None]           # p_target, q_draft
APART = [(hair, torch.stack([HALVES + hair * vector(1, -1, 0, 0), HALVES]), HALVES[None], vector(1, 0, 0, 0))
         for hair in (HAIR, 2.0 ** -50)]


def weights_of(f, accepted: int, p_target, q_draft) -> torch.Tensor:
    return weights_like(f.next_weights(accepted, p_target, q_draft), (p_target.shape[1],), "next_weights")


def contract(f) -> None:
    weights_of(f, 0, *WORKED)


def worked(f) -> list[Seen]:
    right = {0: [0, .3], 1: [.9, .1]}
    return [shares(f, f"accepted {accepted}", accepted, *WORKED, vector(*weights))
            for accepted, weights in right.items()]


def shares(f, title: str, accepted: int, p_target, q_draft, right) -> Seen:
    def found() -> dict:
        mine = weights_of(f, accepted, p_target, q_draft)
        return {f"token {i}": share for i, share in enumerate((mine / mine.sum()).tolist())}
    return values(f"{title}, as shares of their total", found,
                  {f"token {i}": share for i, share in enumerate((right / right.sum()).tolist())})


def every_place(f) -> list[Seen]:
    """Drafts by a seed, of one token and of more: what is drawn from after every number of accepted ones."""
    draw, found = seeds.chance(6), []
    for gamma, size, zeros in ((2, 3, 0), (1, 4, 1), (3, 2, 0), (5, 6, 1)):
        q_draft = torch.stack([distribution(draw, size, zeros) for _ in range(gamma)])
        p_target = torch.stack([distribution(draw, size, zeros) for _ in range(gamma + 1)])
        for accepted in range(gamma + 1):
            right = p_target[accepted]
            if accepted < gamma:
                right = vector(*(max(0.0, a - b) for a, b in zip(right.tolist(), q_draft[accepted].tolist())))
            title = f"{size} tokens, gamma {gamma}, accepted {accepted}"
            found.append(shares(f, title, accepted, p_target, q_draft, right))
    return [*found, *(shares(f, f"accepted 0, where p_target and q_draft are {BY_A_HAIR}: {off:.2g}", 0, p, q, right)
                      for off, p, q, right in APART)]


def exact(f) -> list[Seen]:
    def weights(accepted, p_target, q_draft):
        found = weights_of(f, accepted, p_target, q_draft)
        # where p = q nothing is ever rejected, so nothing is drawn from the zeros
        return found if found.sum() > 0 or bool((found < 0).any()) else p_target[accepted]
    return walked_round("a draft of two tokens, and yours after it: the distribution of three tokens", next_of=weights)


def residual_at(place_p: Callable = int, place_q: Callable = int, bonus: int = -1,
                made: Callable = lambda difference: difference.clamp(min=0)) -> Callable:
    """next_weights from other places than `accepted`, or with something else made of their difference."""
    def next_weights(accepted, p, q):
        return p[bonus] if accepted == len(q) else made(p[place_p(accepted)] - q[place_q(accepted)])
    return next_weights


EXERCISE = Exercise(
    "ex06_bonus.py", ("next_weights",), contract,
    {"worked number": worked, "every place": every_place, "exact distribution": exact},
    [wrong("bonus-forgotten", "where all were accepted there is no draft token to replace, and no q_draft there: "
           "the bonus token comes from the last distribution of p_target, and nothing is taken away",
           next_weights=lambda k, p, q: (p[k] - q[k]).clamp(min=0)),
     wrong("bonus-from-draft", "where all were accepted you still take the last of q_draft away; nothing was "
           "drafted there, so nothing is covered",
           next_weights=lambda k, p, q: (p[k] - q[min(k, len(q) - 1)]).clamp(min=0)),
     wrong("bonus-is-the-drafts", "the bonus token must come from the target's last distribution, not from the draft "
           "model's",
           next_weights=lambda k, p, q: q[-1] if k == len(q) else (p[k] - q[k]).clamp(min=0)),
     wrong("residual-is-target", "after a rejection you return the target's own distribution; what q_draft covered "
           "must go", next_weights=lambda k, p, q: p[k]),
     wrong("residual-absolute", "you take |p_target - q_draft|: where q_draft has more, nothing is left, not more",
           next_weights=residual_at(made=torch.abs)),
     wrong("residual-reversed", "you take max(0, q_draft - p_target): the letters are the wrong way round",
           next_weights=residual_at(made=lambda d: (-d).clamp(min=0))),
     *(wrong("guard-too-wide", "where little is left you return p_target: where something was rejected, something is "
             "left, and that is right however little it is", next_weights=lambda k, p, q, guard=guard: (
                 p[k] if k == len(q) or (p[k] - q[k]).clamp(min=0).sum() < guard else (p[k] - q[k]).clamp(min=0)))
       for guard in GUARDS),
     *(wrong("residual-softmaxed", "you softmax the residual: it holds weights, not logits, and its zeros must stay "
             "zeros", next_weights=residual_at(made=made)) for made in (
           lambda d: d.clamp(min=0).softmax(-1), lambda d: d.softmax(-1))),
     wrong("residual-argmax", "you leave only the likeliest token of the residual; all its tokens may be drawn",
           next_weights=residual_at(made=lambda d: (d == d.max()).double())),
     wrong("replaced-from-draft", "you replace a rejected draft token by a new draw from q_draft; the target must "
           "decide", next_weights=lambda k, p, q: p[k] if k == len(q) else q[k]),
     wrong("resample-from-last-row", "the replacement comes from the target's last distribution; it belongs to the "
           "first rejected draft token", next_weights=lambda k, p, q: p[-1]),
     wrong("row-before", "you look one place too early: `accepted` is the place of the first rejected draft token",
           next_weights=lambda k, p, q: p[k] if k == len(q) else (p[max(0, k - 1)] - q[max(0, k - 1)]).clamp(min=0)),
     *(wrong("row-before", "you look one place too early, and place -1 is the last one: `accepted` is the place "
             "of the first rejected draft token",
             next_weights=residual_at(lambda k, p=p: k - p, lambda k, q=q: k - q, bonus=bonus))
       for p, q, bonus in ((1, 1, -1), (1, 1, -2), (1, 0, -1), (0, 1, -1))),
     wrong("bonus-whenever-any-is-accepted", "you take p_target as it is as soon as anything was accepted: "
           "that is the bonus, and there is one only where all were accepted",
           next_weights=lambda k, p, q: p[k] if k else (p[0] - q[0]).clamp(min=0)),
     wrong("next-place-of-the-draft", "you look one place too late in q_draft: `accepted` is the place of the first "
           "rejected draft token, in both", next_weights=lambda k, p, q: p[k] if k == len(q) else (
               p[k] - q[min(k + 1, len(q) - 1)]).clamp(min=0)),
     wrong("last-places", "you take the last of both: the first rejected draft token has the place `accepted`",
           next_weights=residual_at(lambda k: -1, lambda k: -1)),
     wrong("first-places", "you take the first of both: the first rejected draft token has the place `accepted`",
           next_weights=residual_at(lambda k: 0, lambda k: 0)),
     wrong("draft-place-before", "you look one place too early in q_draft: `accepted` is the place of the first "
           "rejected draft token, in both",
           next_weights=residual_at(place_q=lambda k: max(0, k - 1))),
     wrong("bonus-less-the-first-draft", "where all were accepted you take q_draft[0] away, as an index that wraps "
           "around does: nothing was drafted there", next_weights=lambda k, p, q: (p[k] - q[k % len(q)]).clamp(min=0)),
     wrong("bonus-too-early", "you take the last draft token for the end of the draft: `accepted` counts up to gamma, "
           "and only at gamma were all accepted", next_weights=lambda k, p, q: (
               p[-1] if k == len(q) - 1 else (p[k] - q[k]).clamp(min=0))),
     wrong("replacement-from-the-last-place", "you take p_target at the last place; take it at that of the first "
           "rejected draft token", next_weights=residual_at(lambda k: -1)),
     wrong("residual-unclamped", "you left the negative differences in: cut them off at 0",
           next_weights=lambda k, p, q: p[k] if k == len(q) else p[k] - q[k]),
     wrong("next-place", "you look one place too late in p_target: `accepted` is the place of the first rejected "
           "draft token",
           next_weights=residual_at(lambda k: k + 1)),
     wrong("bonus-one-place-early", "where all were accepted you return p_target at the last draft token; the bonus "
           "stands one further",
           next_weights=lambda k, p, q: p[k - 1] if k == len(q) else (p[k] - q[k]).clamp(min=0))],
    ("Which place of the text is the new token for, and has the draft model had its chance there?",
     "At the first rejected draft token, the residual. If none was rejected there is no draft token at the place "
     "further: what has q_draft covered there?",
     "if accepted == gamma: p_target[gamma]; else (p_target[accepted] - q_draft[accepted]).clamp(min=0)"),
    [("nanospec.speculate", "verify", "# 4. The", "return accepted")])
