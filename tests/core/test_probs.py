"""Logits -> probabilities: worked numbers, and a slow version in plain Python over every corner of the settings."""

import math
from itertools import product

import pytest
import torch

from nanospec.errors import LogitsError, RequestError, check_finite
from nanospec.probs import Sampling, probs, residual

INF, NAN = float("inf"), float("nan")
LOGITS = torch.tensor([[0.3, 2.0, -1.0, 1.0, 2.0], [5.0, 0.0, 0.0, -3.0, 1.0]], dtype=torch.float64)


def test_worked_numbers():
    logits = torch.tensor([0.0, math.log(3)], dtype=torch.float64)
    assert torch.allclose(probs(logits), torch.tensor([0.25, 0.75], dtype=torch.float64))
    assert probs(logits, 0).tolist() == [0, 1]
    assert probs(logits, top_p=0.7).tolist() == [0, 1]
    assert torch.allclose(probs(logits, 0.5), torch.tensor([0.1, 0.9], dtype=torch.float64))


def test_temperature_zero_is_an_exact_one_hot_at_the_first_maximum():
    assert probs(LOGITS, 0).tolist() == [[0, 1, 0, 0, 0], [1, 0, 0, 0, 0]]


def test_top_k_keeps_k_and_renormalises():
    found = probs(LOGITS[1], top_k=2)
    assert (found > 0).tolist() == [True, False, False, False, True]
    assert torch.allclose(found, LOGITS[1, [0, 4]].softmax(-1)[[0, 0, 0, 0, 1]] * (found > 0))
    assert torch.equal(probs(LOGITS, top_k=99), probs(LOGITS))


def test_tokens_that_tie_with_the_last_one_kept_are_kept():
    assert (probs(LOGITS[0], top_k=1) > 0).tolist() == [False, True, False, False, True]
    assert (probs(LOGITS[0], top_p=0.1) > 0).tolist() == [False, True, False, False, True]
    assert (probs(LOGITS[1], top_k=3) > 0).tolist() == [True, True, True, False, True]


def test_top_p_keeps_the_fewest_that_reach_it():
    p_target = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    for top_p, kept in ((0.4, 1), (0.5, 1), (0.51, 2), (0.79, 2), (0.81, 3), (0.96, 4), (1.0, 4)):
        found = probs(p_target.log(), top_p=top_p)
        assert (found > 0).sum() == kept, top_p
        assert torch.allclose(found[:kept], p_target[:kept] / p_target[:kept].sum())


def test_top_p_counts_what_top_k_left():
    """0.5 of {.5, .3} is .625: with top-k 2 first, one token already reaches .6."""
    p_target = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    assert (probs(p_target.log(), top_k=2, top_p=0.6) > 0).tolist() == [True, False, False]


def test_min_p_is_relative_to_the_likeliest_and_comes_last():
    """Of {.5, .3, .15, .05} at T = 1 the bar is .5 min_p; at T = 1/2 the weights are squared, so it is .25 min_p."""
    p_target = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    for settings, kept in (({"min_p": 0}, 4), ({"min_p": 0.09}, 4), ({"min_p": 0.11}, 3), ({"min_p": 0.31}, 2),
                           ({"min_p": 0.61}, 1), ({"min_p": 1}, 1), ({"min_p": 0.11, "temperature": 0.5}, 2),
                           ({"min_p": 0.35, "temperature": 0.5}, 2), ({"min_p": 0.37, "temperature": 0.5}, 1),
                           ({"min_p": 0.31, "top_p": 0.9}, 2), ({"min_p": 0.11, "top_k": 2}, 2)):
        found = probs(p_target.log(), **settings)
        right = p_target[:kept] ** (1 / settings.get("temperature", 1))
        assert (found > 0).sum() == kept and torch.allclose(found[:kept], right / right.sum()), settings
    # With min-p first, .5 and .3 would be .625 and .375, and the first would hold .6 alone.
    assert (probs(p_target.log(), top_p=0.6, min_p=0.5) > 0).tolist() == [True, True, False, False]
    assert (probs(torch.tensor([2.0, 2.0, 1.0]), min_p=1) > 0).tolist() == [True, True, False]


