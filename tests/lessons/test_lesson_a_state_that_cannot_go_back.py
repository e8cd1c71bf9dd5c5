"""What its tables print, by another road: the state as a sum, and the costs as formulas of the rounds."""

import pytest
import torch

from lessons.figures import lessons_33_to_43
from printed import table_under
from shorter import shorter


@pytest.mark.usefixtures("packed")
@shorter(("[1, 2, 3, 4, 5], 48", "[1, 2, 3, 4, 5], 20"))
def test_a_state_that_cannot_go_back(lesson, exchanged):
    names, out = lesson("a_state_that_cannot_go_back", *exchanged)
    tokens, w_key, w_value = names["tokens"], names["w_key"], names["w_value"]
    fade = 0.25 * 0.75 ** torch.arange(11, -1, -1, dtype=torch.float64)
    S = torch.einsum("t,tk,tv->kv", fade, tokens[:12] @ w_key, tokens[:12] @ w_value)
    assert (S - names["right"]).abs().max() < 1e-12 < (S - names["after"]).abs().max()
    gaps = names["gaps"]
    assert all(f"{gap:.0e}" in out for gap in gaps.values()) and list(gaps.values())[0] > 1
    assert names["off"] < 1e-12

    costs, config = names["costs"], names["pair"](None)[0].config
    state = (config.layers - 1) * config.kv_heads * config.head_size ** 2 * 8
    for (gamma, way), (size, read, written) in costs.items():
        assert size == (2 if way == "replay" else gamma + 1) * state
        assert gamma + 1 <= read <= gamma + 1 + (way == "replay") * written
        assert written == costs[gamma, "replay"][2] and f"{size:,}" in out and f"{read:.2f}" in out
    assert costs[8, "replay"][1] > 9 and table_under(out, "after the round")


def test_its_picture(monkeypatch):
    """Kilobytes on the left, and on the right what is read in a round, not what is written."""
    drawn = []
    monkeypatch.setattr(lessons_33_to_43, "save", lambda figure, name: drawn.append(figure))
    lessons_33_to_43.states_kept({(1, "snapshots"): (2000, 2.25, 1.5), (1, "replay"): (3000, 2.75, 1.5),
                                  (4, "snapshots"): (5000, 5.25, 3.5), (4, "replay"): (3000, 6.75, 3.5)})
    left, right = drawn[0].axes
    assert [[*zip(*line.get_data())] for line in left.lines] == [[(1, 2), (4, 5)], [(1, 3), (4, 3)]]
    assert [[*zip(*line.get_data())] for line in right.lines] == [[(1, 2.25), (4, 5.25)], [(1, 2.75), (4, 6.75)]]
