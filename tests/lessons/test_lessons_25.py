"""Lesson 25: what the tables of EAGLE say, and that the mask and the pairing are what they are said to be."""

import re

import pytest
import torch

from shorter import shorter

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


def rows_of(out: str, columns: int) -> list[list[str]]:
    """The printed lines that have so many cells, two blanks or more apart."""
    cells = (re.split(r"\s{2,}", line.strip()) for line in out.splitlines())
    return [row for row in cells if len(row) == columns]


@shorter(("windows(train_texts, 64)", "windows(train_texts, 40)"),
         ("windows(held_texts, 12)", "windows(held_texts, 8)"), ("train(eagle, 40,", "train(eagle, 25,"),
         ('"EAGLE-3", 1, 60', '"EAGLE-3", 1, 24'),
         ('"EAGLE-3, unrolled", 3, 20', '"EAGLE-3, unrolled", 3, 8'), ("new=4, lag=2", "new=3, lag=2"))
def test_lesson_25_the_token_decides_and_a_draft_falls_along_its_own_predictions(lesson, exchanged):
    names, out = lesson("drafting_hidden_states", *exchanged)

    # the target alone: one hidden state, two futures; a straight line needs the token
    assert names["first"] != names["second"] and names["apart"] > 0.3
    alone, both = names["lines_alpha"].values()
    assert ["hidden state alone", "hidden state and token"] == [row[0] for row in names["rows"][:2]]
    assert both > 1.2 * alone and f"{both:.2f}" in [row[2] for row in rows_of(out, 3)]

    # along the draft; the layer begins as the straight line, whose alpha it was given
    fall, eagle = names["fall"], names["eagle"]
    for name in names["shown"]:
        assert [name, *(f"{a:.3f}" for a in fall[name])] in [row[:6] for row in rows_of(out, 7)]
    assert abs(fall["the straight line"][0] - both) < 0.03
    assert all(fall[name][0] > fall[name][4] > 0.02 for name in names["shown"])
    assert names["left_at_5"]["EAGLE-3, unrolled"] > names["left_at_5"]["EAGLE-3"] + 0.05
    assert fall["EAGLE-3"][0] > fall["EAGLE-3, unrolled"][0]
    assert all(weight.isfinite().all() for weight in eagle.parameters())

    # the wrong pairing and the predictions left in the cache cost speed and never the text
    assert fall["one late"][0] < fall["EAGLE"][0] - 0.03
    assert len(names["off"]) == 3 and max(names["off"].values()) < 1e-12
    (none, slots), (some, _) = names["left_over"].values()
    assert none == 0 < some < slots and f"{some} of {slots} slots hold a prediction" in out

    # the mask: a row of text, then diagonals; with another place's predictions it is another attention
    grid, mask = names["grid"], names["mask_unrolled"]
    assert torch.equal(grid, mask(4, 3)) and grid.shape == (12, 12)
    assert torch.equal(grid[:4, :4], torch.ones(4, 4).tril() > 0)
    for k in range(3):
        assert torch.equal(grid[4 * k:4 * k + 4, :4], grid[:4, :4])
        for step in range(1, 3):
            block = grid[4 * k:4 * k + 4, 4 * step:4 * step + 4]
            assert torch.equal(block, torch.eye(4) > 0) if step <= k else not block.any()

    # the vocabulary: a number of the head plus its offset is a token, most frequent ones first chosen
    short, tokens = names["short"], names["tokens"]
    frequent = set(tokens.flatten().bincount(minlength=names["V"]).argsort(descending=True)[:20].tolist())
    assert frequent <= set(short.ids.tolist()) and 0.3 < names["ceiling"] < 1
