import sysconfig
from pathlib import Path

import pytest

from nanospec.files.corpus import held_out, read_texts, to_ids
from nanospec.errors import TextError
from nanospec.files.tokenizer import Tokenizer, train


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


def test_a_folder_is_read_to_the_bottom_and_what_is_no_text_is_passed_over(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for i in range(60):
        (tmp_path / "deep" / "er" / f"{i}.md").write_text(f"text {i}")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\x00\xff")
    training, held = read_texts(tmp_path)
    assert len(training) + len(held) == 60 and held


@pytest.mark.parametrize("make, words", [
    (lambda path: None, "missing"), (lambda path: path.write_bytes(b"\xff\xfe\x00"), "UTF-8"),
    (lambda path: path.mkdir(), "too few")])
def test_texts_that_cannot_be_used(tmp_path, make, words):
    make(tmp_path / "it")
    with pytest.raises(TextError, match=words):
        read_texts(tmp_path / "it")


def test_end_of_text_stands_around_every_text():
    tokenizer = Tokenizer(train("a b c", 256))
    end = tokenizer.end_of_text
    assert to_ids(["a", "bc"], tokenizer).tolist() == [end, 97, end, 98, 99, end]
