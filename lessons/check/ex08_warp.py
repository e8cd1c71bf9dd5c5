"""Exercise 8: temperature and top-k, the same for both models."""

from functools import partial

import torch

from lessons.check import seeds
from lessons.check.answered import weights_like
from lessons.check.engine import Exercise, wrong
from lessons.check.rounds import GAMMA, IDS, play_round
from lessons.check.seen import Seen, look, values
from nanospec.probs import probs
from nanospec.proof.walk import target_distribution

TARGET4, DRAFT4 = seeds.table(4, 3), seeds.table(4, 4)
LOGITS = torch.tensor([[0.0, 1.0, 2.0, 3.0], [2.0, -1.0, float("-inf"), 0.5], [5.0, 4.9, -3.0, 0.0],
                       [1.0, 0.0, 1.0, 0.5]], dtype=torch.float64)
LOGITS[3, 2] += 1e-12           # nearly a tie: at temperature 0 still a one-hot, which no division by 1e-10 makes
EPSILON = ("you divide by a little number where the temperature is 0: logits that nearly tie then share the "
           "probability, and other temperatures may be off; temperature 0 needs an answer of its own, a one-hot")
TINY = [10.0 ** -n for n in range(2, 13)]
SETTINGS = [(1.0, None), (0.7, None), (2.0, 3), (0.7, 2), (1.0, 1), (0.0, None), (0.0, 2), (1.3, 9)]


def answered(f, logits, temperature, top_k) -> torch.Tensor:
    return weights_like(f.distribution(logits, temperature, top_k), (len(logits),), "distribution")


def contract(f) -> None:
    answered(f, LOGITS[0], 1.0, None)


def worked(f) -> list[Seen]:
    logits = torch.tensor([1.0, 3.0], dtype=torch.float64).log()
    return [values(f"logits [0, log 3], temperature {t:g}, top_k {k}",
                   lambda t=t, k=k: dict(enumerate(answered(f, logits, t, k).tolist())), dict(enumerate(right)))
            for t, k, right in ((1, None, (.25, .75)), (.5, None, (.1, .9)), (0, None, (0, 1)), (1, 1, (0, 1)))]


def exact_values(f) -> list[Seen]:
    tied = torch.tensor([1.0, 3.0, 0.0, 3.0], dtype=torch.float64)
    return [*(values(f"logits {[round(x, 1) for x in logits.tolist()]}, temperature {t:g}, top_k {k}",
                   lambda logits=logits, t=t, k=k: dict(enumerate(answered(f, logits, t, k).tolist())),
                   dict(enumerate(probs(logits, t, k).tolist()))) for t, k in SETTINGS for logits in LOGITS),
            values(f"logits {tied.tolist()}, temperature 0: a one-hot at either of the greatest", lambda: dict(zip(
                ("its greatest probability", "tokens 1 and 3 together"),
                ((found := answered(f, tied, 0.0, None)).max(), found[1] + found[3]))),
                {"its greatest probability": 1.0, "tokens 1 and 3 together": 1.0})]


def exact(f) -> list[Seen]:
    return [look("a draft of two tokens, both models through your distribution: temperature 0.7, top_k 2",
                 lambda dice: play_round(dice, TARGET4, DRAFT4, warp=lambda logits: answered(f, logits, 0.7, 2)),
                 target_distribution(TARGET4, IDS, GAMMA + 1, temperature=0.7, top_k=2))]


def warped(logits, temperature, top_k, warm=lambda x, t: x / t, kept=lambda k: k, last=lambda x: x.softmax(-1),
           zero=lambda x, k: probs(x, 0)):
    if temperature == 0 and zero:
        return zero(logits, top_k)
    logits = warm(logits, temperature)
    if top_k is not None and kept(top_k) < len(logits):
        logits = logits.masked_fill(logits < logits.topk(kept(top_k)).values[-1], float("-inf"))
    return last(logits)


def not_renormalised(logits, temperature, top_k):
    plain = warped(logits, temperature, None)
    return plain * (warped(logits, temperature, top_k) > 0)


def zero_logits(logits, temperature, top_k, zeros):
    if temperature and top_k is not None and top_k < len(logits):
        logits = zeros(logits, logits.topk(top_k))
    return warped(logits, temperature, None)


