"""What a class gets: no answer as text, a checker that works without them; and a variant of its own."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from lessons.check import EXERCISES, catalogue, handout, seeds, variants
from lessons.check.catalogue import ENTRIES, stub
from lessons.check.command import main
from lessons.check.handout import LEFT_OUT

ROOT = Path(__file__).parents[2]
DRAWN_ANEW = variants.drawn.__wrapped__
SHIPPED = {number: variants.run(ENTRIES[number].source) for number in variants.DRAWN}


def test_each_variant_has_tables_of_its_own(monkeypatch):
    found = set()
    for name in "", "autumn", "spring", "autumn 2":
        monkeypatch.setattr(seeds, "NAME", name)
        found |= {seeds.seed(3), seeds.seed(4)}
    assert len(found) == 8


def test_a_drawn_distance_is_far_new_and_in_no_doubt_how_it_is_rounded():
    assert [variants.good(off, 0.123) for off in (0.0196, 0.0204, 0.12345, 0.124495, 0.1243)] == [
        False, True, False, False, True]


@pytest.fixture(scope="module")
def handed_out(tmp_path_factory):
    """A handout, without the library's weights and the docs, and Python started in it."""
    folder = tmp_path_factory.mktemp("class") / "of" / "handout"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lessons.check.handout.WHOLE", ("pyproject.toml",))
        assert main(["--handout", str(folder)]) == 0
    (folder / "nanospec").symlink_to(ROOT / "nanospec")

    def python(*options):
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run([sys.executable, *options], cwd=folder, capture_output=True, text=True, env=environment)
    return folder, python


def lines(source: str) -> set[str]:
    """Of a program, those that are long enough to be known again."""
    return {line.strip() for line in source.splitlines() if len(line.strip()) > 40}


def test_no_answer_lies_in_it_as_text(handed_out):
    """The lessons show some of it, and the library more: that is what they are for."""
    folder, _ = handed_out
    seen = set().union(*(lines(path.read_text()) for path in (folder / "lessons" / "check").glob("*.py")))
    for entry in ENTRIES.values():
        assert (folder / "lessons" / "exercises" / entry.file).read_text() == stub(entry.answer)
        assert not (lines(entry.answer) - lines(stub(entry.answer))) & seen
    assert not (folder / "lessons" / "answers").exists()
    assert len([*(folder / "lessons").glob("*.py")]) == len([*(ROOT / "lessons").glob("*.py")])
    assert not any("`lessons/answers/`" in path.read_text() for path in (folder / "lessons").glob("*.py"))
    pages = {path.name: path.read_text() for path in (folder / "lessons").glob("*.md")}
    assert {"README.md", "AFTERNOON.md"} <= {*pages}
    assert not any(word in page for page in pages.values() for word in ("answers/", "--answer", "--grade"))
    readme = pages["README.md"]
    assert "In this folder, run this once" in readme
    there = {path.stem for path in (folder / "lessons" / "check").iterdir()}
    assert {"desk", "checks"} <= there and not there & {"ex01_pick", "rounds", "grade", "handout", "variants"}


TWO_TRIES = """
import sys
from pathlib import Path
from lessons.check.command import main
for text in sys.argv[2:]:
    Path(sys.argv[1]).write_text(text)
    print("returned", main(["9"]))
main(["9", "--hint"])
"""


def test_the_checker_works_without_answers(handed_out):
    """A mistake in one of two functions is named, where the answer of the other is needed. Hints, but no answer. What
    needs torch has one process.
    """
    folder, python = handed_out

    def check(*options):
        return python("-m", "lessons.check", *options)

    path, right = folder / "lessons" / "exercises" / "ex09_how_fast.py", ENTRIES[9].answer
    assert "0 of 23 solved" in check("--list").stdout
    said = python("-c", TWO_TRIES, str(path), right.replace("gamma * c + v(gamma + 1)", "v(gamma + 1)"), right)
    wrong, solved, hint = said.stdout.split("returned ")
    assert "draft-is-free" in wrong and "--answer" not in wrong
    assert solved.startswith("1\n") and "solved." in solved and "--answer" not in solved
    assert hint.startswith("0\n") and "hint 1 of" in hint
    assert check("9", "--answer").stdout == "Your teacher has the answers.\n"
    assert check("--reset", "9").returncode == 0 and path.read_text() == stub(right)
    refused = check("--grade", ".")
    assert refused.returncode == 2 and "class's copy" in refused.stderr and "Traceback" not in refused.stderr


@pytest.mark.parametrize("where, words", [("full", "not an empty folder"), ("file", "not an empty folder"),
                                          (ROOT / "lessons" / "out" / "x", "inside of what is handed out")])
