"""The state, its cost and its readers: what is printed follows from their own distributions. No clock is judged."""


import pytest
import torch

from shorter import shorter

from nanospec.methods.draft_models.losses import total_variation
from nanospec.methods.draft_models.mlp import MLPSpeculator
from nanospec.methods.draft_models.unrolled import whole_texts
from nanospec.theory import speedup
from tests.printed import lines_from

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@shorter(("tokenizer, 40", "tokenizer, 12"), ("steps=90", "steps=30"), ("steps=50", "steps=15"))
def test_a_state_that_reads_its_draft(lesson, exchanged):
    names, out = lesson("a_state_that_reads_its_draft", *exchanged)
    test, before, p_test, mlp, gpt, target = (names[name] for name in (
        "test", "before_test", "p_test", "mlp", "gpt", "target"))
    betas = names["betas"]

    # the hidden states before a token, and beta by the other road: 1 - total variation
    with torch.no_grad():
        hidden = target(test[:1], layers=[names["last"]])[1]
    assert (before[:1, 1:] - hidden[:, :-1]).abs().max() < 1e-3
    q_draft = whole_texts(mlp, test, before, 4).log_softmax(-1)
    places = test.shape[1] - 3
    for k in range(4):
        off = total_variation(p_test[:, k:k + places].log(), q_draft[k]).mean().item()
        assert abs(betas["the state"][k] - (1 - off)) < 1e-4
    for name, found in betas.items():
        assert [name, *(f"{beta:.2f}" for beta in found)] in lines_from(out, name)

    # the state hardly falls, Medusa does; the pair's own draft model, trained for hours, is better than both
    state, medusa, without = betas["the state"], betas["Medusa"], betas["with zeros for hidden states"]
    assert isinstance(mlp, MLPSpeculator) and min(state) > 0.85 * max(state) and medusa[1] < 0.8 * medusa[0]
    assert state[1] > 1.5 * medusa[1] and betas["the draft GPT"][0] > state[0] + 0.1
    lost = [whole - zeros for whole, zeros in zip(state, without)]
    assert without[0] < 0.93 * state[0] and lost[0] == max(lost)

    # what a step costs: the matrices that it multiplies with
    used = [weight for name, weight in mlp.named_parameters() if name.startswith(("carry", "head"))]
    count = names["operations"]
    assert count["the state"] == sum(weight.numel() for weight in used) < count["the draft GPT"] / 4
    assert gpt.config.tied and names["c"]["the state"] < names["c"]["the draft GPT"]

    # the formula: no gamma is better, and where the two tie
    v, points = names["v"], names["points"]
    for name, (cost, alpha, gamma, speed) in points.items():
        assert speed == max(speedup(alpha, other, cost, v(other + 1)) for other in range(1, 17))
        assert [name, f"{cost:.3f}", f"{alpha:.2f}", str(gamma), f"{speed:.2f}"] in lines_from(out, name)
    wanted, at = points["the draft GPT"], points["the state, to be as fast"]
    assert at[3] >= wanted[3] > names["best_speed"](at[1] - 0.01, at[0])[1]
    assert at[1] < wanted[1] and at[1] > points["the state"][1]         # less is enough, but not as little as this
    assert "This machine is busy" not in out                # the clocks are stubs, and as quick at the end


@shorter(("tokenizer, 40", "tokenizer, 12"), ("steps=90", "steps=25"))
def test_mistakes_that_no_text_shows(lesson, exchanged):
    names, out = lesson("mistakes_that_no_text_shows", *exchanged)

    # what each check sees. A wrong reader would have been seen by acceptance alone
    gaps, betas = names["gaps"], names["betas"]
    assert gaps["rejected count"][1] < 1e-12 < 1e-3 < gaps["rejected count"][2]
    assert all([name, *(f"{gap:.0e}" for gap in found)] in lines_from(out, name) for name, found in gaps.items())
    assert betas["one place off"] < 0.97 * betas["right"] > betas["zeros"]
    assert all([name, f"{beta:.3f}"] in lines_from(out, name) for name, beta in betas.items())

    # predictions left in the cache
    (none, slots), (some, _) = names["left_over"].values()
    assert none == 0 < some < slots and f"{some} of {slots} slots hold a prediction" in out
    assert names["off_lag"] < 1e-12
