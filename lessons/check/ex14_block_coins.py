"""Exercise 14: block verification, for one text."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate

import torch

from lessons.check.block import distribution_of
from lessons.check.engine import Exercise, wrong
from lessons.check.pairs import vector
from lessons.check.seen import Failure, Row, Seen, look, token, values
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import target_distribution, walk

TABLES = {"three tokens, two guesses": (TableModel(3, 14, zeros=0), TableModel(3, 314, zeros=0), (1, 0), 2),
          "two tokens, three guesses": (TableModel(2, 3, zeros=0), TableModel(2, 4, zeros=0), (1,), 3),
          "three tokens, some forbidden": (TableModel(3, 18, zeros=0.3), TableModel(3, 118, zeros=0.3), (2, 0), 2)}
TOY = vector(2, 1).div(3).repeat(2, 1), vector(1, 2).div(3).repeat(3, 1)               # q_draft, p_target
RATIOS = [[.5, 2], [4, .25], [2, 3, .5, .5], [.5, .5, 8, .9, .1, 9], [0, 5], [1], []]


def right_weights(ratios) -> list[float]:
    return list(accumulate(map(float, ratios), lambda w, ratio: min(1.0, w * ratio), initial=1.0))


def judged_by(f, drafted: list[int], q_draft, p_target, dice) -> tuple[int, int]:
    """The learner's answer, as two ints."""
    found = f.block(list(drafted), q_draft.clone(), p_target.clone(), dice)
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise Failure(f"block must return two ints, how many guesses stay and a token; it returned {found!r:.80}")
    kept = found[0].item() if isinstance(found[0], torch.Tensor) else found[0]
    if type(kept) is not int or not 0 <= kept <= len(drafted):
        raise Failure(f"how many guesses stay must be an int in 0..{len(drafted)}; block returned {kept!r:.80}")
    return kept, token(found[1], p_target.shape[1], "block, behind the guesses that stay,")


def one_round(f, dice, target, draft, ids, gamma) -> tuple[int, tuple[int, ...]]:
    """How many of gamma guesses stay, and what the round has written."""
    drafted, q_draft = [], []
    for _ in range(gamma):
        q_draft.append(distribution_of(draft, (*ids, *drafted)))
        drafted.append(dice.pick(q_draft[-1]))
    p_target = [distribution_of(target, (*ids, *drafted[:i])) for i in range(gamma + 1)]
    kept, last = judged_by(f, drafted, torch.stack(q_draft), torch.stack(p_target), dice)
    return kept, (*drafted[:kept], last)


def whole(f, dice, target, draft, ids, gamma) -> tuple[int, ...]:
    """A round, and the target alone up to gamma + 1 tokens."""
    text = one_round(f, dice, target, draft, ids, gamma)[1]
    while len(text) < gamma + 1:
        text += (dice.pick(distribution_of(target, (*ids, *text))),)
    return text


def most_kept(target, draft, ids, gamma, w=1.0) -> float:
    """Guesses 1 to i stay with the mean of w_i; added up."""
    if gamma == 0:
        return 0.0
    both = zip(distribution_of(target, ids).tolist(), distribution_of(draft, ids).tolist())
    after = {x: (q, min(1.0, w * p / q)) for x, (p, q) in enumerate(both) if q > 0}
    return sum(q * (w_x + most_kept(target, draft, (*ids, x), gamma - 1, w_x)) for x, (q, w_x) in after.items())


def contract(f) -> None:
    found = f.weights([.5, 2])
    if not isinstance(found, list) or len(found) != 3:
        raise Failure(f"weights of two ratios must return a list of three numbers; it returned {found!r:.80}")
    for seed in range(3):
        judged_by(f, [1, 1], *TOY, Row(seed=seed))


def weights_of(f, ratios) -> Seen:
    return values(f"weights of {ratios}", lambda: {f"w_{i}": w for i, w in enumerate(f.weights(list(ratios)))},
                  {f"w_{i}": w for i, w in enumerate(right_weights(ratios))})


def worked(f) -> list[Seen]:
    right = {(0, 1): {(2, 0): 1 / 3, (2, 1): 2 / 3}, (0, 0): {(2, 0): 1 / 12, (2, 1): 1 / 6, (0, 1): 3 / 4}}
    return [weights_of(f, [.5, 2]), *(
        look(f"p_target [1/3, 2/3], q_draft [2/3, 1/3] everywhere, drafted {list(drafted)}: how many stay, the token",
             lambda dice, drafted=drafted: judged_by(f, drafted, *TOY, dice), expected)
        for drafted, expected in right.items())]


