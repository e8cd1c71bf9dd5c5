"""The exercises: every stub fails, every answer passes, every known mistake is named; and a class can be graded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lessons.check import EXERCISES
from lessons.check.__main__ import main
from lessons.check.engine import ANSWERS, check, named, stub
from lessons.check.grade import run
from nanospec.proof.zoo import BUGS, CONTROLS

ROOT = Path(__file__).parent.parent
MISTAKES = [(exercise, mistake) for exercise in EXERCISES.values() for mistake in exercise.wrongs]
numbers = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=[one.file for one in EXERCISES.values()])


def command(*options, cwd=ROOT):
    environment = os.environ | {"PYTHONPATH": str(cwd)}
    return subprocess.run([sys.executable, "-m", "lessons.check", *options], cwd=cwd, capture_output=True, text=True,
                          env=environment, stdin=subprocess.DEVNULL)


@pytest.fixture
def desk(tmp_path):
    """A copy of the classroom to write in."""
    folder = tmp_path / "copy"
    for path in (ROOT / "lessons").rglob("*.py"):
        if "out" not in path.parts:
            to = folder / path.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(path.read_bytes())
    (folder / "nanospec").symlink_to(ROOT / "nanospec")
    return folder


@numbers
def test_the_stub_is_the_answer_without_its_body_and_fails(exercise):
    path = ROOT / "lessons" / "exercises" / exercise.file
    assert path.read_text() == stub((ANSWERS / exercise.file).read_text())
    assert path.read_text().count("raise NotImplementedError") == len(exercise.functions)
    result = check(exercise, path)
    assert not result.passed and "NotImplementedError" in result.failure[1]


@numbers
def test_the_answer_passes_every_part(exercise):
    result = check(exercise, ANSWERS / exercise.file)
    assert result.failure is None
    assert [part for part, _ in result.passed] == ["contract", *exercise.looks, *exercise.tests]


@numbers
def test_every_exercise_tells_its_size_and_has_hints(exercise):
    head = (ANSWERS / exercise.file).read_text().splitlines()
    assert head[0].startswith(f'"""Exercise {exercise.number}: ')
    assert f"check: python -m lessons.check {exercise.number}" in head
    assert "difficulty" in head[2] and "minutes" in head[2] and "lesson" in head[2]
    assert 2 <= len(exercise.hints) <= 3 and all(len(hint) > 30 for hint in exercise.hints)
    assert "Worked: " in "\n".join(head) or exercise.number >= 11


@pytest.mark.parametrize("exercise, mistake", MISTAKES,
                         ids=[f"{exercise.number}-{mistake.name}" for exercise, mistake in MISTAKES])
def test_every_known_mistake_is_caught_and_named_alone(exercise, mistake):
    functions = exercise.with_mistake(mistake)
    exercise.contract(functions)
    assert any(seen.differences() for look in exercise.looks.values() for seen in look(functions))
    assert [one.name for one in named(exercise, functions)] == [mistake.name]


def test_bugs_of_the_zoo_that_an_exercise_can_hold_are_there():
    """Those of one node, one block, one law and the roll-back; the others need the loop itself."""
    held = {mistake.name for _, mistake in MISTAKES}
    need_the_loop = {
        "uniform-can-be-zero", "residual-reuses-accept-uniform", "reseed-per-draw", "seed-ignored",        # the dice
        "logits-as-probabilities", "warp-residual-again", "greedy-draft-soft-q", "draft-warped-q-raw",     # two laws
        "target-unwarped", "processors-only-on-bonus", "bonus-unwarped", "draft-dtype-mismatch",
        "first-token-lost", "eos-inside-block", "overshoot", "prefix-fed-again", "counted-after-the-refusal",
        "cross-row-write"}
    assert {bug.name for bug in BUGS} - held == need_the_loop
    assert "sample-and-match" in held & {control.name for control in CONTROLS}      # slow, and told to be no more


WRONG = (ANSWERS / "ex03_keep_or_replace.py").read_text().replace("(p_target - q_draft).clamp(min=0))", "p_target)")


def test_a_wrong_law_is_told_with_numbers_a_sentence_and_the_line(desk):
    (desk / "lessons/exercises/ex03_keep_or_replace.py").write_text(WRONG)
    done = command("3", cwd=desk)
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    for words in ("not yet worked number", "right        yours", "0.8125", "total variation", "paths walked",
                  "you draw from p_target", "residual-is-target", "ex03_keep_or_replace.py, line 20", "--hint"):
        assert words in done.stdout