def slowly(logits: list[float], temperature: float, top_k: int | None, top_p: float | None, min_p: float | None,
           eps: float):
    """Plain Python: the tokens that must have a probability, those that may, and the probabilities over the latter.

    The two differ where rounding may decide: for tokens all but tied with the last one kept, for a total all but
    equal to top_p, and for weights all but at the bar of min_p.
    """
    best = max(logits)
    if temperature == 0:
        first = logits.index(best)
        return {first}, {first}, [float(x == first) for x in range(len(logits))]
    scaled = [(logit - best) / temperature for logit in logits]
    weights = [math.exp(max(number, -800.0)) if number > -INF else 0.0 for number in scaled]
    may = must = {x for x, weight in enumerate(weights) if weight > 0}
    ranked = sorted(weights, reverse=True)
    if top_k is not None and top_k < len(logits):
        near = 16 * eps * max([abs(logit) for logit in logits if logit > -INF] + [1.0])
        last = sorted(logits, reverse=True)[top_k - 1]
        must, may = ({x for x in must if logits[x] >= last}, {x for x in may if logits[x] >= last - near})
        ranked = sorted((weights[x] for x in must), reverse=True)
    if top_p is not None and top_p < 1:
        total, reached, least, most = sum(ranked), 0.0, [], []
        for weight in ranked:
            if reached < top_p * (1 - 64 * eps):
                least.append(weight)
            if reached < top_p * (1 + 64 * eps):
                most.append(weight)
            reached += weight / total
        must = {x for x in must if weights[x] >= min(least) * (1 + 64 * eps) or weights[x] == ranked[0]}
        may = {x for x in may if weights[x] >= min(most) * (1 - 64 * eps)}
    if min_p is not None:
        bar, near = min_p * max(weights), 1e-5 if eps > 1e-9 else 1e-12
        must, may = ({x for x in must if weights[x] > bar * (1 + near) or weights[x] == max(weights)},
                     {x for x in may if weights[x] >= bar * (1 - near)})
    kept = [weight if x in may else 0.0 for x, weight in enumerate(weights)]
    return must, may, [weight / sum(kept) for weight in kept]


def random_logits() -> list[float]:
    return torch.randn(7, generator=torch.Generator().manual_seed(3)).mul(3).tolist()


CASES = {
    "random": random_logits(), "tied at the top": [1.0, 2.0, 2.0, -1.0, 2.0, 0.5], "all tied": [-3.0] * 6,
    "tied in the middle": [3.0, 1.0, 1.0, 1.0, 0.0, 0.0], "huge": [3e38, -3e38, 1e38, 3e38, 0.0, -1e38],
    "far apart": [1e30, -1e30, 1e-30, 0.0, 5.0], "tiny": [1e-30, 2e-30, 0.0, -1e-30, 1e-35],
    "nearly tied": [1.0, 1.0 + 2 ** -23, 1.0 - 2 ** -24, 0.0], "some forbidden": [-INF, 1.0, 0.0, -INF, 1.0, -2.0],
    "one allowed": [-INF, -INF, -7.0, -INF], "huge and forbidden": [3e38, -INF, -3e38, -INF, 2.9e38],
    "one token": [4.0], "far below zero": [-3e30, -2e30, -2.5e30, -3e38, -2.1e30],
}
TEMPERATURES = [0, 1e-300, 1e-30, 1e-6, 1e-3, 0.7, 1, 1.3, 1e6]
TOP_K, TOP_P, MIN_P = [None, 1, 2, 50], [None, 1e-300, 0.3, 0.5, 0.97, 1 - 1e-9, 1.0], [None, 0, 1e-300, 0.1, 0.7, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_whatever_the_settings_it_is_the_distribution_that_is_documented(case, dtype):
    logits, eps = torch.tensor(CASES[case], dtype=dtype), torch.finfo(dtype).eps
    as_read = logits.tolist()
    every = [*product(TEMPERATURES, TOP_K, TOP_P, [None]), *product(TEMPERATURES, [None, 2], [None, 0.5], MIN_P)]
    for temperature, top_k, top_p, min_p in every:
        setting = f"{temperature=} {top_k=} {top_p=} {min_p=}"
        found = probs(logits, temperature, top_k, top_p, min_p)
        assert found.dtype == dtype and found.isfinite().all() and (found >= 0).all(), setting
        assert abs(found.sum().item() - 1) <= 8 * eps, setting
        must, may, expected = slowly(as_read, temperature, top_k, top_p, min_p, eps)
        for x, (probability, right) in enumerate(zip(found.tolist(), expected)):
            assert probability > 0 or x not in must or right < 1e-30, (setting, x)
            assert probability == 0 or x in may, (setting, x)
        if must == may:
            # An exponent is known to some eps of itself, and it was a difference of logits over the temperature.
            for probability, right in zip(found.tolist(), expected):
                off = 1e-5 if dtype == torch.float32 else 1e-12
                assert abs(probability - right) <= off, (setting, probability, right)
        by_rank = sorted(zip(as_read, found.tolist()))
        assert all(low[1] <= high[1] for low, high in zip(by_rank, by_rank[1:]) if temperature), setting


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_as_the_temperature_falls_only_the_likeliest_are_left(case, dtype):
    """Evenly, where several tie; at 0 itself the first of them."""
    logits = torch.tensor(CASES[case], dtype=dtype)
    best = (logits == logits.max()).to(dtype)
    if case == "tiny":                                          # these are no further apart than the temperature
        best = torch.tensor([0.0, 1, 0, 0, 0], dtype=dtype)
    for temperature in (1e-300, 1e-38, 1e-36):
        for top_k, top_p in product(TOP_K, [None, 1.0]):
            assert torch.equal(probs(logits, temperature, top_k, top_p), best / best.sum())
    assert probs(logits, 0).tolist() == [float(x == int(logits.argmax())) for x in range(len(logits))]


@pytest.mark.parametrize("logits", [[NAN, 0.0, 1.0], [0.0, NAN, NAN], [INF, 0.0, 1.0], [0.0, INF, -INF], [-INF, -INF],
                                    [INF, INF]], ids=str)
def test_what_is_no_number_is_never_made_a_certainty(logits):
    """Under no setting: the loops would emit a token of it, and nobody would know."""
    for temperature, top_k, top_p, min_p in product(TEMPERATURES, TOP_K, TOP_P, [None, 0.1]):
        with pytest.raises(LogitsError):
            check_finite(probs(torch.tensor(logits), temperature, top_k, top_p, min_p).sum().item())


def test_precision_is_never_below_float32_nor_lowered():
    for given, got in ((torch.bfloat16, torch.float32), (torch.float16, torch.float32), (torch.float32, torch.float32),
                       (torch.float64, torch.float64)):
        for settings in ((0.7, 3, 0.9), (0,), (), (1e-300,)):
            assert probs(LOGITS.to(given), *settings).dtype == got
            assert Sampling(*settings)(LOGITS.to(given)).dtype == got


@pytest.mark.parametrize("settings, words", [
    ((NAN,), "temperature must be finite, 0 or more, got nan"), ((-1,), "finite, 0 or more, got -1"),
    ((INF,), "temperature must be finite, 0 or more, got inf"),
    (("1",), "temperature must be a number"), ((0.5, 0), "top_k must be at least 1, got 0"),
    ((0.5, 2.5), "top_k must be a whole number"), ((0.5, 3, 0), "top_p must lie in"), ((0.5, 3, NAN), "lie in"),
    ((0.5, 3, 0.9, -0.1), r"min_p must lie in \[0, 1\], got -0.1"), ((0.5, 3, 0.9, 1.5), "got 1.5"),
    ((0.5, 3, 0.9, NAN), "min_p must lie"), ((0.5, 3, 0.9, "0.1"), "min_p must be a number")])
def test_settings_that_make_no_distribution_are_refused(settings, words):
    with pytest.raises(RequestError, match=words):
        Sampling(*settings)


SETTINGS = [(1.0, None, None), (0, None, None), (0.6, 2, None), (1e-300, 3, 0.5), (1.3, None, 0.8), (30.0, 1, 1.0),
            (1.0, 50, 1e-300)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(8, 7), (8, 1, 7), (8, 5, 7)])
