"""Rules that are not lossless: faster, and the text is no longer the target's.

Three of them flip no coins. A draft token passes, or it does not; the longest path of tokens that pass is accepted,
and of several the likeliest; the next token is drawn from the target after it.

    typical     Medusa's typical acceptance (Cai et al. 2024, arXiv 2401.10774, section 2.3.1): the target finds the
                token likely enough. "Enough" is less where the target itself is undecided. (In the paper the first
                token of a round is the target's best one, whatever was drafted; here it has to pass as all others.)
    top_k       Stern et al. 2018 (arXiv 1811.03115, section 5.1): it is one of the target's k best tokens.
    at_least    the same, section 5.3: the target's best token; but the first few draft tokens pass whatever they are.

How far from the target: a token x that passes is written for certain, where the target would write it with probability
p_target(x). So at this place the total variation is 1 - p_target(x).
At temperature 0 p_target is 1 for the best token. Then `typical` and `top_k` are exact.

    lenient     Leviathan et al. 2022 (arXiv 2211.17192, Appendix A.5), lenience l: a draft token is accepted with
                probability min(1, p_target(x) / (l q_draft(x))). No token becomes likelier than p_target(x) / l.
                How often one is accepted: theory.acceptance(p_target / l, q_draft).
"""

from functools import partial
from numbers import Integral, Real

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, Rule
from nanospec.errors import RequestError, check_gamma, check_numbers, check_scored, one_line
from nanospec.methods.trees.tree_draft import TreeDraft


def enough(p_target: Tensor, most: float = 0.09, part: float = 0.3) -> Tensor:
    """What typical acceptance asks of a token, min(most, part * exp(-entropy of p_target)): (..., V) -> (...).

    The defaults are the authors'. Example: [.5, .3, .2] has exp(-entropy) = .36, so it is min(.09, .11) = .09.
    """
    entropy = -torch.special.xlogy(p_target, p_target).sum(-1)
    return (part * (-entropy).exp()).clamp(max=most)


def typical(draft: Draft, p_target: Tensor, dice: Dice, most: float = 0.09, part: float = 0.3) -> tuple[Tensor, Tensor]:
    """A token x passes where p_target(x) > enough(p_target, most, part)."""
    p_of_x, parent = _of_parents(draft, p_target)
    return _longest(draft, p_target, p_of_x, p_of_x > enough(p_target, most, part).gather(1, parent), dice)


def top_k(draft: Draft, p_target: Tensor, dice: Dice, k: int = 2) -> tuple[Tensor, Tensor]:
    """A token passes if fewer than k tokens are likelier, and it is possible at all."""
    check_gamma(k, "k")
    p_of_x, parent = _of_parents(draft, p_target)
    likelier = (p_target.gather(1, parent[:, :, None].expand_as(p_target)) > p_of_x[:, :, None]).sum(-1)
    return _longest(draft, p_target, p_of_x, (likelier < k) & (p_of_x > 0), dice)


def at_least(draft: Draft, p_target: Tensor, dice: Dice, tokens: int = 1) -> tuple[Tensor, Tensor]:
    """The target's best token passes; and every draft token at depth `tokens` or less."""
    check_numbers(Integral, tokens=tokens)
    p_of_x, parent = _of_parents(draft, p_target)
    depth = torch.zeros_like(parent)
    for i in range(1, depth.shape[1]):
        depth[:, i] = depth.gather(1, parent[:, i, None])[:, 0] + 1
    best = p_of_x == p_target.amax(-1).gather(1, parent)
    return _longest(draft, p_target, p_of_x, best | (depth <= tokens), dice)


class _Lenient:
    """Dice whose coins stand 1 / lenience times as often."""

    def __init__(self, dice: Dice, lenience: float):
        self.dice, self.lenience, self.pick = dice, lenience, dice.pick

    def flip(self, prob: Tensor) -> Tensor:
        return self.dice.flip(prob / self.lenience)


def lenient(lenience: float, rule: Rule) -> Rule:
    """The token rule with a lenience above 0 and at most 1; with 1 it is `rule`. RequestError for another one.

    What is rejected is replaced as ever, from the residual of p_target and q_draft.
    Example: p_target [.5, .5], q_draft [.8, .2], draft token 0, lenience .8: accepted with probability .78, not .625.
    """
    check_numbers(Real, lenience=lenience)
    if not callable(rule):
        raise RequestError(f"the rule must be a function, got {one_line(repr(rule))}")
    if not 0 < lenience <= 1:
        raise RequestError(f"lenience is above 0 and at most 1, got {lenience}")
    # To flip and to pick is all that a rule asks of dice.
    return lambda draft, p_target, dice: rule(draft, p_target, _Lenient(dice, lenience))    # type: ignore[arg-type]


def _of_parents(draft: Draft, p_target: Tensor) -> tuple[Tensor, Tensor]:
    """What the target gives each row's token after its parent (B, n), and every row's parent, 0 where it has none."""
    check_scored(draft, p_target, Draft, TreeDraft)
    parent = draft.parents.clamp(min=0)
    row = torch.arange(len(parent), device=p_target.device)[:, None]
    return p_target[row, parent, draft.tokens], parent


def _longest(draft: Draft, p_target: Tensor, p_of_x: Tensor, passes: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
    """The end of the longest path of rows that pass, the likeliest if there are several; and the token after it."""
    (B, n, _), parents = p_target.shape, draft.parents
    depth, likely = p_of_x.new_full((B, n), float("-inf")), torch.zeros_like(p_of_x)
    depth[:, 0] = 0
    for i in range(1, n):
        parent = parents[:, i]
        above = parent.clamp(min=0)[:, None]
        depth[:, i] = torch.where(passes[:, i] & (parent >= 0), depth.gather(1, above)[:, 0] + 1, float("-inf"))
        likely[:, i] = likely.gather(1, above)[:, 0] + p_of_x[:, i].log()
    longest = depth == depth.amax(-1, keepdim=True)
    likely = likely.clamp(min=torch.finfo(likely.dtype).min)        # the longest path may be of probability 0
    accepted = torch.where(longest, likely, float("-inf")).argmax(-1)
    return accepted, dice.pick(p_target[torch.arange(B, device=p_target.device), accepted])


LOSSY: dict[str, Rule] = {"typical": typical, "top-2": partial(top_k, k=2), "at-least-1": partial(at_least, tokens=1)}
