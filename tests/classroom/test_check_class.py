"""What a class hands in, as it really does: deep folders, zips, copies, pipes; and what a teacher is told of it."""

import csv
import io
import json
import os
import stat
import zipfile
from types import SimpleNamespace

import pytest
from rich.console import Console

from lessons.check import EXERCISES, alike, grade, handed
from lessons.check.alike import form
from lessons.check.catalogue import stub
from lessons.check.grade import Class, sums
from lessons.check.handed import handed_in, students
from lessons.check.marks import Sheets, cell, file_of, for_gradescope, legend, mark, points, table
from lessons.check.workers import found, found_in

FILE = "ex02_total_variation.py"
RIGHT = EXERCISES[2].answer
STUB = stub(RIGHT)
NINE = EXERCISES[9].answer
RENAMED = """import math


def expected_tokens(accept_rate: float, g: int) -> float:
    return sum(accept_rate ** k for k in range(g + 1))      # a sum


def best_gamma(rate, cost: float, time, limit: int) -> int:
    \"""The best.\"""
    return max(range(1, limit + 1), key=lambda g: expected_tokens(rate, g) / (g * cost + time(g + 1)))
"""


def laid(folder, texts):
    """Files below that folder: path -> text."""
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def zipped(path, texts, how=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return path


CLONE = {f"nanospec-main/lessons/{folder}/{FILE}": text for folder, text in
         (("answers", RIGHT), ("check", "EXERCISE = 1"), ("exercises", "mine"))}


@pytest.mark.parametrize("texts", [
    {FILE: "mine"}, {f"exercises/{FILE}": "mine"}, CLONE, {f"__MACOSX/._{FILE}": "\0", f"a/b/{FILE}": "mine"},
    {f"lessons/exercises/{FILE}": STUB, f"homework/of/week 1/{FILE}": "mine"},
    {FILE: "mine", FILE.replace(".py", ".mine1.py"): "older"}, {FILE: "mine", "._all.zip": "\0"},
    {FILE: STUB.replace("\n", "\r\n"), f"b/{FILE}": "mine"}, {FILE: "mine", "photo.png": os.urandom(handed.LONGEST)}])
def test_an_exercise_is_found_wherever_it_lies(tmp_path, texts):
    """In a folder, in a zip, in a zip in a folder. What was changed comes before what was handed out."""
    for path in (laid(tmp_path / "folder", texts), zipped(tmp_path / "all.zip", texts),
                 zipped(laid(tmp_path / "other", {"note.txt": ""}) / "all.zip", texts).parent):
        handed = handed_in(path)
        assert handed.files == {FILE: b"mine"} and not handed.notes


def test_two_that_differ_are_named(tmp_path):
    """What lies deepest last, and three of them."""
    texts = {FILE: "one", f"a/b/{FILE}": "three", f"old/{FILE}": "two", f"older/{FILE}": "one"}
    handed = handed_in(laid(tmp_path, texts))
    assert handed.files[FILE] == b"one"
    assert handed.notes == [f"{FILE} is judged, and not old/{FILE}, a/b/{FILE}"]
    for name in "a", "b":
        laid(tmp_path, {f"{name}/{FILE}": name})
    assert handed_in(tmp_path).notes == [f"{FILE} is judged, and not a/{FILE}, b/{FILE}, old/{FILE}"]


def test_names_in_zips_are_read_as_other_systems_write_them(tmp_path):
    names = "./ex01_pick.py", f"homework\\week 1\\{FILE}", f"__MACOSX\\{FILE}"
    handed = handed_in(zipped(tmp_path / "ann.zip", {name: str(number) for number, name in enumerate(names)}))
    assert handed.files == {"ex01_pick.py": b"0", FILE: b"1"} and handed.notes == []


def test_one_that_is_damaged_hides_no_other_one(tmp_path):
    path = zipped(tmp_path / "ann.zip", {"ex01_pick.py": "my words", FILE: "mine"}, zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b"my words", b"my sword"))
    handed = handed_in(path)
    assert handed.files == {FILE: b"mine"} and "ex01_pick.py: Bad CRC" in "".join(handed.notes)


