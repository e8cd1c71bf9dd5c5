"""Where two texts end: what is written after an end of text, and what only fills it up."""

from collections import Counter
from collections.abc import Sequence

from nanospec.judge.rounding import Compared, parting

# A stop inside the accepted tokens is not noticed, or its token is written again.
MISSED = {"after": "goes on after the end of text", "twice": "writes the end of text twice"}


def ended(pairs: Sequence[list[list[int]]], ends: set[int], special: set[int], told: bool
          ) -> list[tuple[str, list[list[int]]]]:
    """What there is to say of each pair's ends (see `ending`), and as much of both as is compared.
    told: whether one was told to go on after an end.
    """
    found = []
    for a, b in pairs:
        pair, how, longer = [a, b], ending(a, b, ends, special), int(len(b) > len(a))
        # In a batch an end may stand twice to make a text as long as another.
        if how == "twice" and any(len(one[longer]) == len(pair[longer])
                                  and one[longer][-2:] != pair[longer][-2:] for one in pairs):
            how = "same"
        if told and how in MISSED:
            how = "shorter"
        at, until = parting(a, b), min(len(a), len(b)) if how in MISSED else None
        found.append((how, [unfilled(one[:until], at, ends, special) for one in pair]))
    return found


def ending(a: list[int], b: list[int], ends: set[int], special: set[int]) -> str:
    """Of two texts that are alike as far as both go: a key of MISSED if one stops at its first end
    of text and the other has more; "shorter" if one has more in another way; or "same".
    """
    short, long = sorted((a, b), key=len)
    rest = long[len(short):]
    if rest and [token for token in short if token in ends] == short[-1:] != [] and (
            long[:len(short)] == short):
        if rest == short[-1:]:
            return "twice"
        if len({*rest}) > 1 or rest[0] not in special:      # else it may fill up a batch
            return "after"
    return "shorter" if {*rest} - special else "same"       # an end may be left out of a text


def unfilled(text: list[int], at: int | None, ends: set[int], special: set[int]) -> list[int]:
    """A text without the special token that fills it up after its end, as in a batch. at: where it
    parts from the other one; what parts it is no filling.
    """
    end = next((i for i, token in enumerate(text, 1) if token in ends), len(text))
    rest = {*text[end:]}
    filled = len(rest) == 1 and rest <= special and (at is None or at < end)
    return text[:end] if filled else text


def missed(each: Sequence[Compared]) -> list[str]:
    """A sentence on whoever does not stop, and how."""
    found = Counter((one.longer, one.verdict) for one in each if one.verdict in MISSED)
    return [f"A BUG in {'AB'[side]}: in {count} of {len(each)} texts it {MISSED[how]}, where "
            f"{'BA'[side]} stops. (Or was it told to ignore the end?)"
            for (side, how), count in found.items()]
