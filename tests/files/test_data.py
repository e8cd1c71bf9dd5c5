import math
import os
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from nanospec.errors import TextError
from nanospec.files.corpus import HeldOut, held_out, opening, read_texts, split, to_ids
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


def test_of_the_library_sources_alone_are_read(tmp_path, monkeypatch):
    (tmp_path / "argparse.py").write_text("x" * 20)
    (tmp_path / "LICENSE.txt").write_text("y" * 40)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    assert read_texts() == (["x" * 19], ["x"])


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


def test_what_is_held_out_does_not_depend_on_where_the_folder_lies(tmp_path):
    found = []
    for place in "here", "there":
        (tmp_path / place / "lib").mkdir(parents=True)
        for i in range(80):
            (tmp_path / place / "lib" / f"{i}.py").write_text(f"text {i}")
        found.append([sorted(texts) for texts in read_texts(tmp_path / place)])
    assert found[0] == found[1] and found[0][1]


def test_in_no_folder_of_tests_or_of_installed_packages_is_looked(tmp_path):
    """Whoever has written it, and however deep it lies: a text that lies there twice is no longer held out. Nor is a
    table that was made for one machine a text, whatever machine it names.
    """
    for folder in "a", "a/test", "a/test/b", "a/b/site-packages/c", "tests", "a/testing":
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "x.py").write_text(f"# {folder}\n" * 40)
    (tmp_path / "a" / "_sysconfigdata__linux_x86.py").write_text("# a table\n" * 40)
    found = {text.split("\n")[0] for text in sum(read_texts(tmp_path), [])}
    assert found == {"# a", "# a/testing"}


def test_of_a_few_files_the_end_of_each_is_held_out(tmp_path):
    """By chance none of them is held out as a whole, or all are."""
    for names in ("argparse.py", "b.txt"), [f"{i}.md" for i in range(200) if held_out(f"{i}.md")][:2]:
        folder = tmp_path / names[0]
        folder.mkdir()
        for name in names:
            (folder / name).write_text("x" * 38 + "yz")
        assert read_texts(folder) == (["x" * 38] * 2, ["yz"] * 2)


@pytest.mark.parametrize("make, words", [
    (lambda path: None, "missing"), (lambda path: path.write_bytes(b"\xff\xfe\x00"), "UTF-8"),
    (lambda path: path.mkdir(), "no text file"),
    (lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"), "Git LFS")])
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


def test_end_of_text_stands_around_every_text():
    tokenizer = Tokenizer(train("a b c", 256))
    end, steps = tokenizer.end_of_text, []
    assert to_ids(["a", "bc"], tokenizer).tolist() == [end, 97, end, 98, 99, end]
    assert to_ids(["a", "bc", "d"], tokenizer, lambda: steps.append(1)).numel() == 8 and len(steps) == 3
    assert to_ids([], tokenizer).tolist() == [end] and to_ids(["", "a"], tokenizer).tolist() == [end, end, 97, end]
    assert to_ids([""], tokenizer).dtype == torch.int64


def test_what_others_begin_a_text_with_stands_before_each_too():
    theirs = SimpleNamespace(begin=[7, 5], end_of_text=9, encode=lambda text: [*text.encode()])
    assert to_ids(["a", "bc"], theirs).tolist() == [9, 7, 5, 97, 9, 7, 5, 98, 99, 9]
    assert opening(theirs) == [7, 5] and opening(Tokenizer(train("", 256))) == []


def test_texts_are_in_the_order_of_their_paths(tmp_path):
    files = {Path(name): tmp_path / name for name in ("b.txt", "argparse.py", "c.txt")}
    for path in files.values():
        path.write_text(path.name * 20)
    assert [text[0] for text in split(files, tmp_path)[0]] == ["a", "b", "c"]


def test_a_byte_of_text_has_eight_bits():
    """A model that knows nothing, one token a byte: ln 256 nats a token are 8 bits a byte, whatever the length."""
    held = HeldOut(torch.arange(100), 100)
    assert held.bits(math.log(256)) == pytest.approx(8)
    assert HeldOut(torch.arange(50), 100).bits(math.log(256 ** 2)) == pytest.approx(8)
    bytes_alone = Tokenizer({bytes([b]): b for b in range(256)})
    files = HeldOut.of(["aé", "中"], bytes_alone)                                 # 3 and 3 bytes, and both have an end
    assert files.bytes == 6 and files.bits(1.5) == pytest.approx(1.5 * len(files.ids) / 6 / math.log(2))


def test_held_out_windows_follow_one_another():
    x, y = HeldOut(torch.arange(35), 35).windows(10)
    assert torch.equal(x.flatten(), torch.arange(30)) and torch.equal(y, x + 1)
    assert len(HeldOut(torch.arange(35), 35).windows(10, most=2)[0]) == 2
    assert len(HeldOut(torch.arange(31), 31).windows(10)[0]) == 3           # to the very last token
    assert len(HeldOut(torch.arange(30), 30).windows(29)[0]) == 1
    with pytest.raises(TextError, match="30 tokens do not fill one window of 30"):
        HeldOut(torch.arange(30), 30).windows(30)
