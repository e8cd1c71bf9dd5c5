"""Exercise 3: one draft token, accepted or replaced."""

import torch
import torch.nn.functional as F

from lessons.check.answered import token
from lessons.check.engine import Exercise, wrong
from lessons.check.pairs import EPSILONS, GUARDS, PAIRS, short
from lessons.check.seen import Row, Seen, fits, look, not_drawn_again


def answered(f, x: int, p_target, q_draft, dice) -> int:
    return token(f.accept_or_replace(x, p_target, q_draft, dice), len(p_target), "accept_or_replace")


def token_of(f, pair, dice) -> tuple[int, int]:
    p_target, q_draft = pair
    x = dice.pick(q_draft)
    return x, answered(f, x, p_target, q_draft, dice)


def contract(f) -> None:
    for seed in range(3):                               # a token that the target likes better is always accepted
        answered(f, 0, *PAIRS["four tokens"], row := Row(seed=seed))
        not_drawn_again(row, PAIRS["four tokens"][1])


def worked(f) -> list[Seen]:
    return [look("p_target [.5, .5], q_draft [.8, .2], x = 0",
                 lambda dice: answered(f, 0, *PAIRS["worked example"], dice), {0: .625, 1: .375})]


def exact(f) -> list[Seen]:
    return [look(f"{name}: p_target {short(pair[0])}, q_draft {short(pair[1])}",
                 lambda dice, pair=pair: token_of(f, pair, dice)[1], dict(enumerate(pair[0].tolist())))
            for name, pair in PAIRS.items()]


def pace(f) -> list[Seen]:
    """A replacement is never the draft token itself, so that token comes out as often as it is accepted."""
    return [look(f"{name}: is the draft token accepted as often as it can be?",
                 lambda dice, pair=pair: "accepted" if len(set(token_of(f, pair, dice))) == 1 else "replaced",
                 {"accepted": (both := float(pair[0].minimum(pair[1]).sum())), "replaced": 1 - both})
            for name, pair in PAIRS.items()]


def real(f) -> str:
    pair = PAIRS["four tokens"]
    return fits(lambda dice: token_of(f, pair, dice)[1], dict(enumerate(pair[0].tolist())))


def rule(coin, replacement):
    """accept_or_replace with another threshold, or another distribution to replace from."""
    def accept_or_replace(x, p_target, q_draft, dice):
        return x if dice.flip(coin(x, p_target, q_draft)) else dice.pick(replacement(x, p_target, q_draft))
    return accept_or_replace


def ratio(x, p, q):
    return min(1, p[x] / q[x])


def left(x, p, q):
    return (p - q).clamp(min=0)


def without(x, p, q):
    return p * (1 - F.one_hot(torch.tensor(x), len(p)))


def with_constant(x, p, q, where=slice(None)):
    """The threshold of rejection sampling."""
    return p[x] / ((p / q)[where].max() * q[x])


def weights(name: str, said: str, replacement):
    """A mistake in what is drawn from."""
    return wrong(name, said, accept_or_replace=rule(ratio, replacement))


def coin(name: str, said: str, probability):
    """A mistake in the threshold of the coin."""
    return wrong(name, said, "flip", accept_or_replace=rule(probability, left))


def two_coins(both: bool):
    """The threshold of two coins for the same draft token: either accepts, or both must."""
    def probability(x, p, q):
        once = ratio(x, p, q)
        return once * once if both else 1 - (1 - once) ** 2
    return probability


def kept_and_dropped(x, p, q, dice):
    """A forgotten return in front of the accepted token."""
    dice.flip(ratio(x, p, q))
    return dice.pick(left(x, p, q))


