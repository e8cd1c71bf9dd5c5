"""Nothing right is rejected for its type: an int is an int in Python, numpy and torch, a row of numbers is a list, a
tuple, an array or a tensor.
"""

import numpy
import pytest
import torch

from lessons.check import EXERCISES, answered
from lessons.check.clock import Clock
from lessons.check.engine import check
from lessons.check.seen import Failure, Row
from tests.classroom.answers_told import changed

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


inside = []


def dressed(function):
    kinds = itertools.cycle(itertools.product(("python", "numpy", "torch"), (list, tuple, ROW)))

    def call(*given):
        if inside:                                      # the learner's own call of another function
            return function(*given)
        inside.append(1)
        answer = function(*given)
        inside.clear()
        return otherwise(answer, *next(kinds))
    return call
'''


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=lambda exercise: exercise.file)
def test_a_right_answer_is_right_in_any_dress(tmp_path, exercise):
    """Each call returns another type than the one before."""
    rows = "None" if exercise.number in (5, 7, 10, 14, 18) else "list"      # whole answers as an array or a tensor
    path = tmp_path / exercise.file
    lines = [f"{name} = dressed({name})" for name in exercise.functions]
    source = exercise.answer if "\nimport torch\n" in exercise.answer else f"{exercise.answer}\nimport torch\n"
    path.write_text(source + OTHERWISE.replace("ROW", rows) + "\n" + "\n".join(lines) + "\n")
    result = check(exercise, path)
    assert result.failure is None, result.failure[1]


@pytest.mark.parametrize("number, old, new, argument", [
    (3, "dice.pick((p_target - q_draft).clamp(min=0))", "dice.pick(p_target.sub_(q_draft).clamp_(min=0))", "p_target"),
    (8, "logits = logits / temperature", "logits /= temperature", "logits"),
    (10, "    for n in range(min", "    text.append(text.pop())\n    text.append(0)\n    text = text[:-1]\n"
     "    for n in range(min", "text"),
    (10, "    return []", "    text[:] = [-1] * len(text)\n    return []", "text"),
    (12, "    return distance", "    own, _ = {**truth}, truth.clear()\n    truth = own\n    return distance", "truth"),
    (15, "p_target.clone()", "p_target", "p_target")])
def test_a_right_answer_leaves_what_it_is_given(told, number, old, new, argument):
    """All that it returns is right, and its caller has lost the old values."""
    exercise = EXERCISES[number]
    assert old in exercise.answer
    result = told(number, exercise.answer.replace(old, new))
    part, said = result.failure
    assert part == "what it is given" and result.named == ["changed-in-place"] and f"{argument} of " in said
    assert [part for part, _ in result.passed] == ["contract", *exercise.looks, *exercise.tests]


def test_texts_may_be_written_where_they_stand(told):
    """Exercise 19: there the library itself does so."""
    assert told(19, EXERCISES[19].answer.replace("tokens.scatter(1, ", "tokens.scatter_(1, ")).failure is None


@pytest.mark.parametrize("value", [3, torch.tensor(3), torch.tensor([3]), [3], (3,)])
def test_one_whole_number(value):
    assert answered.whole(value, "f") == 3 == answered.token(value, 4, "f")
    with pytest.raises(Failure, match=r"int in 0..2; it returned 3"):
        answered.token(value, 3, "f")


@pytest.mark.parametrize("value", [3.0, torch.tensor(3.0), True, torch.tensor(True), None, "3", [3, 4], []])
def test_what_is_no_whole_number(value):
    with pytest.raises(Failure, match="f must return an int; it returned"):
        answered.whole(value, "f")


@pytest.mark.parametrize("value", [[2, 0], (2.0, 0.0), torch.tensor([2., 0.]), torch.tensor([[2], [0]]),
                                   [torch.tensor(2.), torch.tensor(0)]])
def test_counts_are_whole_numbers_of_any_type(value):
    assert answered.counts(value, "f", 2) == [2, 0]
    for rows in 1, 3:
        with pytest.raises(Failure, match="f must return a number for each of .* it returned 2 of them"):
            answered.counts(value, "f", rows)


@pytest.mark.parametrize("value", [[2.5, 0], [True, False], ["2", "0"], [[2, 0], [1, 1]], 2, None])
def test_what_are_no_counts(value):
    with pytest.raises(Failure, match="f must return"):
        answered.counts(value, "f", 2)


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
    assert answered.pair(numpy.array([1, 2]), "f") == (1, 2)
    assert answered.weights_like(torch.ones(2, dtype=torch.float32), (2,), "f").dtype == torch.float64
    with pytest.raises(Failure, match="f; it returned"):
        answered.pair((1, 2, 3), "f")
    with pytest.raises(Failure, match=r"f must return a token, an int in 0..1; it returned \[0, 1\]$"):
        answered.token([0, 1], 2, "f")                      # no weights


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


@pytest.mark.parametrize("odds", [-.2, float("nan"), torch.tensor(float("nan"))])
def test_a_coin_takes_a_probability(odds):
    with pytest.raises(Failure, match="dice.flip takes a probability, got"):
        Row().flip(odds)


def test_what_lies_in_a_list_is_copied_too():
    """So the checker keeps its own, and sees that the learner's function has changed it."""
    def spoil(parts):
        parts[0].fill_(7)
        parts[1][0].fill_(8)

    clock, own = Clock(), [torch.ones(2), (torch.zeros(2), 3)]
    clock.timed("spoil", spoil)(own)
    assert own[0].tolist() == [1, 1] and own[1][0].tolist() == [0, 0] and clock.changed == {"parts of spoil"}


def test_what_is_changed_in_a_later_call_or_a_later_argument_is_told():
    """Nor does the checker lose a dict of its own."""
    def later(numbers):
        if numbers[0] == 3:
            numbers.append(7)

    def second(*given):
        given[1]["b"] = 5

    clock, own = Clock(), {"a": 2}
    call = clock.timed("later", later)
    for number in 1, 2, 3, 4:
        call([number])
    clock.timed("second", second)(0, own)
    assert clock.changed == {"numbers of later", "given of second"} and own == {"a": 2}


@pytest.mark.parametrize("number, name", [(number, name) for number, one in EXERCISES.items() for name in one.functions
                                          if name != "verdicts"])
def test_what_is_not_written_is_told_first(told, number, name):
    source = EXERCISES[number].answer + f"\n\ndef {name}(*given):\n    raise NotImplementedError\n"
    assert told(number, source).failure == ("contract", f"nothing there yet: {name} raises NotImplementedError")


@pytest.mark.parametrize("number, old, new", [(15, "return i, x", "return i"), (15, "return None, ", "return "),
                                              (21, "    return written", "    return 1"),
                                              (11, 'return {"rule_a', 'return {"rule_z": ("slow", 0), "rule_a'),
                                              (5, "return coins", "return .5 * coins")])
def test_what_is_no_answer_is_told_first_whatever_the_throws(told, number, old, new):
    assert told(number, changed(number, (old, new))).failure[0] == "contract"


def test_a_function_without_a_def_has_a_line_all_the_same(told):
    found = told(2, "total_variation = lambda one, other: one.sum()\n")
    assert "look at ex02_total_variation.py, line 1" in found.failure[1]
