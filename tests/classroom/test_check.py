"""The exercises: every stub fails, every answer passes, every known mistake is named. The rest: test_check_*.py."""

import re
from functools import reduce
from importlib import import_module
from inspect import getsource, unwrap
from pathlib import Path

import pytest

from lessons.check import EXERCISES
from lessons.check.catalogue import ANSWERS, ENTRIES, stub
from lessons.check.engine import check
from lessons.check.naming import named
from nanospec.proof.zoo import BUGS
from tests.proof.zoo import ALL_CONTROLS

ROOT = Path(__file__).parents[2]
STUBS = ROOT / "lessons" / "exercises"
TORCH_OBJECTS = "keepdim-forgotten", "top-k-beyond-the-vocabulary", "last-token-taken-for-a-draft-token"
numbers = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=lambda exercise: exercise.file)


def test_one_file_for_each_exercise():
    """The same names here, where one writes, and where the answers are."""
    files = [exercise.file for exercise in EXERCISES.values()]
    assert [*EXERCISES] == [*ENTRIES] == list(range(1, 24))
    for folder in STUBS, ANSWERS, ROOT / "lessons" / "check":
        assert sorted(path.name for path in folder.glob("ex*.py") if ".mine" not in path.name) == files


@numbers
def test_the_stub_is_the_answer_without_its_body_and_fails(exercise):
    path = STUBS / exercise.file
    assert path.read_text() == stub((ANSWERS / exercise.file).read_text())
    assert path.read_text().count("raise NotImplementedError") == len(exercise.functions)
    assert path.read_text().count("\nimport torch\n") == 1
    result = check(exercise, path)
    assert not result.passed and "NotImplementedError" in result.failure[1]


@numbers
def test_the_answer_passes_every_part(exercise):
    result = check(exercise, ANSWERS / exercise.file)
    assert result.failure is None
    assert [part for part, _ in result.passed] == ["contract", *exercise.looks, *exercise.tests]
    if exercise.number in (10, 13, 14, 15, 16, 17, 18, 22):
        part, said = result.passed[-1]
        assert part.startswith("number to") and re.search(r"\d\.\d\d", said)


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
    seen_by = set()
    for mistake in exercise.wrongs:
        exercise.contract(exercise.with_mistake(mistake))
        theirs = {part: exercise.seen_of(mistake, part) for part in exercise.looks}
        wrong = [(part, case.error) for part, found in theirs.items() for case in found if case.differences()]
        seen_by |= {part for part, _ in wrong}
        assert wrong, mistake.name
        objects = any(isinstance(error, (RuntimeError, TypeError)) for _, error in wrong)
        assert not objects or mistake.name in TORCH_OBJECTS
        found = named(exercise, theirs)
        assert mistake in found and {one.said for one in found} == {mistake.said}, mistake.name
    assert {*exercise.looks} - seen_by == ({"exact distribution"} if exercise.number == 18 else set())   # drafts alone


@numbers
def test_what_learners_read_is_in_the_papers_words(exercise):
    """A distribution is no law, a draft token no guess, and what is rejected is not refused."""
    told = [exercise.answer, *exercise.hints, *exercise.looks, *exercise.tests,
            *(f"{mistake.name} {mistake.said}" for mistake in exercise.wrongs)]
    said = getsource(import_module(f"lessons.check.{exercise.file[:-3]}")) + "\n".join(told)
    old = re.findall(r"(?i)\b(?:laws?|guess(?:es|ed)?|refus\w+|keeps? or replace)\b", said)
    assert not [word for word in old if exercise.number != 10], old          # there a human guesses a song's next word


def test_bugs_of_the_zoo_that_an_exercise_can_hold_are_there():
    """Those of one node, one draft, one distribution, one round and the roll-back; the others need the loop itself."""
    held = {mistake.name for exercise in EXERCISES.values() for mistake in exercise.wrongs}
    need_the_loop = {
        "uniform-can-be-zero", "residual-reuses-accept-uniform", "reseed-per-draw", "seed-ignored",        # the dice
        "logits-as-probabilities", "processors-only-on-bonus", "draft-dtype-mismatch",                  # two models
        "first-token-lost", "eos-inside-block", "overshoot", "prefix-fed-again", "counted-after-the-rejection"}
    assert {bug.name for bug in BUGS} - held == need_the_loop
    assert "sample-and-match" in held & {control.name for control in ALL_CONTROLS}  # slow, and told to be no more
