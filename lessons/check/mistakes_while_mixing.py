"""What people do wrong in exercise 21: the mixture, and a round towards it."""

from collections.abc import Callable

import torch

from lessons.cascade import DEFERRALS
from lessons.check.engine import wrong
from lessons.check.pairs import normal
from lessons.check.rounds import threshold
from nanospec.probs import residual


def right_mixture(p, q, a):
    return DEFERRALS["v1"](q, p, a)


def round_by(mix: Callable = right_mixture, goal: Callable | None = None, after: Callable | None = None,
             left: Callable = residual, chance: Callable = threshold) -> Callable:
    """one_round towards another goal (p, q, a, x) -> pi, with another last token, or another replacement."""
    def one_round(drafted, q_draft, p_target, a, dice):
        written = []
        for x, q, p in zip(drafted, q_draft, p_target):
            pi = goal(p, q, a, x) if goal else mix(p, q, a)
            if not dice.flip(chance(x, pi, q)):
                return [*written, dice.pick(left(pi, q) if left is residual else left(pi, q, p))]
            written.append(x)
        return written if after is None else [*written, dice.pick(after(q_draft, p_target, a))]
    return one_round


def mixing(mix: Callable) -> dict[str, Callable]:
    return {"mixture": mix, "one_round": round_by(mix)}


def of_deferred(p, q, a, best=None):
    return torch.where(q < (p.max() if best is None else best) - a, q, 0.0)


def with_ties(p, q, a):
    deferred = torch.where(q <= p.max() - a, q, 0.0)
    return q - deferred + p * deferred.sum()


def by_its_own_target(p, q, a):
    deferred = torch.where(q < p - a, q, 0.0)
    return q - deferred + p * deferred.sum()


def coin_of_the_target(drafted, q_draft, p_target, a, dice):
    written = []
    for x, q, p in zip(drafted, q_draft, p_target):
        if not dice.flip(threshold(x, p, q)):
            return [*written, dice.pick(residual(right_mixture(p, q, a), q))]
        written.append(x)
    return written


def each_token_alone(p, q, a):
    return torch.where(q < p.max() - a, p, q)


def whole_place(p, q, a):
    return p if q.max() < p.max() - a else q


def by_luck(p, q, a, x):
    return p if q[x] < p.max() - a else q


def goes_on(drafted, q_draft, p_target, a, dice):
    """The tokens after a rejection are judged as if nothing had happened."""
    written = []
    for x, q, p in zip(drafted, q_draft, p_target):
        pi = right_mixture(p, q, a)
        written.append(x if dice.flip(threshold(x, pi, q)) else dice.pick(residual(pi, q)))
    return written


def never_looks(drafted, q_draft, p_target, a, dice):
    """Drawn from pi, without a look at the draft token."""
    return [dice.pick(right_mixture(p_target[0], q_draft[0], a))]


def redrawn(drafted, q_draft, p_target, a, dice):
    """pi all the same: a deferred token gives way to a draw from the target."""
    written = []
    for x, q, p in zip(drafted, q_draft, p_target):
        if q[x] < p.max() - a:
            return [*written, dice.pick(p)]
        written.append(x)
    return written


WRONGS = [
    wrong("mixture-not-normalised", "you take p_target for the deferred tokens and q_draft for the others: this does "
          "not add up to 1; where the drafted token is deferred the target may write any token",
          **mixing(each_token_alone)),
    wrong("mixture-renormalised", "you take p_target for the deferred tokens and q_draft for the others, and divide "
          "by the sum: this adds up to 1 and is another distribution",
          **mixing(lambda p, q, a: normal(each_token_alone(p, q, a)))),
    wrong("deferred-weight-lost", "you cut the deferred tokens off and share their weight among the others: it goes "
          "to the target, to all tokens by p_target",
          **mixing(lambda p, q, a: normal(q - of_deferred(p, q, a)) if (q > of_deferred(p, q, a)).any() else p)),
    wrong("letters-swapped", "you have taken p_target for q_draft: the draft model's probability is compared, with the "
          "target's greatest", **mixing(lambda p, q, a: right_mixture(q, p, a))),
    wrong("letters-swapped", "you have taken p_target for q_draft: the draft model's probability is compared, with the "
          "target's greatest", one_round=round_by(lambda p, q, a: right_mixture(q, p, a))),
    wrong("drafts-own-maximum", "you compare with the greatest q_draft: it is the target's greatest that counts",
          **mixing(lambda p, q, a: q - of_deferred(p, q, a, q.max()) + p * of_deferred(p, q, a, q.max()).sum())),
    wrong("target-compared-with-itself", "you look at p_target(x); this rule looks at q_draft(x)",
          **mixing(lambda p, q, a: DEFERRALS["v2"](q, p, a))),
    wrong("whole-place-deferred", "you decide for the whole place, by the greatest q_draft; here every token is "
          "decided for on its own", **mixing(whole_place)),
    wrong("decided-by-the-drafted-token", "you look at the token that was drafted before you choose between p_target "
          "and q_draft: then what it is compared with depends on luck. pi is made of the two distributions alone",
          one_round=round_by(goal=by_luck)),
    wrong("bonus-from-target", "after the last draft token you draw from p_target: the text is then neither the "
          "target's nor the mixture's. There is no q_draft, so no pi, and the round ends with the draft",
          one_round=round_by(after=lambda q, p, a: p[-1])),
    wrong("bonus-with-the-last-q", "after the last draft token you mix with the last q_draft: that one belongs to "
          "the place before. The round ends with the draft",
          one_round=round_by(after=lambda q, p, a: right_mixture(p[-1], q[-1], a))),
    wrong("towards-the-target", "you verify with p_target: that is lossless, and pi is never written; p_target gives "
          "way to pi in the threshold and in the residual", one_round=round_by(lambda p, q, a: p)),
    wrong("residual-of-the-target", "after a rejection you draw from max(0, p_target - q_draft): what is left of pi "
          "belongs there", one_round=round_by(left=lambda pi, q, p: residual(p, q))),
    wrong("residual-is-pi", "after a rejection you draw from pi, so that what q_draft covered already is drawn a "
          "second time", one_round=round_by(left=lambda pi, q, p: pi)),
    wrong("replacement-from-target", "after a rejection you draw from p_target: draw from what is left of pi",
          one_round=round_by(left=lambda pi, q, p: p)),
    wrong("goes-on-after-a-rejection", "after a rejection you go on with the next draft token: it was drafted for a "
          "text "
          "that no longer exists, and the round ends", one_round=goes_on),
    wrong("coin-of-the-target", "your threshold is p_target / q_draft: pi is what the text is to be, so it is "
          "pi / q_draft",
          one_round=coin_of_the_target),
    wrong("draft-ignored", "you draw from pi and never look at the draft token: nothing is gained",
          one_round=never_looks),
    *(wrong("tie-deferred", "a token whose q_draft is exactly the greatest p_target minus a stays with the draft "
            "model: less than that is deferred, not as much", **of) for of in (
          {"mixture": with_ties}, mixing(with_ties))),
    wrong("plus-a", "you add a to the greatest p_target: it is taken away from it", **mixing(
        lambda p, q, a: right_mixture(p, q, -a))),
    wrong("compared-token-by-token", "you compare q_draft(x) with p_target(x) minus a: it is the greatest p_target "
          "that "
          "counts, for every token", **mixing(by_its_own_target)),
    wrong("redrawn-where-deferred", "you reject every deferred token and draw from p_target: the distribution is pi, "
          "and fewer draft tokens are accepted; a deferred token may stand as often as pi / q_draft says",
          one_round=redrawn)]
