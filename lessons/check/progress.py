"""What is solved, what was tried, which hints were seen: one small file beside the exercises, never in the repository.

"Solved" belongs to a text, not to a file: a solved file that is changed counts as "tried" until it is checked again.
"""

import json
from hashlib import sha256

from lessons.check.catalogue import ENTRIES, Entry, folder_of_exercises, read, untouched

SOLVED, TRIED, UNTOUCHED, MISSING = "solved", "tried", "untouched", "missing"


def state_of(entry: Entry) -> str:
    """One of the four words above."""
    if not entry.path.is_file():
        return MISSING
    try:
        text = read(entry.path)
    except OSError:                                     # desk.py says why
        return TRIED
    if untouched(text, entry):
        return UNTOUCHED
    return SOLVED if _read().get(str(entry.number), {}).get("solved") == _hash(text) else TRIED


def states() -> dict[int, str]:
    return {number: state_of(entry) for number, entry in ENTRIES.items()}


def remember(entry: Entry, text: bytes, solved: bool) -> None:
    """Whether that text of the exercise's file is right."""
    _write(entry, solved=_hash(text) if solved else "")


def one_more_hint(entry: Entry, most: int) -> int:
    """How many hints may be seen now: one more than the last time."""
    seen = _read().get(str(entry.number), {}).get("hints")
    count = min(seen + 1 if isinstance(seen, int) and seen > 0 else 1, most)
    _write(entry, hints=count)
    return count


def bar() -> str:
    """How far the learner is: `3 of 21 solved  ###..................`, a mark for each exercise."""
    marks = {SOLVED: "#", TRIED: "-"}
    found = states().values()
    return f"{list(found).count(SOLVED)} of {len(ENTRIES)} solved  {''.join(marks.get(state, '.') for state in found)}"


def _hash(text: bytes) -> str:
    return sha256(text).hexdigest()


def _read() -> dict[str, dict]:
    """Number -> what is known. A file that cannot be read counts as none: all it costs is to check again."""
    try:
        found = json.loads(read(folder_of_exercises() / ".progress"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {key: known for key, known in found.items() if isinstance(known, dict)} if isinstance(found, dict) else {}


def _write(entry: Entry, **known) -> None:
    found, path = _read(), folder_of_exercises() / ".progress"
    found[str(entry.number)] = found.get(str(entry.number), {}) | known
    new = path.with_suffix(".new")
    try:
        new.write_text(json.dumps(found, indent=1), encoding="utf-8")
        new.replace(path)                               # all of it or nothing: an interruption spoils no state
    except OSError:
        pass                                            # a folder that cannot be written: checks work all the same
