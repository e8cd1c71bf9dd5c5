"""Three levels are exact in one way alone, and what a third one gains, by another road."""

import pytest
import torch

from nanospec.theory import expected_tokens
from printed import table_under
from shorter import shorter

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


def token_cost(step, drafts, alpha, v):
    """The least that a token costs, whoever of `drafts` (model, cost of a token) drafts for this model."""
    return min([step] + [(gamma * cost + step * v(gamma + 1)) / expected_tokens(alpha[model], gamma)
                         for model, cost in drafts for gamma in range(1, 17)])


@pytest.mark.usefixtures("packed")
@shorter(("NEW = (1, 0, 1), 3", "NEW = (1, 0, 1), 2"), ("[:257] for", "[:129] for"), ("== 257][:12]", "== 129][:16]"),
         ("some[:4, :64]", "some[:1, :64]"), ("make(), ids, 32,", "make(), ids, 24,"),
         ('itself", repetitive_prompts(pair)', 'itself", repetitive_prompts(pair)[1:]'))
def test_a_draft_for_the_draft(lesson, exchanged):
    names, out = lesson("a_draft_for_the_draft", *exchanged)

    # one line is exact
    off = names["off"]
    assert off["the middle model's"] < 1e-12 and min(off["the lowest model's"], off["of the model that wrote it"]) > 0.2
    assert 0.2 > off["the middle's, one u for both coins"] > 0.01
    printed = table_under(out, "q_draft that is reported")
    assert all(printed[name] == [f"{tv:.1e}"] for name, tv in off.items())

    # whether a number between 0 and 1 that lies below or above .6 lies below .3, or .9
    again, u = names["again"], (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    for chance in .3, .9:
        for stands, lies in (True, u < .6), (False, u >= .6):
            assert again(chance, .6, stands) == pytest.approx((u[lies] < chance).double().mean().item(), abs=1e-3)

    # alphas, one of them by hand; the lowest model's are distributions
    alpha, p_of, some = names["alpha"], names["p_of"], names["some"]
    assert torch.allclose(names["lowest"].sum(-1), torch.ones(len(names["lowest"])), atol=1e-4)
    by_hand = torch.minimum(p_of["middle"], names["lowest"][some]).sum(-1).mean().item()
    assert alpha[1, 0] == pytest.approx(by_hand) and alpha[2, 1] > alpha[1, 0] > alpha[2, 0]

    # the best of all, without best_stack
    free, v = names["FREE"], names["v"]
    printed = table_under(out, "c   ")
    for c in 0.03, 0.06, 0.12, 0.25, 0.5:
        to_target = {1: alpha[2, 1], 0: alpha[2, 0]}
        middle_drafted_for = token_cost(c, [(0, free)], {0: alpha[1, 0]}, v)
        one, other = (1 / token_cost(1, [draft_model], to_target, v) for draft_model in ((1, c), (0, free)))
        best = 1 / token_cost(1, [(1, middle_drafted_for), (0, free)], to_target, v)
        assert names["ways"](c, alpha)[:3] == pytest.approx((one, other, best))
        assert printed[f"{c:g}"][:3] == [f"{one:.2f}", f"{other:.2f}", f"{best:.2f}"]
        assert printed[f"{c:g}"][3] == f"{best / max(one, other) - 1:+.0%}"
    assert printed["0.12"][4].endswith("of the lowest") and "middle" not in printed["0.5"][4]

    # what is counted: the target's side does not change, and a GPT call of a chain brings one token
    counted = names["counted"]
    for kind in "held-out code", "code that repeats itself":
        (chain, one), (stack, more) = counted[kind, "chain"], counted[kind, "stack"]
        assert one == 1 < more and stack == pytest.approx(chain, abs=0.1)           # rounding may decide a tie
    assert counted["code that repeats itself", "stack"][1] > counted["held-out code", "stack"][1]
    assert f"{names['r']:.2f} times a call on one" in out
    gains = sum(names["gains"].values(), [])
    assert min(gains) >= 0 and max(gains) < 0.2, max(gains)
