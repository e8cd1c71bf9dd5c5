"""What exercises share that show rules and ask for a verdict on each, with a distance."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from lessons.check.seen import Failure, Seen, values

Shown = Callable[[], dict[str, tuple[str, float, float]]]       # rule -> verdict, distance, and whatever else


def contract(f, rules: Sequence[str], verdicts: Sequence[str]) -> None:
    """f.verdicts() must give a pair for every rule: one of the verdicts, and a number."""
    found = f.verdicts()
    if not isinstance(found, dict) or set(found) != set(rules):
        raise Failure(f"verdicts must return a dict with the keys {', '.join(rules)}")
    words = f"{', '.join(map(repr, verdicts[:-1]))} or {verdicts[-1]!r}"
    for name, said in found.items():
        pair = isinstance(said, tuple) and len(said) == 2
        if not pair or said[0] not in verdicts or not isinstance(said[1], (int, float)):
            raise Failure(f"{name}: a verdict is a pair such as ('wrong', 0.123), {words} and a number; "
                          f"got {said!r:.60}")


def verdict_values(f, shown: Shown, verdicts: Sequence[str]) -> list[Seen]:
    said, right = f.verdicts(), {name: verdicts.index(found[0]) for name, found in shown().items()}
    seen = values(f"{', '.join(verdicts[:-1])} or {verdicts[-1]}",
                  lambda: {name: verdicts.index(said[name][0]) for name in right}, right)
    return [replace(seen, secret=True)]


def verdict_distances(f, right: dict[str, float]) -> list[Seen]:
    """Of the rules in `right`, to three decimals."""
    said = f.verdicts()
    seen = values("total variation from the target's distribution",
                  lambda: {name: round(said[name][1], 3) for name in right}, right)
    return [replace(seen, secret=True)]
