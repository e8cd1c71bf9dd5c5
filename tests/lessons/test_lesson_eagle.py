"""What the tables of EAGLE say, and that the mask is as it is described."""


import pytest
import torch

from shorter import shorter

from nanospec.theory import speedup
from tests.printed import lines_of

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@shorter(("train_texts, 64)", "train_texts, 40, 96)"), ("held_texts, 12)", "held_texts, 8, 96)"),
         ("steps=40", "steps=25"), ('"EAGLE-3", 1, 60', '"EAGLE-3", 1, 18'),
         ('"EAGLE-3, unrolled", 3, 60', '"EAGLE-3, unrolled", 3, 18'), ("steps=60", "steps=15"),
         ("steps=160", "steps=100"), ("len(more))[:8]", "len(more))[:4]"))
def test_drafting_hidden_states(lesson, exchanged):
    names, out = lesson("drafting_hidden_states", *exchanged)

    # the target alone: one hidden state, two futures; a linear prediction needs the token
    assert names["first"] != names["second"] and names["apart"] > 0.3
    alone, both = names["lines_alpha"].values()
    printed = {line[0]: line[2] for line in lines_of(out, 3)}
    assert both > 1.2 * alone and printed["hidden state and token"] == f"{both:.2f}"

    # along the draft; the layer begins as the linear prediction, whose alpha it was given
    fall, eagle, left = names["fall"], names["eagle"], names["left_at_5"]
    for name, line in fall.items():
        assert [name, *(f"{a:.3f}" for a in line), f"{left[name]:.0%}"] in lines_of(out, 7)
        assert line[0] > line[4] > 0.02 or name == "the draft GPT"
    assert abs(fall["the straight line"][0] - both) < 0.03 and fall["EAGLE"][0] > fall["the straight line"][0]
    assert all(weight.isfinite().all() for weight in eagle.parameters())
    assert left["EAGLE-3, unrolled"] > left["EAGLE-3"] + 0.05
    assert all(a > b for a, b in zip(fall["EAGLE-3, unrolled"][1:], fall["EAGLE-3"][1:]))
    assert fall["EAGLE"][0] > fall["EAGLE-3"][0] > fall["EAGLE-3, unrolled"][0]
    assert fall["the draft GPT"][0] > max(line[0] for name, line in fall.items() if name != "the draft GPT") + 0.1

    # leaving early: the deeper the better it drafts, and by the formula all lose to the draft GPT
    of = names["of"]
    alphas, costs = zip(*of.values())
    assert list(alphas) == sorted(alphas) and costs == (3 / 24, 6 / 24, 12 / 24, 0.11)
    for (name, (alpha, c)), line in zip(of.items(), names["lines"]):
        assert line in [shown[:2] + shown[2:3] + [int(shown[3]), shown[4]] for shown in lines_of(out, 5)
                       if shown[0] == name]
        assert float(line[4]) == pytest.approx(max(speedup(alpha, gamma, c, 1 + 0.05 * gamma)
                                                  for gamma in range(1, 17)), abs=0.006)
    gains = [float(line[4]) for line in names["lines"]]
    assert max(gains[:3]) < gains[3]

    # trained together: what is printed
    printed = {line[0]: line[1:] for line in lines_of(out, 4)}
    for name, line in names["together"].items():
        assert printed[name] == [f"{number:.2f}" for number in line]

    # the mask: the text, then diagonals; with another place's predictions it is another attention
    grid, mask = names["grid"], names["mask_unrolled"]
    assert torch.equal(grid, mask(4, 3)) and grid.shape == (12, 12)
    assert torch.equal(grid[:4, :4], torch.ones(4, 4).tril() > 0)
    for k in range(3):
        assert torch.equal(grid[4 * k:4 * k + 4, :4], grid[:4, :4])
        for step in range(1, 3):
            block = grid[4 * k:4 * k + 4, 4 * step:4 * step + 4]
            assert torch.equal(block, torch.eye(4) > 0) if step <= k else not block.any()
