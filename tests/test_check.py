"""The exercises: every stub fails, every answer passes, every known mistake is named; and a class can be graded."""

import os
import subprocess
import sys
from functools import reduce
from importlib import import_module
from inspect import getsource, unwrap
from pathlib import Path

import pytest
import torch

import nanospec.theory
from lessons.check import EXERCISES, FILES, seen
from lessons.check.__main__ import main
from lessons.check.engine import ANSWERS, check, named, stub
from lessons.check.grade import found_in, run
from nanospec.proof.zoo import ALL_CONTROLS, chain, loop

ROOT = Path(__file__).parent.parent
STUBS = ROOT / "lessons" / "exercises"
numbers = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=lambda exercise: exercise.file)


@pytest.fixture
def at_the_desk(tmp_path, monkeypatch, capsys):
    """A folder of exercises to write in, and the command, run on it -> (what it returns, what it prints)."""
    for exercise in EXERCISES.values():
        (tmp_path / exercise.file).write_bytes((STUBS / exercise.file).read_bytes())
    monkeypatch.setattr("lessons.check.__main__.folder_of_exercises", lambda: tmp_path)

    def say(*options):
        return main(options), capsys.readouterr().out
    return tmp_path, say


def test_one_file_for_each_exercise():
    """The same names here, where one writes, and where the answers are."""
    files = [exercise.file for exercise in EXERCISES.values()]
    assert [*EXERCISES] == list(range(1, 17)) and [path.name for path in FILES] == files
    for folder in STUBS, ANSWERS:
        assert sorted(path.name for path in folder.glob("ex*.py") if ".mine" not in path.name) == files


@numbers
def test_the_stub_is_the_answer_without_its_body_and_fails(exercise):
    path = STUBS / exercise.file
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
def test_every_exercise_tells_its_size_and_has_hints_and_lines_to_compare_with(exercise):
    head = (ANSWERS / exercise.file).read_text().splitlines()
    assert head[0].startswith(f'"""Exercise {exercise.number}: ')
    assert f"check: python -m lessons.check {exercise.number}" in head
    assert "difficulty" in head[2] and "minutes" in head[2] and "lesson" in head[2]
    assert 2 <= len(exercise.hints) <= 3 and all(len(hint) > 30 for hint in exercise.hints)
    assert "Worked: " in "\n".join(head) or exercise.number >= 11
    for module, name, first, last in exercise.like:
        source = getsource(unwrap(reduce(getattr, name.split("."), import_module(module))))
        at = source.find(first)
        assert at >= 0 <= source.find(last, at), f"{name} has no longer the lines {first!r} to {last!r}"


@numbers
def test_every_known_mistake_is_caught_and_named_alone(exercise):
    for mistake in exercise.wrongs:
        exercise.contract(exercise.with_mistake(mistake))
        theirs = {part: exercise.seen_of(mistake, part) for part in exercise.looks}
        assert any(case.differences() for found in theirs.values() for case in found), mistake.name
        assert named(exercise, theirs) == [mistake], mistake.name


def test_bugs_of_the_zoo_that_an_exercise_can_hold_are_there():
    """Those of one node, one block, one distribution and the roll-back; the others need the loop itself."""
    held = {mistake.name for exercise in EXERCISES.values() for mistake in exercise.wrongs}
    need_the_loop = {
        "uniform-can-be-zero", "residual-reuses-accept-uniform", "reseed-per-draw", "seed-ignored",        # the dice
        "logits-as-probabilities", "warp-residual-again", "greedy-draft-soft-q", "draft-warped-q-raw",     # two models
        "target-unwarped", "processors-only-on-bonus", "bonus-unwarped", "draft-dtype-mismatch",
        "first-token-lost", "eos-inside-block", "overshoot", "prefix-fed-again", "counted-after-the-refusal"}
    assert {bug.name for bug in chain.BUGS + loop.BUGS} - held == need_the_loop
    assert "sample-and-match" in held & {control.name for control in ALL_CONTROLS}  # slow, and told to be no more


WRONG = (ANSWERS / "ex03_keep_or_replace.py").read_text().replace("(p_target - q_draft).clamp(min=0))", "p_target)")


