"""What the pickle in a checkpoint may do: all that ours do, and nothing by which a few bytes become many."""

import pickle
import struct
import zipfile
from collections import OrderedDict
from fractions import Fraction
from io import BytesIO

import pytest
import torch

from nanospec.errors import PairError
from nanospec.files.checkpoint import WEIGHTS
from nanospec.files.model_file import load_saved
from nanospec.files.pickled import check_program

BETAS, SCALING, NUMBERS = (0.9, 0.95), (8.0, 1.0, 4.0, 512), b"K\x01K\x02K\x03"
TRAINING = {"both": (SCALING, SCALING), "state": OrderedDict(a=torch.zeros(2, 3)), "step": 2 ** 40,
            "rates": [{"betas": BETAS}, {"betas": BETAS}], "rng": torch.zeros(5, dtype=torch.uint8), "last": None,
            "ended": False, "one": (1,), "none": ()}


def program_of(saved) -> bytes:
    """The pickle that torch.save writes."""
    file = BytesIO()
    torch.save(saved, file)
    with zipfile.ZipFile(file) as parts:
        return next(parts.read(name) for name in parts.namelist() if name.endswith(".pkl"))


def twice(levels: int, last: tuple | list) -> tuple | list:
    for _ in range(levels):
        last = type(last)([last, last])
    return last


