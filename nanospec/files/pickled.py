"""What the pickle in a checkpoint may do: name tensors, and put names, numbers and tensors into
dicts and lists.

torch.load, with weights_only, runs no code of a stranger. But a pickle of 400 bytes may still ask
for a bytearray of 8 GB, and one of 6,000 may hold a list that holds a list twice, forty levels
deep, which takes for ever to print or to hash. torch writes none of this for our models, so it is
refused before anything is made.
"""

import math
import pickletools
import re
from zipfile import ZIP_STORED, ZipFile

from nanospec.files.paths import check_claimed

LONGEST = 2 ** 20       # bytes: of 24 layers it has 32,000
MOST_PARTS = 20_000     # of a checkpoint: a tensor each
NAMES = re.compile(r"torch\._utils _rebuild_tensor_v2|collections OrderedDict|torch \w+Storage")
NUMBERS = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "NEWTRUE", "NEWFALSE", "NONE"}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
KEPT, AGAIN = {"BINPUT", "LONG_BINPUT"}, {"BINGET", "LONG_BINGET"}
OTHERS = {"PROTO", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "BINUNICODE",
          "GLOBAL", "TUPLE", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "REDUCE", "BUILD",
          "BINPERSID"}
KNOWN = NUMBERS | TUPLES.keys() | KEPT | AGAIN | OTHERS


def check_parts(parts: ZipFile, size: int) -> None:
    """ValueError for a checkpoint of `size` bytes that torch may read otherwise than we do, that
    has more than MOST_PARTS or more bytes in them, or a pickle as below.
    """
    entries = parts.infolist()
    if len(entries) > MOST_PARTS:
        raise ValueError(f"it has {len(entries):,} parts")
    if parts.comment or any(entry.compress_type != ZIP_STORED for entry in entries):
        raise ValueError("its parts are compressed, or have a comment, as torch writes none")
    check_claimed(sum(entry.file_size for entry in entries), size)
    for entry in entries:
        if entry.filename.lower().endswith(".pkl"):     # torch does not tell .PKL from it
            if entry.file_size > LONGEST:
                raise ValueError(f"its list of tensors has {entry.file_size:,} bytes")
            check_program(parts.read(entry))


def check_program(program: bytes) -> None:
    """ValueError for a pickle that does anything else, or names one thing in two places that is no
    name and no tuple of numbers alone.
    """
    # plain: what is kept under a number, and may stand in two places; flat: whether that holds for
    # what was made last; numbers: so many were the last; marked: nothing else since the last mark.
    plain, flat, numbers, marked = dict[object, bool](), False, 0, False
    for step, argument, _ in pickletools.genops(program):
        if step.name not in KNOWN:
            raise ValueError(f"it does what no checkpoint of ours does: {step.name}")
        if step.name == "GLOBAL" and not NAMES.fullmatch(str(argument)):
            raise ValueError(f"it names {argument}, as no checkpoint of ours does")
        if step.name in KEPT:
            plain[argument] = flat
            continue
        if step.name in AGAIN and not plain.get(argument):
            raise ValueError("one thing stands in two places in it")
        flat = step.name in ("BINUNICODE", "GLOBAL", "EMPTY_TUPLE") or (
            marked if step.name == "TUPLE" else numbers >= TUPLES.get(step.name, math.inf))
        numbers = numbers + 1 if step.name in NUMBERS else 0
        marked = step.name == "MARK" or marked and step.name in NUMBERS