def test_slow_but_lossless_is_told_apart_from_wrong(desk):
    path = desk / "lessons/exercises/ex07_rollback.py"
    path.write_text("def valid_slots(length, gamma, kept):\n    return length + kept, length + kept\n")
    done = command("7", cwd=desk)
    assert "ok      exact distribution" in done.stdout and "not yet guesses kept" in done.stdout
    assert "draft-missing-last-accepted" in done.stdout and "speed, not truth" in done.stdout


def test_a_mistake_that_is_not_known_is_shown_all_the_same(tmp_path):
    path = tmp_path / "ex03_keep_or_replace.py"
    path.write_text(WRONG.replace("p_target)\n", "p_target ** 3)\n"))
    result = check(EXERCISES[3], path)
    assert not result.named
    assert "not a mistake known here; look at ex03_keep_or_replace.py, line 20" in result.failure[1]


@pytest.mark.parametrize("text, words", [
    ("def keep_or_replace(x, p_target, q_draft, dice):\n    return 1.5\n", "must return a token"),
    ("def keep_or_replace(x, p_target, q_draft, dice):\n    return 1 / 0\n", "ZeroDivisionError"),
    ("def keep_or_replace(x, p_target, q_draft, dice)\n    return x\n", "line 1"),
    ("def keep_or_replace(x):\n    return x\n", "TypeError"),
    ("def another():\n    return 1\n", "no function keep_or_replace"),
    ("import sys\nsys.exit()\n", "ended the program"),
    ("import random\ndef keep_or_replace(x, p, q, dice):\n    return random.choice([0, 1])\n", "never throws")])
def test_what_is_no_solution_is_told_in_a_line(tmp_path, text, words):
    path = tmp_path / "ex03_keep_or_replace.py"
    path.write_text(text)
    result = check(EXERCISES[3], path)
    assert result.failure is not None and words in result.failure[1]


@pytest.fixture
def at_the_desk(desk, monkeypatch, capsys):
    """The command, run here, on the copy's exercises -> (what it returns, what it prints)."""
    monkeypatch.setattr("lessons.check.__main__.folder_of_exercises", lambda: desk / "lessons" / "exercises")

    def say(*options):
        monkeypatch.setattr(sys, "argv", ["lessons.check", *options])
        return main(), capsys.readouterr().out
    return say


def test_what_does_not_end_is_ended(tmp_path):
    path = tmp_path / "ex03_keep_or_replace.py"
    path.write_text("def keep_or_replace(x, p_target, q_draft, dice):\n    while True:\n"
                    "        x = dice.pick(q_draft)\n        if dice.flip(p_target[x] / q_draft[x]):\n"
                    "            return x\n")
    result = check(EXERCISES[3], path, seconds=1)
    assert "still running after 1 seconds" in result.failure[1]


def test_what_it_prints_is_shown_and_not_all_of_it(tmp_path):
    path = tmp_path / "ex02_total_variation.py"
    path.write_text("def total_variation(one, other):\n    print('looking at', one)\n    return 2.0\n")
    result = check(EXERCISES[2], path)
    assert result.printed.startswith("looking at") and len(result.printed) < 2_000


@pytest.mark.parametrize("number, text", [
    (1, "def pick(weights, u):\n    return int((weights.cumsum(0) >= u * weights.sum()).nonzero()[0])\n"),
    (4, "def residual(p_target, q_draft):\n    r = (p_target - q_draft).clamp(min=0)\n    return r / r.sum()\n"),
    (4, "def residual(p_target, q_draft):\n    r = (p_target - q_draft).clamp(min=0)\n"
        "    return r / (r.sum(-1, keepdim=True) + 1e-9)\n"),
    (8, "def law(logits, temperature, top_k):\n    return (logits / temperature).softmax(-1)\n")])
def test_speed_is_not_said_to_be_lost_where_something_else_is(tmp_path, number, text):
    path = tmp_path / EXERCISES[number].file
    path.write_text(text)
    assert "not truth" not in check(EXERCISES[number], path).failure[1]


def test_an_unfinished_second_function_does_not_hide_the_mistake_in_the_first(tmp_path):
    path = tmp_path / "ex09_how_fast.py"
    path.write_text("def expected_tokens(alpha, gamma):\n    return sum(alpha ** i for i in range(gamma))\n\n\n"
                    "def best_gamma(alpha, c, v, most):\n    return 1\n")
    result = check(EXERCISES[9], path)
    assert "last-guess-forgotten" in result.named or "line 2" in result.failure[1]


@pytest.mark.parametrize("temperature", ["max(temperature, 1e-8)", "temperature or 1e-10"])
def test_a_small_temperature_is_not_temperature_zero(tmp_path, temperature):
    path = tmp_path / "ex08_warp.py"
    path.write_text((ANSWERS / path.name).read_text().replace("    if temperature == 0:", "    if False:").replace(
        "logits / temperature", f"logits / ({temperature})"))
    assert check(EXERCISES[8], path).failure


