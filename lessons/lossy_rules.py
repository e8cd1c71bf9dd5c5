"""Rules that are not lossless: faster, and the text is no longer the target's. So none of them is
in the package. The lesson *Mixing on purpose* shows what `typical` costs.

    typical     Medusa's typical acceptance (Cai et al. 2024, arXiv 2401.10774, section 2.3.1): a
                draft token passes, without a coin, if the target finds it likely enough. "Enough"
                is less where the target itself is undecided. The longest path of tokens that pass
                is accepted, and of several the likeliest; the next token is drawn from the target
                after it. (In the paper the first token of a round is the target's best one,
                whatever was drafted; here it has to pass as all others.)

How far from the target: a token x that passes is written for certain, where the target would write
it with probability p_target(x). So at this place the total variation is 1 - p_target(x).
At temperature 0 p_target is 1 for the best token. Then `typical` is exact.

    relaxed     TensorRT-LLM's relaxed acceptance, which it offers for what a model thinks before it
                answers: a draft token passes if it is among the target's k likeliest ones and at
                most delta less likely than the likeliest. All else is as in `typical`.

    lenient     Leviathan et al. 2022 (arXiv 2211.17192, Appendix A.5), lenience l: a draft token is
                accepted with probability min(1, p_target(x) / (l q_draft(x))). No token becomes
                likelier than p_target(x) / l. How often one is accepted:
                theory.acceptance(p_target / l, q_draft).

    forgiving   FLy (arXiv 2511.22972; vllm-project/vllm#53987): a rejected draft token is accepted
                all the same where the target is unsure (its entropy is at least `least`) and the
                next `window` draft tokens would all be accepted. (In vLLM the entropy is that of
                the three likeliest tokens.)
"""

from numbers import Real
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, Rule
from nanospec.errors import RequestError, check_numbers, check_scored, quoted
from nanospec.methods.trees.tree_draft import TreeDraft


def enough(p_target: Tensor, most: float = 0.09, part: float = 0.3) -> Tensor:
    """What typical acceptance asks of a token, min(most, part * exp(-entropy of p_target)): (...,
    V) -> (...).

    The defaults are the authors'. Example: [.5, .3, .2] has exp(-entropy) = .36, so it is min(.09,
    .11) = .09.
    """
    entropy = torch.special.entr(p_target).sum(-1)
    return (part * (-entropy).exp()).clamp(max=most)


def typical(draft: Draft, p_target: Tensor, dice: Dice, most: float = 0.09,
            part: float = 0.3) -> tuple[Tensor, Tensor]:
    """A token x passes where p_target(x) > enough(p_target, most, part)."""
    check_scored(draft, p_target, Draft, TreeDraft)
    return longest(draft, p_target, dice, p_target > enough(p_target, most, part)[..., None])


def relaxed(draft: Draft, p_target: Tensor, dice: Dice, k: int = 2,
            delta: float = 0.3) -> tuple[Tensor, Tensor]:
    """A token passes if it is among the k likeliest and at most delta less likely than the best.

    Example: of [.5, .3, .2] with k = 2 and delta = .25, tokens 0 and 1.
    """
    check_scored(draft, p_target, Draft, TreeDraft)
    best = p_target.topk(k).values
    return longest(draft, p_target, dice,
                   (p_target >= best[..., -1:]) & (p_target >= best[..., :1] - delta))


def longest(draft: Draft, p_target: Tensor, dice: Dice, passes: Tensor) -> tuple[Tensor, Tensor]:
    """The longest path of draft tokens that pass, and of several the likeliest; the next token is
    drawn from the target after it. passes: which tokens would pass after each node, (B, n, V) bool.
    """
    (B, n, _), parents = p_target.shape, draft.parents
    text = torch.arange(B, device=p_target.device)
    above = parents.clamp(min=0)                                # of a node that a text lacks, any
    at = text[:, None], above, draft.tokens
    p_of_x = p_target[at]                                               # (B, n)
    passed = (parents >= 0) & passes[at]
    depth, likely = p_of_x.new_full((B, n), float("-inf")), torch.zeros_like(p_of_x)
    depth[:, 0] = 0
    for i in range(1, n):
        parent = above[:, i, None]
        depth[:, i] = torch.where(passed[:, i], depth.gather(1, parent)[:, 0] + 1, float("-inf"))
        likely[:, i] = likely.gather(1, parent)[:, 0] + p_of_x[:, i].log()
    deepest = depth == depth.amax(-1, keepdim=True)
    # The longest path may be of probability 0.
    likely = likely.clamp(min=torch.finfo(likely.dtype).min)
    accepted = torch.where(deepest, likely, float("-inf")).argmax(-1)
    return accepted, dice.pick(p_target[text, accepted])


def lenient(lenience: float, rule: Rule) -> Rule:
    """The token rule with a lenience above 0 and at most 1, else RequestError; with 1 it is `rule`.

    What is rejected is replaced as ever, from the residual of p_target and q_draft.
    Example: p_target [.5, .5], q_draft [.8, .2], draft token 0, lenience .8: accepted with
    probability .78, not .625.
    """
    check_numbers(Real, lenience=lenience)
    if not callable(rule):
        raise RequestError(f"the rule must be a function, got {quoted(rule)}")
    if not 0 < lenience <= 1:
        raise RequestError(f"lenience is above 0 and at most 1, got {lenience}")

    def judge(draft: Draft, p_target: Tensor, dice: Any) -> tuple[Tensor, Tensor]:
        # Coins stand 1 / lenience times as often. A rule asks to flip and to pick, and for no more.
        easy: Any = SimpleNamespace(pick=dice.pick, flip=lambda prob: dice.flip(prob / lenience))
        return rule(draft, p_target, easy)
    return judge


def forgiving(window: int, least: float, rule: Rule) -> Rule:
    """`rule`, which judges chains by coins, with some rejections overruled. window: 1 or more.

    Example: gamma 2, window 1, coins no, yes: both draft tokens are accepted where the target is
    unsure at the first place. With coins no, no or yes, no nothing is overruled.
    """
    def judge(draft: Draft, p_target: Tensor, dice: Any) -> tuple[Tensor, Tensor]:
        unsure = torch.special.entr(p_target[:, :-1]).sum(-1) >= least              # (B, gamma)

        def flip(prob: Tensor) -> Tensor:
            coins = dice.flip(prob)
            agrees = F.pad(coins, (0, window)).unfold(1, window + 1, 1)[..., 1:].all(-1)
            return coins | unsure & (prob > 0) & agrees
        easy: Any = SimpleNamespace(pick=dice.pick, flip=flip)
        return rule(draft, p_target, easy)
    return judge