def test_the_command_tells_a_wrong_distribution_with_numbers_a_sentence_and_the_line(tmp_path):
    """As a learner starts it, in a copy of the classroom."""
    for path in (ROOT / "lessons").rglob("*.py"):
        (to := tmp_path / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(path.read_bytes())
    (tmp_path / "nanospec").symlink_to(ROOT / "nanospec")
    (tmp_path / "lessons/exercises/ex03_keep_or_replace.py").write_text(WRONG)
    done = subprocess.run([sys.executable, "-m", "lessons.check", "3"], cwd=tmp_path, capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(tmp_path)}, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    for words in ("not yet worked number", "right        yours", "0.8125", "total variation", "paths walked",
                  "you draw from p_target", "residual-is-target", "ex03_keep_or_replace.py, line 20", "--hint"):
        assert words in done.stdout


def test_slow_but_lossless_is_told_apart_from_wrong(at_the_desk):
    folder, say = at_the_desk
    (folder / "ex07_rollback.py").write_text(
        "def valid_slots(length, gamma, kept):\n    return length + kept, length + kept\n")
    code, out = say("7")
    assert code == 1 and "ok      exact distribution" in out and "not yet guesses kept" in out
    assert "draft-missing-last-accepted" in out and "speed, not truth" in out


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


def test_what_does_not_end_is_ended(tmp_path):
    path = tmp_path / "ex03_keep_or_replace.py"
    path.write_text("def keep_or_replace(x, p_target, q_draft, dice):\n    while True:\n"
                    "        x = dice.pick(q_draft)\n        if dice.flip(p_target[x] / q_draft[x]):\n"
                    "            return x\n")
    result = check(EXERCISES[3], path, seconds=0.5)
    assert "still running after 0.5 seconds" in result.failure[1]


def test_what_it_prints_is_shown_and_not_all_of_it(tmp_path):
    path = tmp_path / "ex02_total_variation.py"
    path.write_text("def total_variation(one, other):\n    print('looking at', one)\n    return 2.0\n")
    result = check(EXERCISES[2], path)
    assert result.printed.startswith("looking at") and len(result.printed) < 2_000


@pytest.mark.parametrize("weights", ["[.5, .5]", "torch.tensor([[.5, .5]])", "torch.zeros(2)", "torch.tensor([2., -1])",
                                     "torch.tensor([1., float('nan')])", "torch.tensor([])", "'ab'"])
def test_dice_take_weights_and_nothing_else(weights):
    row = seen.Row()
    weights = eval(weights)
    if weights == [.5, .5]:
        assert row.pick(weights) in (0, 1)
        return
    with pytest.raises(seen.Failure, match="dice.pick takes"):
        row.pick(weights)


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


def test_from_the_stub_to_the_answer(at_the_desk):
    """List, first unsolved, hints one by one, no answer before a pass, lines to compare after it, reset keeps yours."""
    folder, say = at_the_desk
    assert say("--list")[1].count("open") == len(EXERCISES)
    code, out = say()
    assert code == 1 and "exercise 1" in out and "nothing there yet" in out
    assert [say("1", "--hint")[1].count("hint ") for _ in range(4)] == [1, 2, 3, 3]
    assert say("1", "--answer")[0] == 1
    path = folder / "ex01_pick.py"
    path.write_bytes((ANSWERS / path.name).read_bytes())
    code, out = say("1")
    assert code == 0 and "solved." in out and "nanospec/dice.py, line" in out
    assert "cumsum" in say("1", "--answer")[1]
    assert "exercise 2" in say()[1]
    assert say("--reset", "1")[0] == 0
    assert "NotImplementedError" in path.read_text() and "cumsum" in path.with_suffix(".mine1.py").read_text()
    path.write_text("another = 1")
    assert say("1", "--reset")[0] == 0 and "another" in path.with_suffix(".mine2.py").read_text()
    assert "cumsum" in path.with_suffix(".mine1.py").read_text()


def test_watch_looks_again_when_the_file_is_saved(at_the_desk, monkeypatch):
    folder, say = at_the_desk
    path, waits = folder / "ex02_total_variation.py", []

    def save_at_the_third_wait(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            path.write_bytes((ANSWERS / path.name).read_bytes())
            os.utime(path, (1, 1))                          # another time than before, however coarse the clock
    monkeypatch.setattr("lessons.check.__main__.time.sleep", save_at_the_third_wait)
    code, out = say("2", "--watch")
    assert code == 0 and len(waits) == 3 and out.count("nothing there yet") == out.count("solved.") == 1


@pytest.mark.parametrize("options, words", [(["99"], "13"), (["--grade", "nowhere"], "nowhere"),
                                            (["--reset", "99"], "99")])
def test_bad_requests_are_one_clear_line(options, words, capsys):
    try:
        code = main(options)
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr().err
    assert code == 2 and words in said.splitlines()[-1] and "Traceback" not in said


RIGHT = (ANSWERS / "ex02_total_variation.py").read_text()
HARM = {
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


@pytest.mark.parametrize("name", HARM)
def test_what_a_students_file_may_do(name, tmp_path, monkeypatch):
    """Each is put back here; in earnest each has a process of its own."""
    for thing, part in (nanospec.theory, "acceptance"), (seen, "TOLERANCE"), (torch.Tensor, "abs"):
        monkeypatch.setattr(thing, part, getattr(thing, part))
    monkeypatch.setattr(EXERCISES[2], "looks", dict(EXERCISES[2].looks))
    text, part = HARM[name]
    path = tmp_path / "ex02_total_variation.py"
    path.write_text(text)
    assert found_in(EXERCISES[2], path)["part"] == part


def test_grading_a_class(tmp_path, capsys):
    """Whatever a file does, the next one is looked at as if nothing had happened."""
    texts = {"ada": "import os\nos._exit(0)\n", "max": HARM["a changed library"][0], "zoe": RIGHT}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "ex02_total_variation.py").write_text(text)
    (tmp_path / "zoe" / "ex01_pick.py").write_bytes((STUBS / "ex01_pick.py").read_bytes())
    assert main(["--grade", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "ada, 2: crash: " in out and "max, 2: library: " in out
    assert f"zoe: 1 of {len(EXERCISES)}" in out and "zoe, " not in out


def test_an_endless_loop_ends(tmp_path):
    path = tmp_path / "ex02_total_variation.py"
    path.write_text("while True:\n    pass\n")
    assert run(EXERCISES[2], path, seconds=1)["part"] == "time"


def test_the_bug_is_named_to_the_teacher(tmp_path):
    path = tmp_path / "ex03_keep_or_replace.py"
    path.write_text(WRONG)
    assert found_in(EXERCISES[3], path) == {"solved": False, "part": "worked number", "why": "residual-is-target"}