def test_a_row_is_what_it_is_alone_and_sampling_is_probs(shape, dtype):
    """Exactly, whatever stands beside it."""
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(1)).mul(4).to(dtype)
    for setting in SETTINGS:
        alone = torch.stack([probs(row, *setting) for row in logits])
        assert torch.equal(Sampling(*setting)(logits), alone) and torch.equal(probs(logits, *setting), alone)


def test_the_residual_in_numbers():
    """What a rejection leaves: nothing of what q_draft has too much of, and one in total."""
    p_target, q_draft = torch.tensor([[.5, .5], [.2, .8], [0., 1.]]), torch.tensor([[.8, .2], [.5, .5], [1., 0.]])
    assert residual(p_target, q_draft).tolist() == [[0, 1]] * 3
    p_target, q_draft = torch.tensor([.5, .3, .2]), torch.tensor([.1, .2, .7])
    assert torch.allclose(residual(p_target, q_draft), torch.tensor([.8, .2, 0]))


def test_where_nothing_is_left_the_residual_is_the_target_itself():
    p_target = torch.tensor([.5, .3, .2], dtype=torch.float64)
    above = torch.nextafter(p_target, torch.ones_like(p_target))
    rows = torch.stack([p_target, above, torch.zeros_like(p_target)])           # equal, a hair above, nothing drawn
    assert torch.equal(residual(p_target.expand(3, 3), rows), p_target.expand(3, 3))


@pytest.mark.parametrize("power", range(1, 17))
def test_what_is_left_may_be_tiny_and_is_a_distribution_all_the_same(power):
    """No threshold: 1e-16 that is left is drawn from as 0.1 is."""
    q_draft = torch.full((4,), 0.25, dtype=torch.float64)
    p_target = q_draft + 10.0 ** -power * torch.tensor([1.0, -2.0, 1.0, 0.0], dtype=torch.float64)
    left = (p_target - q_draft).clamp(min=0)
    found = residual(p_target, q_draft)
    assert found[1] == 0 and (found >= 0).all() and abs(found.sum() - 1) < 1e-15
    assert torch.equal(found, left / left.sum()) if left.sum() else torch.equal(found, p_target)
    rare = torch.tensor([3.0, 1.0, 10.0 ** (2 * power)], dtype=torch.float64) / 10.0 ** (2 * power)
    assert residual(rare, rare[[1, 0, 2]]).tolist() == [1, 0, 0]
