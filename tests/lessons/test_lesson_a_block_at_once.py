"""The fork by hand, the marginal by another road, and every number in its table."""

import pytest
import torch

from printed import table_under
from shorter import shorter

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@shorter(("[1][:12]]", "[1][:4]]"), ("PLACES, FUTURES = 6, 64", "PLACES, FUTURES = 4, 24"),
         ("4_000_000", "2_000_000"))
def test_a_block_at_once(lesson, exchanged):
    names, out = lesson("a_block_at_once", *exchanged)
    drawn, likeliest, betas, speed = (names[name] for name in ("drawn_of", "likeliest_of", "betas", "speed"))

    # the fork
    fork = table_under(out, "draft  ")
    assert fork["of problem"] == ["0.25", "0.00"] and fork["of course"] == ["0.25", "0.50"]
    assert "beta: 1.00 at the first place, 0.50 at the second" in out
    assert "with the table, beta at the second place is 1.00" in out and names["off"] < 1e-12

    # a perfect marginal, drawn from: the first place is known, then it falls; a warmer text falls faster. Its likeliest
    # token is worse at first, and falls less where the text is cool
    for what, found in ("drawn", drawn), ("the likeliest", likeliest):
        printed = table_under(out, what + "  ")
        for temperature, line in found.items():
            assert printed[f"T = {temperature}"] == [f"{beta:.2f}" for beta in line]
        assert found[1.0][1] < found[0.7][1] < found[0.4][1]
    assert all(line[0] > 1 - 1e-6 for line in drawn.values())
    assert all(likeliest[t][0] < drawn[t][0] for t in drawn)
    assert drawn[0.4][0] - likeliest[0.4][0] > drawn[0.4][-1] - likeliest[0.4][-1]
    for place in range(1, names["PLACES"]):
        assert drawn[1.0][place] < drawn[0.7][place] < drawn[0.4][place]
    assert torch.tensor([.9, .1]) @ torch.tensor([.9, .1]) == pytest.approx(.82)
    tokens, p_target = names["futures"][1.0][0]
    mean = torch.stack([p_target[3, i] for i in range(names["FUTURES"]) if i != 5]).mean(0)
    assert torch.allclose(mean, names["marginals"](p_target)[3, 5])
    assert tokens.shape == (names["FUTURES"], names["PLACES"] + 1)
    ids = torch.tensor([names["texts"][0] + tokens[7, 1:3].tolist()])           # a future's p, without a cache
    with torch.no_grad():
        assert (names["target"](ids)[0, -1].softmax(-1) - p_target[2, 7]).abs().max() < 1e-3

    # the table gives much of it back, and the draft GPT does not fall
    printed = table_under(out, "place, T = 1")
    for name, line in betas.items():
        assert printed[name] == [f"{beta:.2f}" for beta in line]
    assert all(a > b for a, b in zip(betas["the same and table"][1:], betas["perfect marginal"][1:]))
    assert betas["the draft GPT"][2] > betas["perfect marginal"][2]

    printed = table_under(out, "gamma")
    assert all(printed[name] == [f"{value:.2f}" for value in line] for name, line in speed.items())
    assert speed["the draft GPT"][0] == pytest.approx((1 + betas["the draft GPT"][0]) / (0.12 + 1.05))
    assert speed["perfect marginal"][1] == pytest.approx((1 + 1 + betas["perfect marginal"][1]) / (0.2 + 1.1), abs=1e-6)
