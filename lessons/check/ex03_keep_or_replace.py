"""Exercise 3: one guess, kept or replaced."""

import torch
import torch.nn.functional as F

from lessons.check.engine import Exercise, wrong
from lessons.check.pairs import PAIRS
from lessons.check.seen import Row, Seen, fits, look, token


def token_of(f, pair, dice) -> tuple[int, int]:
    p_target, q_draft = pair
    x = dice.pick(q_draft)
    return x, token(f.keep_or_replace(x, p_target.clone(), q_draft.clone(), dice), len(p_target), "keep_or_replace")


def contract(f) -> None:
    p_target, q_draft = PAIRS["four tokens"]
    for seed in range(3):                                           # a guess that the target likes better always stands
        token(f.keep_or_replace(0, p_target, q_draft, Row(seed=seed)), 4, "keep_or_replace")


def worked(f) -> list[Seen]:
    p_target, q_draft = PAIRS["worked example"]
    return [look("p_target [.5, .5], q_draft [.8, .2], x = 0",
                 lambda dice: token(f.keep_or_replace(0, p_target.clone(), q_draft.clone(), dice), 2,
                                    "keep_or_replace"), {0: .625, 1: .375})]


def exact(f) -> list[Seen]:
    return [look(f"{name}: p_target {pair[0].tolist()}, q_draft {pair[1].tolist()}",
                 lambda dice, pair=pair: token_of(f, pair, dice)[1], dict(enumerate(pair[0].tolist())))
            for name, pair in PAIRS.items()]


def pace(f) -> list[Seen]:
    """A replacement is never the guess itself, so the guess comes out as often as it is kept."""
    return [look(f"{name}: is the guess kept as often as it can be?",
                 lambda dice, pair=pair: "kept" if len(set(token_of(f, pair, dice))) == 1 else "replaced",
                 {"kept": (both := float(pair[0].minimum(pair[1]).sum())), "replaced": 1 - both})
            for name, pair in PAIRS.items()]


def real(f) -> str:
    pair = PAIRS["four tokens"]
    return fits(lambda dice: token_of(f, pair, dice)[1], dict(enumerate(pair[0].tolist())))


def rule(coin, replacement):
    """keep_or_replace with another coin, or another distribution to replace from."""
    def keep_or_replace(x, p_target, q_draft, dice):
        return x if dice.flip(coin(x, p_target, q_draft)) else dice.pick(replacement(x, p_target, q_draft))
    return keep_or_replace


def ratio(x, p, q):
    return min(1, p[x] / q[x])


def left(x, p, q):
    return (p - q).clamp(min=0)


def without(x, p, q):
    return p * (1 - F.one_hot(torch.tensor(x), len(p)))


EXERCISE = Exercise(
    "ex03_keep_or_replace.py", ("keep_or_replace",), contract,
    {"worked number": worked, "exact distribution": exact, "kept as often as it can be": pace},
    [wrong("residual-is-target", "after a refusal you draw from p_target, so that what the draft covered already is "
           "drawn a second time; draw from max(0, p_target - q_draft)", keep_or_replace=rule(ratio, lambda x, p, q: p)),
     wrong("residual-pointwise", "after a refusal you leave out the guess only, or take q_draft away there only; "
           "take it away from every token", keep_or_replace=rule(ratio, without)),
     wrong("residual-softmaxed", "you softmax the residual: it holds weights, not logits, and its zeros must stay "
           "zeros",
           keep_or_replace=rule(ratio, lambda x, p, q: left(x, p, q).softmax(0))),
     wrong("residual-absolute", "you draw from |p_target - q_draft|: where the draft has more, nothing is left, not "
           "more",
           keep_or_replace=rule(ratio, lambda x, p, q: (p - q).abs())),
     wrong("residual-reversed", "you draw from max(0, q_draft - p_target): the letters are the wrong way round",
           keep_or_replace=rule(ratio, lambda x, p, q: (q - p).clamp(min=0))),
     wrong("residual-unclamped", "you draw from p_target - q_draft, negative weights and all: cut them off at 0",
           keep_or_replace=rule(ratio, lambda x, p, q: p - q)),
     wrong("residual-argmax", "you replace by the likeliest token of the residual; draw from it",
           keep_or_replace=rule(ratio, lambda x, p, q: F.one_hot(left(x, p, q).argmax(), len(p)))),
     wrong("replaced-from-draft", "you replace by a new draw from the draft; the target must decide",
           keep_or_replace=rule(ratio, lambda x, p, q: q)),
     wrong("ratio-flipped", "you keep the guess with q_draft / p_target; it is p_target / q_draft",
           throw="flip", keep_or_replace=rule(lambda x, p, q: min(1, q[x] / p[x]) if p[x] else 1, left)),
     wrong("accept-everything", "you keep every guess: the text is the draft's",
           keep_or_replace=lambda x, p, q, dice: x),
     wrong("coin-is-target", "you keep the guess with probability p_target(x) and replace it from the residual; the "
           "coin is min(1, p_target(x) / q_draft(x))", throw="flip", keep_or_replace=rule(lambda x, p, q: p[x], left)),
     wrong("lenience", "your coin is kinder than the ratio, min(1, p / (0.8 q)): faster, and no longer lossless",
           throw="flip", keep_or_replace=rule(lambda x, p, q: min(1, p[x] / (.8 * q[x])), left)),
     wrong("threshold-acceptance", "you keep a guess whenever the target gives it more than a half: faster, and no "
           "longer "
           "lossless", throw="flip", keep_or_replace=rule(lambda x, p, q: ratio(x, p, q) + float(p[x] > .5), left)),
     wrong("coin-too-strict", "your coin is stricter than the ratio, 0.9 p / q: refusals then outnumber what is left "
           "to replace them from", throw="flip", keep_or_replace=rule(lambda x, p, q: .9 * ratio(x, p, q), left)),
     wrong("kept-if-likelier-else-redrawn", "you keep a guess that the target finds likelier and otherwise ask the "
           "target; throw the coin, and draw from the residual",
           keep_or_replace=lambda x, p, q, dice: x if p[x] >= q[x] else dice.pick(p)),
     wrong("greedy-acceptance", "you keep the guess only where it is the target's likeliest token: that is the rule of "
           "temperature 0, for laws that are one-hot",
           keep_or_replace=lambda x, p, q, dice: x if x == int(p.argmax()) else dice.pick(left(x, p, q))),
     wrong("kept-if-likelier", "you keep a guess that the target finds likelier, and none else; where the draft has "
           "more, throw the coin", throw="flip", keep_or_replace=rule(lambda x, p, q: float(p[x] >= q[x]), left)),
     wrong("sample-and-match", "the guess has no say: you draw from p_target, or keep the guess with p_target(x) "
           "alone, and it stands with probability sum p q instead of sum min(p, q)",
           keep_or_replace=lambda x, p, q, dice: dice.pick(p))],
    ("The draft proposed x more often than the target would. Which share of its proposals may stand?",
     "A coin with min(1, p_target[x] / q_draft[x]); if it falls, something must make up for the tokens that the draft "
     "proposes too rarely. Which, and by how much?",
     "if dice.flip(min(1, p_target[x] / q_draft[x])): return x; otherwise dice.pick(...) from what p_target has above "
     "q_draft, token by token, and 0 elsewhere"),
    [("nanospec.speculate", "verify", "x = draft.tokens", "stands ="),
     ("nanospec.speculate", "verify", "# What is replaced", "return accepted")],
    {"real dice": real}, slow_is_right=True)