def exact(f) -> list[Seen]:
    return [look(f"{name}: the law of {case[3] + 1} tokens", lambda dice, case=case: whole(f, dice, *case),
                 target_distribution(case[0], case[2], case[3] + 1)) for name, case in TABLES.items()]


def pace(f) -> list[Seen]:
    def kept(case) -> dict:
        found, _ = walk(lambda dice: one_round(f, Row(dice), *case)[0])
        return {"guesses that stay": sum(n * weight for n, weight in found.items())}
    return [values(f"{name}, on average", lambda case=case: kept(case), {"guesses that stay": most_kept(*case)})
            for name, case in TABLES.items()]


def equal(f) -> None:
    both = torch.tensor([[.25, .75, 0], [0, .5, .5], [.5, 0, .5]], dtype=torch.float64)
    seen = look("both models have the same laws, drafted [1, 2]: how many stay, the token",
                lambda dice: judged_by(f, [1, 2], both[:2], both, dice), {(2, 0): .5, (2, 2): .5})
    if seen.differences():
        raise Failure(f"{seen}\nwhere w is 1 and both laws are the same nothing is owed, and the coin is 0 / 0: if you "
                      "throw it, let it stand")


# Known mistakes: other weights, another coin, another choice among the cuts that stand, a token from elsewhere.

def owed(i, w, p, q):
    return (w[i] * p[i] - q[i]).clamp(min=0) if i < len(q) else p[i]


def plain_owed(i, w, p, q):
    return owed(i, [1.0] * len(p), p, q)


def coin_of(of: Callable) -> Callable:
    """Z / (Z + 1 - w) of what is owed by that function; behind the last guess w."""
    def coin(i, w, p, q):
        total = of(i, w, p, q).sum()
        return w[i] if i == len(q) else total / (total + 1 - w[i])
    return coin


def longest(stands: Callable, gamma: int) -> int:
    return next((i for i in range(gamma, 0, -1) if stands(i)), 0)


def before_the_first_to_fall(stands: Callable, gamma: int) -> int:
    return next((i - 1 for i in range(1, gamma + 1) if not stands(i)), gamma)


def judged(drafted, q, p, dice, weigh: Callable = right_weights, coin: Callable = coin_of(owed),
           choose: Callable = longest, of: Callable = owed) -> tuple[int, int]:
    w = weigh([p[i, x] / q[i, x] for i, x in enumerate(drafted)])
    kept = choose(lambda i: dice.flip(coin(i, w, p, q)), len(drafted))
    return kept, dice.pick(of(kept, w, p, q))


def token_by_token(drafted, q, p, dice):
    kept = before_the_first_to_fall(lambda i: dice.flip(p[i - 1, drafted[i - 1]] / q[i - 1, drafted[i - 1]]), len(q))
    return kept, dice.pick(plain_owed(kept, None, p, q))


def decides(**changes: Callable) -> dict:
    return {"block": partial(judged, **changes)}


def coin(of_others: Callable) -> dict:
    """Another coin, but behind the last guess."""
    return decides(coin=lambda i, w, p, q: w[i] if i == len(q) else of_others(w[i], owed(i, w, p, q).sum()))


def weighs(weigh: Callable) -> dict:
    return {"weights": weigh} | decides(weigh=weigh)


def products(ratios) -> list[float]:
    return list(accumulate(map(float, ratios), lambda w, ratio: w * ratio, initial=1.0))


