"""Exercise 10: a draft that costs nothing, copied from the text itself."""

from functools import partial

from lessons.check.answered import wholes
from lessons.check.engine import Exercise, wrong
from lessons.check.seen import Failure, Seen, values

TEXTS = {"the worked one": [7, 8, 9, 7, 8, 5, 7, 8], "nothing repeats": [1, 2, 3, 4], "one token": [5],
         "a run": [3, 3, 3, 3], "only the last token repeats": [4, 1, 2, 9, 3, 1],
         "longest first": [1, 2, 8, 2, 9, 1, 2], "no earlier place": [6, 1, 2, 1, 2],
         "three in a row": [1, 2, 3, 5, 9, 2, 3, 6, 1, 2, 3], "the first token of all": [5, 9, 5]}
TABLE = "".join(f"    assert square({n}) == {n * n}\n" for n in range(1, 30))


def copied(text: list[int], gamma: int, longest: int, latest=True, own_place=0, skip=0, sizes=None,
           match=False, after=True, first=0) -> list[int]:
    for n in sizes(longest) if sizes else range(min(longest, len(text) - 1), 0, -1):
        places = range(first, len(text) - n + own_place)
        for start in reversed(places) if latest else places:
            if text[start:start + n] == text[-n:]:
                start += n + skip
                return text[start - n * match:start + gamma - n * (not after)]
    return []


def proposed(f, text: list[int], gamma: int, longest: int) -> list[int]:
    return wholes(f.propose(text, gamma, longest), f"propose, for text {text},")


def contract(f) -> None:
    for text in ([1, 2, 1], [1, 2, 3]):
        proposed(f, text, 2, 2)


def worked(f) -> list[Seen]:
    return [values("the text of the docstring", lambda: {
        f"draft token {i}": token for i, token in enumerate(proposed(f, [7, 8, 9, 7, 8, 5, 7, 8], 2, 2))},
        {"draft token 0": 5, "draft token 1": 7})]


def texts(f) -> list[Seen]:
    found = []
    for gamma, longest in ((2, 2), (4, 3), (1, 1)):
        for name, text in TEXTS.items():
            right = copied(text, gamma, longest)
            found.append(values(f"{name}: text {text}, gamma {gamma}, longest {longest}; right is {right}", lambda: {
                "draft tokens": len(answer := proposed(f, text, gamma, longest)),
                **{f"draft token {i}": token for i, token in enumerate(answer)}},
                {"draft tokens": len(right), **{f"draft token {i}": token for i, token in enumerate(right)}}))
    return found


def tokens_per_call(propose, text: list[int], start: int = 60, gamma: int = 8, longest: int = 4) -> float:
    """Greedy decoding of a target that writes this very text."""
    at, calls = start, 0
    while at < len(text):
        drafted, accepted = propose(text[:at], gamma, longest), 0
        while accepted < len(drafted) and at + accepted < len(text) and drafted[accepted] == text[at + accepted]:
            accepted += 1
        at, calls = at + accepted + 1, calls + 1
    return (at - start) / calls


def pace(f) -> str:
    text = list(TABLE.encode())
    yours, ours = (tokens_per_call(propose, text) for propose in (partial(proposed, f), copied))
    if yours < ours - 1e-9:
        raise Failure(f"{yours:.2f} tokens per target call on a table of assertions, byte by byte; {ours:.2f} can be "
                      "had")
    return f"{yours:.2f} tokens per target call on a table of assertions; to reach: {ours:.2f}"


EXERCISE = Exercise(
    "ex10_ngram.py", ("propose",), contract,
    {"worked number": worked, "nine texts": texts},
    [wrong("earliest-match", "of several places you take the earliest; the latest says more about what comes now",
           propose=partial(copied, latest=False)),
     wrong("matches-itself", "the last tokens match where they stand, and nothing follows there: look at earlier "
           "places",
           propose=partial(copied, own_place=1)),
     wrong("match-included", "you propose the matching tokens themselves; they are written already, copy what followed",
           propose=partial(copied, match=True, after=False)),
     wrong("match-included", "you propose the matching tokens, and then what followed: they are written already",
           propose=partial(copied, match=True)),
     wrong("padded", "you fill the draft up to gamma tokens: where less followed, propose less",
           propose=lambda text, gamma, longest: [*(found := copied(text, gamma, longest)),
                                                 *[0] * (gamma - len(found) if found else 0)]),
     wrong("first-place-left-out", "you never look at the very beginning of the text, start 0",
           propose=partial(copied, first=1)),
     wrong("one-token-left-out", "you stop at n = 2: a single last token that occurs earlier is a match, too",
           propose=partial(copied, sizes=lambda longest: range(longest, 1, -1))),
     wrong("longest-left-out", "you begin with longest - 1 tokens: the last `longest` of them come first",
           propose=partial(copied, sizes=lambda longest: range(longest - 1, 0, -1))),
     wrong("one-too-late", "you start one token too late after the match", propose=partial(copied, skip=1)),
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
    [("nanospec.methods.copies.lookup", "PromptLookup.tree", "", ""),
     ("nanospec.methods.copies.lookup", "Seen.copy", "", "")],
    {"number to reach": pace})
