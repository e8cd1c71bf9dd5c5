"""Exercise 8: temperature and top-k, the same for both models."""

from functools import partial

import torch

from lessons.check.block import GAMMA, IDS, block
from lessons.check.engine import Exercise, wrong
from lessons.check.seen import Seen, look, values, weights_like
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import target_distribution

TARGET4, DRAFT4 = TableModel(4, 3), TableModel(4, 4)
LOGITS = torch.tensor([[0.0, 1.0, 2.0, 3.0], [2.0, -1.0, float("-inf"), 0.5], [5.0, 4.9, -3.0, 0.0],
                       [1.0, 0.0, 1.0, 0.5]], dtype=torch.float64)
LOGITS[3, 2] += 1e-12           # nearly a tie: at temperature 0 still a one-hot, which no division by 1e-10 makes
SETTINGS = [(1.0, None), (0.7, None), (2.0, 3), (0.7, 2), (1.0, 1), (0.0, None), (0.0, 2), (1.3, 9)]


def contract(f) -> None:
    weights_like(f.law(LOGITS[0].clone(), 1.0, None), (4,), "law")


def worked(f) -> list[Seen]:
    logits = torch.tensor([1.0, 3.0], dtype=torch.float64).log()
    return [values(f"logits [0, log 3], temperature {t:g}, top_k {k}",
                   lambda t=t, k=k: dict(enumerate(weights_like(f.law(logits.clone(), t, k), (2,), "law").tolist())),
                   dict(enumerate(right)))
            for t, k, right in ((1, None, (.25, .75)), (.5, None, (.1, .9)), (0, None, (0, 1)), (1, 1, (0, 1)))]


def exact_values(f) -> list[Seen]:
    return [values(f"logits {[round(x, 1) for x in logits.tolist()]}, temperature {t:g}, top_k {k}",
                   lambda logits=logits, t=t, k=k: dict(enumerate(
                       weights_like(f.law(logits.clone(), t, k), (4,), "law").tolist())),
                   dict(enumerate(probs(logits, t, k).tolist()))) for t, k in SETTINGS for logits in LOGITS]


def exact(f) -> list[Seen]:
    def warp(logits):
        return weights_like(f.law(logits.clone(), 0.7, 2), (4,), "law")
    return [look("a block of two guesses, both models through your law: temperature 0.7, top_k 2",
                 lambda dice: block(dice, TARGET4, DRAFT4, warp=warp),
                 target_distribution(TARGET4, IDS, GAMMA + 1, temperature=0.7, top_k=2))]


def warped(logits, temperature, top_k, warm=lambda x, t: x / t, kept=lambda k: k, last=lambda x: x.softmax(-1)):
    if temperature == 0:
        return probs(logits, 0)
    logits = warm(logits, temperature)
    if top_k is not None and kept(top_k) < len(logits):
        logits = logits.masked_fill(logits < logits.topk(kept(top_k)).values[-1], float("-inf"))
    return last(logits)


def not_renormalised(logits, temperature, top_k):
    plain = warped(logits, temperature, None)
    return plain * (warped(logits, temperature, top_k) > 0)


def zero_logits(logits, temperature, top_k):
    kept = warped(logits, temperature, top_k) > 0
    return (logits / temperature).where(kept | (top_k is None), 0.0).softmax(-1) if temperature else probs(logits, 0)


EXERCISE = Exercise(
    "ex08_warp.py", ("law",), contract,
    {"worked number": worked, "values": exact_values, "exact distribution": exact},
    [wrong("temperature-multiplied", "you multiply by the temperature; a low one must make the law sharper, so divide",
           law=partial(warped, warm=lambda x, t: x * t)),
     wrong("temperature-forgotten", "the temperature changes nothing: it must divide the logits before the softmax",
           law=partial(warped, warm=lambda x, t: x)),
     wrong("top-k-forgotten", "top_k changes nothing", law=partial(warped, kept=lambda k: 99)),
     wrong("top-k-one-more", "you keep one token too many", law=partial(warped, kept=lambda k: k + 1)),
     wrong("top-k-not-renormalised", "what is left after top-k must add up to 1 again", law=not_renormalised),
     wrong("masked-with-zero", "you set the other logits to 0; a logit of 0 is no small one: -inf is",
           law=zero_logits),
     wrong("zero-temperature-nan", "at temperature 0 you divide by 0: make it a one-hot at the greatest logit",
           law=lambda x, t, k: warped(x / t, 1, k) if t else (x / torch.tensor(0.0)).softmax(-1)),
     wrong("zero-temperature-is-one", "at temperature 0 you leave the law as it is: it must be a one-hot",
           law=lambda x, t, k: warped(x, t or 1, k)),
     wrong("softmax-twice", "you softmax what is a law already: that flattens it",
           law=partial(warped, last=lambda x: x.softmax(-1).softmax(-1)))],
    ("In which order: temperature, top-k, softmax? Which of them must see logits?",
     "Temperature 0 apart, as a one-hot. Otherwise divide; find the k-th greatest logit; what is below becomes -inf, "
     "and the softmax does the rest.",
     "logits / temperature; smallest = logits.topk(top_k).values[-1]; logits.masked_fill(logits < smallest, -inf); "
     "softmax"),
    [("nanospec.probs", "probs", "if temperature == 0", "kept = logits.softmax")])