def test_a_file_as_long_as_a_file_may_be_is_read(tmp_path):
    text = b"#" * handed.LONGEST
    for path in laid(tmp_path / "ann", {FILE: text}), zipped(tmp_path / "ben.zip", {FILE: text}):
        assert handed_in(path).files == {FILE: text}


@pytest.mark.parametrize("name", ["ex2.py", "exercise 2.py", "ex02_total_variation (1).py", "Ex02_Total_Variation.py",
                                  "ex02_total_variation.ipynb", "homework.tar.gz", "all.7z"])
def test_nobody_hands_in_nothing_without_a_word(tmp_path, name):
    assert name in "\n".join(handed_in(laid(tmp_path, {f"a/{name}": RIGHT})).notes)


def test_a_linked_folder_and_a_zip_in_a_zip_are_named(tmp_path):
    path = laid(tmp_path / "all", {f"ann/{FILE}": "mine", f"more/{FILE}": RIGHT})
    (path / "ann" / "linked").symlink_to("../more")
    assert handed_in(path / "ann").notes == ["not looked at: linked: it is a link"]
    inner = zipped(tmp_path / "homework.zip", {FILE: RIGHT}).read_bytes()
    found = handed_in(zipped(tmp_path / "ann.zip", {FILE: "mine", "a/homework.zip": inner}))
    assert [*found.files] == [FILE] and found.notes == ["not looked at: a/homework.zip"]


def test_three_of_what_was_not_looked_at_are_named_and_the_others_counted(tmp_path):
    for count, said in (3, "b.zip, c.zip, d.zip"), (5, "b.zip, c.zip, d.zip, and 2 more"):
        path = laid(tmp_path / str(count), {FILE: "mine"} | {f"{name}.zip": "" for name in "bcdef"[:count]})
        note, = handed_in(path).notes
        assert [part.split(":")[0] for part in note.removeprefix("not looked at: ").split(", ")] == said.split(", ")


def test_a_folder_for_each_student(tmp_path):
    """Or a zip; what is neither is named, and names are such that no terminal obeys them."""
    laid(tmp_path, {f"ann/{FILE}": "1", f"__MACOSX/ann/._{FILE}": "2", ".DS_Store": "3", "ben.py": "4"})
    (tmp_path / "ann-b").mkdir()
    (tmp_path / "cid.b").mkdir()
    zipped(tmp_path / "ann.zip", {FILE: "5"})
    zipped(tmp_path / "cid.ZIP", {FILE: "6"})
    (tmp_path / "\33[31mdan").mkdir()
    there, strange = students(tmp_path)
    assert [*there] == ["\ufffd[31mdan", "ann", "ann (ann.zip)", "ann-b", "cid", "cid.b"] and strange == ["ben.py"]


def test_a_link_is_nobodys_own_work(tmp_path):
    """Where it is all there is, as lessons/README.md makes one for Gradescope, it is followed."""
    laid(tmp_path, {f"class/ann/{FILE}": "mine"})
    for name, to in ("eve", "ann"), ("root", "/"), ("mal.zip", "ann"):
        (tmp_path / "class" / name).symlink_to(to)
    there, strange = students(tmp_path / "class")
    assert [*there] == ["ann"] and strange == ["eve (a link)", "mal.zip (a link)", "root (a link)"]
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "student").symlink_to(tmp_path / "class" / "ann")
    assert handed_in(students(tmp_path / "alone")[0]["student"]).files == {FILE: b"mine"}
    (tmp_path / "alone" / "student").rename(tmp_path / "elsewhere")
    (tmp_path / "alone" / "ben.zip").symlink_to(zipped(tmp_path / "all.zip", {FILE: "packed"}))
    assert handed_in(students(tmp_path / "alone")[0]["ben"]).files == {FILE: b"packed"}


