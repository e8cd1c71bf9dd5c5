"""Every number here stands in the paper's Table 1 or was recomputed from the formulas in rational arithmetic."""

import pytest
import torch

from nanospec.errors import RequestError
from nanospec.theory import (acceptance, best_gamma, break_even, expected_tokens, needed, operations, speedup,
                             sure_gain)


@pytest.mark.parametrize("alpha, gamma, more, times", [
    (.6, 2, 1.53, 1.96), (.7, 3, 1.58, 2.53), (.8, 2, 1.23, 2.44), (.8, 5, 1.63, 3.69), (.9, 2, 1.11, 2.71),
    (.9, 10, 1.60, 6.86)])
def test_table_1_of_the_paper(alpha, gamma, more, times):
    """Operations and speed."""
    assert round(speedup(alpha, gamma, 0), 2) == times == round(expected_tokens(alpha, gamma), 2)
    assert round(operations(alpha, gamma), 2) == more
    assert operations(alpha, gamma, .5) == pytest.approx((1 - alpha) * (1.5 * gamma + 1) / (1 - alpha ** (gamma + 1)))
    assert operations(1, gamma) == 1 and operations(0, gamma) == gamma + 1
    with pytest.raises(RequestError, match="c must be 0 or more"):
        operations(alpha, gamma, -1)


@pytest.mark.parametrize("asked, words", [
    (lambda: needed(0, 3.36, 5, 4, .6, 1.2), "gain must be more than 0"),
    (lambda: needed("a", 3.36, 5, 4, .6, 1.2), "gain must be a number"),
    (lambda: needed(1, 3.36, 5, 4, -.6, 1.2), "c must be 0 or more"),
    (lambda: needed(1, 3.36, 5, 4, .6, 1.2, None), "overhead must be a number"),
    (lambda: best_gamma(.8, .1, most=0), "most must be 1 or more, got 0"),
    (lambda: best_gamma(.8, .1, most=2.5), "most must be a whole number")])
def test_numbers_that_cannot_be_are_refused(asked, words):
    with pytest.raises(RequestError, match=words):
        asked()


def test_expected_tokens_at_the_ends():
    assert expected_tokens(0, 5) == 1 and expected_tokens(1, 5) == 6
    assert expected_tokens(.8, 5) == pytest.approx((1 - .8 ** 6) / (1 - .8), abs=1e-12)


def test_an_alpha_that_was_measured_may_be_a_rounding_above_1():
    assert expected_tokens(1 + 4e-7, 5) == pytest.approx(6, rel=1e-5)
    assert speedup(1 + 4e-7, 4, .1) == pytest.approx(5 / 1.4, rel=1e-5)
    with pytest.raises(RequestError, match="alpha is a share"):
        expected_tokens(1.0001, 5)


def test_v_replaces_the_assumption_that_verification_is_free():
    assert round(speedup(.8, 4, .2), 2) == 1.87 and round(speedup(.8, 4, .2, 1.5), 2) == 1.46


def test_corollary_3_9_is_gamma_1():
    assert sure_gain(.6, .05) == pytest.approx(speedup(.6, 1, .05), abs=1e-12) == pytest.approx(1.6 / 1.05)
    for alpha in (.1, .5, .9):
        for c in (.02, .1, .3):
            if alpha > c:
                assert speedup(alpha, best_gamma(alpha, c), c) >= sure_gain(alpha, c) > 1


def rising(tokens):
    return 1 + .15 * (tokens - 1)


@pytest.mark.parametrize("c, alpha, gamma, times, gamma_v, times_v", [
    (.02, .5, 4, 1.79, 2, 1.31), (.02, .7, 8, 2.76, 3, 1.68), (.02, .9, 19, 6.37, 7, 2.60),
    (.05, .8, 8, 3.09, 4, 1.87), (.10, .5, 2, 1.46, 1, 1.20), (.10, .8, 6, 2.47, 3, 1.69),
    (.20, .7, 3, 1.58, 2, 1.29), (.30, .5, 1, 1.15, 1, 1.03), (.30, .9, 5, 1.87, 3, 1.46)])
def test_best_gamma(c, alpha, gamma, times, gamma_v, times_v):
    assert best_gamma(alpha, c) == gamma and round(speedup(alpha, gamma, c), 2) == times
    assert best_gamma(alpha, c, rising) == gamma_v
    assert round(speedup(alpha, gamma_v, c, rising(gamma_v + 1)), 2) == times_v


