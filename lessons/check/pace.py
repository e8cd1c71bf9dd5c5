"""Exercises 9 and 10: how much speculation buys, and a draft that costs nothing."""

from functools import partial

from lessons.check.engine import Exercise, wrong
from lessons.check.seen import Failure, Seen, values
from nanospec import theory


# 9. how fast

def growing(m: int) -> float:
    return 1 + 0.15 * (m - 1)


def flat(m: int) -> float:
    return 1.0


def steps(m: int) -> float:
    """A machine that takes four tokens for the price of one, and then the next four."""
    return 1 + 0.5 * ((m - 1) // 4)


CURVES = {"v(m) = 1": flat, "v(m) = 1 + .15 (m - 1)": growing, "v in steps of four": steps}


def pace_contract(f) -> None:
    tokens, gamma = f.expected_tokens(0.5, 2), f.best_gamma(0.5, 0.1, flat, 3)
    if not isinstance(tokens, (int, float)):
        raise Failure(f"expected_tokens must return a number; it returned {tokens!r:.80}")
    if type(gamma) is not int:
        raise Failure(f"best_gamma must return an int; it returned {gamma!r:.80}")


def pace_worked(f) -> list[Seen]:
    right = {"alpha .8, gamma 5": 3.68928, "alpha 1, gamma 4": 5}
    return [values("expected_tokens",
                   lambda: dict(zip(right, (f.expected_tokens(.8, 5), f.expected_tokens(1, 4)))), right),
            values("best_gamma, alpha .8, c .1",
                   lambda: {name: f.best_gamma(.8, .1, CURVES[name], 12) for name in list(CURVES)[:2]},
                   dict(zip(CURVES, (6, 3))))]


def pace_tokens(f) -> list[Seen]:
    cases = {f"alpha {alpha}, gamma {gamma}": (alpha, gamma) for alpha in (0.0, 0.3, 0.75, 1.0) for gamma in (1, 2, 7)}
    return [values("expected_tokens", lambda: {name: f.expected_tokens(*case) for name, case in cases.items()},
                   {name: float(theory.expected_tokens(*case)) for name, case in cases.items()})]


def pace_gammas(f) -> list[Seen]:
    cases = {f"alpha {alpha}, c {c}": (alpha, c) for alpha in (0.2, 0.5, 0.7, 0.9) for c in (0.02, 0.1, 0.3)}
    return [values(f"best_gamma up to 16, {name}",
                   lambda v=v: {case: f.best_gamma(*pair, v, 16) for case, pair in cases.items()},
                   {case: theory.best_gamma(*pair, v, 16) for case, pair in cases.items()})
            for name, v in CURVES.items()]


def best(alpha, c, v, most, cost=lambda gamma, c, v: gamma * c + v(gamma + 1), tokens=theory.expected_tokens):
    return max(range(1, most + 1), key=lambda gamma: tokens(alpha, gamma) / cost(gamma, c, v))


def tokens_wrong(count) -> dict:
    return {"expected_tokens": count, "best_gamma": partial(best, tokens=count)}


def cost_wrong(cost) -> dict:
    return {"best_gamma": partial(best, cost=cost)}


HOW_FAST = Exercise(
    "ex09_how_fast.py", ("expected_tokens", "best_gamma"), pace_contract,
    {"worked number": pace_worked, "expected tokens": pace_tokens, "best gamma": pace_gammas},
    [wrong("bonus-forgotten", "you count the kept guesses only; every round also brings a replacement or a bonus token",
           **tokens_wrong(lambda alpha, gamma: sum(alpha ** i for i in range(1, gamma + 1)))),
     wrong("last-guess-forgotten", "your sum ends one guess early: all gamma of them can be kept, and a bonus follows",
           **tokens_wrong(lambda alpha, gamma: sum(alpha ** i for i in range(gamma)))),
     wrong("one-guess-too-many", "your sum goes one guess too far: gamma guesses and one token make gamma + 1 terms",
           **tokens_wrong(lambda alpha, gamma: sum(alpha ** i for i in range(gamma + 2)))),
     wrong("guesses-independent", "1 + gamma alpha counts guesses behind a refusal; a guess counts only if all "
           "before it were kept", **tokens_wrong(lambda alpha, gamma: 1 + gamma * alpha)),
     wrong("all-or-nothing", "you count all guesses or none: the prefix before the first refusal is kept",
           **tokens_wrong(lambda alpha, gamma: 1 + gamma * alpha ** gamma)),
     wrong("zero-over-zero", "the closed form divides 0 by 0 at alpha = 1: sum the powers, or treat 1 apart",
           **tokens_wrong(lambda alpha, gamma: (1 - alpha ** (gamma + 1)) / (1 - alpha))),
     wrong("verification-is-free", "you take checking gamma + 1 tokens to cost what one costs: use v(gamma + 1)",
           **cost_wrong(lambda gamma, c, v: gamma * c + 1)),
     wrong("v-of-gamma", "the target scores gamma + 1 tokens, not gamma: v(gamma + 1)",
           **cost_wrong(lambda gamma, c, v: gamma * c + v(gamma))),
     wrong("one-draft-step", "a round has gamma draft steps, one after the other: gamma * c",
           **cost_wrong(lambda gamma, c, v: c + v(gamma + 1))),
     wrong("cost-forgotten", "you maximise tokens per call; a round's cost grows with gamma too",
           **cost_wrong(lambda gamma, c, v: 1)),
     wrong("draft-is-free", "you leave the draft's own steps out of the cost",
           **cost_wrong(lambda gamma, c, v: v(gamma + 1)))],
    ("With which probability does guess i count? It needs all guesses before it.",
     "1 + alpha + alpha^2 + ... : which is the last power? And what does one round cost, in target steps?",
     "sum(alpha ** i for i in range(gamma + 1)); the best gamma is max(range(1, most + 1), key=...) of tokens over "
     "gamma * c + v(gamma + 1)"),
    [("nanospec.theory", "expected_tokens", "", ""), ("nanospec.theory", "best_gamma", "", "")])


# 10. copying

TEXTS = {"the worked one": [7, 8, 9, 7, 8, 5, 7, 8], "nothing repeats": [1, 2, 3, 4], "one token": [5],
         "a run": [3, 3, 3, 3], "only the last token repeats": [4, 1, 2, 9, 3, 1], "longest "
         "first": [1, 2, 8, 2, 9, 1, 2],
         "no earlier place": [6, 1, 2, 1, 2], "three in a row": [1, 2, 3, 5, 9, 2, 3, 6, 1, 2, 3]}
TABLE = "".join(f"    assert square({n}) == {n * n}\n" for n in range(1, 30))


def copied(text: list[int], gamma: int, longest: int, latest=True, own_place=0, skip=0, sizes=None,
           match=False) -> list[int]:
    for n in sizes(longest) if sizes else range(min(longest, len(text) - 1), 0, -1):
        places = range(len(text) - n + own_place)
        for start in reversed(places) if latest else places:
            if text[start:start + n] == text[-n:]:
                start += skip if match else n + skip
                return text[start:start + gamma]
    return []


def copy_contract(f) -> None:
    for text in ([1, 2, 1], [1, 2, 3]):
        found = f.propose(list(text), 2, 2)
        if not isinstance(found, list) or not all(type(one) is int for one in found):
            raise Failure(f"propose must return a list of ints; for text {text} it returned {found!r:.80}")


def copy_values(f) -> list[Seen]:
    found = []
    for gamma, longest in ((2, 2), (4, 3), (1, 1)):
        for name, text in TEXTS.items():
            right = copied(text, gamma, longest)
            found.append(values(f"{name}: text {text}, gamma {gamma}, longest {longest}; right is {right}", lambda: {
                "number of guesses": len(answer := f.propose(list(text), gamma, longest)),
                **{f"guess {i}": one for i, one in enumerate(answer)}},
                {"number of guesses": len(right), **{f"guess {i}": one for i, one in enumerate(right)}}))
    return found


def tokens_per_call(propose, text: list[int], start: int = 60, gamma: int = 8, longest: int = 4) -> float:
    """Greedy decoding of a target that writes this very text."""
    at, calls = start, 0
    while at < len(text):
        guesses, kept = propose(text[:at], gamma, longest), 0
        while kept < len(guesses) and at + kept < len(text) and guesses[kept] == text[at + kept]:
            kept += 1
        at, calls = at + kept + 1, calls + 1
    return (at - start) / calls


def copy_pace(f) -> str:
    text = list(TABLE.encode())
    yours, ours = (tokens_per_call(propose, text) for propose in (f.propose, copied))
    if yours < ours - 1e-9:
        raise Failure(f"{yours:.2f} tokens per target call on a table of assertions, byte by byte; {ours:.2f} can be "
              f"had")
    return f"{yours:.2f} tokens per target call on a table of assertions; to reach: {ours:.2f}"


NGRAM = Exercise(
    "ex10_ngram.py", ("propose",), copy_contract,
    {"worked number": lambda f: [values("the text of the docstring", lambda: dict(enumerate(
        f.propose([7, 8, 9, 7, 8, 5, 7, 8], 2, 2))), {0: 5, 1: 7})],
     "eight texts": copy_values},
    [wrong("earliest-match", "of several places you take the earliest; the latest says more about what comes now",
           propose=partial(copied, latest=False)),
     wrong("matches-itself", "the last tokens match where they stand, and nothing follows there: look at earlier "
           "places",
           propose=partial(copied, own_place=1)),
     wrong("match-included", "you propose the matching tokens themselves; they are written already, copy what followed",
           propose=partial(copied, match=True)),
     wrong("one-too-late", "you start one token too late behind the match", propose=partial(copied, skip=1)),
     wrong("no-shorter-match", "where the longest n finds nothing you give up: try shorter ones, down to 1",
           propose=partial(copied, sizes=lambda longest: [longest])),
     wrong("shortest-first", "you try short matches first; a longer one knows more",
           propose=partial(copied, sizes=lambda longest: range(1, longest + 1))),
     wrong("too-many", "you propose more than gamma tokens", propose=lambda text, gamma, longest:
           copied(text, len(text), longest)),
     wrong("last-place-left-out", "you miss the place right before the end, where the text repeats itself at once",
           propose=partial(copied, own_place=-1))],
    ("How would you guess the next word of a song's second verse?",
     "For n from longest down to 1: does text[-n:] stand anywhere before its own place? Search from the end.",
     "for start in range(len(text) - n - 1, -1, -1): if text[start:start + n] == text[-n:]: return what follows, gamma "
     "tokens of it"),
    [], {"number to reach": copy_pace})
EXERCISES = [HOW_FAST, NGRAM]
