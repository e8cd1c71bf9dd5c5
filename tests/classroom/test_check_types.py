"""Nothing right is rejected for its type: an int is an int in Python, numpy and torch, a row of numbers is a list, a
tuple, an array or a tensor, and what is handed in may be changed in place.
"""

import pytest
import torch

from lessons.check import EXERCISES, answered
from lessons.check.engine import check
from lessons.check.seen import Failure, Row

OTHERWISE = '''

import itertools
import numpy


def otherwise(value, kind, row):
    if isinstance(value, bool):
        return {"python": bool, "numpy": numpy.bool_, "torch": torch.tensor}[kind](value)
    if isinstance(value, (int, float)):
        return {"python": lambda x: x, "numpy": lambda x: numpy.array(x)[()], "torch": lambda x: torch.tensor(
            x, dtype=torch.float64 if isinstance(x, float) else torch.int64)}[kind](value)
    if isinstance(value, torch.Tensor):
        return {"python": lambda x: (row or list)(x.tolist()) if x.dim() else x.item(),
                "numpy": torch.Tensor.numpy, "torch": lambda x: x}[kind](value)
    if isinstance(value, dict):
        return {key: otherwise(part, kind, row) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(one, int) for one in value) and row is None:
            return {"python": tuple, "numpy": numpy.array, "torch": torch.tensor}[kind](value)
        return (row or list)([otherwise(one, kind, row) for one in value])
    return value


def spoil(value):
    """What a function may do to what it was given."""
    if isinstance(value, torch.Tensor):
        value.zero_()
    elif isinstance(value, list):
        for one in value:
            spoil(one)
        value.clear()
    elif isinstance(value, tuple):
        for one in value:
            spoil(one)


def alike(value):
    if isinstance(value, torch.Tensor):
        return value.clone()
    return type(value)(map(alike, value)) if type(value) in (list, tuple) else value


inside = []


def dressed(function):
    kinds = itertools.cycle(itertools.product(("python", "numpy", "torch"), (list, tuple, ROW)))

    def call(*given):
        if inside:                                      # the learner's own call of another function
            return function(*given)
        inside.append(1)
        answer = function(*map(alike, given))
        for one in given:
            spoil(one)
        inside.clear()
        return otherwise(answer, *next(kinds))
    return call
'''


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=lambda exercise: exercise.file)
def test_a_right_answer_is_right_in_any_dress(tmp_path, exercise):
    """Each call returns another type than the one before, and leaves nothing of what it was given."""
    rows = "None" if exercise.number in (5, 7, 10, 14, 18) else "list"      # whole answers as an array or a tensor
    path = tmp_path / exercise.file
    lines = [f"{name} = dressed({name})" for name in exercise.functions]
    source = exercise.answer if "\nimport torch\n" in exercise.answer else f"{exercise.answer}\nimport torch\n"
    path.write_text(source + OTHERWISE.replace("ROW", rows) + "\n" + "\n".join(lines) + "\n")
    result = check(exercise, path)
    assert result.failure is None, result.failure[1]


@pytest.mark.parametrize("number, old, new", [
    (4, "(p_target - q_draft).clamp(min=0)", "p_target.sub_(q_draft).clamp_(min=0)\n    p_target = left + q_draft"),
    (15, "p_target.clone()", "p_target")])
def test_in_place_changes_are_no_mistake_and_are_said(tmp_path, number, old, new):
    exercise = EXERCISES[number]
    path = tmp_path / exercise.file
    assert old in exercise.answer
    path.write_text(exercise.answer.replace(old, new))
    result = check(exercise, path)
    assert result.failure is None
    assert "changes in place" in result.notes[0] and f"p_target of {exercise.functions[0]}" in result.notes[0]


@pytest.mark.parametrize("value", [3, torch.tensor(3), torch.tensor([3]), [3], (3,)])
def test_one_whole_number(value):
    assert answered.whole(value, "f") == 3 == answered.token(value, 4, "f")
    with pytest.raises(Failure, match=r"int in 0..2; it returned 3"):
        answered.token(value, 3, "f")


@pytest.mark.parametrize("value", [3.0, torch.tensor(3.0), True, torch.tensor(True), None, "3", [3, 4], []])
def test_what_is_no_whole_number(value):
    with pytest.raises(Failure, match="f must return an int; it returned"):
        answered.whole(value, "f")


@pytest.mark.parametrize("value", [[.5, .5, 0], (.5, .5), .5, None, "ab", torch.ones(1, 2), [[.5, .5]], {"a": 1}])
def test_what_is_no_row_of_two_weights(value):
    assert answered.weights_like([.5, .5], (2,), "f").dtype == torch.float64
    if value != (.5, .5):
        with pytest.raises(Failure, match=r"f must return a tensor \(2,\); it returned"):
            answered.weights_like(value, (2,), "f")


def test_numbers_truths_pairs_and_rows():
    assert answered.number(torch.tensor([.5]), "f") == .5 == answered.number(.5, "f")
    assert answered.truth(torch.tensor(True), "f") is True
    assert answered.pair(torch.tensor([1, 2]), "f") == (1, 2) == answered.pair([1, 2], "f")
    assert answered.wholes((torch.tensor(1), 2), "f") == [1, 2] == answered.wholes(torch.tensor([1, 2]), "f")
    for judge, value in ((answered.number, "a"), (answered.truth, 1), (answered.wholes, 3), (answered.wholes, [.5])):
        with pytest.raises(Failure):
            judge(value, "f")
    with pytest.raises(Failure, match="f; it returned"):
        answered.pair((1, 2, 3), "f")


@pytest.mark.parametrize("weights", ["[.5, .5]", "torch.tensor([[.5, .5]])", "torch.zeros(2)", "torch.tensor([2., -1])",
                                     "torch.tensor([1., float('nan')])", "torch.tensor([])", "'ab'"])
def test_dice_take_weights_and_nothing_else(weights):
    row = Row()
    weights = eval(weights)
    if weights == [.5, .5]:
        assert row.pick(weights) in (0, 1)
        return
    with pytest.raises(Failure, match="dice.pick takes"):
        row.pick(weights)
