"""What an earlier start has found is found again; whatever is wrong with the file or the folder, it is no error."""

import os
from importlib import metadata
from pathlib import Path

import pytest

from nanospec.files import kept
from nanospec.files.kept import cache_folder, kept_or_found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Not there yet."""
    monkeypatch.setattr(kept, "cache_folder", lambda: tmp_path / "a" / "nanospec")
    return tmp_path / "a" / "nanospec"


@pytest.fixture
def find():
    """Another number each time."""
    def of():
        of.times += 1
        return of.times, {"c": .1}
    of.times = 0
    return of


def test_it_is_found_once_for_each_question(folder, find):
    """And is of the same kind the first time as later: a tuple is a list in JSON."""
    for about, expected in [({"a": 1, "b": None}, 1), ({"b": None, "a": 1}, 1), ({"a": 2, "b": None}, 2), ({}, 3),
                            ({"a": 1, "b": None}, 1)]:
        assert kept_or_found(about, find) == [expected, {"c": .1}]
    assert len([*folder.iterdir()]) == 3 and {path.suffix for path in folder.iterdir()} == {".json"}


def test_anew_replaces_what_was_kept(folder, find):
    assert [kept_or_found({}, find, anew)[0] for anew in (False, True, False)] == [1, 2, 2]


def test_another_version_looks_again(folder, find, monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    for version in lambda _: "0.1", lambda _: "0.2", absent, lambda _: "0.1":
        monkeypatch.setattr(kept.metadata, "version", version)
        kept_or_found({}, find)
    assert find.times == 3


@pytest.mark.parametrize("damage", [
    lambda data: b"", lambda data: data[:-20], lambda data: data.replace(b"  1,", b"  7,"),
    lambda data: b"[1]", lambda data: b"null", lambda data: b"{}", lambda data: b"\xff", lambda data: b"[" * 10 ** 5,
    lambda data: data.replace(b"digest", b"digits"), lambda data: data.replace(b"found", b"lost")])
def test_a_damaged_file_counts_as_none(folder, find, damage):
    kept_or_found({}, find)
    file, = folder.iterdir()
    changed = damage(file.read_bytes())
    assert changed != file.read_bytes()
    file.write_bytes(changed)
    assert kept_or_found({}, find)[0] == 2 and kept_or_found({}, find)[0] == 2       # and is written over


def test_where_nothing_can_be_kept_it_is_found_each_time(tmp_path, find, monkeypatch):
    """A folder whose place a file has, a file whose place a folder has, and a user without a home."""
    (tmp_path / "a").write_text("")
    monkeypatch.setattr(kept, "cache_folder", lambda: tmp_path / "a" / "nanospec")
    assert [kept_or_found({}, find)[0] for _ in range(2)] == [1, 2] and (tmp_path / "a").read_text() == ""
    monkeypatch.setattr(kept, "cache_folder", lambda: tmp_path / "b")
    kept_or_found({}, find)
    file, = (tmp_path / "b").iterdir()
    file.unlink()
    file.mkdir()
    assert [kept_or_found({}, find)[0] for _ in range(2)] == [4, 5]

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(kept, "cache_folder", homeless)
    assert [kept_or_found({}, find)[0] for _ in range(2)] == [6, 7]


@pytest.mark.skipif(os.name != "posix", reason="paths of this system")
def test_it_lies_where_other_programs_have_theirs(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    for named, place in ("/quick", "/quick"), ("", "/home/me/.cache"), ("not/absolute", "/home/me/.cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", named)
        assert cache_folder() == Path(place, "nanospec")
