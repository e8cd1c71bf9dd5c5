"""By hand as the library does, and the look back helps where something can be copied. No clock is judged."""

import pytest
import torch

from shorter import shorter

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@shorter(("== 256][:10]", "== 256][:4]"))
def test_a_look_back(lesson, exchanged):
    names, out = lesson("a_look_back", *exchanged)
    ids, keys, model, betas = (names[name] for name in ("ids", "keys", "model", "betas"))

    # the layer keeps one key and one value for each token; what is seen of them is a distribution
    assert keys.shape[:3] == (1, 1, names["length"]) and f"{names['length']} tokens, and for each" in out
    assert len(names["seen"]) == names["STEPS"] - 1
    for line in names["seen"]:
        assert line.shape == (names["begin"] + 1,) and abs(line.sum().item() - 1) < 1e-4
    assert names["gap"] < 1e-2 and names["off"] < 1e-12

    # who can copy: by another road
    copied, held = names["copied"], names["held"]
    for b, i in (0, 40), (1, 100), (3, 200):
        pairs = [(held[b, j].item(), held[b, j + 1].item()) for j in range(i - names["STEPS"])]
        assert copied[b, i].item() == ((held[b, i].item(), held[b, i + 1].item()) in pairs)
    assert 0.2 < copied.float().mean() < 0.9

    # the first draft token does not look; all others do, and lose more where something could be copied
    lost = names["lost"]
    assert betas["it looks"][True][0] == pytest.approx(betas["eyes shut"][True][0])
    assert all(copy > other for copy, other in zip(lost[True][1:], lost[False][1:]))
    assert sum(lost[True]) > 0.1
    printed = [line.split() for line in out.splitlines()]
    for name, found in betas.items():
        for line in found.values():
            assert [*name.split(), *(f"{beta:.2f}" for beta in line)] in printed
    assert all(torch.equal(a, b) for name, a in model.state_dict().items()
               for b in [names["blind"].state_dict()[name]] if name != "answer.weight")

    # costs: a chain of four
    c = names["c"]
    assert names["of_four"]["this one"] == c["the first"] + 3 * c["each other"]
    assert names["of_four"]["an EAGLE"] == 4 * c["the first"]