def crowded(path):
    """A zip with a bomb, and one packed in a way that has no bound."""
    zipped(path, {FILE: bytes(2 ** 24)})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_LZMA) as archive:
        archive.writestr("ex01_pick.py", "1")


def test_of_a_bomb_no_more_is_unpacked_than_is_looked_at(tmp_path, monkeypatch):
    unpacked, read = [], zipfile.ZipExtFile.read
    monkeypatch.setattr(zipfile.ZipExtFile, "read", lambda *its: unpacked.append(read(*its)) or unpacked[-1])
    assert not handed_in(zipped(tmp_path / "bomb.zip", {FILE: bytes(2 ** 22)})).files
    assert 0 < sum(map(len, unpacked)) <= handed.LONGEST + 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_what_is_no_plain_file_is_named_and_not_waited_for(tmp_path):
    """Nothing of a neighbour's is read, either."""
    laid(tmp_path, {f"ann/{FILE}": RIGHT, "long/ex09_how_fast.py": b"#" * 10 ** 6})
    for name in "pipe", "zero", "link":
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe" / FILE)
    (tmp_path / "zero" / FILE).symlink_to("/dev/zero")
    (tmp_path / "link" / FILE).symlink_to(tmp_path / "ann" / FILE)
    os.mkfifo(tmp_path / "hose.zip")
    zipped(tmp_path / "ann.zip", {FILE: RIGHT})
    (laid(tmp_path / "inner", {"note.txt": ""}) / "b.zip").symlink_to(tmp_path / "ann.zip")
    (tmp_path / "torn.zip").write_bytes(zipped(tmp_path / "a.zip", {FILE: RIGHT}).read_bytes()[:200])
    crowded(tmp_path / "bomb.zip")
    said = {name: "\n".join(handed_in(tmp_path / name).notes) for name in
            ("pipe", "zero", "link", "inner", "hose.zip", "torn.zip", "bomb.zip", "long")}
    for name, words in {"pipe": "no plain file", "zero": "a link", "link": "a link", "inner": "a link",
                        "hose.zip": "no plain file", "torn.zip": "not a zip", "bomb.zip": "longer than",
                        "long": "longer than"}.items():
        assert "no exercise found" in said[name] and words in said[name], name
    assert "ex01_pick.py: packed in a way" in said["bomb.zip"]


def test_who_was_not_judged_has_made_no_mistake(tmp_path):
    everybody = Class(laid(tmp_path, {f"{name}/{FILE}": RIGHT for name in ("ann", "ben", "cid", "dan")}))
    for name, part, label in (("ann", "busy", "busy"), ("ben", "missing", "missing"), ("cid", "truth", "half-of-it"),
                              ("dan", "truth", "half-of-it")):
        everybody.results[name][2] = {"solved": False, "part": part, "label": label}
    assert everybody.mistakes(2) == {"half-of-it": 2}


def test_the_same_but_for_names_remarks_and_annotations():
    """And but for the order of the functions, decorators and imports. Tables that were handed out do not count."""
    entry = EXERCISES[9]
    mine = form(NINE.encode(), entry)
    assert mine[1] >= alike.SHORT and RENAMED != NINE
    assert form(RENAMED.encode(), entry) == form(b"\xef\xbb\xbf# mine\n" + NINE.encode(), entry) == mine
    assert form(NINE.replace(":\n", ":\n    'mine'\n", 1).encode(), entry) == mine
    first, second = NINE[NINE.index("def expected"):].split("\n\n\n")
    head = NINE[:NINE.index("def expected")]
    assert form(f"{head}from functools import cache\n\n\n{second}\n\n@cache\n{first}".encode(), entry) == mine
    rules = EXERCISES[11].answer
    assert form(rules.encode(), EXERCISES[11])[1] < form(rules.replace("P_TARGET", "P").encode(), EXERCISES[11])[1]
    for other in NINE.replace("gamma + 1", "gamma + 2"), NINE.replace("sum(", "max("), stub(NINE):
        assert form(other.encode(), entry) != mine
    for harm in "def f(:", "\0", "x = " + "-" * 50_000 + "1", "x = a" + ".a" * 50_000:
        assert form(harm.encode(), entry) == ("", 0)