def name(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def test_what_ours_do_is_allowed():
    for path in WEIGHTS.glob("*.pt"):
        assert load_saved(path)
    check_program(program_of(TRAINING))
    check_program(program_of(torch.nn.Linear(2, 3).state_dict()))       # of others: it is refused for what it lacks


def test_as_much_as_may_stand_in_one_another():
    check_program(b"\x80\x02})" + b"\x85" * 98 + b"K\x01s.")          # 99 tuples in a dict


@pytest.mark.parametrize("program, words", [
    (b"\x80\x02})" + b"\x85" * 99 + b"K\x01s.", "more than 100 things stand in one another"),
    (b"\x80\x02" + name("builtins", "bytearray") + b"\x8a\x08" + struct.pack("<q", 2 ** 33) + b"\x85R.", "bytearray"),
    (b"\x80\x02" + name("_codecs", "encode") + b".", "it names _codecs encode"),
    (pickle.dumps({"a": b"x"}, 4), "what no checkpoint of ours does: FRAME"),
    (pickle.dumps(2 ** 90_000, 2), "LONG4"), (pickle.dumps(twice(40, []), 2), "stands in two places"),
    (pickle.dumps(twice(40, ()), 2), "stands in two places"),
    (program_of({"a": twice(1, [torch.zeros(1)])}), "two places"),
    (program_of(torch.zeros(1).to_sparse()), "sparse_tensor"),
    (program_of(torch.zeros(1, device="meta")), "meta_tensor"), (b"\x80\x02]", "pickle exhausted"), (b"", "exhausted"),
    # a tuple that stands twice in one that has numbers behind it: (1, 2, 3) is q0, and q1 is (q0, q0, (1, 2, 3))
    (NUMBERS + b"\x87q\x00" + b"h\x00" * 2 + NUMBERS + b"\x87\x87q\x01h\x01\x86.", "two places"),
    (b"(" + NUMBERS + b"tq\x00(h\x00h\x00" + NUMBERS + b"tq\x01h\x01\x86.", "two places"),
    (NUMBERS + b"(]tq\x00h\x00\x86.", "two places"),
    (b"X\x01\x00\x00\x00aq\x00]q\x00h\x00\x86.", "two places"),        # q0 is a name first, and then a list
    # a dict whose key is a tuple, 101 deep, and the same beside a number each time
    (b"\x80\x02})" + b"\x85" * 100 + b"K\x01s.", "more than 100 things stand in one another"),
    (b"\x80\x02})" + b"K\x01\x86" * 50 + b"q\x00\x85" * 50 + b"K\x01s.", "more than 100 things"),
    (b"\x80\x02}(" + b"(" * 101 + b"t" * 101 + b"K\x01u.", "more than 100 things")])
def test_what_else_a_pickle_may_do_is_refused(program, words):
    with pytest.raises(ValueError, match=words):
        check_program(program)


def test_it_is_looked_at_before_anything_is_made(tmp_path, monkeypatch):
    path, made = tmp_path / "a.pt", []
    torch.save({"a": twice(3, [1])}, path)
    monkeypatch.setattr(torch, "load", lambda *_, **__: made.append(1))
    with pytest.raises(PairError, match="stands in two places"):
        load_saved(path)
    torch.save({str(i): torch.zeros(1) for i in range(30)}, path)
    parts = len(zipfile.ZipFile(path).namelist())               # one for each tensor, and a few more
    monkeypatch.setattr("nanospec.files.pickled.MOST_PARTS", parts - 1)
    with pytest.raises(PairError, match=f"it has {parts} parts"):
        load_saved(path)
    around = len(pickle.dumps({"x" * 2 ** 20: 1}, 2)) - 2 ** 20
    torch.save({"x" * (2 ** 20 + 1 - around): 1}, path)
    with pytest.raises(PairError, match="its list of tensors has 1,048,577 bytes"):
        load_saved(path)
    assert made == []


def test_torch_makes_nothing_but_tensors_even_of_what_nobody_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr("nanospec.files.model_file.check_parts", lambda *_: None)
    torch.save({"a": Fraction(3, 7)}, tmp_path / "a.pt")
    with pytest.raises(PairError, match="is no checkpoint: Weights only load failed"):
        load_saved(tmp_path / "a.pt")


def test_as_many_parts_and_bytes_as_there_may_be(tmp_path, monkeypatch):
    path, around = tmp_path / "a.pt", len(pickle.dumps({"x" * 2 ** 20: 1}, 2)) - 2 ** 20
    for saved in {str(i): torch.zeros(1) for i in range(30)}, {"x" * (2 ** 20 - around): 1}:
        torch.save(saved, path)
        monkeypatch.setattr("nanospec.files.pickled.MOST_PARTS", len(zipfile.ZipFile(path).namelist()))
        assert load_saved(path) == saved


def zipped(*parts: tuple[str, bytes]) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts:
            archive.writestr(name, content)
    return file.getvalue()


def test_torch_is_given_no_pickle_that_was_not_looked_at(tmp_path):
    """torch does not tell .PKL from .pkl, and takes what does not begin as a zip file for a pickle alone. It looks for
    the list of parts where the end of the file says that it is; Python looks right before its end.
    """
    path, bytes_of_300_mb = tmp_path / "a.pt", b"\x80\x02" + name("builtins", "bytearray") + b"J\x00\xa3\xe1\x11\x85R."
    for name_of_part in "archive/data.PKL", "archive/data/0.exe":
        with zipfile.ZipFile(path, "w") as parts:
            parts.writestr(name_of_part, bytes_of_300_mb)
        with pytest.raises(PairError, match=f"part that torch writes in none: '{name_of_part}'"):
            load_saved(path)
    path.write_bytes(zipped(("archive/data.pkl", bytes_of_300_mb)))
    with pytest.raises(PairError, match="it names builtins bytearray"):
        load_saved(path)
    good = zipped(("archive/data.pkl", program_of({"a": 1})))
    path.write_bytes(bytes_of_300_mb + good)
    with pytest.raises(PairError, match="it does not begin as one"):
        load_saved(path)
    bad = zipped(("archive/data.pkl", bytes_of_300_mb))
    at = len(bad) - 22                                  # where its end begins
    two_lists = bytearray(bad[:at] + good)
    two_lists[-6:-2] = bad[-6:-2]                       # the end says where the list of the first one is
    torch.save({"a": 1}, path)
    large = path.read_bytes()
    assert large[-42:-38] == b"PK\x06\x07"              # it has the end of a large file, too
    lists = [bytes(two_lists), good[:-2] + struct.pack("<H", 7) + b"comment"]
    for place in -98 + 48, -42 + 8, -6:                 # in the two ends, and in what leads to the first
        lists.append(large[:place] + bytes([large[place] ^ 1]) + large[place:][1:])
    for content in lists:
        path.write_bytes(content)
        with pytest.raises(PairError, match="its list of parts can be read in two ways|Bad magic number"):
            load_saved(path)


def test_parts_that_are_one_and_the_same_bytes_are_refused(tmp_path):
    """Each would be read: twenty thousand parts of a gigabyte in a file of one."""
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as parts:
        parts.writestr("archive/data.pkl", program_of({"a": 1}))
        parts.writestr("archive/data/0", bytes(5_000))
        parts.filelist += [parts.getinfo("archive/data/0")] * 9
    with pytest.raises(PairError, match="it says that it holds 50,"):
        load_saved(tmp_path / "a.pt")


def test_a_hundred_things_in_one_another_are_allowed():
    check_program(b"\x80\x02})" + b"\x85" * 98 + b"K\x01s.")
    check_program(program_of({str(i): [torch.zeros(1)] for i in range(3000)}))       # in several steps of many