@pytest.mark.parametrize("gain, gamma, c, v", [(1, 4, .1, 1.1), (1.5, 3, .2, 1.2), (1, 1, .1, 1.5), (2.5, 8, .02, 1)])
def test_at_break_even_the_gain_is_just_so_much(gain, gamma, c, v):
    alpha = break_even(gain, gamma, c, v)
    assert 0 < alpha < 1 and speedup(alpha, gamma, c, v) == pytest.approx(gain)
    assert break_even(1, 4, .1, 1.1) == pytest.approx(.34, abs=.005)


def test_where_no_draft_model_is_good_enough_nothing_breaks_even():
    assert break_even(3, 1, .1, 1.1) == float("inf") and break_even(1, 4, .1, .2) < 1e-9
    assert break_even(5, 4, 0) == 1                     # five tokens a call, if all four are accepted


@pytest.mark.parametrize("alpha, gamma, c, v, overhead", [(.8, 4, .1, 1.2, 0), (.5, 2, .6, 1, .3), (.9, 8, .02, 2, .1),
                                                          (.7, 3, 0, .98, -.02)])
@pytest.mark.parametrize("gain", [.5, 1, 1.5, 2, 3])
def test_with_what_is_needed_the_gain_is_just_so_much(alpha, gamma, c, v, overhead, gain):
    """By the formula. Where nothing is enough, the best that can be is not, either."""
    tokens = expected_tokens(alpha, gamma)
    found = needed(gain, tokens, gamma + 1, gamma, c, v, overhead)
    gains = {"tokens": lambda x: speedup(alpha, gamma, c, v + overhead) * x / tokens,
             "c": lambda x: speedup(alpha, gamma, x, v + overhead),
             "v": lambda x: speedup(alpha, gamma, c, x + overhead),
             "overhead": lambda x: speedup(alpha, gamma, c, v + x)}
    best = {"tokens": gamma + 1, "c": 0, "v": min(v, 1), "overhead": min(overhead, 0)}
    assert gains.keys() == found.keys()
    for name, number in found.items():
        if number is None:
            assert gains[name](best[name]) < gain
        else:
            assert gains[name](number) == pytest.approx(gain)
            assert number <= gamma + 1 if name == "tokens" else number >= best[name]


def test_what_is_needed_by_hand():
    """The docstring's. A c of .54 would do; a v of .96 cannot be, and without draft steps c changes nothing."""
    found = needed(1, 3.36, 5, 4, .6, 1.2)
    assert [found["tokens"], found["c"]] == pytest.approx([3.6, .54]) and found["v"] is found["overhead"] is None
    assert needed(2, 3.36, 5, 4, .6, 1.2)["tokens"] is None and needed(1, 1.5, 5, 0, 0, 1.2)["c"] is None
    # All that a round may bring, and a call of several tokens for the price of one: just enough.
    assert needed(5, 3, 5, 4, 0, 1)["tokens"] == 5 and needed(1, 1.5, 2, 1, .5, 1.25)["v"] == 1
    # A round may take 2 and takes 2.1, with a v that is below 1 as it is: it may not fall, but it may rise.
    below = needed(2, 4, 5, 4, .4, .5)
    assert below["c"] == pytest.approx(.375) and below["v"] is None
    assert needed(2, 4.4, 5, 4, .4, .5)["v"] == pytest.approx(.6)
    # Calls that take less together than apart: the overhead may be below 0, but no lower than it is.
    assert needed(1, 2.3, 5, 1, .5, 2, -.3)["overhead"] == pytest.approx(-.2)
    assert needed(1, 2.1, 5, 1, .5, 2, -.3)["overhead"] is None


def test_acceptance_is_one_minus_total_variation():
    p_target, q_draft = torch.tensor([.5, .5]), torch.tensor([.8, .2])
    assert acceptance(p_target, q_draft) == pytest.approx(.7)
    weights = torch.rand(2, 9, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p_target, q_draft = weights / weights.sum(-1, keepdim=True)
    assert torch.allclose(acceptance(p_target, q_draft), 1 - (p_target - q_draft).abs().sum(-1) / 2, atol=1e-15)
