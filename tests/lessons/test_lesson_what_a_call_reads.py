"""What is counted: experts by another road, and a call's bytes and operations by hand."""

import pytest
import torch
from printed import table_under

from nanospec.theory import speedup

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


def test_what_a_call_reads(lesson):
    names, out = lesson("what_a_call_reads")
    layer, x, loaded, sizes = (names[name] for name in ("layer", "x", "loaded", "sizes"))

    # a token's answer is the sum over its own experts; those that a call reads are all that its tokens have chosen
    token = x[3, 40]
    weights, which = layer.router(token).softmax(-1).topk(4)
    with torch.no_grad():
        by_hand = sum(weight * (torch.nn.functional.silu(layer.up[e] @ token) @ layer.down[e].T)
                      for weight, e in zip(weights, which))
        assert (layer(token[None])[0][0] - by_hand).abs().max() < 1e-4
        chosen = layer.router(x).topk(4).indices
    for m in sizes:
        counts = [len(set(text[at:at + m].flatten().tolist())) for text in chosen for at in range(0, 100, 10)]
        assert loaded[m] == sum(counts) / len(counts)
    assert all(loaded[m] < names["by_chance"][m] for m in sizes[1:])
    assert names["by_chance"][5] == pytest.approx(15.6, abs=.05)
    printed = table_under(out, "tokens in a call")
    assert printed["experts read, in text"] == [f"{loaded[m]:.1f}" for m in sizes]

    # one text: what is read is what was counted; the best gamma is short, and brings less than in a dense model
    gains, printed = names["gains"], table_under(out, "gamma")
    by_hand = [speedup(.7, gamma, .05, (4 + loaded[gamma + 1]) / 8) for gamma in (1, 2, 4, 8)]
    assert gains["experts, texts: 1"] == pytest.approx(by_hand)
    assert all(printed[name] == [f"{gain:.2f}" for gain in line] for name, line in gains.items())
    one, dense = gains["experts, texts: 1"], gains["dense, one text"]
    assert one.index(max(one)) < dense.index(max(dense)) and max(one) < 0.7 * max(dense)

    # long texts: where reading takes the time, v is 1; where multiplying does, it is 5
    call = names["call"]
    assert call(1, 1, 0) == 16e9 and call(512, 5, 100) == pytest.approx(512 * 5 * (16e9 + 4 * 32 * 4096 * 100) / 300)
    assert call(256, 5, 32_000) == 16e9 + 2 * 65_536 * 256 * 32_000
    for length, line in names["v5"].items():
        assert line == [call(B, 5, length) / call(B, 1, length) for B in names["batches"]]
        assert names["of_length"][length] == [speedup(.7, 4, .05, v) for v in line]
    long = [line[4] for line in names["v5"].values()]
    assert long == sorted(long, reverse=True)
