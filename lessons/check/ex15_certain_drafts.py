"""Exercise 15: several draft tokens that were not drawn, judged by one distribution of the target."""

from collections.abc import Callable

import torch

from lessons.check import seeds
from lessons.check.answered import pair, token, whole
from lessons.check.engine import Exercise, wrong
from lessons.check.pairs import HAIR, distribution, short, vector
from lessons.check.seen import Failure, Row, Seen, fits, look
from nanospec.proof.walk import walk

CASES = {       # draft tokens, p_target
    "worked example": ([0, 1], vector(.5, .3, .2)),
    "one draft token": ([2], vector(.4, .3, .2, .1)),
    "no draft token": ([], vector(.4, .3, .2, .1)),
    "two, the likelier one last": ([2, 0], vector(.4, .3, .2, .1)),
    "one of them twice": ([3, 0, 3], vector(.4, .3, .2, .1)),
    "twice in a row": ([1, 1, 0], vector(.4, .3, .2, .1)),
    "three draft tokens": ([2, 0, 3], vector(.1, .2, .3, .4)),
    "all there are": ([3, 2, 1, 0], vector(.5, .25, .125, .125)),      # powers of two: no rounding leaves a crumb
    "one that the target forbids": ([3, 1], vector(.5, .3, .2, 0)),
    "a certain target": ([0, 1], vector(0, 1, 0)),
    "a vocabulary of one token": ([0], vector(1)),
    "little left": ([0, 1, 2], vector(.5, .5 - HAIR, .75 * HAIR, .25 * HAIR)),
}


def by_seed() -> dict[str, tuple]:
    """Up to six draft tokens, likely or not, some of them twice; at least one token is never drafted."""
    draw, found = seeds.chance(15), {}
    for count, size, zeros in ((1, 2, 0), (3, 5, 1), (4, 6, 0), (6, 8, 2), (5, 4, 0)):
        p_target = distribution(draw, size, zeros)
        left_out = draw.choice(p_target.nonzero()[:, 0].tolist())
        others = [x for x in range(size) if x != left_out]
        found[f"{count} by a seed"] = [draw.choice(others) for _ in range(count)], p_target
    found["eight different ones"] = draw.sample(range(9), 8), distribution(draw, 9)
    return found


CASES |= by_seed()


def judged(f, case: tuple, dice) -> tuple[int | None, int]:
    """(which draft token is accepted, None if none is; the token written)."""
    drafted, p_target = case
    i, last = pair(f.judge(drafted, p_target, dice), "judge must return a pair, (i, drafted[i]) or (None, token)")
    written = token(last, len(p_target), "judge, second,")
    if i is None:
        return None, written
    i = whole(i, "judge, first,", "the number of a draft token, or None")
    if not 0 <= i < len(drafted):
        raise Failure(f"judge must return the number of a draft token, or None, first; for {drafted} it returned {i}")
    if drafted[i] != written:
        raise Failure(f"judge accepts draft token {i} of {drafted} and writes {written}: what is accepted is what is "
                      "written")
    return i, written


def contract(f) -> None:
    for seed in range(4):                                           # accepted and drawn, both are seen
        for name in ("worked example", "no draft token"):
            judged(f, CASES[name], Row(seed=seed))


def worked(f) -> list[Seen]:
    return [look(title("worked example"), lambda dice: outcome(*judged(f, CASES["worked example"], dice)),
                 {"0, accepted": .5, "1, accepted": .3, "2, drawn": .2})]


def outcome(i: int | None, written: int) -> str:
    return f"{written}, {'drawn' if i is None else 'accepted'}"


def title(name: str) -> str:
    drafted, p_target = CASES[name]
    return f"{name}: drafted {drafted}, p_target {short(p_target)}"


def exact(f) -> list[Seen]:
    return [look(title(name), lambda dice, case=case: judged(f, case, dice)[1], dict(enumerate(case[1].tolist())))
            for name, case in CASES.items()]


