"""The printed numbers by another road, the trap of the bonus, and what beats what."""

import pytest
import torch

from printed import table_under
from shorter import shorter

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@shorter(("== 257][:16])", "== 257][:4])"))
def test_mixing_on_purpose(lesson, exchanged):
    names, out = lesson("mixing_on_purpose", *exchanged)

    # typical: off by 1 - p_target(x) where x passes
    assert list(table_under(out, "draft token").values()) == [["0.70", "yes", "0.30"], ["0.20", "yes", "0.80"],
                                                       ["0.06", "no", "0.00"], ["0.04", "no", "0.00"]]

    # what a lossy rule costs: the first place of each, by hand
    p, q = (names[name](torch.tensor([[1, 0, 1]]))[0, -1].softmax(-1) for name in ("big", "small"))
    texts = names["prices"]["lenience .8"][0][0]
    first = [sum(share for text, share in texts.items() if text[0] == x) for x in range(3)]
    kept, left = torch.minimum(q, p / .8), (p - q).clamp(min=0)
    assert first == pytest.approx((kept + (1 - kept.sum()) * left / left.sum()).tolist(), abs=1e-12)
    assert [table_under(out, "rule")["accept or replace"][i] for i in (0, 2, 4)] == ["0.000"] * 3
    # "its price is .09 to .27, and .01 to .13 with the better one"; the two cut-off targets: .004 and .039
    lossy = [both for name, both in names["prices"].items() if "exact" not in name and name != "accept or replace"]
    assert [f(both[i][1] for both in lossy) for i in (0, 1) for f in (min, max)] == pytest.approx(
        [.008, .130, .094, .273], abs=6e-4)
    assert [names["prices"][name][1][1] for name in ("top-p 0.9, exact", "top-k 2, exact")] == pytest.approx(
        [.004, .039], abs=6e-4)

    # three places: which model writes, and the overlaps
    printed = table_under(out, "place")
    assert [line[1] for line in printed.values()] == ["draft model", "target", "draft model"]
    assert [line[2] for line in printed.values()] == ["0.90", "0.60", "0.25"]
    assert [line[3] for line in printed.values()] == ["1.00", "0.60", "1.00"]

    # the rules as the lesson's table has them: v1 by hand, and at every place of the text
    p, q, overlap = (torch.tensor(part, dtype=torch.float64) for part in ([.2, .7, .1], [.6, .3, .1], .6))
    assert names["DEFERRALS"]["v1"](q, p, .2).tolist() == pytest.approx([.68, .28, .04])
    assert torch.allclose(names["DEFERRALS"]["opt"](q, p, .3),
                          q if q.max() >= p.max() - .3 * (1 - overlap) else p, rtol=0, atol=1e-15)
    p, q = names["p_all"], names["q_all"]
    deferred = p < (1 - .9) * p.amax(-1, keepdim=True)
    pi = torch.where(deferred, 0, q) + p * (q * deferred).sum(-1, keepdim=True)
    assert torch.allclose(names["DEFERRALS"]["v3"](q, p, .9), pi)

    # with a bonus from the target it is neither text
    assert names["off"]["no bonus"] < 1e-12 and names["off"]["bonus from the target"] > 0.01

    # what the text is worth: by hand at one place, and in the order that the lesson speaks of
    found, p, q, true = (names[name] for name in ("found", "p_all", "q_all", "true"))
    mean = sum(p[b, i, true[b, i, 0]].item() for b in range(p.shape[0]) for i in range(p.shape[1])) / p[..., 0].numel()
    assert found["the target"][0] == pytest.approx(mean)
    assert found["the target"][1] == pytest.approx(torch.minimum(p, q).sum(-1).mean().item())
    printed = table_under(out, "text from")
    for name, (right, accepted) in found.items():
        assert printed[name] == [f"{right:.3f}", f"{accepted:.2f}"]
    assert found["the draft model"][1] == pytest.approx(1) and found["the draft model"][0] < found["the target"][0]
    assert found["v3, a = 0.9"][0] > found["the target"][0] > found["chow, a = 0.4"][0]
    assert found["the target, top-p 0.9"][0] > found["the target"][0]
    assert f"better than top-p 0.9 in both: {', '.join(names['better']) or 'none'}" in out
