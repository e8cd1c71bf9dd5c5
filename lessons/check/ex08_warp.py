"""Exercise 8: temperature and top-k, the same for both models."""

from functools import lru_cache
from itertools import combinations

import torch

from lessons.check import seeds
from lessons.check.answered import weights_like
from lessons.check.mistakes_in_warping import WRONGS
from lessons.check.engine import Exercise
from lessons.check.pairs import short
from lessons.check.rounds import GAMMA, IDS, play_round, right_texts
from lessons.check.seen import Seen, look, values
from nanospec.probs import probs

TARGET4, DRAFT4 = seeds.table(4, 3), seeds.table(4, 4)
LOGITS = torch.tensor([[0.0, 1.0, 2.0, 3.0], [2.0, -1.0, float("-inf"), 0.5], [5.0, 4.9, -3.0, 0.0],
                       [1.0, 0.0, 1.0, 0.5]], dtype=torch.float64)
LOGITS[3, 2] += 1e-12           # nearly a tie: at temperature 0 still a one-hot, which no division by 1e-10 makes
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


@lru_cache(maxsize=None)
def drawn_cases() -> list[tuple]:
    """title, logits, temperature, top_k: all temperatures, logits far below and above 0, vocabularies from one token
    on, forbidden tokens, and logits so near to one another that a low temperature still tells them apart.
    """
    draw, found = seeds.chance(8), []

    def case(title, logits, temperature, top_k):
        found.append((title, torch.tensor(logits, dtype=torch.float64), temperature, top_k))

    def some(size, spread=4.0, shift=0.0, forbidden=0):
        logits = [shift + draw.uniform(-spread, spread) for _ in range(size)]
        for i in draw.sample(range(size), forbidden):
            logits[i] = float("-inf")
        return logits

    for temperature in (.01, .03, .07, .1, .27, .45, .9, 1, 1.7, 3.3, 7, 20, 50):
        case("any logits", some(5), temperature, draw.choice((None, 2, 3)))
        case("logits in steps of the temperature", [temperature * x for x in some(4, 2)], temperature, None)
    for shift in (-300, 300, -800, 800, -20_000):
        case(f"logits around {shift}", some(5, shift=shift), draw.choice((.5, 1.3)), None)
        case(f"logits around {shift}", some(6, shift=shift), draw.choice((.7, 2)), 3)
    case("logits around -2 ** 31", [x - 2.0 ** 31 for x in (0, 1, 2, 3)], 1, 2)
    case("wide logits", [0., -30, -60, -90, -250, -700], 20, None)
    case("wide logits", [0., 700, 650, -90, 699], 5, 4)
    for n in range(3, 11):
        case("logits that nearly tie, a low temperature", [10.0 ** -n * x for x in (0, 1, 3, -2)], 10.0 ** -n, None)
    case("wide logits", [0., 0, 0, 0, 0, 900], .5, None)
    case("one token", [.3], .7, None)
    case("one token", [-5.], 2, 1)
    case("one token", [2.], 0, 4)
    case("forbidden tokens", some(6, forbidden=4), .8, None)
    case("forbidden tokens, more kept than there are others", some(6, forbidden=4), .8, 3)
    case("forbidden tokens", some(5, forbidden=2), 0, None)
    case("forbidden tokens, the others far below 0", some(5, shift=-300, forbidden=2), .9, None)
    case("all alike", [1.5] * 4, .4, None)
    for size in 3, 60:
        for top_k in (1, 2, size - 1, size, size + 1):
            case("every top_k", some(size), draw.choice((.5, 1, 1.7)), top_k)
    return found


def by_seed(f) -> list[Seen]:
    return [values(f"{title}: logits {short(logits[:6])}{', ...' * (len(logits) > 6)}, temperature {t:g}, "
                   f"top_k {k}",
                   lambda logits=logits, t=t, k=k: dict(enumerate(answered(f, logits, t, k).tolist())),
                   dict(enumerate(probs(logits, t, k).tolist())), rounding(logits, t))
            for title, logits, t, k in drawn_cases()]


def rounding(logits, temperature) -> float:
    """How far off a right answer may be that takes the maximum, or the logarithm of the sum, away first: what the last
    digit of a logit is worth when it has been divided.
    """
    finite = logits[logits.isfinite()]
    return max(1e-12, 1e-15 * max(1.0, float(finite.abs().max())) / (temperature or 1))


def kept_ties(f) -> list[Seen]:
    """Tokens that tie for the k-th place: all of them may be kept, or any of them up to k."""
    found = []
    for logits, top_k in ([3., 1, 1, 0, 1], 2), ([0., 2, 2, 2], 1), ([1., 1, 1, 1], 3), ([0., -1, 0, 5], 2):
        for t in .05, 1, 2:
            logits_ = torch.tensor(logits, dtype=torch.float64)
            lowest = logits_.topk(top_k).values[-1]
            surely, ties = (logits_ > lowest).nonzero()[:, 0].tolist(), (logits_ == lowest).nonzero()[:, 0].tolist()
            kept = [ties, *combinations(ties, top_k - len(surely))]
            right = [torch.full_like(logits_, float("-inf")).index_copy(0, at, logits_[at]).div(t).softmax(-1)
                     for at in (torch.tensor([*surely, *some]) for some in kept)]

            def nearest(logits=logits_, t=t, top_k=top_k, right=right):
                mine = answered(f, logits, t, top_k)
                fits = any(bool((mine - one).abs().max() <= 1e-12) for one in right)
                return dict(enumerate((right[0] if fits else mine).tolist()))
            found.append(values(f"a tie for the k-th place: logits {logits}, temperature {t:g}, top_k {top_k}; right "
                                "is all "
                                "that tie, or any of them up to k", nearest, dict(enumerate(right[0].tolist()))))
    return found


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
                 right_texts(TARGET4, IDS, GAMMA + 1, temperature=0.7, top_k=2))]


EXERCISE = Exercise(
    "ex08_warp.py", ("distribution",), contract,
    {"worked number": worked, "values": exact_values, "all temperatures": by_seed, "ties": kept_ties,
     "exact distribution": exact},
    WRONGS,
    ("In which order: temperature, top-k, softmax? Which of them must see logits?",
     "Temperature 0 apart, as a one-hot. Otherwise divide; find the k-th greatest logit; what is below becomes -inf, "
     "and the softmax does the rest.",
     "logits / temperature; smallest = logits.topk(top_k).values[-1]; logits.masked_fill(logits < smallest, -inf); "
     "softmax"),
    [("nanospec.probs", "probs", "if temperature == 0", "kept = logits.softmax")])