def test_tables_of_another_variant_are_named(tmp_path):
    other = EXERCISES[11].answer.replace("[0.5, 0.3, 0.2, 0.0]", "[0.4, 0.4, 0.2, 0.0]")
    name = "ex11_spot_the_bug.py"
    everybody = Class(laid(tmp_path, {f"ann/{name}": other, f"ann/old/{name}": f"{other}#", "ann/b.7z": ""}))
    assert [job.student for job in everybody.jobs()] == ["ann"]
    assert everybody.notes["ann"] == [f"{name} is judged, and not old/{name}", "not looked at: b.7z",
                                      f"the tables in {name} are not those that were handed out; is it of another "
                                      "--variant?"]


def seen(text: str, number: int) -> dict:
    digest, size = form(text.encode(), EXERCISES[number])
    return found(True) | {"form": digest, "size": size, "shipped": digest == form(EXERCISES[number].answer.encode(),
                                                                                  EXERCISES[number])[0]}


def test_who_shares_with_whom():
    """Short answers are alike by themselves, and stand in parentheses; alone they accuse nobody."""
    everybody = {"ann": {2: seen(RIGHT, 2), 9: seen(NINE, 9)}, "ben": {2: seen(RIGHT, 2), 9: seen(RENAMED, 9)},
                 "cid": {2: seen(RIGHT.replace("one", "p"), 2), 9: found(False, "missing")}}
    shared = alike.same(everybody)
    assert shared["ann"] == (True, "ben 9 (2)") and shared["ben"] == (True, "ann 9 (2)")
    assert shared["cid"] == (False, "others (2)")
    assert alike.shipped({9: everybody["ben"][9], 4: seen(EXERCISES[4].answer, 4)}).words == "4 9"
    assert alike.shipped(everybody["ben"]) == (True, "9 (2)") and alike.shipped(everybody["cid"]) == (False, "(2)")


def test_a_teacher_reads_who_wrote_the_same_and_what_was_not_looked_at(tmp_path):
    everybody, out = Class(laid(tmp_path, {f"ann/{FILE}": "", f"ben/{FILE}": "", "c.py": ""})), io.StringIO()
    everybody.results = {"ann": {9: seen(NINE, 9)}, "ben": {9: seen(RENAMED.replace("1", "2"), 9)},
                         "cid": {2: seen(RIGHT, 2)}}
    everybody.notes["ben"] = ["a note"]
    sums(everybody, 9, Console(file=out, width=80))
    assert {"ann, the answer that ships: 9", "ben: a note", "neither a folder nor a zip, and not looked at: c.py"} <= {
        *out.getvalue().splitlines()}
    assert "\nthe same: but for names" in out.getvalue() and "\ncid" not in out.getvalue()


def test_the_sums_of_a_class_by_hand(tmp_path):
    """Failures in the order of the exercises, the three commonest mistakes. Whom no machine could judge made none."""
    labels = {"ann": "x", "ben": "y", "cid": "x", "dan": "z", "eve": "w"}
    everybody, out = Class(laid(tmp_path, {f"{name}/{FILE}": "" for name in labels})), io.StringIO()
    for name, label in labels.items():
        everybody.results[name] = {3: found(False, "truth", "", [label]), 2: found(True)}
    everybody.results["ben"][2] = found(False, "busy", "no time")
    everybody.results["dan"][2] = found(False, "untouched")
    sums(everybody, 9, Console(file=out, width=200))
    first, *lines = out.getvalue().splitlines()
    most = sum(points(exercise, found(True)) for exercise in EXERCISES.values())
    assert first.split()[:5] == ["solved", "by", "0", "3", "0"] and first.split()[-3:] == ["3", "of", f"{most:g}"]
    assert lines[:7] == ["ann, 3: truth: x", "ben, 2: busy: no time", "ben, 3: truth: y", "cid, 3: truth: x",
                         "dan, 3: truth: z", "eve, 3: truth: w", "exercise 3, 5 not yet: x (2), y (1), z (1)"]
    assert everybody.done() == []
    everybody.results["cid"] = dict.fromkeys(EXERCISES, found(True))
    assert everybody.done() == ["cid"]