EXERCISE = Exercise(
    "ex03_accept_or_replace.py", ("accept_or_replace",), contract,
    {"worked number": worked, "exact distribution": exact, "accepted as often as it can be": pace},
    [weights("residual-is-target", "after a rejection you draw from p_target, so that what the draft model covers "
             "is drawn a second time; draw from max(0, p_target - q_draft)", lambda x, p, q: p),
     *(weights("guard-too-wide", "where little is left you draw from p_target: where something was rejected, something "
               "is left, and that is right however little it is", lambda x, p, q, guard=guard: (
                   left(x, p, q) if left(x, p, q).sum() > guard else p)) for guard in GUARDS[:-1]),
     weights("residual-pointwise", "after a rejection you leave out the draft token only, or take q_draft away there "
             "only; take it away from every token", without),
     weights("residual-softmaxed", "you softmax the residual: it holds weights, not logits, and its zeros must stay "
             "zeros", lambda x, p, q: left(x, p, q).softmax(0)),
     weights("residual-softmaxed", "you softmax p_target - q_draft: these are weights, not logits; cut them off at 0 "
             "instead", lambda x, p, q: (p - q).softmax(0)),
     weights("residual-absolute", "you draw from |p_target - q_draft|: where q_draft has more, nothing is left, not "
             "more", lambda x, p, q: (p - q).abs()),
     weights("residual-reversed", "you draw from max(0, q_draft - p_target): the letters are the wrong way round",
             lambda x, p, q: (q - p).clamp(min=0)),
     weights("residual-unclamped", "you draw from p_target - q_draft, negative weights and all: cut them off at 0",
             lambda x, p, q: p - q),
     weights("residual-argmax", "you replace by the likeliest token of the residual; draw from it",
             lambda x, p, q: F.one_hot(left(x, p, q).argmax(), len(p))),
     weights("replaced-from-draft", "you replace by a new draw from q_draft; the target must decide",
             lambda x, p, q: q),
     *(weights("epsilon-in-the-residual", "you add a little number to the residual: tokens that must never replace "
               "now do, if rarely; its total is never 0 where something was rejected, so leave it as it is",
               lambda x, p, q, epsilon=epsilon: left(x, p, q) + epsilon) for epsilon in EPSILONS),
     *(coin("epsilon-in-the-coin", "you add a little number to q_draft(x) in the threshold; x was drawn from it, so "
            "it is never 0 there", lambda x, p, q, epsilon=epsilon: min(1, p[x] / (q[x] + epsilon)))
       for epsilon in EPSILONS),
     wrong("letters-swapped", "you have p_target and q_draft the wrong way round, in the threshold and in the "
           "residual: papers swap the letters. Here p is the target's and q the draft model's", "flip",
           accept_or_replace=rule(
               lambda x, p, q: min(1, q[x] / p[x]) if p[x] else 1, lambda x, p, q: left(x, q, p))),
     *(coin("coin-thrown-twice", f"your rule accepts as if it flipped two coins for one draft token, and {which}: it "
            "has "
            "one coin, flip it once and keep what it says", two_coins(both)) for both, which in (
                (False, "either were enough"), (True, "both had to say so"))),
     coin("share-of-both", "your threshold is p / (p + q); it is min(1, p_target(x) / q_draft(x)): a token that the "
          "target likes as much as the draft model is always accepted", lambda x, p, q: p[x] / (p[x] + q[x])),
     wrong("accepted-token-not-returned", "you draw from the residual in any case: where the coin accepts, x itself "
           "must be returned; is a return missing?", accept_or_replace=kept_and_dropped),
     weights("residual-unclamped", "you divide p_target - q_draft by its sum, which is 0 but for rounding, and draw "
             "from "
             "that, negative weights and all: cut them off at 0 first", lambda x, p, q: (p - q) / (p - q).sum()),
     coin("ratio-flipped", "you accept with q_draft / p_target; it is p_target / q_draft",
          lambda x, p, q: min(1, q[x] / p[x]) if p[x] else 1),
     wrong("accept-everything", "you accept every draft token: the text is the draft model's",
           accept_or_replace=lambda x, p, q, dice: x),
     *(wrong("coin-of-rejection-sampling", "you divide the ratio by the constant C, as rejection sampling does, which "
             "tries again. Here the residual makes up for what is rejected, and the threshold is min(1, p_target(x) / "
             "q_draft(x))", "flip", accept_or_replace=rule(
                 lambda x, p, q, where=where: with_constant(x, p, q, q > 0 if where else slice(None)), instead))
       for where in (False, True) for instead in (left, lambda x, p, q: p)),
     coin("coin-inverted", "you replace where the coin says accept, and accept where it says reject",
          lambda x, p, q: 1 - ratio(x, p, q)),
     coin("ratio-without-a-coin", "you accept whenever p_target(x) / q_draft(x) is above a half; it is the threshold "
          "of a coin, and the coin must be flipped", lambda x, p, q: float(p[x] / q[x] > .5)),
     coin("coin-is-target", "you accept with probability p_target(x) and replace from the residual; the threshold is "
          "min(1, p_target(x) / q_draft(x))", lambda x, p, q: p[x]),
     coin("lenience", "your threshold is above the ratio, min(1, p / (0.8 q)): faster, and no longer lossless",
          lambda x, p, q: min(1, p[x] / (.8 * q[x]))),
     coin("threshold-acceptance", "you accept a draft token whenever the target gives it more than a half: faster, and "
          "no longer lossless", lambda x, p, q: ratio(x, p, q) + float(p[x] > .5)),
     coin("coin-too-strict", "your threshold is below the ratio, 0.9 p / q: rejections then outnumber what is left "
          "to replace them from", lambda x, p, q: .9 * ratio(x, p, q)),
     wrong("accepted-if-likelier-else-redrawn", "you accept a draft token that the target finds likelier and otherwise "
           "ask the target; flip the coin, and draw from the residual",
           accept_or_replace=lambda x, p, q, dice: x if p[x] >= q[x] else dice.pick(p)),
     wrong("greedy-acceptance", "you accept the draft token only where it is the target's likeliest: that is the rule "
           "of temperature 0, for distributions that are one-hot",
           accept_or_replace=lambda x, p, q, dice: x if x == int(p.argmax()) else dice.pick(left(x, p, q))),
     coin("accepted-if-likelier", "you accept a draft token that the target finds likelier, and no other; where the "
          "draft model has more, flip the coin", lambda x, p, q: float(p[x] >= q[x])),
     wrong("sample-and-match", "the draft token has no say: you draw from p_target, or accept with p_target(x) alone, "
           "and it is accepted with probability sum p q instead of sum min(p, q)",
           accept_or_replace=lambda x, p, q, dice: dice.pick(p))],
    ("The draft model proposed x more often than the target would. Which share of its proposals may be accepted?",
     "A coin with the threshold min(1, p_target[x] / q_draft[x]); if it rejects, something must make up for the "
     "tokens that the draft model proposes too rarely. Which, and by how much?",
     "if dice.flip(min(1, p_target[x] / q_draft[x])): return x; otherwise dice.pick(...) from what p_target has above "
     "q_draft, token by token, and 0 elsewhere"),
    [("nanospec.speculate", "verify", "x = draft.tokens", "coins ="),
     ("nanospec.speculate", "verify", "# 4. The", "return accepted")],
    {"real dice": real}, speed="accepted as often as it can be")
