"""The command at a learner's desk: a list at once, hints, an answer after a pass, watching, starting anew, anywhere."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from lessons.check import EXERCISES, catalogue, progress
from lessons.check.catalogue import ANSWERS, stub
from lessons.check.clock import Clock
from lessons.check.desk import following, show_lines
from lessons.check.command import main
from lessons.check.engine import check
from lessons.check.seen import Row

ROOT = Path(__file__).parents[2]
STUBS = ROOT / "lessons" / "exercises"
ALL = len(EXERCISES)
WRONG = (ANSWERS / "ex03_accept_or_replace.py").read_text().replace("(p_target - q_draft).clamp(min=0))", "p_target)")


@pytest.fixture
def at_the_desk(tmp_path, monkeypatch, capsys):
    """A folder of exercises to write in, and the command, run on it -> (what it returns, what it prints)."""
    (tmp_path := tmp_path / "[old]").mkdir()
    for exercise in EXERCISES.values():
        (tmp_path / exercise.file).write_bytes((STUBS / exercise.file).read_bytes())
    for module in "catalogue", "progress":
        monkeypatch.setattr(f"lessons.check.{module}.folder_of_exercises", lambda: tmp_path)

    def say(*options):
        return main(options), capsys.readouterr().out
    return tmp_path, say


def solve(folder: Path, number: int) -> Path:
    path = folder / EXERCISES[number].file
    path.write_text(EXERCISES[number].answer)
    return path


@pytest.fixture
def classroom(tmp_path):
    """A copy of the classroom, as a learner has it, and Python started in a folder of it."""
    for path in (ROOT / "lessons").rglob("*.py"):
        (to := tmp_path / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(path.read_bytes())
    (tmp_path / "nanospec").symlink_to(ROOT / "nanospec")

    def python(*options, at=".", timeout=None):
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run([sys.executable, *options], cwd=tmp_path / at, capture_output=True, text=True,
                              env=environment, stdin=subprocess.DEVNULL, timeout=timeout)
    return tmp_path, python


def test_the_command_tells_a_wrong_distribution_with_numbers_a_sentence_and_the_line(classroom):
    """Also from another folder than the top, and what it says to type next can be typed there."""
    folder, python = classroom
    (folder / "lessons/exercises/ex03_accept_or_replace.py").write_text(WRONG)
    done = python("../check", "3", at="lessons/exercises")
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    for words in ("not yet worked number", "right        yours", "0.8125", "total variation", "paths walked",
                  "you draw from p_target", "residual-is-target", "ex03_accept_or_replace.py, line 20",
                  "python ../check 3 --hint", f"0 of {ALL} solved  ..-{'.' * (ALL - 3)}"):
        assert words in done.stdout


def test_a_list_is_there_at_once(classroom):
    """Without torch. From the top, from the folder of the lessons, from anywhere."""
    folder, python = classroom
    found = python("-c", "import sys; from lessons.check.command import main; main(['--list']); print(*sys.modules)")
    assert f"0 of {ALL} solved" in found.stdout and "torch" not in found.stdout.split()
    assert "nanospec" not in found.stdout.split() and "rich" in found.stdout.split()
    for at, *what in (".", "-m", "lessons.check"), ("lessons", "-m", "check"), ("..", f"{folder}/lessons/check"):
        assert f"0 of {ALL} solved" in python(*what, "--list", at=at).stdout


def test_states_are_of_a_text(at_the_desk):
    """Solved, tried, untouched, missing. Who changes a solved file has tried it; who changes it back has solved it."""
    folder, say = at_the_desk
    assert set(progress.states().values()) == {"untouched"}
    path = solve(folder, 2)
    assert progress.states()[2] == "tried"                      # nobody has looked at it
    assert say("2")[0] == 0 and progress.states()[2] == "solved"
    path.write_text(path.read_text() + "\n# a remark\n")
    assert progress.states()[2] == "tried"
    path.write_text(EXERCISES[2].answer)
    progress.remember(catalogue.ENTRIES[2], path.read_bytes(), False)     # by another library, say
    assert progress.states()[2] == "tried" and say("2")[0] == 0
    (folder / EXERCISES[5].file).unlink()
    out = say("--list")[1]
    assert out.count("untouched") == ALL - 2 and "  2  solved" in out and "  5  missing" in out
    assert f"1 of {ALL} solved  .#{'.' * (ALL - 2)}" in out
    assert "spot the bug: which of six rules" in out and EXERCISES[1].size in " ".join(out.split())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_only_a_plain_file_is_read(at_the_desk):
    """Nobody waits for a pipe, whatever it is that lies there, and reset brings back what was there."""
    folder, say = at_the_desk
    for number in 1, 2:
        (folder / EXERCISES[number].file).unlink()
    os.mkfifo(folder / EXERCISES[1].file)
    os.mkfifo(folder / ".progress")
    (folder / EXERCISES[2].file).symlink_to("/dev/zero")
    (folder / EXERCISES[3].file).write_text("#" * 10 ** 6)
    assert say("--list")[1].count("missing") == 2
    for number, words in (1, "no plain file"), (2, "no plain file"), (3, "longer than"):
        code, out = say(str(number))
        assert code == 1 and words in " ".join(out.split())         # it is wrapped where the folder's name lets it
    assert say("--reset", "1")[0] == 0 and "NotImplementedError" in (folder / EXERCISES[1].file).read_text()


def test_what_it_prints_moves_no_cursor(at_the_desk):
    folder, say = at_the_desk
    for said in "print('\\33[2J')\n" + EXERCISES[2].answer, "raise ValueError('\\33[2J')":
        (folder / EXERCISES[2].file).write_text(said)
        out = say("2")[1]
        assert "\33[2J" not in out and "[2J" in out


def test_eight_lines_of_what_it_prints_are_shown(at_the_desk):
    folder, say = at_the_desk
    for count in 8, 9:
        (folder / EXERCISES[2].file).write_text("print(*[f'line {i}' for i in range(%d)], sep='\\n')\n" % count
                                                + EXERCISES[2].answer)
        printed = say("2")[1].split("it printed:")[1].splitlines()
        lines = [line.strip() for line in printed if line.startswith(10 * " ")]
        assert lines[:8] == [f"line {i}" for i in range(8)] and ("..." in lines) == (count == 9)
        assert "line 8" not in lines


@pytest.mark.parametrize("line, words", [("os._exit(0)", "it ended the program"),
                                         ("sys.exit(0)", "it ended the program"),
                                         ("raise GeneratorExit", "it ended the program"),
                                         ("raise type('Mute', (Exception,), {'__str__': lambda _: 3})", "Mute: a Mute"),
                                         ("raise ValueError", "contract ValueError in pick("),
                                         ("sys.stdout.buffer.write(b'!')", "it printed: !"),
                                         ("print('!', file=sys.__stderr__)", "it printed: !"),
                                         ("print('\\33[2J', file=sys.stderr)", "[2J"),
                                         ("sys.__stdout__.close()", "is a return missing?"),
                                         ("sys.stdout.close()", "is a return missing?")])
def test_what_would_end_the_check_or_its_output_is_told(at_the_desk, line, words):
    folder, say = at_the_desk
    (folder / EXERCISES[1].file).write_text(f"import os, sys\n\n\ndef pick(weights, u):\n    {line}\n")
    code, out = say("1")
    assert code == 1 and "not yet contract" in out and words in " ".join(out.split())


@pytest.mark.parametrize("name, line", [("__repr__", "return Odd()"), ("__str__", "raise Odd")])
def test_what_is_said_of_a_value_or_an_error_ends_as_well(tmp_path, monkeypatch, name, line):
    monkeypatch.setattr("lessons.check.clock.OWN_WORK", 0.5)
    path = tmp_path / EXERCISES[1].file
    path.write_text(f"class Odd(Exception):\n    def {name}(self):\n        while True:\n            pass\n\n\n"
                    f"def pick(weights, u):\n    {line}\n")
    result = check(EXERCISES[1], path, Clock(0.1))
    assert result.stopped == "time" and "ex01_pick.py, line " in result.failure[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_there_is_one_verdict_and_then_an_end(classroom):
    """Whatever goes on in other threads and processes, or is left for the end."""
    folder, python = classroom
    (folder / "lessons/exercises" / EXERCISES[2].file).write_text(
        "import atexit, os, threading\nos.fork()\nthreading.Thread(target=threading.Event().wait).start()\n"
        "atexit.register(lambda: os._exit(3))\n" + EXERCISES[2].answer)
    done = python("-m", "lessons.check", "2", timeout=300)
    assert done.returncode == 0 and done.stdout.count("solved.") == 1


@pytest.mark.parametrize("text", ["[" * 100_000, '{"1": {"hints": "two", "solved": []}}', '{"1": {"hints": -7}}',
                                  "", "[]", "{\"1\": 3}", "\x00", "{\"2\": {\"solved\": 7}}"])
def test_a_spoilt_state_is_no_state(at_the_desk, text):
    folder, say = at_the_desk
    (folder / ".progress").write_text(text)
    assert f"0 of {ALL} solved" in say("--list")[1] and "hint 1 of" in say("1", "--hint")[1]
    solve(folder, 2)
    assert say("2")[0] == 0 and json.loads((folder / ".progress").read_text())["2"]["solved"]


def test_from_the_stub_to_the_answer(at_the_desk):
    """List, first unsolved, hints one by one, no answer before a pass, lines to compare after it, reset keeps yours."""
    folder, say = at_the_desk
    assert say("--list")[1].count("untouched") == ALL
    code, out = say()
    assert code == 1 and "exercise 1" in out and "nothing there yet" in out
    assert f"{folder / EXERCISES[1].file}; {EXERCISES[1].size}" in out
    assert [say("1", "--hint")[1].count("hint ") for _ in range(4)] == [1, 2, 3, 3]
    assert json.loads((folder / ".progress").read_text())["1"]["hints"] == 3
    assert say("1", "--answer")[0] == 1
    path = solve(folder, 1)
    code, out = say("1")
    assert code == 0 and "solved." in out and "nanospec/dice.py, line" in out
    assert all(words in out for words in ("ok      contract", "Compare with", "at = torch.searchsorted(", "1 --answer"))
    assert f"1 of {ALL} solved" in out
    assert "cumsum" in say("1", "--answer")[1]
    assert "exercise 2" in say()[1]
    assert f"yours is now {path.with_suffix('.mine1.py')}\n{path} is as it was" in say("--reset", "1")[1]
    assert "NotImplementedError" in path.read_text() and "cumsum" in path.with_suffix(".mine1.py").read_text()
    path.write_text("another = 1".ljust(path.stat().st_size))               # as long as the stub
    assert say("1", "--reset")[0] == 0 and "another" in path.with_suffix(".mine2.py").read_text()
    assert "cumsum" in path.with_suffix(".mine1.py").read_text()
    assert say("--reset", "1")[0] == 0 and not path.with_suffix(".mine3.py").exists()       # nothing was to be kept


def test_lines_of_the_library_are_shown_from_the_first_words_to_the_last(tmp_path, monkeypatch):
    """Not those of its docstring, nor a last one that comes before the first."""
    (tmp_path / "a_shop_of_ours.py").write_text(
        '"""A shop."""\n\n\ndef price(count):\n    """The total of\n    all."""\n    end = 5\n    total = 3 * count\n'
        "    total += 7\n    end = total\n    return [end]\n")
    monkeypatch.syspath_prepend(tmp_path)
    for first, last, shown in (("total", "end =", "8: total = 3 * count: total += 7: end = total"),
                               ("end =", "", "7: end = 5: total = 3 * count: total += 7: end = total: return [end]")):
        out = io.StringIO()
        show_lines("a_shop_of_ours", "price", first, last, Console(file=out, width=80))
        assert [line.strip() for line in out.getvalue().splitlines() if line] == (
            f"a_shop_of_ours.py, line {shown}".split(": "))


def test_where_the_dice_were_thrown_is_known_of_one_check_alone(tmp_path):
    """The next text in that file may have no such line."""
    path, exercise = tmp_path / EXERCISES[3].file, EXERCISES[3]
    for text, throws in (exercise.answer, True), (stub(exercise.answer), False):
        path.write_text(text)
        check(exercise, path)
        assert (str(path) in {file for _, file in Row.thrown_at}) == throws


def test_hints_and_passes_are_remembered_beside_each_other(at_the_desk):
    folder, say = at_the_desk
    assert say("2", "--hint")[1].count("hint ") == 1 and say("2")[0] == 1
    assert say("2", "--hint")[1].count("hint ") == 2
    solve(folder, 2)
    assert say("2")[0] == 0 and say("2", "--hint")[1].count("hint ") > 2
    assert progress.states()[2] == "solved"
    (folder / ".progress").unlink()
    (folder / ".progress.new").mkdir()                          # what cannot be written down is not remembered
    assert [say("2", "--hint")[1].count("hint ") for _ in range(2)] == [1, 1]


def test_where_things_lie_is_told_in_short(tmp_path, monkeypatch):
    (deep := tmp_path / "a" / "b" / "c" / "d" / "e" / "f" / "g").mkdir(parents=True)
    for at, path, typed in ((ROOT, "lessons/exercises", "python -m lessons.check"),
                            (ROOT / "lessons", "exercises", "python check"),
                            (deep, ROOT / "lessons" / "exercises", f"python {ROOT / 'lessons' / 'check'}")):
        monkeypatch.chdir(at)
        assert (catalogue.folder_of_exercises(), catalogue.command()) == (Path(path), typed)


def test_watch_looks_at_the_next_though_both_were_saved_in_one_moment(at_the_desk, monkeypatch):
    """As from one archive."""
    folder, say = at_the_desk
    for path in solve(folder, 2), folder / EXERCISES[3].file:
        os.utime(path, (7, 7))

    def enough(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("lessons.check.desk.time.sleep", enough)
    code, out = say("2", "--watch")
    assert code == 130 and out.count("solved.") == 1 and "exercise 3:" in out and "nothing there yet" in out


def test_watch_waits_for_a_file_that_is_not_there_and_says_so(at_the_desk, monkeypatch):
    folder, say = at_the_desk
    (folder / EXERCISES[3].file).unlink()

    def enough(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("lessons.check.desk.time.sleep", enough)
    code, out = say("3", "--watch")
    assert code == 130 and "is not there" in " ".join(out.split())


def test_a_terminal_that_calls_itself_dumb_has_lines_as_long_as_others(at_the_desk, monkeypatch):
    """As Emacs', whose width rich takes for 80 columns. What an exercise takes is told in lines of up to 96."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")              # what is written to is a terminal
    monkeypatch.delenv("LINES")                         # else there is a height
    lines = at_the_desk[1]("--list")[1].splitlines()
    assert 80 < max(len(line) for line in lines if line.startswith(" " * 16)) <= 96