def pace(f) -> list[Seen]:
    """A token that was drafted never has to be drawn."""
    return [look(f"{title(name)}: is every draft token accepted as often as it can be?",
                 lambda dice, case=case: outcome(*judged(f, case, dice)),
                 {outcome(0 if x in case[0] else None, x): p for x, p in enumerate(case[1].tolist())})
            for name, case in CASES.items()]


def first_copy(f) -> str:
    """Which of several copies of a token is accepted: the draft tokens are tried in their order."""
    repeated = [case for case in CASES.values() if len({*case[0]}) < len(case[0])]
    for case in repeated:
        drafted = case[0]
        for i in filter(None, walk(lambda dice: judged(f, case, Row(dice))[0])[0]):
            if drafted.index(drafted[i]) != i:
                first = drafted.index(drafted[i])
                raise Failure(
                    f"of drafted {drafted} you return that draft token {i} is accepted. Token {drafted[i]} stands at "
                    f"{first} already, and there it had its coin: if that coin rejects it, nothing of it is left for "
                    f"the copy at {i}. So the accepted one is draft token {first} (a-later-copy)", "a-later-copy")
    return f"{len(repeated)} cases with a token that is there twice"


def number_to_reach(f) -> str:
    """Tokens per target call: the draft tokens need not have been drawn, and each different one adds its p_target."""
    said = []
    for name in "one draft token", "two, the likelier one last", "three draft tokens":
        found, _ = walk(lambda dice: judged(f, CASES[name], Row(dice))[0])
        drafted, p_target = CASES[name]
        said.append(f"{2 - found.get(None, 0.0):.2f} (to reach: {1 + float(p_target[drafted].sum()):.2f}) with "
                    f"{len(drafted)}")
    return f"tokens per target call: {', '.join(said)}"


