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
from struct import Struct
from zipfile import ZIP_STORED, ZipFile

from nanospec.files.paths import check_claimed

LONGEST = 2 ** 20       # bytes: of 24 layers it has 32,000
DEEPEST = 100           # things in one another
MOST_PARTS = 20_000     # of a checkpoint: a tensor each
# The parts that torch writes. It does not tell upper from lower case in their names.
PARTS = re.compile(r"[^/]+/(data\.pkl|data/\d+|version|byteorder|\.\w+|\.data/serialization_id)")
# How a zip file ends, and how one of more than 4 GB does.
END, LOCATOR, END64 = Struct("<4s4H2LH"), Struct("<4sLQL"), Struct("<4sQ2H2L4Q")
NAMES = re.compile(r"torch\._utils _rebuild_tensor_v2|collections OrderedDict|torch \w+Storage")
NUMBERS = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "NEWTRUE", "NEWFALSE", "NONE"}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
KEPT, AGAIN = {"BINPUT", "LONG_BINPUT"}, {"BINGET", "LONG_BINGET"}
OTHERS = {"PROTO", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "BINUNICODE",
          "GLOBAL", "TUPLE", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "REDUCE", "BUILD",
          "BINPERSID"}
KNOWN = NUMBERS | TUPLES.keys() | KEPT | AGAIN | OTHERS


def check_parts(parts: ZipFile, size: int) -> None:
    """Of a checkpoint of `size` bytes. ValueError for more than MOST_PARTS, for parts that torch
    does not write, that have more bytes together or that it may read otherwise than we do, and for
    a pickle as below.
    """
    check_directory(parts, size)
    entries = parts.infolist()
    if len(entries) > MOST_PARTS:
        raise ValueError(f"it has {len(entries):,} parts")
    if any(entry.compress_type != ZIP_STORED for entry in entries):
        raise ValueError("its parts are compressed, as torch writes none")
    check_claimed(sum(entry.file_size for entry in entries), size)
    for entry in entries:
        if not PARTS.fullmatch(entry.orig_filename):
            raise ValueError(f"it has a part that torch writes in none: {entry.orig_filename!r}")
        if entry.orig_filename.endswith(".pkl"):
            if entry.file_size > LONGEST:
                raise ValueError(f"its list of tensors has {entry.file_size:,} bytes")
            check_program(parts.read(entry))


def check_directory(parts: ZipFile, size: int) -> None:
    """ValueError if another reader could find another list of parts. Some look where its end says
    that it begins, others right before its end, and some believe only the end of a large file.
    """
    file, at = parts.fp, size - END.size
    assert file is not None                             # it is open

    def read(what: Struct, at: int) -> tuple:
        file.seek(max(at, 0))
        return what.unpack(file.read(what.size))

    *_, length, offset, comment = read(END, at)
    alike = not comment                                 # whether both ends say the same
    mark, _, place, _ = read(LOCATOR, at - LOCATOR.size)
    if mark == b"PK\x06\x07":
        before, at = {offset, length}, at - LOCATOR.size - END64.size
        *_, length, offset = read(END64, at)
        alike = alike and place == at and before <= {offset, length, 2 ** 32 - 1}
    if not alike or offset != parts.start_dir or offset + length != at:
        raise ValueError("its list of parts can be read in two ways")


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
    check_depth(program)


def check_depth(program: bytes) -> None:
    """ValueError where more than DEEPEST things may stand in one another: to hash a tuple that is a
    million deep ends Python itself. IndexError or KeyError for what takes more than is there.
    """
    stack, kept = list[int](), dict[object, int]()      # how deep each is; a mark: 0
    for step, argument, _ in pickletools.genops(program):
        if step.name in KEPT:
            kept[argument] = stack[-1]
        elif step.name in AGAIN:
            stack.append(kept[argument])
        else:
            within, before = list[int](), list(step.stack_before)
            if pickletools.stackslice in before:
                while depth := stack.pop():
                    within.append(depth)
                before = before[:before.index(pickletools.markobject)]
            within += [stack.pop() for _ in before]
            marks = step.name == "MARK"
            stack += [0 if marks else 1 + max(within, default=0)] * len(step.stack_after)
        if stack and stack[-1] > DEEPEST:
            raise ValueError(f"more than {DEEPEST} things stand in one another in it")