def test_half_a_point_is_printed(tmp_path, monkeypatch):
    everybody, out = Class(laid(tmp_path, {f"ann/{FILE}": ""})), io.StringIO()
    everybody.results["ann"] = dict.fromkeys(EXERCISES, found(False, "missing")) | {7: found(True), 1: found(
        False, "speed", slow=True)}
    monkeypatch.setattr(grade, "run", lambda *_: (_ for _ in ()))
    asked = grade.Grading(tmp_path, seconds=1, at_once=1)
    assert grade.look_at_all(everybody, asked, Sheets(None, None, None), Console(file=out, width=200)) == 0
    assert out.getvalue().splitlines()[1].split()[-2:] == ["1", "4.5"]


def test_what_an_exercises_text_dictates_accuses_nobody():
    alone = {number: seen(EXERCISES[number].answer, number) for number in (3, 6, 9)}
    assert alone[3]["size"] >= alike.SHORT and alike.shipped(alone) == (True, "9 (3 6)")
    assert alike.shipped({3: alone[3]}) == (False, "(3)")
    assert [[alike.is_long(number, {number: {"size": size}}) for size in (19, 20, 29, 30)] for number in (9, 6)] == [
        [False, True, True, True], [False, False, False, True]]


SLOW = "def accept_or_replace(x, p_target, q_draft, dice):\n    return dice.pick(p_target)\n"


def test_points_are_difficulty_and_half_for_what_is_only_slow(tmp_path):
    path = tmp_path / "ex03_accept_or_replace.py"
    path.write_text(SLOW)
    slow = found_in(EXERCISES[3], path)
    assert not slow["solved"] and slow["slow"]
    assert [points(EXERCISES[number], result) for number, result in
            ((3, slow), (3, found(True)), (3, found(False, "time")), (7, found(True)))] == [1, 2, 0, 4]


def test_a_sheet_has_no_formula(tmp_path):
    name, note = '=HYPERLINK("http://a.b","c")', "@sum"
    results = {number: found(False, "missing") for number in EXERCISES}
    everybody = SimpleNamespace(results={name: results}, notes={name: [note, "b"]}, solved=lambda _: 0,
                                points=lambda _: 2.5)
    row = list(csv.reader(io.StringIO(table(everybody, [name]))))[1]
    assert row[0] == "'" + name and row[-1] == f"'{note}; b" and row[-5:-3] == ["0", "2.5"]
    assert all(cell(begin + "1") == f"'{begin}1" for begin in "=+-@\t\r") and cell("1-1") == "1-1"


def test_what_gradescope_reads():
    results = {number: found(number == 2) for number in EXERCISES} | {
        3: found(False, "time", "no end"), 7: found(False, "pace", "late", slow=True), 8: found(False, "untouched")}
    said = json.loads(json.dumps(for_gradescope(results, ["a note", "another"])))
    assert said["score"] == 3 and said["output"] == "a note\nanother" and len(said["tests"]) == len(EXERCISES)
    third, seventh, eighth = (said["tests"][number - 1] for number in (3, 7, 8))
    assert (seventh["score"], seventh["max_score"], seventh["status"]) == (2, 4, "failed")
    assert (seventh["number"], seventh["name"], eighth["output"]) == ("7", EXERCISES[7].title, "untouched")
    assert (third["score"], third["max_score"], third["status"], third["output"]) == (0, 2, "failed", "time: no end")
    assert {test["status"] for test in said["tests"]} == {"passed", "failed"}