def ties(logits, top_k=None):
    return (logits == logits.max()).double()


EXERCISE = Exercise(
    "ex08_warp.py", ("distribution",), contract,
    {"worked number": worked, "values": exact_values, "exact distribution": exact},
    [wrong("temperature-multiplied", "you multiply by the temperature; a low one must make the distribution sharper: "
           "divide",
           distribution=partial(warped, warm=lambda x, t: x * t)),
     wrong("temperature-forgotten", "the temperature changes nothing: it must divide the logits before the softmax",
           distribution=partial(warped, warm=lambda x, t: x)),
     wrong("top-k-forgotten", "top_k changes nothing", distribution=partial(warped, kept=lambda k: 99)),
     wrong("top-k-one-more", "you keep one token too many", distribution=partial(warped, kept=lambda k: k + 1)),
     wrong("top-k-not-renormalised", "what is left after top-k must add up to 1 again", distribution=not_renormalised),
     *(wrong("epsilon-in-the-temperature", EPSILON, distribution=partial(
         warped, warm=lambda x, t, epsilon=epsilon: x / (t + epsilon), zero=None)) for epsilon in TINY[:-1]),
     *(wrong("epsilon-in-the-temperature", EPSILON, distribution=partial(
         warped, warm=lambda x, t, epsilon=epsilon: x / max(t, epsilon), zero=None)) for epsilon in TINY),
     *(wrong("masked-with-zero", "you set the other logits to 0; a logit of 0 is no small one: -inf is",
             distribution=partial(zero_logits, zeros=zeros)) for zeros in (
           lambda x, top: x.where(x >= top.values[-1], 0.0), lambda x, top: x * (x >= top.values[-1]),
           lambda x, top: torch.zeros_like(x).scatter(0, top.indices, top.values))),
     *(wrong("ties-shared", "at temperature 0, tokens that tie for the greatest logit all get something: one of them "
             "gets all", distribution=partial(warped, zero=zero)) for zero in (
           ties, lambda x, k: ties(x) / ties(x).sum())),
     wrong("top-k-one-less", "you keep one token too few: the k-th greatest is among the k most likely",
           distribution=partial(warped, kept=lambda k: k - 1 or k)),
     wrong("top-k-one-less", "you leave out the k-th greatest logit: mask what is below it, not what is equal to it",
           distribution=lambda x, t, k: warped(x.masked_fill(
               x <= x.topk(k).values[-1], float("-inf")) if k and k < len(x) and t else x, t, None)),
     wrong("top-k-least-likely", "you count from the smallest logit: the k greatest are kept",
           distribution=lambda x, t, k: warped(x.masked_fill(
               x < x.sort().values[k], float("-inf")) if k and k < len(x) and t else x, t, None)),
     wrong("top-k-beyond-the-vocabulary", "there may be fewer than top_k tokens, and then all are kept",
           distribution=lambda x, t, k: warped(x, t, k) if not k or not t else warped(x, t, len(x.topk(k).values))),
     wrong("logarithms", "you return logarithms of the probabilities: softmax, not log_softmax",
           distribution=partial(warped, last=lambda x: x.log_softmax(-1))),
     wrong("zero-temperature-nan", "at temperature 0 you divide by 0: make it a one-hot at the greatest logit",
           distribution=lambda x, t, k: warped(x / t, 1, k) if t else (x / torch.tensor(0.0)).softmax(-1)),
     wrong("zero-temperature-is-one", "at temperature 0 you leave the distribution as it is: it must be a one-hot",
           distribution=lambda x, t, k: warped(x, t or 1, k)),
     wrong("softmax-twice", "you softmax what is a distribution already: that flattens it",
           distribution=partial(warped, last=lambda x: x.softmax(-1).softmax(-1)))],
    ("In which order: temperature, top-k, softmax? Which of them must see logits?",
     "Temperature 0 apart, as a one-hot. Otherwise divide; find the k-th greatest logit; what is below becomes -inf, "
     "and the softmax does the rest.",
     "logits / temperature; smallest = logits.topk(top_k).values[-1]; logits.masked_fill(logits < smallest, -inf); "
     "softmax"),
    [("nanospec.probs", "probs", "if temperature == 0", "kept = logits.softmax")])