def normal(weights: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Weights that add up to 1; where nothing is left, another distribution."""
    return weights / weights.sum() if weights.sum() > 0 else other


def drop(left: torch.Tensor, x: int) -> torch.Tensor:
    """The distribution without x."""
    return normal(left.index_fill(0, torch.tensor(x), 0.0), left)


def rule(coin: Callable = lambda left, x, p, tried: left[x], after: Callable = lambda left, x, p: drop(left, x),
         last: Callable = lambda left, p, drafted: left, tries: Callable = lambda drafted: drafted) -> dict:
    """judge with another threshold, another rest after a rejection, other weights to draw from, fewer draft tokens."""
    def judge(drafted, p, dice):
        left, tried = p.clone(), []
        for i, x in enumerate(tries(drafted)):
            if dice.flip(coin(left, x, p, tried)):
                return i, x
            left = after(left, x, p)
            tried.append(x)
        return None, dice.pick(last(left, p, drafted))
    return {"judge": judge}


def last_written(drafted, p, dice):
    i, written = rule()["judge"](drafted, p, dice)
    return (len(drafted) - 1, drafted[-1]) if i is None and drafted else (i, written)


def by_counts(drafted, p, dice):
    """Every token judged as if it had been drawn from how often each stands in the list."""
    q, left = torch.bincount(torch.tensor(drafted, dtype=torch.long), minlength=len(p)) / max(1, len(drafted)), p
    for i, x in enumerate(drafted):
        if dice.flip(min(1, left[x] / q[x])):
            return i, x
        left = normal((left - q).clamp(min=0), left)
    return None, dice.pick(left)


def left_out(left, x, p):
    return left.index_fill(0, torch.tensor(x), 0.0)


def not_drafted(left, p, drafted):
    return p * torch.tensor([x not in drafted for x in range(len(p))])


EXERCISE = Exercise(
    "ex15_certain_drafts.py", ("judge",), contract,
    {"worked number": worked, "exact distribution": exact, "accepted as often as it can be": pace},
    [wrong("redraw-after-mismatch", "where all are rejected you draw from p_target: what was rejected can come out "
           "after all, and does so too often; leave it out", **rule(last=lambda left, p, drafted: p)),
     wrong("one-sample-per-path", "every draft token has its own draw from p_target, and when none agrees you draw "
           "once more: draw once for all of them, or leave out what was rejected",
           **rule(coin=lambda left, x, p, tried: p[x], last=lambda left, p, drafted: p)),
     wrong("judged-by-the-counts", "you judge a token by how often it stands in the list, as if it had been drawn from "
           "that: it was not drawn, so its distribution is certain, 1 at the token", judge=by_counts),
     wrong("left-out-but-not-renormalised", "you leave the rejected token out, but what is left no longer adds up to "
           "1, and the next threshold is too small: divide by its sum", throw="flip", **rule(after=left_out)),
     wrong("rejected-forgotten", "every threshold is p_target(x): after a rejection the other tokens have become "
           "likelier, so divide what is left by its sum; and a token that was rejected must not come again",
           throw="flip", **rule(coin=lambda left, x, p, tried: p[x], last=not_drafted)),
     wrong("repeated-tried-again-with-p", "a draft token that is there twice gets a second coin: it was "
           "rejected already, nothing of it is left",
           throw="flip", **rule(coin=lambda left, x, p, tried: p[x] if x in tried else left[x])),
     wrong("only-the-last-left-out", "you leave out the last rejected token only: those before it must stay out too",
           **rule(after=lambda left, x, p: drop(p, x))),
     wrong("bonus-missing", "where all are rejected you write the last of them; a token must be drawn from what is "
           "left", judge=last_written),
     wrong("residual-argmax", "where all are rejected you write the likeliest token that is left; draw it",
           **rule(last=lambda left, p, drafted: torch.eye(len(p))[left.argmax()])),
     wrong("residual-softmaxed", "you softmax what is left: it holds weights, not logits, and a zero must stay a zero",
           **rule(after=lambda left, x, p: left_out(left, x, p).softmax(0))),
     wrong("greedy-acceptance", "you accept a token only if it is the target's likeliest: that is the rule of "
           "temperature 0", throw="flip",
           **rule(coin=lambda left, x, p, tried: float(x == int(p.argmax())))),
     wrong("accept-everything", "you accept the first draft token whatever the target says",
           judge=lambda drafted, p, dice: (0, drafted[0]) if drafted else (None, dice.pick(p))),
     wrong("coin-reversed", "your coin accepts when it should reject: p_target(x) is its threshold for accepting",
           throw="flip", **rule(coin=lambda left, x, p, tried: 1 - left[x])),
     wrong("even-chances", "every draft token gets the same chance, whatever the target thinks of it", throw="flip",
           **rule(coin=lambda left, x, p, tried: 1 / len(p))),
     wrong("first-draft-token-only", "you try the first draft token and no other", throw="flip",
           **rule(tries=lambda drafted: drafted[:1])),
     wrong("first-two-only", "you try the first two draft tokens and no other", throw="flip",
           **rule(tries=lambda drafted: drafted[:2])),
     wrong("draft-ignored", "you draw from p_target and never report that a draft token was right",
           judge=lambda drafted, p, dice: (None, dice.pick(p)))],
    ("What is min(1, p_target(x) / q_draft(x)) for a draft token that was certain, q_draft = 1 at x? And what is left "
     "of max(0, p_target - q_draft)?",
     "Take a distribution called left, at first p_target. A rejected token becomes 0 in it, and then it must add up to "
     "1 again.",
     "for i, x in enumerate(drafted): if dice.flip(left[x]): return i, x; otherwise left[x] = 0, left = left / "
     "left.sum(). Behind the loop: return None, dice.pick(left)"),
    [("nanospec.methods.trees.node_rule", "verify_tree", "for i in", "return accepted"),
     ("nanospec.probs", "residual", "left =", "return")],
    {"the first of equal tokens": first_copy,
     "real dice": lambda f: fits(lambda dice: judged(f, CASES["one of them twice"], dice)[1],
                                 dict(enumerate(CASES["one of them twice"][1].tolist()))),
     "number to reach": number_to_reach}, speed="accepted as often as it can be")
