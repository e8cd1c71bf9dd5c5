"""Exercise 10: a draft that costs nothing, copied from the text itself."""

from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial

from lessons.check import seeds
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
            found.append(values(f"{name}: text {text}, gamma {gamma}, longest {longest}; right is {right}",
                                lambda: numbered(proposed(f, text, gamma, longest)), numbered(right)))
    return found


@lru_cache(maxsize=None)
def drawn_texts() -> list[tuple[list[int], int, int]]:
    """text, gamma, longest: few tokens and many, short texts and long ones, token 0, and tokens of several digits."""
    draw, found = seeds.chance(10), []
    for _ in range(90):
        tokens = draw.choice(([0, 1], [0, 1, 2], [1, 2, 3, 4], [7, 17, 71, 171, 0], [10 ** 6, 10 ** 6 + 1, 0, 1]))
        text = [draw.choice(tokens) for _ in range(draw.randint(1, 30))]
        found.append((text, draw.randint(1, 7), draw.randint(1, 9)))
    for length in 150, 400:                         # what is copied lies far back
        rare = [1000 + i for i in range(9)]
        # A shorter tail stands later, too, and something else follows it there.
        text = [*rare, *(draw.randrange(900) for _ in range(length)), *rare[1:6], 7, *rare[:6]]
        found += [(text, 3, 4), (text, 9, 6), (text, 2, 20), (text, 12, 1)]
    return found


def by_seed(f) -> list[Seen]:
    found = []
    for text, gamma, longest in drawn_texts():
        right = copied(text, gamma, longest)
        shown = f"text {text if len(text) <= 30 else f'of {len(text)} tokens that ends in {text[-8:]}'}"
        found.append(values(f"{shown}, gamma {gamma}, longest {longest}; right is {right}",
                            lambda text=text, gamma=gamma, longest=longest: numbered(proposed(f, text, gamma, longest)),
                            numbered(right)))
    return found


def numbered(tokens: list[int]) -> dict:
    return {"draft tokens": len(tokens), **{f"draft token {i}": token for i, token in enumerate(tokens)}}


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


def then(made: Callable) -> Callable:
    """What is copied, and something done with it."""
    return lambda text, gamma, longest: made(copied(text, gamma, longest), text, gamma, longest)


def copied_elsewhere(text, gamma, longest, like=lambda part, tail: part == tail,
                     makes=lambda text, at, gamma: text[at:at + gamma],
                     last=lambda text, n, gamma: len(text) - n, best=lambda places, text: max(places)):
    """propose with another thing that counts as the same, another copy, other places, or another one of them."""
    for n in range(min(longest, len(text) - 1), 0, -1):
        places = [start + n for start in range(max(0, last(text, n, gamma))) if like(text[start:start + n], text[-n:])]
        if places:
            return makes(text, best(places, text), gamma)
    return []


def most_frequent(places: list[int], text: list[int]) -> int:
    often = Counter(text[at] for at in places).most_common(1)[0][0]
    return max(at for at in places if text[at] == often)


def in_digits(text, gamma, longest):
    """A search in the text as it is printed: 7 is found in 17."""
    whole = ", ".join(map(str, text))
    for n in range(min(longest, len(text) - 1), 0, -1):
        at = whole.rfind(", ".join(map(str, text[-n:])), 0, len(whole) - 1)
        if at >= 0:
            start = whole[:at].count(",") + n
            return text[start:start + gamma]
    return []


def going_on(text: list[int], at: int, gamma: int) -> list[int]:
    """The copy runs on into itself."""
    whole = list(text)
    for i in range(gamma):
        whole.append(whole[at + i])
    return whole[len(text):]


EXERCISE = Exercise(
    "ex10_ngram.py", ("propose",), contract,
    {"worked number": worked, "nine texts": texts, "many texts": by_seed},
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
     wrong("padded", "you fill the draft up to gamma tokens with the last of them: where less followed, propose less",
           propose=then(lambda found, text, gamma, longest: found + found[-1:] * (gamma - len(found)))),
     wrong("copied-on-into-itself", "where the copy comes to the end of the text you go on with what you have just "
           "copied: "
           "a good idea, and another exercise; propose what followed, and no more", propose=partial(
               copied_elsewhere, makes=going_on)),
     wrong("wrapped-around", "where the copy comes to the end of the text you go on at its beginning: nothing "
           "follows the "
           "end", propose=partial(copied_elsewhere, makes=lambda text, at, gamma: [
               text[(at + i) % len(text)] for i in range(gamma)])),
     wrong("one-too-early", "you begin the copy one token too early, with the last token of the match: it is written "
           "already",
           propose=partial(copied, skip=-1)),
     wrong("reversed", "you propose what followed from its end: the token right after the match comes first",
           propose=then(lambda found, *_: found[::-1])),
     wrong("any-order", "you take the same tokens in another order for a match: they must stand there in the same "
           "order",
           propose=partial(copied_elsewhere, like=lambda part, tail: sorted(part) == sorted(tail))),
     wrong("most-frequent", "of several places you take the token that followed most often; the latest place is "
           "asked for",
           propose=partial(copied_elsewhere, best=most_frequent)),
     wrong("digits-for-tokens", "you search in the text as it is printed, where 7 is found in 17: compare tokens",
           propose=in_digits),
     wrong("only-where-gamma-follow", "you leave out places that fewer than gamma tokens follow: propose the fewer",
           propose=partial(copied_elsewhere, last=lambda text, n, gamma: len(text) - n - gamma + 1)),
     wrong("no-overlap", "you leave out places that overlap the end of the text: a text may repeat itself at once",
           propose=partial(copied_elsewhere, last=lambda text, n, gamma: len(text) - 2 * n + 1)),
     wrong("one-too-few", "you propose one token too few: up to gamma of them",
           propose=lambda text, gamma, longest: copied(text, gamma - 1, longest)),
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
     ("nanospec.methods.copies.lookup", "IndexedText.copy", "", "")],
    {"number to reach": pace})
