import os
import re
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

from nanospec.errors import TextError
from nanospec.files.corpus import held_out, read_texts, to_ids
from nanospec.files.tokenizer import Tokenizer, train
from training.packages import DEPENDENCIES, LONGEST, is_table, packages, read_packages


@pytest.fixture(scope="module")
def library():
    return read_texts()


def test_the_standard_library_is_enough_and_about_one_twentieth_is_held_out(library):
    training, held = library
    assert sum(map(len, training)) > 5_000_000
    assert 0.02 < sum(map(len, held)) / sum(map(len, training)) < 0.12


def test_no_text_is_both_trained_on_and_held_out(library):
    training, held = library
    assert not set(training) & set(held)


def test_what_is_held_out_depends_on_the_path_alone():
    chosen = {path for path in (f"lib/module{i}.py" for i in range(1000)) if held_out(path)}
    assert 30 < len(chosen) < 70
    assert not held_out("argparse.py") and held_out(min(chosen))


def test_tests_tables_and_installed_packages_are_left_out(library):
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    texts = set(library[0] + library[1])
    assert (stdlib / "heapq.py").read_text(encoding="utf-8") in texts
    for left_out in ("html/entities.py", "encodings/cp037.py"):
        assert (stdlib / left_out).read_text(encoding="utf-8") not in texts
    assert not any(path.read_text(encoding="utf-8") in texts for path in (stdlib / "test").glob("test_[a-c]*.py"))


def test_one_file_is_split(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 1900 + "y" * 100)
    assert read_texts(tmp_path / "a.txt") == (["x" * 1900], ["y" * 100])


def test_the_mark_that_some_editors_write_first_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + b"ab" * 20)
    assert read_texts(tmp_path / "a.txt") == (["ab" * 19], ["ab"])


def test_a_folder_is_read_to_the_bottom_and_what_is_no_text_is_passed_over(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for i in range(60):
        (tmp_path / "deep" / "er" / f"{i}.md").write_text(f"text {i}")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\x00\xff")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.txt")                # which nobody will ever write to
    training, held = read_texts(tmp_path)
    assert len(training) + len(held) == 60 and held


@pytest.mark.parametrize("make, words", [
    (lambda path: None, "missing"), (lambda path: path.write_bytes(b"\xff\xfe\x00"), "UTF-8"),
    (lambda path: path.mkdir(), "too few")])
def test_texts_that_cannot_be_used(tmp_path, make, words):
    make(tmp_path / "it")
    with pytest.raises(TextError, match=words):
        read_texts(tmp_path / "it")


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices that are files")
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_what_has_no_end_is_refused_and_not_waited_for(tmp_path, make):
    make(tmp_path / "it")
    with pytest.raises(TextError, match="it is a pipe or a device, not a file"):
        read_texts(tmp_path / "it")


def test_a_line_that_is_no_line_is_refused(tmp_path, monkeypatch):
    """It would be one word for the tokenizer."""
    monkeypatch.setattr("nanospec.files.corpus.LONGEST_LINE", 7)
    (tmp_path / "it").write_text("1234567\n" * 300)
    assert len(read_texts(tmp_path / "it")[0][0]) == 2280
    (tmp_path / "it").write_text("1234567\n" * 300 + "12345678")
    with pytest.raises(TextError, match="it has a line of more than 7 characters"):
        read_texts(tmp_path / "it")


def test_a_file_whose_name_is_no_utf8_is_a_file_like_any_other(tmp_path):
    for number in range(60):
        (tmp_path / f"{number}.txt").write_text(f"text {number}")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).write_text("x")
    assert sum(map(len, read_texts(tmp_path))) == 61


def test_packages_are_the_dependencies_and_what_they_require():
    needed = re.search(r"^dependencies = \[(.*)\]", (Path(__file__).parents[2] / "pyproject.toml").read_text(), re.M)
    assert set(DEPENDENCIES) == set(re.findall(r'"([a-z]+)', needed[1]))
    found = {package.name: package for package in packages()}
    assert {*DEPENDENCIES, "sympy", "networkx", "pillow", "pygments", "mdurl"} <= set(found)
    assert not {"nanospec", "pytest", "pip"} & set(found)               # ourselves, and what only an extra asks for
    for name, package in found.items():
        assert package.version == metadata.version(name)
        assert package.licence not in ("", "unknown") and len(package.licence.splitlines()) == 1
        assert package.files and all(path.suffix == ".py" and path.is_file() for path in package.files.values())
    assert found["rich"].licence == "MIT License" and found["networkx"].licence == "BSD-3-Clause"


def test_a_package_that_is_not_installed_is_passed_over():
    assert packages(["nothing-of-this-name"]) == []
    assert [package.name for package in packages(["mdurl", "MDURL", "no.such_thing"])] == ["mdurl"]


def test_sources_of_packages_without_tables_copies_and_tests():
    train_texts, held = read_packages(["rich", "setuptools"])
    texts, site = set(train_texts + held), Path(metadata.distribution("rich").locate_file(""))
    assert len(held) > 5 and not set(train_texts) & set(held)
    assert (site / "rich" / "console.py").read_text(encoding="utf-8") in texts
    for left_out in ("setuptools/_distutils/cmd.py", "rich/_palettes.py", "pygments/unistring.py"):
        assert (site / left_out).read_text(encoding="utf-8") not in texts
    assert max(map(len, texts)) <= LONGEST
    both = read_texts(None)
    assert not set(both[1]) & set(train_texts)          # what is held out of the one is not in the other


def test_packages_laid_out_as_a_folder_are_the_same_texts(tmp_path):
    for package in packages(["rich"]):
        for relative, path in package.files.items():
            (tmp_path / relative).parent.mkdir(parents=True, exist_ok=True)
            if not is_table(path.read_text(encoding="utf-8")):
                (tmp_path / relative).write_bytes(path.read_bytes())
    assert read_texts(tmp_path) == read_packages(["rich"])


@pytest.mark.parametrize("text, table", [
    ("def f(x):\n    return x + 1\n" * 20, False), ("[" + "1, 22, 333, " * 50 + "]", True),
    ("# Generated by ucd.py, do not edit\nx = 'y'\n", True), ("x = 'y'  # no more\n" * 12_000, True)])
def test_tables(text, table):
    assert is_table(text) == table


def test_end_of_text_stands_around_every_text():
    tokenizer = Tokenizer(train("a b c", 256))
    end = tokenizer.end_of_text
    assert to_ids(["a", "bc"], tokenizer).tolist() == [end, 97, end, 98, 99, end]