EXERCISE = Exercise(
    "ex14_block_coins.py", ("weights", "block"), contract,
    {"worked number": worked, "weights": lambda f: [weights_of(f, ratios) for ratios in RATIOS],
     "exact distribution": exact, "kept as often as it can be": pace},
    [wrong("no-inner-minimum", "you cut the product of the ratios at 1 once, at the end; cut it at every step: what is "
           "above 1 there is lost", **weighs(lambda ratios: [min(1, w) for w in products(ratios)])),
     wrong("no-minimum", "you never cut the running product: no weight is above 1", **weighs(products)),
     wrong("ratios-cut-first", "you cut every ratio at 1 before you multiply; cut the product, and one guess can make "
           "up for another", **weighs(lambda ratios: products([min(1, ratio) for ratio in ratios]))),
     wrong("token-by-token", "you judge the guesses one by one, as in lesson 7, and end at the first that falls",
           "flip", block=token_by_token),
     wrong("first-failing-coin-ends-it", "you end at the first coin that falls; a later one may stand, and then all "
           "before it stay", "flip", **decides(choose=before_the_first_to_fall)),
     wrong("smallest-that-stands", "you make the shortest cut whose coin stands; make the longest", "flip",
           **decides(choose=lambda stands, gamma: next(filter(stands, range(1, gamma + 1)), 0))),
     wrong("standing-coins-counted", "you count the coins that stand; make the longest cut whose coin does", "flip",
           **decides(choose=lambda stands, gamma: sum(map(stands, range(1, gamma + 1))))),
     wrong("accept-everything", "you keep the whole draft, whatever the coins say", "flip",
           **decides(choose=lambda stands, gamma: gamma)),
     wrong("all-or-nothing", "where not all guesses stay you keep none; every cut has a coin", "flip",
           **decides(choose=lambda stands, gamma: gamma * stands(gamma))),
     wrong("coin-is-the-weight", "your coin is w everywhere; it is so behind the last guess only: elsewhere longer "
           "cuts come first, and it is Z / (Z + 1 - w)", "flip", **coin(lambda w, total: w)),
     wrong("coin-is-the-total", "your coin is Z; divide it by Z + 1 - w, how often no longer cut stands", "flip",
           **coin(lambda w, total: total)),
     wrong("one-forgotten", "you divide by Z + w; it is Z + 1 - w, how often no longer cut stands", "flip",
           **coin(lambda w, total: total / (total + w))),
     wrong("total-forgotten", "you divide by 1 - w; it is Z + 1 - w, how often no longer cut stands", "flip",
           **coin(lambda w, total: total / (1 - w))),
     wrong("last-coin-as-the-others", "you take the draft's last law away behind the last guess too, where nobody "
           "guessed: the coin there is w", "flip",
           **decides(coin=lambda i, w, p, q: coin_of(owed)(i, w, p, torch.cat([q, q[-1:]])))),
     wrong("coin-unweighted", "the Z of your coin is the total of max(0, p_target - q_draft): multiply p_target by w "
           "first", "flip", **decides(coin=coin_of(plain_owed))),
     wrong("residual-unweighted", "at a cut you draw from max(0, p_target - q_draft): multiply p_target by w first",
           **decides(of=plain_owed)),
     wrong("both-unweighted", "you multiply p_target by w neither for the coin nor for the draw",
           **decides(coin=coin_of(plain_owed), of=plain_owed)),
     wrong("weight-of-the-last", "you draw with the weight of the whole draft; the one at the cut belongs there",
           **decides(of=lambda i, w, p, q: owed(i, w[-1:] * len(w), p, q))),
     wrong("residual-is-target", "at a cut you draw from p_target; what the draft has covered must go",
           **decides(of=lambda i, w, p, q: p[i])),
     wrong("row-before", "at a cut you draw from the row before; the token comes behind the last guess that stays",
           **decides(of=lambda i, w, p, q: owed(i if i == len(q) else max(0, i - 1), w, p, q))),
     wrong("bonus-one-row-early", "where all stay you draw from the row of the last guess; the bonus comes behind it",
           **decides(of=lambda i, w, p, q: owed(i, w, p, q) if i < len(q) else p[i - 1])),
     wrong("bonus-from-draft", "where all stay you take the draft's last law away; nobody guessed there",
           **decides(of=lambda i, w, p, q: owed(i, w, p, torch.cat([q, q[-1:]]))))],
    ("A ratio of 1/2 and then one of 2: does the target like the two guesses together less than the draft does? Which "
     "running product says so, and may it ever exceed 1?",
     "Go from the longest cut to the shortest and make the first whose coin stands: no other coin is needed then. "
     "Behind the last guess there is no law of the draft.",
     "w = weights(...); if dice.flip(w[gamma]) all stay; then for i from gamma - 1 down to 0 owed = (w[i] * p_target[i]"
     " - q_draft[i]).clamp(min=0), and the coin is owed.sum() / (owed.sum() + 1 - w[i]), at 0 none"),
    [("nanospec.rules.block", "verify_block", "w = [", "w = torch.stack"),
     ("nanospec.rules.block", "verify_block", "q_behind =", "accepted =")],
    {"equal laws": equal}, slow_is_right=True)