def test_a_full_disk_is_one_line(at_the_desk, monkeypatch, capsys):
    """And what was written in the exercise is kept beside it."""
    folder, _ = at_the_desk
    (folder / EXERCISES[1].file).write_text("mine")

    for error, said in ((OSError(28, "No space left", "a.csv"), "a.csv could not be written or read: No space left"),
                        (OSError("b.csv could not be written: full"),) * 2):

        def full(path, *_, error=error, **__):
            raise error

        monkeypatch.setattr(Path, "write_text", full)
        assert main(["--reset", "1"]) == 2 and capsys.readouterr().err.endswith(f": {said}\n")
    assert (folder / EXERCISES[1].file).with_suffix(".mine1.py").read_text() == "mine"


def test_an_answer_that_was_not_looked_at_is_looked_at_first(at_the_desk):
    folder, say = at_the_desk
    solve(folder, 2)
    assert "abs().sum()" in say("2", "--answer")[1] and progress.states()[2] == "solved"


def test_no_answer_is_shown_before_a_pass(at_the_desk):
    """And after it, all lines of the library that are like it."""
    folder, say = at_the_desk
    (folder / EXERCISES[3].file).write_text(WRONG)
    assert say("3")[0] == 1 and progress.states()[3] == "tried"
    code, out = say("3", "--answer")
    assert code == 1 and "not solved yet" in out and "clamp" not in out
    solve(folder, 3)
    assert say("3")[1].count(".py, line ") == len(EXERCISES[3].like) == 2


