"""Exercise 15: several guesses that nobody drew, judged by one distribution of the target."""

from collections.abc import Callable

import torch

from lessons.check.engine import Exercise, wrong
from lessons.check.pairs import vector
from lessons.check.seen import Failure, Row, Seen, fits, look, token

CASES = {       # guesses, p_target
    "worked example": ([0, 1], vector(.5, .3, .2)),
    "one guess": ([2], vector(.4, .3, .2, .1)),
    "no guess": ([], vector(.4, .3, .2, .1)),
    "two guesses, the likelier one last": ([2, 0], vector(.4, .3, .2, .1)),
    "one of them twice": ([3, 0, 3], vector(.4, .3, .2, .1)),
    "twice in a row": ([1, 1, 0], vector(.4, .3, .2, .1)),
    "three guesses": ([2, 0, 3], vector(.1, .2, .3, .4)),
    "all there are": ([3, 2, 1, 0], vector(.5, .25, .125, .125)),      # powers of two: no rounding leaves a crumb
    "one that the target forbids": ([3, 1], vector(.5, .3, .2, 0)),
    "a certain target": ([0, 1], vector(0, 1, 0)),
}


def judged(f, case: tuple, dice) -> tuple[bool, int]:
    """(is a guess kept, the token written)."""
    guesses, p_target = case
    answer = f.judge(list(guesses), p_target.clone(), dice)
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise Failure(f"judge must return a pair, (i, guesses[i]) or (None, token); it returned {answer!r:.80}")
    i, written = answer[0], token(answer[1], len(p_target), "judge, second,")
    if i is not None and (isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < len(guesses)):
        raise Failure(f"judge must return the number of a guess, or None, first; for {guesses} it returned {i!r}")
    if i is not None and guesses[i] != written:
        raise Failure(f"judge keeps guess {i} of {guesses} and writes {written}: what is kept is what is written")
    return i is not None, written


def contract(f) -> None:
    for seed in range(4):                                           # kept and drawn, both are seen
        for name in ("worked example", "no guess"):
            judged(f, CASES[name], Row(seed=seed))


def worked(f) -> list[Seen]:
    return [look(title("worked example"), lambda dice: outcome(*judged(f, CASES["worked example"], dice)),
                 {"0, kept": .5, "1, kept": .3, "2, drawn": .2})]


def outcome(kept: bool, written: int) -> str:
    return f"{written}, {'kept' if kept else 'drawn'}"


def title(name: str) -> str:
    guesses, p_target = CASES[name]
    return f"{name}: guesses {guesses}, p_target {p_target.tolist()}"


def exact(f) -> list[Seen]:
    return [look(title(name), lambda dice, case=case: judged(f, case, dice)[1], dict(enumerate(case[1].tolist())))
            for name, case in CASES.items()]


def pace(f) -> list[Seen]:
    """A token that was guessed never has to be drawn."""
    return [look(f"{title(name)}: is every guess kept as often as it can be?",
                 lambda dice, case=case: outcome(*judged(f, case, dice)),
                 {outcome(x in case[0], x): p for x, p in enumerate(case[1].tolist())}) for name, case in CASES.items()]


