"""What a draft model is taught, and on which text: by hand, and the claim about accepted prefixes."""

import math
from copy import deepcopy
from functools import cache

import pytest
import torch
from shorter import shorter
from student import trained_student

from nanospec import Draft
from nanospec.proof.walk import walk
from nanospec.speculate import verify
from nanospec.theory import acceptance
from tests.printed import lines_of

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@shorter(("train_texts, 48)", "train_texts, 24, 64)"), ("text[:2500])[:128]", "text[:2500])[:64]"),
         ("len(some) == 128", "len(some) == 64"), ("steps=100, rate=1e-2", "steps=30, rate=3e-2"))
def test_what_to_train_on(lesson, exchanged, monkeypatch):
    trained = cache(trained_student)                        # two students that begin as the same one
    monkeypatch.setattr("student.trained_student", lambda *given, **how: deepcopy(trained(*given, **how)))
    names, out = lesson("what_to_train_on", *exchanged)

    # one look at a token: sum p p; all looks at people's tokens: .8
    p_four = names["p_four"]
    assert (p_four * p_four).sum().item() == pytest.approx(.365)
    assert acceptance(p_four, names["people"]).item() == pytest.approx(.8)
    looks = [line for line in lines_of(out, 4) if line[0] in ("1", "10", "100", "all")]
    assert [float(line[2]) for line in looks] == sorted(float(line[2]) for line in looks)
    assert all(line[3] == "1.00" for line in looks)

    # what is drafted is not what is judged further on
    assert names["accepted"] == pytest.approx([.2, .3, 0]) and names["in_text"] == pytest.approx([.6, .4, 0])

    # the text changes: alpha falls; what was rejected teaches the new text, and costs some of the old one
    before, after = names["drift"].values()
    assert before[0] == pytest.approx(after[0]) == pytest.approx(before[3])
    assert after[2] > before[2] + .02 and after[3] < before[3]
    for name, line in names["drift"].items():
        assert [name, *(f"{alpha:.2f}" for alpha in line)] in lines_of(out, 5)


def test_a_path_is_accepted_as_often_as_the_lesson_claims():
    """p_target(path) times the product of min(1, q_draft / p_target): two draft tokens, every outcome."""
    p_target = torch.tensor([[.6, .3, .1], [.2, .2, .6], [.3, .3, .4]], dtype=torch.float64)
    q_draft = torch.tensor([[.2, .3, .5], [.5, .4, .1]], dtype=torch.float64)

    def play(dice):
        x = dice.pick(q_draft)[None]                                        # (1, 2)
        draft = Draft(torch.nn.functional.pad(x, (1, 0)), torch.nn.functional.pad(q_draft, (0, 0, 1, 0))[None])
        accepted, _ = verify(draft, p_target[None], dice)
        return tuple(x[0, :int(accepted)].tolist())

    found, _ = walk(play)
    for first in range(3):
        for second in range(3):
            p = [p_target[0, first].item(), p_target[1, second].item()]
            q = [q_draft[0, first].item(), q_draft[1, second].item()]
            claimed = math.prod(p) * math.prod(min(1, b / a) for a, b in zip(p, q))
            assert found.get((first, second), 0) == pytest.approx(claimed, abs=1e-12)
