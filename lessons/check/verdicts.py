"""What exercises share that show rules and ask for a verdict on each, with a distance."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from lessons.check.answered import number, pair
from lessons.check.seen import Failure, Seen, values

Shown = Callable[[], dict[str, tuple[str, float, float]]]       # rule -> verdict, distance, and whatever else


def said(f, rules: Sequence[str], verdicts: Sequence[str]) -> dict[str, tuple[str, float]]:
    """What f.verdicts() says of every rule: one of the verdicts, and a number."""
    found = f.verdicts()
    if not isinstance(found, dict) or set(found) != set(rules):
        raise Failure(f"verdicts must return a dict with the keys {', '.join(rules)}")
    words, answers = f"{', '.join(map(repr, verdicts[:-1]))} or {verdicts[-1]!r}", {}
    for name in rules:
        is_a_pair = f"{name}: a verdict is a pair such as ({verdicts[0]!r}, 0.123), {words} and a number"
        verdict, off = pair(found[name], is_a_pair)
        if not isinstance(verdict, str) or verdict not in verdicts:
            raise Failure(f"{is_a_pair}; it returned {found[name]!r:.60}")
        answers[name] = verdict, number(off, f"{name}: verdicts, second,")
    return answers


def contract(f, rules: Sequence[str], verdicts: Sequence[str]) -> None:
    said(f, rules, verdicts)


def verdict_values(f, shown: Shown, verdicts: Sequence[str]) -> list[Seen]:
    right = {name: verdicts.index(found[0]) for name, found in shown().items()}
    answers = said(f, list(right), verdicts)
    seen = values(f"verdicts, {', '.join(verdicts[:-1])} or {verdicts[-1]}",
                  lambda: {name: verdicts.index(answers[name][0]) for name in right}, right)
    return [replace(seen, secret=True)]


def verdict_distances(f, shown: Shown, verdicts: Sequence[str], of: Sequence[str]) -> list[Seen]:
    """Of the rules in `of`, to three decimals."""
    answers = said(f, list(shown()), verdicts)
    seen = values("verdicts, total variation from the target's distribution",
                  lambda: {name: round(answers[name][1], 3) for name in of}, {name: shown()[name][1] for name in of})
    return [replace(seen, secret=True)]
