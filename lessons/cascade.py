"""Speculative cascades: on purpose the text of a mixture of draft model and target, not the target's.

Narasimhan et al. 2024 (arXiv 2405.19261). A *deferral rule* says at every place who is to write
there: the draft model, where it is good enough, or the target. So there is a distribution pi at every
place, made of q_draft and p_target. What follows is ordinary speculation, with pi in the place of
p_target. The text is distributed as pi, exactly. It is not the target's, so no cascade is called
lossless here, and none is in the package: the lesson *Mixing on purpose* shows what they cost.

    rule    the target writes at this place where ...       a = 0: nearly always; a = 1: never
    chow    max q_draft < 1 - a
    diff    max q_draft < max p_target - a
    opt     max q_draft < max p_target - a TV(p_target, q_draft)

Token rules decide for every token x of the vocabulary. r(x) = 1 means: where the draft model would write
x, the target writes instead. pi(x) = q_draft(x) (1 - r(x)) + p_target(x) sum over y of r(y)
q_draft(y). A rule from above is the same with one r for all tokens.

    v1      r(x) = 1 where q_draft(x) < max p_target - a
    v2      r(x) = 1 where p_target(x) < max p_target - a
    v3      r(x) = 1 where p_target(x) < (1 - a) max p_target

The bonus token is the trap: it must be drawn from pi as well, and after the last draft token no
q_draft is known. So there is no bonus here. The last draft token, when it is accepted, is the
round's last token. A round writes 1 to gamma tokens. Where nothing was drafted, there is no
q_draft, and the target writes.
"""

from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, Rule
from nanospec.errors import RequestError, check_numbers, check_scored, quoted
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.theory import acceptance

Deferral = Callable[..., Tensor]            # (q_draft, p_target, a)


def _mixture(defers: Deferral) -> Deferral:
    """The mixture of a rule that says of each token, or of all together, whether it defers."""
    def mixture(q_draft: Tensor, p_target: Tensor, a: float) -> Tensor:
        deferred = torch.where(defers(q_draft, p_target, a), q_draft, 0.0)
        return (q_draft - deferred) + p_target * deferred.sum(-1, keepdim=True)
    return mixture


def _best(p: Tensor) -> Tensor:
    return p.amax(-1, keepdim=True)


# name -> (q_draft (..., V), p_target (..., V), a) -> pi (..., V)
DEFERRALS: dict[str, Deferral] = {name: _mixture(defers) for name, defers in {
    "chow": lambda q, p, a: _best(q) < 1 - a,
    "diff": lambda q, p, a: _best(q) < _best(p) - a,
    "opt": lambda q, p, a: _best(q) < _best(p) - a * (1 - acceptance(p, q)[..., None]),
    "v1": lambda q, p, a: q < _best(p) - a,
    "v2": lambda q, p, a: p < _best(p) - a,
    "v3": lambda q, p, a: p < (1 - a) * _best(p),
}.items()}


def cascade(deferral: str, a: float, rule: Rule) -> Rule:
    """`rule`, which is lossless, made to write pi. Example: cascade("v3", 0.9, verify).

    RequestError for a deferral rule that is not known.
    """
    check_numbers(Real, a=a)
    if not callable(rule):
        raise RequestError(f"the rule must be a function, got {quoted(rule)}")
    if deferral not in DEFERRALS:
        raise RequestError(f"no deferral rule {deferral!r} here: there are {', '.join(DEFERRALS)}")
    mixture = DEFERRALS[deferral]

    def judge(draft: Draft, p_target: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
        check_scored(draft, p_target, Draft, TreeDraft)
        # After a node, q_draft is what its eldest child was drawn from. Number 0: it has no child.
        parents = draft.parents
        nodes = torch.arange(parents.shape[1], device=parents.device)
        child = (parents[:, None] == nodes[:, None]).long().argmax(-1)                      # (B, n)
        row = torch.arange(len(child), device=child.device)[:, None]
        pi = torch.where((child > 0)[..., None],
                         mixture(draft.q_draft[row, child], p_target, a), p_target)
        accepted, token = rule(draft, pi, dice)
        at = accepted[:, None]
        leaf = (child.gather(1, at) == 0) & (at > 0)
        accepted = torch.where(leaf, parents.gather(1, at), at)
        return accepted[:, 0], torch.where(leaf[:, 0], draft.tokens.gather(1, at)[:, 0], token)
    return judge
