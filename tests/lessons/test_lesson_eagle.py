"""What the tables of EAGLE say, and that the mask is as it is described."""


import pytest
import torch
from shorter import shorter

from tests.printed import lines_of

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@shorter(("train_texts, 64)", "train_texts, 40, 96)"), ("held_texts, 12)", "held_texts, 8, 96)"),
         ("steps=40", "steps=25"))
def test_drafting_hidden_states(lesson, exchanged):
    names, out = lesson("drafting_hidden_states", *exchanged)

    # the target alone: one hidden state, two futures; a linear prediction needs the token
    assert names["first"] != names["second"] and names["apart"] > 0.3
    alone, both = names["lines_alpha"].values()
    printed = {line[0]: line[2] for line in lines_of(out, 3)}
    assert both > 1.2 * alone and printed["hidden state and token"] == f"{both:.2f}"

    # along the draft; the layer begins as the linear prediction, whose alpha it was given
    fall, eagle = names["fall"], names["eagle"]
    alphas_fall(names, out)
    assert abs(fall["the straight line"][0] - both) < 0.03 and fall["EAGLE"][0] > fall["the straight line"][0]
    assert all(weight.isfinite().all() for weight in eagle.parameters())


def alphas_fall(names, out):
    """As the table says."""
    for name, line in names["fall"].items():
        assert [name, *(f"{a:.3f}" for a in line), f"{names['left_at_5'][name]:.0%}"] in lines_of(out, 7)
        assert line[0] > line[4] > 0.02


@shorter(("train_texts, 64)", "train_texts, 32, 64)"), ("held_texts, 12)", "held_texts, 8, 64)"),
         ('"EAGLE-3", 1, 60', '"EAGLE-3", 1, 18'), ('"EAGLE-3, unrolled", 3, 60', '"EAGLE-3, unrolled", 3, 18'))
def test_practice_on_its_own_drafts(lesson, exchanged):
    names, out = lesson("practice_on_its_own_drafts", *exchanged)
    alphas_fall(names, out)
    once, unrolled, trained = names["fall"].values()
    assert names["left_at_5"]["EAGLE-3, unrolled"] > names["left_at_5"]["EAGLE-3"] + 0.05
    assert once[0] > unrolled[0] and all(a > b for a, b in zip(unrolled[1:], once[1:]))
    assert trained[0] > once[0] + 0.1

    # the mask: the text, then diagonals; with another place's predictions it is another attention
    grid, mask = names["grid"], names["mask_unrolled"]
    assert torch.equal(grid, mask(4, 3)) and grid.shape == (12, 12)
    assert torch.equal(grid[:4, :4], torch.ones(4, 4).tril() > 0)
    for k in range(3):
        assert torch.equal(grid[4 * k:4 * k + 4, :4], grid[:4, :4])
        for step in range(1, 3):
            block = grid[4 * k:4 * k + 4, 4 * step:4 * step + 4]
            assert torch.equal(block, torch.eye(4) > 0) if step <= k else not block.any()