def test_a_handout_harms_nothing(where, words, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    assert main(["--handout", str(tmp_path / where)]) == 2
    assert words in capsys.readouterr().err and (tmp_path / "full" / "mine.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]


def test_what_an_interrupted_handout_has_left_is_in_nobodys_way(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("lessons.check.handout.write", lambda aside: aside.mkdir())
    (tmp_path / "x[of].new").mkdir()
    assert main(["--handout", str(tmp_path / "x[of]")]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'x[of]'} has the lessons, {len(ENTRIES)} exercises")


def test_the_command_for_grading_a_variant_is_told_as_one_types_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(seeds, "NAME", "")                      # put back at the end
    monkeypatch.setattr(handout, "write", lambda aside: aside.mkdir())
    monkeypatch.setattr(handout, "tried", lambda: None)
    assert main(["--handout", str(tmp_path / "y"), "--variant", "autumn 2"]) == 0
    assert "--grade FOLDER --variant 'autumn 2'." in " ".join(capsys.readouterr().out.split())


def test_a_link_into_what_is_handed_out_is_seen_through(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(handout, "TOP", tmp_path / "top")
    monkeypatch.setattr(handout, "write", lambda aside: aside.mkdir())
    (tmp_path / "top" / "lessons").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "top" / "lessons")
    assert main(["--handout", str(tmp_path / "link" / "x")]) == 2
    assert "inside of what is handed out" in capsys.readouterr().err


def test_a_handout_leaves_out_what_is_no_part_of_it():
    assert LEFT_OUT("", ["__pycache__", "out", ".git", "x.egg-info", "speculate.py"]) == {
        "__pycache__", "out", ".git", "x.egg-info"}


def test_a_clone_without_answers_says_so(monkeypatch, capsys):
    monkeypatch.setattr("lessons.check.command.ENTRIES", {})
    assert main(["1"]) == 2
    said = capsys.readouterr().err
    assert "lessons/answers is not there" in said and "--handout" in said and len(said.splitlines()) == 1


@cache
def drawn_as(name: str, number: int, source: str) -> str:
    """By that name, which seeds.NAME is: the library remembers one variant, and here several have their turns."""
    return DRAWN_ANEW(number, source)


@pytest.fixture
def variant(monkeypatch):
    """The name of a variant -> number -> the names in that answer. Each is drawn once."""
    monkeypatch.setattr(variants, "drawn", lambda number, source: drawn_as(seeds.NAME, number, source))

    def named(name: str) -> dict[int, dict]:
        monkeypatch.setattr(seeds, "NAME", name)
        return {number: variants.run(ENTRIES[number].answer) for number in variants.DRAWN}
    return named


def test_what_is_drawn_is_drawn_again_until_its_distances_are_good(variant, monkeypatch):
    first, asked = variant("autumn")[11]["P_TARGET"], []
    monkeypatch.setattr(variants, "good", lambda off, shipped: asked.append(off) or len(asked) > 1)
    again = variants.run(DRAWN_ANEW(11, ENTRIES[11].source))
    assert len(asked) > 1 and str(again["P_TARGET"]) != str(first)


@pytest.mark.parametrize("name", ["autumn", "Übung 2 " * 40])
def test_nothing_can_be_copied_from_another_variant(variant, name):
    """Other distances wherever something is wrong, and as many verdicts of each kind."""
    for number, names in variant(name).items():
        drawn, shipped = names["verdicts"](), SHIPPED[number]["verdicts"]()
        assert sorted(verdict for verdict, _ in drawn.values()) == sorted(verdict for verdict, _ in shipped.values())
        assert [verdict for verdict, _ in drawn.values()] != [verdict for verdict, _ in shipped.values()]
        assert not {far for _, far in drawn.values() if far} & {far for _, far in shipped.values()}
        tables = [name for name in ("P_TARGET", "SEEDS") if name in names]
        assert tables and all(str(names[name]) != str(SHIPPED[number][name]) for name in tables)
        assert sorted(drawn) == sorted(shipped)


def test_a_name_draws_the_same_again_and_another_name_draws_others(variant, monkeypatch):
    variant("autumn")
    for number in variants.DRAWN:
        assert DRAWN_ANEW(number, ENTRIES[number].source) == ENTRIES[number].answer
    drawn = ENTRIES[11].answer
    monkeypatch.setattr(seeds, "NAME", "autumn!")
    assert variants.run(ENTRIES[11].answer)["verdicts"]() != variants.run(drawn)["verdicts"]()


def test_a_class_copy_knows_its_variant(variant, tmp_path, monkeypatch):
    variant("autumn")
    monkeypatch.setattr(handout, "WHOLE", ())
    monkeypatch.setattr(handout.envelope, "seal", lambda path, texts: sealed.update(texts))
    sealed: dict[str, str] = {}
    handout.write(tmp_path / "x")
    assert sealed["variant"] == "autumn"
    whole = {name.removeprefix(handout.envelope.RIGHT) for name in sealed if handout.envelope.RIGHT in name}
    assert whole == {EXERCISES[number].file for number in (9, 14, 18, 19, 21, 22, 23)}  # of two functions


@pytest.mark.slow
def test_a_variant_shows_every_known_mistake(tmp_path):
    """In a process of its own: whatever is drawn is drawn at first use."""
    options = ["--handout", str(tmp_path / "x"), "--variant", "autumn"]
    said = subprocess.run([sys.executable, "-m", "lessons.check", *options], cwd=ROOT, capture_output=True, text=True)
    assert said.returncode == 0 and "--variant autumn" in said.stdout, said.stderr


def test_a_variant_that_hides_a_mistake_is_not_handed_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(seeds, "NAME", "")                      # put back at the end
    monkeypatch.setattr("lessons.check.naming.named", lambda *_: [])
    assert main(["--handout", str(tmp_path / "x"), "--variant", "y"]) == 2 and not any(tmp_path.iterdir())
    *bar, said = capsys.readouterr().err.splitlines()
    assert "choose another name" in said and all("trying every known mistake" in line for line in bar)


@pytest.mark.parametrize("at, seen", [(7, slice(0)), (-1, slice(0)), (7, slice(None))])
def test_each_mistake_must_be_seen_and_alone(monkeypatch, at, seen):
    """Not the first alone; nor is one seen that looks like others, too."""
    wrongs = EXERCISES[2].wrongs
    named = [[mistake] for mistake in wrongs]
    monkeypatch.setattr("lessons.check.EXERCISES", {2: EXERCISES[2]})
    monkeypatch.setattr("lessons.check.naming.named", lambda *_, found=iter(named): next(found))
    handout.tried()
    named[at] = wrongs[seen]
    monkeypatch.setattr("lessons.check.naming.named", lambda *_, found=iter(named): next(found))
    with pytest.raises(handout.Refused, match=f"mistake {wrongs[at].name} of"):
        handout.tried()


def test_what_ships_is_no_variant(variant):
    assert variant("")[16]["verdicts"]() == SHIPPED[16]["verdicts"]() and seeds.seed(5) == 5
    assert seeds.letters(3, 11) == {"a": "a", "b": "b", "c": "c"}
    variant("autumn")
    assert seeds.seed(5) != 5 and seeds.seed(5) == seeds.seed(5) != seeds.seed(6)


def test_a_file_of_another_variant_is_known(variant):
    variant("autumn")
    mine = stub(ENTRIES[11].answer).encode()
    laid_out = mine.replace(b"tensor([", b"tensor(\n    [")
    assert laid_out != mine and catalogue.as_handed_out(mine + b"\nSEEDS = 3\n", ENTRIES[11])
    assert all(catalogue.as_handed_out(text, ENTRIES[11]) for text in (mine, laid_out, b"no Python ("))
    assert catalogue.as_handed_out(b"", ENTRIES[3]) and not catalogue.as_handed_out(b"", ENTRIES[11])
    bugs = stub(ENTRIES[23].answer).encode()
    variant("Übung 2 " * 40)
    assert not catalogue.as_handed_out(mine, ENTRIES[11]) and not catalogue.as_handed_out(bugs, ENTRIES[23])
    assert catalogue.as_handed_out(stub(ENTRIES[23].answer).encode(), ENTRIES[23])


CLASS = """
import sys
from lessons.check import seeds
seeds.NAME = "autumn"
from lessons.check import EXERCISES
from lessons.check.workers import found_in
from pathlib import Path
for number in 11, 16, 14:
    path = Path(sys.argv[1]) / EXERCISES[number].file
    path.write_text(EXERCISES[number].answer)
    print(number, found_in(EXERCISES[number], path)["solved"])
    if number != 14:
        path.write_text(EXERCISES[number].source)
        print(number, found_in(EXERCISES[number], path)["solved"])
"""


def test_a_variant_is_graded_by_its_own_answers(tmp_path):
    """In a process of its own: tables are made once. Last year's file is wrong."""
    said = subprocess.run([sys.executable, "-c", CLASS, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert said.stdout.split("\n")[:-1] == ["11 True", "11 False", "16 True", "16 False", "14 True"], said.stderr


@pytest.mark.parametrize("options", [["--variant", "x"], ["3", "--variant", "x"], ["--variant", "", "--handout", "x"],
                                     ["--variant", "a\udce4", "--grade", "x"]])
def test_a_variant_is_for_a_class(options, capsys):
    with pytest.raises(SystemExit) as end:
        main(options)
    assert end.value.code == 2 and "--variant" in capsys.readouterr().err
