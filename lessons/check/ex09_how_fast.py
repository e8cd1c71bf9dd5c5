"""Exercise 9: what speculation buys, and how far to draft ahead."""

from functools import partial

from lessons.check import seeds
from lessons.check.answered import number, whole
from lessons.check.engine import Exercise, wrong
from lessons.check.pairs import short
from lessons.check.seen import TOLERANCE, Seen, values
from nanospec import theory


def growing(m: int) -> float:
    return 1 + 0.15 * (m - 1)


def flat(m: int) -> float:
    return 1.0


def steps(m: int) -> float:
    """A machine that takes four tokens for the price of one, and then the next four."""
    return 1 + 0.5 * ((m - 1) // 4)


# alpha 1/2 brings 1.5, 1.75, 1.875 tokens: in the first of these times gamma 2 is best by a hair, in the others 3 or 1.
HAIRS = (1.500001, 1.75, 1.875001), (1.500001, 1.750001, 1.875), (1.5, 1.750001, 1.875001)
NEAR_1 = 1e-7           # there the closed form loses digits, and is right all the same
CURVES = {"v(m) = 1": flat, "v(m) = 1 + .15 (m - 1)": growing, "v in steps of four": steps}


def tokens_of(f, *case) -> float:
    return number(f.expected_tokens(*case), "expected_tokens")


def gamma_of(f, *case) -> int:
    return whole(f.best_gamma(*case), "best_gamma")


def contract(f) -> None:
    tokens_of(f, 0.5, 2)
    gamma_of(f, 0.5, 0.1, flat, 3)


def worked(f) -> list[Seen]:
    right = {"alpha .8, gamma 5": 3.68928, "alpha 1, gamma 4": 5}
    return [values("expected_tokens",
                   lambda: dict(zip(right, (tokens_of(f, .8, 5), tokens_of(f, 1, 4)))), right),
            values("best_gamma, alpha .8, c .1",
                   lambda: {name: gamma_of(f, .8, .1, CURVES[name], 12) for name in list(CURVES)[:2]},
                   dict(zip(CURVES, (6, 3))))]


def tokens(f) -> list[Seen]:
    draw = seeds.chance(9)
    alphas = (0.0, 0.3, 0.75, 1.0, *(draw.uniform(0, .99) for _ in range(4)), 1e-5)
    return [tokens_at(f, alphas, (1, 2, 7, draw.randint(20, 60)), TOLERANCE),
            tokens_at(f, (.99999, 1 - 1e-7), (4, 7), NEAR_1)]


def tokens_at(f, alphas, gammas, tolerance: float) -> Seen:
    cases = {f"alpha {alpha!r}, gamma {gamma}": (alpha, gamma) for alpha in alphas for gamma in gammas}
    return values("expected_tokens", lambda: {name: tokens_of(f, *case) for name, case in cases.items()},
                  {name: sum(alpha ** i for i in range(gamma + 1)) for name, (alpha, gamma) in cases.items()},
                  tolerance)


def gammas(f) -> list[Seen]:
    """c is no round number, or some mistake would find two gammas equally good, and rounding would choose."""
    return [seen_best(f, name, v, 16, [(alpha, c) for alpha in (0.2, 0.5, 0.7, 0.9) for c in (0.023, 0.11, 0.31)])
            for name, v in CURVES.items()]


def gammas_by_seed(f) -> list[Seen]:
    """Other times, other limits from 1 to 40, a draft model that costs nothing and one dearer than the target."""
    draw = seeds.chance(109)
    found = [seen_best(f, f"v(2), v(3), v(4) = {', '.join(map(repr, table))}", lambda m, table=table: table[m - 2], 3,
                       [(.5, 0)]) for table in HAIRS]
    for most in (1, 2, 5, 12, 40):
        table = [1.0]
        while len(table) <= most:
            table.append(table[-1] + (draw.uniform(0, .3) if draw.random() < .5 else 0))
        pairs = [(draw.choice((0.0, draw.random(), draw.uniform(.9, .999), 1.0)),
                  draw.choice((0.0, draw.uniform(0, .2), draw.uniform(.5, 2)))) for _ in range(6)]
        found.append(seen_best(f, f"v(1), v(2), ... = {short(table[:8])}{', ...' * (most > 7)}",
                               lambda m, table=table: table[m - 1], most, pairs))
    return found


def seen_best(f, name: str, v, most: int, pairs: list[tuple]) -> Seen:
    """Where two gammas are as good as one another but for rounding, either is right."""
    def mine() -> dict:
        found = {}
        for case, (alpha, c) in cases.items():
            gamma = gamma_of(f, alpha, c, v, most)
            speeds = [theory.expected_tokens(alpha, g) / (g * c + v(g + 1)) for g in range(1, most + 1)]
            as_good = 1 <= gamma <= most and speeds[gamma - 1] > max(speeds) * (1 - 1e-12)
            found[case] = right[case] if as_good else gamma
        return found
    cases = {f"alpha {short([alpha])[0]}, c {short([c])[0]}": (alpha, c) for alpha, c in pairs}
    right = {case: theory.best_gamma(*pair, v, most) for case, pair in cases.items()}
    return values(f"best_gamma up to {most}, {name}", mine, right)


def best(alpha, c, v, most, cost=lambda gamma, c, v: gamma * c + v(gamma + 1), count=theory.expected_tokens):
    return max(range(1, most + 1), key=lambda gamma: count(alpha, gamma) / cost(gamma, c, v))


def tokens_wrong(count) -> dict:
    return {"expected_tokens": count, "best_gamma": partial(best, count=count)}


def cost_wrong(cost) -> dict:
    return {"best_gamma": partial(best, cost=cost)}


EXERCISE = Exercise(
    "ex09_how_fast.py", ("expected_tokens", "best_gamma"), contract,
    {"worked number": worked, "expected tokens": tokens, "best gamma": gammas, "other times": gammas_by_seed},
    [wrong("bonus-forgotten", "you count the accepted draft tokens only; every round also brings a replacement or a "
           "bonus token",
           **tokens_wrong(lambda alpha, gamma: sum(alpha ** i for i in range(1, gamma + 1)))),
     *(wrong("rounded", "you round the number of tokens: the caller may, and here every digit counts", **tokens_wrong(
         lambda alpha, gamma, digits=digits: round(theory.expected_tokens(alpha, gamma), digits)))
       for digits in range(1, 7)),
     *(wrong("rounded", "you round the number of tokens: the caller may, and here every digit counts",
             expected_tokens=lambda alpha, gamma, digits=digits: round(
                 float(theory.expected_tokens(alpha, gamma)), digits))
       for digits in range(1, 7)),
     *(wrong("speed-up-rounded", "you round the speed-up: of two gammas one can be better by less", best_gamma=(
         lambda alpha, c, v, most, digits=digits: max(range(1, most + 1), key=lambda gamma: round(
             theory.expected_tokens(alpha, gamma) / (gamma * c + v(gamma + 1)), digits))))
       for digits in range(1, 6)),
     wrong("last-draft-token-forgotten", "your sum ends one draft token early: all gamma of them can be accepted, "
           "and a bonus token follows",
           **tokens_wrong(lambda alpha, gamma: sum(alpha ** i for i in range(gamma)))),
     wrong("one-draft-token-too-many", "your sum goes one too far: gamma draft tokens and one more make gamma + 1 "
           "terms",
           **tokens_wrong(lambda alpha, gamma: sum(alpha ** i for i in range(gamma + 2)))),
     wrong("draft-tokens-independent", "1 + gamma alpha counts draft tokens after a rejection; one counts only if "
           "all before it were accepted", **tokens_wrong(lambda alpha, gamma: 1 + gamma * alpha)),
     wrong("all-or-nothing", "you count all draft tokens or none: the prefix before the first rejection is accepted",
           **tokens_wrong(lambda alpha, gamma: 1 + gamma * alpha ** gamma)),
     wrong("zero-over-zero", "the closed form divides 0 by 0 at alpha = 1: sum the powers, or treat 1 apart",
           **tokens_wrong(lambda alpha, gamma: (1 - alpha ** (gamma + 1)) / (1 - alpha))),
     wrong("endless-draft", "1 / (1 - alpha) is the limit for a draft without end: yours has gamma tokens",
           **tokens_wrong(lambda alpha, gamma: 1 / (1 - alpha) if alpha < 1 else gamma + 1)),
     wrong("index-for-gamma", "you return an index, counted from 0, in a list that begins with gamma 1",
           best_gamma=lambda alpha, c, v, most: best(alpha, c, v, most) - 1),
     wrong("gamma-from-0", "you try gamma 0, too, which is plain decoding: best_gamma is to be in 1..most",
           best_gamma=lambda alpha, c, v, most: max(range(most + 1), key=lambda gamma: theory.expected_tokens(
               alpha, gamma) / (gamma * c + v(gamma + 1)))),
     wrong("first-peak", "you stop where one more draft token makes it slower; after a step of v it may rise again: "
           "try all", best_gamma=lambda alpha, c, v, most: next(
               gamma for gamma in range(1, most + 1) if gamma == best(alpha, c, v, min(most, gamma + 1)))),
     wrong("difference-for-ratio", "you subtract the cost from the tokens: the speed-up is tokens divided by cost",
           best_gamma=lambda alpha, c, v, most: max(range(1, most + 1), key=lambda gamma: theory.expected_tokens(
               alpha, gamma) - gamma * c - v(gamma + 1))),
     wrong("one-draft-step-too-many", "a round has gamma draft steps, not gamma + 1: nobody drafts the bonus token",
           **cost_wrong(lambda gamma, c, v: (gamma + 1) * c + v(gamma + 1))),
     wrong("a-call-for-each-token", "gamma + 1 tokens are checked in one call, which takes v(gamma + 1), and not in "
           "gamma + 1 calls", **cost_wrong(lambda gamma, c, v: gamma * c + (gamma + 1) * v(1))),
     wrong("slowest", "you take the gamma that is worst: the greatest speed-up is asked for",
           best_gamma=lambda alpha, c, v, most: min(range(1, most + 1), key=lambda gamma: theory.expected_tokens(
               alpha, gamma) / (gamma * c + v(gamma + 1)))),
     wrong("verification-is-free", "you take checking gamma + 1 tokens to cost what one costs: use v(gamma + 1)",
           **cost_wrong(lambda gamma, c, v: gamma * c + 1)),
     wrong("v-of-gamma", "the target scores gamma + 1 tokens, not gamma: v(gamma + 1)",
           **cost_wrong(lambda gamma, c, v: gamma * c + v(gamma))),
     wrong("one-draft-step", "a round has gamma calls of the draft model, one after the other: gamma * c",
           **cost_wrong(lambda gamma, c, v: c + v(gamma + 1))),
     wrong("cost-forgotten", "you maximise tokens per call; a round's cost grows with gamma too",
           **cost_wrong(lambda gamma, c, v: 1)),
     wrong("last-gamma-left-out", "you never try the last gamma: range(1, most) ends before `most`",
           best_gamma=lambda alpha, c, v, most: best(alpha, c, v, most - 1)),
     wrong("draft-is-free", "you leave the draft model's own calls out of the cost",
           **cost_wrong(lambda gamma, c, v: v(gamma + 1)))],
    ("With which probability does draft token i count? It needs all those before it.",
     "1 + alpha + alpha^2 + ... : which is the last power? And what does one round cost, in calls of the target?",
     "sum(alpha ** i for i in range(gamma + 1)); the best gamma is max(range(1, most + 1), key=...) of tokens over "
     "gamma * c + v(gamma + 1)"),
    [("nanospec.theory", "expected_tokens", "", ""), ("nanospec.theory", "best_gamma", "", "")])
