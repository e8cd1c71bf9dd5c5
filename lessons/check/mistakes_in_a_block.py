"""What people do wrong in exercise 14, block verification: the rule in parts, each of them changed."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate

import torch

from lessons.check.engine import wrong


def right_weights(ratios) -> list[float]:
    return list(accumulate(map(float, ratios), lambda w, ratio: min(1.0, w * ratio), initial=1.0))


def missing(i, w, p, q):
    return (w[i] * p[i] - q[i]).clamp(min=0) if i < len(q) else p[i]


def plain_missing(i, w, p, q):
    return missing(i, [1.0] * len(p), p, q)


def coin_of(of: Callable) -> Callable:
    """Z / (Z + 1 - w) of what is missing by that function; after the last draft token w."""
    def coin(i, w, p, q):
        total = of(i, w, p, q).sum()
        return w[i] if i == len(q) else total / (total + 1 - w[i])
    return coin


def longest(accepts: Callable, gamma: int) -> int:
    return next((i for i in range(gamma, 0, -1) if accepts(i)), 0)


def before_the_first_rejection(accepts: Callable, gamma: int) -> int:
    return next((i - 1 for i in range(1, gamma + 1) if not accepts(i)), gamma)


def judged(drafted, q, p, dice, weigh: Callable = right_weights, coin: Callable = coin_of(missing),
           choose: Callable = longest, of: Callable = missing) -> tuple[int, int]:
    w = weigh([p[i, x] / q[i, x] for i, x in enumerate(drafted)])
    accepted = choose(lambda i: dice.flip(coin(i, w, p, q)), len(drafted))
    return accepted, dice.pick(of(accepted, w, p, q))


def token_by_token(drafted, q, p, dice):
    def accepts(i: int) -> bool:
        return dice.flip(p[i - 1, drafted[i - 1]] / q[i - 1, drafted[i - 1]])
    accepted = before_the_first_rejection(accepts, len(q))
    return accepted, dice.pick(plain_missing(accepted, None, p, q))


def decides(**changes: Callable) -> dict:
    return {"verify_block": partial(judged, **changes)}


def coin(of_others: Callable) -> dict:
    """Another coin, but after the last draft token."""
    return decides(coin=lambda i, w, p, q: w[i] if i == len(q) else of_others(w[i], missing(i, w, p, q).sum()))


def weighs(weigh: Callable) -> dict:
    return {"weights": weigh} | decides(weigh=weigh)


def products(ratios) -> list[float]:
    return list(accumulate(map(float, ratios), lambda w, ratio: w * ratio, initial=1.0))


WRONGS = [
    wrong("no-inner-minimum", "you cut the product of the ratios at 1 once, at the end; cut it at every step: what is "
          "above 1 there is lost", **weighs(lambda ratios: [min(1, w) for w in products(ratios)])),
    wrong("no-minimum", "you never cut the running product: no weight is above 1", **weighs(products)),
    wrong("ratios-cut-first", "you cut every ratio at 1 before you multiply; cut the product, and one draft "
          "token can make up for another", **weighs(lambda ratios: products([min(1, ratio) for ratio in ratios]))),
    wrong("token-by-token", "you judge the draft tokens one by one, as in *A draft and a bonus*, and end at the first "
          "rejection",
          "flip", verify_block=token_by_token),
    wrong("first-failing-coin-ends-it", "you end at the first coin that says no; a later one may say accept, and then "
          "all before it are accepted", "flip", **decides(choose=before_the_first_rejection)),
    wrong("shortest-cut-made", "you make the shortest cut whose coin says accept; make the longest", "flip",
          **decides(choose=lambda accepts, gamma: next(filter(accepts, range(1, gamma + 1)), 0))),
    wrong("accepting-coins-counted", "you count the coins that say accept; make the longest cut whose coin does",
          "flip",
          **decides(choose=lambda accepts, gamma: sum(map(accepts, range(1, gamma + 1))))),
    wrong("accept-everything", "you accept the whole draft, whatever the coins say", "flip",
          **decides(choose=lambda accepts, gamma: gamma)),
    wrong("all-or-nothing", "where not all draft tokens are accepted you accept none; every cut has a coin", "flip",
          **decides(choose=lambda accepts, gamma: gamma * accepts(gamma))),
    wrong("coin-is-the-weight", "your threshold is w everywhere; it is so after the last token only: elsewhere longer "
          "cuts come first, and it is Z / (Z + 1 - w)", "flip", **coin(lambda w, total: w)),
    wrong("coin-is-the-total", "your threshold is Z; divide it by Z + 1 - w, how often no longer cut is made", "flip",
          **coin(lambda w, total: total)),
    wrong("one-forgotten", "you divide by Z + w; it is Z + 1 - w, how often no longer cut is made", "flip",
          **coin(lambda w, total: total / (total + w))),
    wrong("total-forgotten", "you divide by 1 - w; it is Z + 1 - w, how often no longer cut is made", "flip",
          **coin(lambda w, total: total / (1 - w))),
    wrong("last-coin-as-the-others", "you take the last of q_draft away after the last token too, where "
          "nothing was drafted: the threshold there is w", "flip",
          **decides(coin=lambda i, w, p, q: coin_of(missing)(i, w, p, torch.cat([q, q[-1:]])))),
    wrong("coin-unweighted", "the Z of your threshold is the total of max(0, p_target - q_draft): multiply p_target "
          "by w first", "flip", **decides(coin=coin_of(plain_missing))),
    wrong("residual-unweighted", "at a cut you draw from max(0, p_target - q_draft): multiply p_target by w first",
          **decides(of=plain_missing)),
    wrong("both-unweighted", "you multiply p_target by w neither for the threshold nor for the draw",
          **decides(coin=coin_of(plain_missing), of=plain_missing)),
    wrong("weight-of-the-last", "you draw with the weight of the whole draft; the one at the cut belongs there",
          **decides(of=lambda i, w, p, q: missing(i, w[-1:] * len(w), p, q))),
    wrong("residual-is-target", "at a cut you draw from p_target; what q_draft has covered must go",
          **decides(of=lambda i, w, p, q: p[i])),
    wrong("row-before", "at a cut you draw one place too early; the token comes after the last one that is accepted",
          **decides(of=lambda i, w, p, q: missing(i if i == len(q) else max(0, i - 1), w, p, q))),
    wrong("bonus-one-place-early", "where all are accepted you draw at the place of the last one; the bonus follows it",
          **decides(of=lambda i, w, p, q: missing(i, w, p, q) if i < len(q) else p[i - 1])),
    wrong("bonus-from-draft", "where all are accepted you take the last of q_draft away; nothing was "
          "drafted there",
          **decides(of=lambda i, w, p, q: missing(i, w, p, torch.cat([q, q[-1:]]))))]
