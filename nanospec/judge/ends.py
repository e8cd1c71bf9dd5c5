"""Where two texts end: what is written after an end of text, and what only fills it up.

In a batch texts are made as long as one another, by whatever token a program takes for that, its
end of text too. So nobody is accused for what could be such a filling.
"""

from collections import Counter
from collections.abc import Sequence

from nanospec.judge.rounding import Compared, parting

# A stop inside the accepted tokens is not noticed, or its token is written again.
MISSED = {"after": "goes on after the end of text", "twice": "writes the end of text twice"}
TWICE = 4               # texts of a program that ends each twice: a filling is not as long in all


def ended(pairs: Sequence[list[list[int]]], ends: set[int], special: set[int], told: bool
          ) -> list[tuple[str, int, list[list[int]]]]:
    """What there is to say of each pair's ends: a key of MISSED, "shorter" if one has more in
    another way, or "same"; which of the two that is, 0 or 1; and as much of both as is compared.
    told: whether one was told to go on after an end.
    """
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    bare = [[unfilled(text, ends, special | filling(texts, ends)) for text in texts]
            for texts in sides]
    stops = [all(ends.isdisjoint(text[:-1]) for text in texts) for texts in bare]
    doubles = [ends_twice(texts, ends) for texts in sides]
    found = []
    for given, both in zip(pairs, zip(*bare)):
        how, longer = "same", int(len(both[1]) > len(both[0]))
        short, long = both[1 - longer], both[longer]
        rest = long[len(short):]
        if {*rest} - special:
            how = "shorter"
            # What fills up the short one may be what a program writes that ignores ends.
            part = parting(*given) in (None, len(short))
            if stops[1 - longer] and not told and part and (
                    short[-1:] and short[-1] in ends and long[:len(short)] == short):
                how = "after"
        elif not told:
            for side, (own, other) in enumerate((given, given[::-1])):
                if doubles[side] and own == other + other[-1:]:
                    how, longer = "twice", side
        found.append((how, longer, [text[:len(short)] if how in MISSED else text for text in both]))
    return found


def filling(texts: Sequence[list[int]], ends: set[int]) -> set[int]:
    """The one token that stands after ends wherever anything does, if it is one."""
    after = [token for text in texts for token in text[first_end(text, ends):]]
    return {*after} if len({*after}) == 1 < len(after) else set()


def first_end(text: list[int], ends: set[int]) -> int:
    """How many tokens there are up to the first end, and with it; all if there is none."""
    return next((i for i, token in enumerate(text, 1) if token in ends), len(text))


def unfilled(text: list[int], ends: set[int], special: set[int]) -> list[int]:
    """A text without the special tokens that fill it up, after its end or where that was taken
    out.
    """
    end = first_end(text, ends)
    if end < len(text):
        return text[:end] if {*text[end:]} <= special else text
    while text[-1:] and text[-1] in special - ends:
        text = text[:-1]
    return text


def ends_twice(texts: Sequence[list[int]], ends: set[int]) -> bool:
    """Whether a program writes each end once more, and not to make texts as long as others."""
    rests = [(len(text), text[first_end(text, ends) - 1:]) for text in texts
             if not ends.isdisjoint(text)]
    return (len(rests) >= TWICE and all(len(rest) == 2 and rest[0] == rest[1] for _, rest in rests)
            and len({length % 2 for length, _ in rests}) == 2)


def missed(each: Sequence[Compared]) -> list[str]:
    """A sentence on whoever does not stop, and how."""
    found = Counter((one.longer, one.verdict) for one in each if one.verdict in MISSED)
    return [f"A BUG in {'AB'[side]}: in {count} of {len(each)} texts it {MISSED[how]}, where "
            f"{'BA'[side]} stops. (Or was it told to ignore the end?)"
            for (side, how), count in found.items()]