def normal(weights: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Weights that add up to 1; where nothing is left, another distribution."""
    return weights / weights.sum() if weights.sum() > 0 else other


def drop(left: torch.Tensor, x: int) -> torch.Tensor:
    """The distribution without x."""
    return normal(left.index_fill(0, torch.tensor(x), 0.0), left)


def rule(coin: Callable = lambda left, x, p, tried: left[x], after: Callable = lambda left, x, p: drop(left, x),
         last: Callable = lambda left, p, guesses: left, tries: Callable = lambda guesses: guesses) -> dict:
    """judge with another coin, another rest behind a refusal, other weights to draw from, or fewer guesses."""
    def judge(guesses, p, dice):
        left, tried = p.clone(), []
        for i, x in enumerate(tries(guesses)):
            if dice.flip(coin(left, x, p, tried)):
                return i, x
            left = after(left, x, p)
            tried.append(x)
        return None, dice.pick(last(left, p, guesses))
    return {"judge": judge}


def last_written(guesses, p, dice):
    i, written = rule()["judge"](guesses, p, dice)
    return (len(guesses) - 1, guesses[-1]) if i is None and guesses else (i, written)


def by_counts(guesses, p, dice):
    """Every guess judged as if it had been drawn from how often each stands in the list."""
    q, left = torch.bincount(torch.tensor(guesses, dtype=torch.long), minlength=len(p)) / max(1, len(guesses)), p
    for i, x in enumerate(guesses):
        if dice.flip(min(1, left[x] / q[x])):
            return i, x
        left = normal((left - q).clamp(min=0), left)
    return None, dice.pick(left)


def left_out(left, x, p):
    return left.index_fill(0, torch.tensor(x), 0.0)


def not_guessed(left, p, guesses):
    return normal(p * torch.tensor([x not in guesses for x in range(len(p))]), p)


EXERCISE = Exercise(
    "ex15_certain_guesses.py", ("judge",), contract,
    {"worked number": worked, "exact distribution": exact, "kept as often as it can be": pace},
    [wrong("redraw-after-mismatch", "where all guesses fell you draw from p_target: what was refused can come out "
           "after all, and does so too often; leave it out", **rule(last=lambda left, p, guesses: p)),
     wrong("one-sample-per-path", "every guess has its own draw from p_target, and when none agrees you draw once "
           "more: draw once for all of them, or leave out what was refused",
           **rule(coin=lambda left, x, p, tried: p[x], last=lambda left, p, guesses: p)),
     wrong("judged-by-the-counts", "you judge a guess by how often it stands in the list, as if it had been drawn from "
           "that: nobody drew it, so its law is certain, 1 at the guess", judge=by_counts),
     wrong("left-out-but-not-renormalised", "you leave the refused guess out, but what is left no longer adds up to 1, "
           "and the next coin is too small: divide by its sum", throw="flip", **rule(after=left_out)),
     wrong("refused-forgotten", "every coin is p_target(x): after a refusal the other tokens have become likelier, and "
           "a guess that fell must not come again",
           throw="flip", **rule(coin=lambda left, x, p, tried: p[x], last=not_guessed)),
     wrong("repeated-tried-again-with-p", "a guess that is there twice gets a second coin: it was refused already, "
           "nothing of it is left",
           throw="flip", **rule(coin=lambda left, x, p, tried: p[x] if x in tried else left[x])),
     wrong("only-the-last-left-out", "you leave out the last refused guess only: those before it must stay out too",
           **rule(after=lambda left, x, p: drop(p, x))),
     wrong("bonus-missing", "where all guesses fell you write the last of them; a token must be drawn from what is "
           "left", judge=last_written),
     wrong("residual-argmax", "where all guesses fell you write the likeliest token that is left; draw it",
           **rule(last=lambda left, p, guesses: torch.eye(len(p))[left.argmax()])),
     wrong("residual-softmaxed", "you softmax what is left: it holds weights, not logits, and a zero must stay a zero",
           **rule(after=lambda left, x, p: left_out(left, x, p).softmax(0))),
     wrong("greedy-acceptance", "you keep a guess only if it is the target's likeliest token: that is the rule of "
           "temperature 0", throw="flip",
           **rule(coin=lambda left, x, p, tried: float(x == int(p.argmax())))),
     wrong("accept-everything", "you keep the first guess whatever the target says",
           judge=lambda guesses, p, dice: (0, guesses[0]) if guesses else (None, dice.pick(p))),
     wrong("coin-reversed", "your coin keeps a guess when it should fall: it is kept with p_target(x), not refused",
           throw="flip", **rule(coin=lambda left, x, p, tried: 1 - left[x])),
     wrong("even-chances", "every guess gets the same chance, whatever the target thinks of it", throw="flip",
           **rule(coin=lambda left, x, p, tried: 1 / len(p))),
     wrong("first-guess-only", "you try the first guess and no other", throw="flip",
           **rule(tries=lambda guesses: guesses[:1])),
     wrong("guesses-ignored", "you draw from p_target and never say that a guess was right",
           judge=lambda guesses, p, dice: (None, dice.pick(p)))],
    ("What is min(1, p_target(x) / q_draft(x)) for a guess that was certain, q_draft = 1 at x? And what is left of "
     "max(0, p_target - q_draft)?",
     "Keep a law called left, at first p_target. A refused guess becomes 0 in it, and then it must add up to 1 again.",
     "for i, x in enumerate(guesses): if dice.flip(left[x]): return i, x; otherwise left[x] = 0, left = left / "
     "left.sum(). Behind the loop: return None, dice.pick(left)"),
    [("nanospec.rules.tree", "verify_tree", "for i in", "return accepted"),
     ("nanospec.probs", "residual", "left =", "return")],
    {"real dice": lambda f: fits(lambda dice: judged(f, CASES["one of them twice"], dice)[1],
                                 dict(enumerate(CASES["one of them twice"][1].tolist())))}, slow_is_right=True)