def test_from_the_stub_to_the_answer(desk, at_the_desk):
    """List, first unsolved, hints one by one, no answer before a pass, lines to compare after it, reset keeps yours."""
    assert at_the_desk("--list")[1].count("open") == len(EXERCISES)
    code, out = at_the_desk()
    assert code == 1 and "exercise 1" in out and "nothing there yet" in out
    assert [at_the_desk("1", "--hint")[1].count("hint ") for _ in range(4)] == [1, 2, 3, 3]
    assert at_the_desk("1", "--answer")[0] == 1
    path = desk / "lessons/exercises/ex01_pick.py"
    path.write_bytes((ANSWERS / path.name).read_bytes())
    code, out = at_the_desk("1")
    assert code == 0 and "solved." in out and "nanospec/dice.py, line" in out
    assert "cumsum" in at_the_desk("1", "--answer")[1]
    assert "exercise 2" in at_the_desk()[1]
    assert at_the_desk("--reset", "1")[0] == 0
    assert "NotImplementedError" in path.read_text() and "cumsum" in path.with_suffix(".mine1.py").read_text()
    path.write_text("another = 1")
    assert at_the_desk("1", "--reset")[0] == 0 and "another" in path.with_suffix(".mine2.py").read_text()
    assert "cumsum" in path.with_suffix(".mine1.py").read_text()


def test_watch_looks_again_when_the_file_is_saved(desk):
    path = desk / "lessons/exercises/ex02_total_variation.py"
    process = subprocess.Popen([sys.executable, "-u", "-m", "lessons.check", "2", "--watch"], cwd=desk, text=True,
                               stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(desk)})
    seen = ""
    while "a hint" not in seen and process.poll() is None:
        seen += process.stdout.readline()
    path.write_bytes((ANSWERS / path.name).read_bytes())
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "nothing there yet" in seen and "solved." in rest


@pytest.mark.parametrize("options, words", [(["99"], "13"), (["--grade", "nowhere"], "nowhere"),
                                            (["--reset", "99"], "99")])
def test_bad_requests_are_one_clear_line(options, words):
    done = command(*options)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


RIGHT = (ANSWERS / "ex02_total_variation.py").read_text()
HARM = {
    "exit": ("import os\nos._exit(0)\n", "crash"),
    "crash": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "crash"),
    "wrong types": ("def total_variation(one, other):\n    return 'far'\n", "contract"),
    "huge output": ("def total_variation(one, other):\n    print('x' * 10 ** 7)\n    return 2.0\n", "worked number"),
    "a changed library": ("import nanospec.theory\nnanospec.theory.acceptance = lambda a, b: 0\n" + RIGHT, "library"),
    "changed checks": ("import lessons.check.seen as e\ne.TOLERANCE = 9\ndef total_variation(a, b):\n    return .5\n",
                       "library"),
    "parts removed": ("from lessons.check import EXERCISES\nEXERCISES[2].looks.clear()\n"
                      "def total_variation(a, b):\n    return .5\n", "library"),
    "a changed tensor": ("import torch\ntorch.Tensor.abs = lambda x: x\n" + RIGHT, "library"),
    "no text": ("\x00\x01", "contract"),
}


def test_grading_a_class(tmp_path):
    """Whatever a file does, the next one is looked at as if nothing had happened."""
    for name, (text, _) in HARM.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "ex02_total_variation.py").write_text(text)
    (tmp_path / "zoe").mkdir()
    (tmp_path / "zoe" / "ex02_total_variation.py").write_text(RIGHT)
    (tmp_path / "zoe" / "ex01_pick.py").write_bytes((ROOT / "lessons/exercises/ex01_pick.py").read_bytes())
    done = command("--grade", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for name, (_, part) in HARM.items():
        assert f"{name}, 2: {part}: " in done.stdout
    assert f"zoe: 1 of {len(EXERCISES)}" in done.stdout and "zoe, " not in done.stdout


def test_an_endless_loop_ends(tmp_path):
    path = tmp_path / "ex02_total_variation.py"
    path.write_text("while True:\n    pass\n")
    assert run(EXERCISES[2], path, seconds=4)["part"] == "time"


def test_the_bug_is_named_to_the_teacher(tmp_path):
    path = tmp_path / "ex03_keep_or_replace.py"
    path.write_text(WRONG)
    found = run(EXERCISES[3], path, seconds=60)
    assert found == {"solved": False, "part": "worked number", "why": "residual-is-target"}
    assert json.dumps(found)