def test_each_verdict_has_its_mark_and_what_is_used_is_explained():
    results = {"ann": {1: found(True), 2: found(False, "pace", slow=True), 3: found(False, "busy", "no time")},
               "ben": {1: found(False, "time", "no end", ["loops"]), 2: found(False, "missing"),
                       3: found(False, "untouched")}}
    assert [mark(result) for of_one in results.values() for result in of_one.values()] == [*"✓½?✗··"]
    marks, *words = legend(results, telling=False).split("\n")[1:]
    assert [part[0] for part in marks.split("; ")] == [*"✓½✗·?"] and [word.split(":")[0] for word in words] == [
        "time", "busy"]
    assert [line for line in legend({"ann": {1: found(True)}}, telling=True).split("\n") if line][0] == "✓ solved"
    assert legend({}, telling=True).split("\n")[-1].startswith("the same: ")


def test_an_errors_words_move_no_cursor(tmp_path):
    path = tmp_path / FILE
    path.write_text("raise ValueError('\\33[2J\\n=1')")
    assert "\33" not in found_in(EXERCISES[2], path)["why"] and stat.S_ISREG(path.stat().st_mode)


def test_students_whose_names_look_the_same_are_all_there(tmp_path):
    """A class is a folder of strangers' names: none takes another one's place."""
    for name in "ann\u200bbea", "ann\u200cbea", "ann\u200dbea":
        laid(tmp_path / name, {FILE: name})
    zipped(tmp_path / "ann\u200bbea.zip", {FILE: "a zip"})
    there, _ = students(tmp_path)
    found_there = sorted(handed_in(path).files[FILE].decode() for path in there.values())
    assert found_there == sorted(["a zip", "ann\u200bbea", "ann\u200cbea", "ann\u200dbea"])


def test_a_name_as_long_as_a_name_can_be_gets_its_file(tmp_path):
    everybody = Class(laid(tmp_path / "class", {f"{'x' * 250}/a": "", f"{'é' * 125}/b": ""}))
    assert [*everybody.jobs()] == []
    sheets = Sheets(None, None, tmp_path / "marks")
    sheets.write(everybody)
    assert len([*(tmp_path / "marks").iterdir()]) == 2
    assert len({file_of("x" * 245), file_of("x" * 244 + "y"), file_of("ann")}) == 3 and file_of("ann") == "ann.json"


def test_many_copies_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(handed, "KEPT_AT_MOST", 40)
    found_in_it = handed_in(laid(tmp_path, {f"{number}/{FILE}": "x" * 7 + str(number) for number in range(9)}))
    assert found_in_it.files[FILE] == b"x" * 7 + b"0" and any("only 40 bytes" in note for note in found_in_it.notes)
    monkeypatch.setattr(handed, "FILES_AT_MOST", 2)
    assert "only 2 of its files were looked at" in handed_in(tmp_path).notes


def test_of_two_members_of_one_name_the_last_counts(tmp_path):
    path = tmp_path / "ann.zip"
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        for text in "first", "second":
            archive.writestr(FILE, text)
    assert handed_in(path).files[FILE] == b"second" and handed_in(path).notes == []


@pytest.mark.parametrize("kind", ["plain", "with a remark", "wide"])
def test_a_zip_of_countless_files_is_not_listed(tmp_path, monkeypatch, kind):
    """The end of a zip within it is not its own."""
    monkeypatch.setattr(handed, "LIST_AT_MOST", 10_000)
    inner = zipped(tmp_path / "inner.zip", {"a": ""}).read_bytes()
    path = zipped(tmp_path / "ann.zip", {"b": inner} | {f"{number}.py": "" for number in range(200)} | {FILE: "mine"},
                  zipfile.ZIP_STORED)
    if kind == "with a remark":
        with zipfile.ZipFile(path, "a") as archive:
            archive.comment = b"of mine"
    if kind == "wide":                            # the kind of list that says its length elsewhere
        packed = path.read_bytes()
        end = packed.rindex(b"PK\5\6")
        path.write_bytes(packed[:end] + b"PK\6\7" + bytes(16) + packed[end:end + 12] + bytes(4) + packed[end + 16:])
    monkeypatch.setattr(handed.zipfile, "ZipFile", lambda *_: pytest.fail("it was opened"))
    assert any("too many files" in note for note in handed_in(path).notes)
