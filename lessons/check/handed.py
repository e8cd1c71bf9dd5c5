"""What a class has handed in: a folder or a zip for each student, with the exercises wherever in it they lie.

A clone, a download of the whole project, a folder in a zip, a zip in a folder: the file that a student has changed is
found. What is not looked at is named, so that nobody quietly gets the marks of somebody who handed in nothing. All of
it may come from a stranger: only plain files are read, none beyond `catalogue.LONGEST`, and no link is followed.
"""

import io
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

from lessons.check.catalogue import ENTRIES, LONGEST, read, untouched
from nanospec.errors import one_line

FILES_AT_MOST = 20_000      # that are looked at for one student
KEPT_AT_MOST = 2 ** 25      # bytes of all their exercises together
ZIP_AT_MOST = 2 ** 28       # bytes of a zip
LIST_AT_MOST = 2 ** 22      # bytes of the list of a zip's files
NOT_THEIRS = {"answers", "check", "__MACOSX", "__pycache__"}        # folders of a clone, and of a Mac's zip
EXERCISES = {entry.file: entry for entry in ENTRIES.values()}
ALMOST = re.compile(r"(?i)^ex(ercise)?[ _-]*0*\d{1,2}\b.*\.(py|ipynb|txt)$|^ex\d\d_.*\.(py|ipynb|txt)$")
ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError)
NAMED = 3                   # things that are named for a student; the others are counted

Where = tuple[str, ...]     # folders and a name, inside what was handed in
Found = tuple[Where, Callable[[], bytes]]


@dataclass
class HandIn:
    """files: name of an exercise -> its text.  notes: what was not looked at, or could not be read."""

    files: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def students(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Name -> folder or zip, and the names of what is neither. A link may lead to somebody else's work, or anywhere: it
    is followed only where it is all there is.
    """
    there, strange = {}, []
    paths = [path for path in folder.iterdir() if not path.name.startswith(".") and path.name != "__MACOSX"]
    for path in sorted(paths, key=lambda path: (path.stem if is_zip(path.name) else path.name, path.name)):
        linked = path.is_symlink() and len(paths) > 1
        if linked or not path.is_dir() and not is_zip(path.name):
            strange.append(one_line(path.name) + " (a link)" * linked)
            continue
        name = one_line(path.name if path.is_dir() else path.stem)
        others = (f"{name} ({number})" for number in count(2))          # two names may look the same
        there[next(one for one in (name, one_line(f"{name} ({path.name})"), *islice(others, len(there)))
                   if one not in there)] = path
    return there, strange


def handed_in(path: Path) -> HandIn:
    """What that student's folder or zip holds."""
    found, texts, strange = HandIn(), {}, []
    whole = in_folder(path, strange) if path.is_dir() else in_zip(path, (), strange)
    looked_at = kept = 0
    try:
        for looked_at, (where, text) in enumerate(islice(whole, FILES_AT_MOST), 1):
            name = where[-1]
            if name in EXERCISES:
                try:
                    one = where, text()
                    kept += len(one[1])
                    if kept > KEPT_AT_MOST:
                        found.notes.append(f"only {KEPT_AT_MOST:,} bytes of its exercises were read")
                        break
                    texts.setdefault(name, []).append(one)
                except DAMAGED as error:
                    strange.append(f"{shown(where)}: {reason(error)}")
            elif (ALMOST.match(name) and ".mine" not in name) or name.lower().endswith(ARCHIVES):
                strange.append(shown(where))
    except DAMAGED as error:
        strange.append(f"{one_line(path.name)}: {reason(error)}")
    for name, choice in texts.items():
        found.files[name], said = chosen(name, choice)
        found.notes += said
    if not texts:
        found.notes.append(f"no exercise found, such as {next(iter(EXERCISES))}")
    if looked_at == FILES_AT_MOST:
        found.notes.append(f"only {FILES_AT_MOST:,} of its files were looked at")
    if strange:
        more = f", and {len(strange) - NAMED} more" * (len(strange) > NAMED)
        found.notes.append(f"not looked at: {', '.join(strange[:NAMED])}{more}")
    return found


def chosen(name: str, choice: list[tuple[Where, bytes]]) -> tuple[bytes, list[str]]:
    """Of several files of that name: what was changed before what was not, then what lies less deep."""
    choice.sort(key=lambda one: (untouched(one[1], EXERCISES[name]), len(one[0]), one[0]))
    taken, text = choice[0]
    others = [where for where, other in choice[1:] if other != text and not untouched(other, EXERCISES[name])]
    return text, [f"{shown(taken)} is judged, and not {', '.join(map(shown, others[:NAMED]))}"] * bool(others)


def in_folder(top: Path, strange: list[str]) -> Iterator[Found]:
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if not left_out(name))
        inside = Path(folder).relative_to(top).parts
        strange += [f"{shown((*inside, name))}: it is a link" for name in folders if (Path(folder) / name).is_symlink()]
        for name in sorted(files):
            if name.startswith("."):
                continue
            path, where = Path(folder) / name, (*inside, name)
            if is_zip(name):
                yield from in_zip(path, where, strange)
            else:
                yield where, lambda path=path: read(path, follow=False)


def in_zip(path: Path, at: Where, strange: list[str]) -> Iterator[Found]:
    """Its members, each read up to LONGEST: what a zip says of their sizes need not be so."""
    try:
        packed = read(path, most=ZIP_AT_MOST, follow=not at)
        check_list(packed)
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            # Of two members of one name, unpacking leaves the last.
            for member in {member.filename: member for member in archive.infolist()}.values():
                inside = tuple(member.filename.replace("\\", "/").split("/"))
                if not member.is_dir() and not any(map(left_out, inside)):
                    yield (*at, *inside), lambda member=member: unpacked(archive, member)
    except DAMAGED as error:
        strange.append(f"{shown(at or (path.name,))}: {reason(error)}")


def check_list(packed: bytes) -> None:
    """ValueError if the list of a zip's files is longer than a student's can be: Python reads all of it at once."""
    sign, last = b"PK\5\6", len(packed) - 22            # the end of that list, where no remark follows it
    at = last if packed[last:].startswith(sign) and packed.endswith(b"\0\0") else packed.rfind(sign)
    if at >= 0 and (int.from_bytes(packed[at + 12:at + 16], "little") > LIST_AT_MOST
                    or packed[max(at - 20, 0):at].startswith(b"PK\6\7")):           # of the kind for 65,536 and more
        raise ValueError("it holds too many files")


def unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):      # others unpack without a bound
        raise ValueError("packed in a way that is not read here")
    with archive.open(member) as file:
        text = file.read(LONGEST + 1)
    if len(text) > LONGEST:
        raise ValueError(f"longer than {LONGEST:,} bytes")
    return text


def is_zip(name: str) -> bool:
    return name.lower().endswith(".zip")


def left_out(name: str) -> bool:
    return name in NOT_THEIRS or name.startswith(".") and name not in (".", "..")


def shown(where: Where) -> str:
    return one_line("/".join(where))


def reason(error: Exception) -> str:
    return one_line(error.strerror if isinstance(error, OSError) and error.strerror else error)