def test_watch_looks_again_when_the_file_is_saved_and_goes_on_to_the_next(at_the_desk, monkeypatch):
    folder, say = at_the_desk
    waits = []

    def save_now_and_then(seconds):
        waits.append(seconds)
        if len(waits) in (3, 5):
            path = solve(folder, 2 if len(waits) == 3 else 3)
            os.utime(path, (1, 1))                          # another time than before, however coarse the clock
        if len(waits) == 7:
            raise KeyboardInterrupt
    monkeypatch.setattr("lessons.check.desk.time.sleep", save_now_and_then)
    code, out = say("2", "--watch")
    assert code == 130 and out.count("solved.") == 2 and out.count("nothing there yet") == 3
    assert [int(line.split()[1][:-1]) for line in out.splitlines() if line.startswith("exercise ")] == [2, 2, 3, 3, 4]


def test_watch_ends_when_all_is_solved(at_the_desk, monkeypatch):
    folder, say = at_the_desk
    for number in EXERCISES:
        path = solve(folder, number)
        progress.remember(EXERCISES[number], path.read_bytes(), number != 2)
    assert following(EXERCISES[ALL]) == EXERCISES[2]                # after the last one comes the first
    code, out = say("2", "--watch")
    assert code == 0 and "All solved." in out and f"{ALL} of {ALL} solved" in out
    assert "All solved" in say()[1]


@pytest.mark.parametrize("options, words", [
    (["99"], "13"), (["--grade", "nowhere"], "nowhere"), (["--reset", "99"], "99"), (["--reset"], "which one"),
    (["--jobs", "2"], "--grade"), (["--grade", ".", "--jobs", "0"], "--jobs"),
    (["--grade", ".", "--seconds", "nan"], "--seconds"), (["--grade", ".", "--csv", "no/where.csv"], "no/where.csv")])
def test_bad_requests_are_one_clear_line(options, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "student").mkdir()
    try:
        code = main(options)
    except SystemExit as end:
        code = end.code
    out, said = capsys.readouterr()
    assert code == 2 and words in said.splitlines()[-1] and "Traceback" not in said and not out


def test_where_there_is_no_fork_grading_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.delattr(os, "fork")
    assert main(["--grade", str(tmp_path)]) == 2 and "fork" in capsys.readouterr().err
