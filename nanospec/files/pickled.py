"""What the pickle in a checkpoint may do: name tensors, and put names, numbers and tensors into
dicts and lists.

torch.load, with weights_only, runs no code of a stranger. But a pickle of 400 bytes may still ask
for a bytearray of 8 GB, and one of 6,000 may hold a list that holds a list twice, forty levels
deep, which takes for ever to print or to hash. torch writes none of this for our models, so it is
refused before anything is made.
"""

import pickletools
import re
from zipfile import ZipFile

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


def check_parts(parts: ZipFile) -> None:
    """ValueError for a checkpoint of more than MOST_PARTS, or with a pickle as below."""
    entries = parts.infolist()
    if len(entries) > MOST_PARTS:
        raise ValueError(f"it has {len(entries):,} parts")
    for entry in entries:
        if entry.filename.endswith(".pkl"):
            check_program(parts.read(entry))


def check_program(program: bytes) -> None:
    """ValueError for a pickle that does anything else, or names one thing in two places that is no
    name and no tuple of numbers.
    """
    if len(program) > LONGEST:
        raise ValueError(f"its list of tensors has {len(program):,} bytes")
    plain, last, numbers = dict[object, bool](), "", 0
    for step, argument, _ in pickletools.genops(program):
        if step.name not in KNOWN:
            raise ValueError(f"it does what no checkpoint of ours does: {step.name}")
        if step.name == "GLOBAL" and not NAMES.fullmatch(str(argument)):
            raise ValueError(f"it names {argument}, as no checkpoint of ours does")
        if step.name in KEPT:
            plain[argument] = last in ("BINUNICODE", "GLOBAL", "EMPTY_TUPLE") or (
                numbers >= TUPLES.get(last, 4))
            continue
        if step.name in AGAIN and not plain.get(argument):
            raise ValueError("one thing stands in two places in it")
        last = step.name
        if last not in TUPLES:
            numbers = numbers + 1 if last in NUMBERS else 0
