import math

import pytest
import torch

from nanospec.probs import probs

LOGITS = torch.tensor([[0.3, 2.0, -1.0, 1.0, 2.0], [5.0, 0.0, 0.0, -3.0, 1.0]], dtype=torch.float64)


def test_worked_numbers():
    logits = torch.tensor([0.0, math.log(3)], dtype=torch.float64)
    assert torch.allclose(probs(logits), torch.tensor([0.25, 0.75], dtype=torch.float64))
    assert probs(logits, 0).tolist() == [0, 1]
    assert probs(logits, top_p=0.7).tolist() == [0, 1]
    assert torch.allclose(probs(logits, 0.5), torch.tensor([0.1, 0.9], dtype=torch.float64))


def test_temperature_zero_is_an_exact_one_hot_at_the_first_maximum():
    assert probs(LOGITS, 0).tolist() == [[0, 1, 0, 0, 0], [1, 0, 0, 0, 0]]


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e-8])
def test_a_tiny_temperature_does_not_overflow(temperature):
    law = probs(LOGITS[1], temperature)
    assert law.tolist() == [1, 0, 0, 0, 0]


def test_top_k_keeps_k_and_renormalises():
    law = probs(LOGITS[1], top_k=2)
    assert (law > 0).tolist() == [True, False, False, False, True]
    assert torch.allclose(law, LOGITS[1, [0, 4]].softmax(-1)[[0, 0, 0, 0, 1]] * (law > 0))
    assert torch.equal(probs(LOGITS, top_k=99), probs(LOGITS))


def test_tokens_that_tie_with_the_last_one_kept_are_kept():
    assert (probs(LOGITS[0], top_k=1) > 0).tolist() == [False, True, False, False, True]
    assert (probs(LOGITS[0], top_p=0.1) > 0).tolist() == [False, True, False, False, True]


def test_top_p_keeps_the_fewest_that_reach_it():
    law = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    for top_p, kept in ((0.4, 1), (0.5, 1), (0.51, 2), (0.79, 2), (0.81, 3), (0.96, 4), (1.0, 4)):
        got = probs(law.log(), top_p=top_p)
        assert (got > 0).sum() == kept, top_p
        assert torch.allclose(got[:kept], law[:kept] / law[:kept].sum())


def test_top_p_counts_what_top_k_left():
    """0.5 of {.5, .3} is .625: with top-k 2 first, one token already reaches .6."""
    law = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    assert (probs(law.log(), top_k=2, top_p=0.6) > 0).tolist() == [True, False, False]


@pytest.mark.parametrize("settings", [{}, {"temperature": 0}, {"top_k": 3}, {"temperature": 0.6, "top_p": 0.8}])
def test_rows_are_laws_of_their_own(settings):
    together = probs(LOGITS, **settings)
    assert torch.equal(together, torch.stack([probs(row, **settings) for row in LOGITS]))
    assert torch.allclose(together.sum(-1), torch.ones(2, dtype=torch.float64), atol=1e-15)


def test_precision_is_never_below_float32_nor_lowered():
    for given, got in ((torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)):
        assert probs(LOGITS.to(given), 0.7, 3, 0.9).dtype == got
        assert probs(LOGITS.to(given), 0).dtype == got


def test_forbidden_tokens_stay_forbidden():
    logits = torch.tensor([0.0, float("-inf"), 1.0])
    for temperature in (0, 0.3, 1, 2):
        assert probs(logits, temperature)[1] == 0
