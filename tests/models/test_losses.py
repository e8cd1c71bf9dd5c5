"""What distils a draft model: the numbers by hand, the gradients, and what total variation has to do with alpha."""

from math import exp, log

import pytest
import torch

from nanospec.methods.draft_models.losses import (LOSSES, forward_kl, jensen_shannon, lk_hybrid, minus_log_alpha,
                                                  reverse_kl, total_variation)
from nanospec.theory import acceptance

P, Q = torch.tensor([.5, .5], dtype=torch.float64).log(), torch.tensor([.8, .2], dtype=torch.float64).log()


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_by_hand():
    assert forward_kl(P, Q).item() == pytest.approx(.5 * log(.5 / .8) + .5 * log(.5 / .2))
    assert reverse_kl(P, Q).item() == pytest.approx(.8 * log(.8 / .5) + .2 * log(.2 / .5))
    mixture = [.65, .35]
    assert jensen_shannon(P, Q).item() == pytest.approx(
        .5 * sum(.5 * log(.5 / m) for m in mixture) + .5 * sum(q * log(q / m) for q, m in zip([.8, .2], mixture)))
    assert total_variation(P, Q).item() == pytest.approx(.3)
    assert minus_log_alpha(P, Q).item() == pytest.approx(-log(.7))
    weight = exp(-3 * .7)
    assert lk_hybrid(P, Q).item() == pytest.approx(weight * forward_kl(P, Q).item() + (1 - weight) * .3)
    shown = [.223, .193, .051, .3, .357, .291, .562]
    assert [loss(P, Q).item() for loss in LOSSES.values()] == pytest.approx(shown, abs=5e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_zero_where_equal_and_above_elsewhere_for_every_place(name):
    p, q = random(1, 2, 3, 7).log_softmax(-1), random(2, 2, 3, 7).log_softmax(-1)
    assert LOSSES[name](p, q).shape == (2, 3) and (LOSSES[name](p, q) > 0.01).all()
    assert LOSSES[name](p, p).abs().max() < 1e-12


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "lk-hybrid"])
def test_gradients_are_those_of_finite_differences(name):
    """The hybrid's weight is held still on purpose: its gradient is the next test's."""
    p, logits = random(3, 2, 5).log_softmax(-1), random(4, 2, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: LOSSES[name](p, x.log_softmax(-1)), logits)


def gradient(loss, logits) -> torch.Tensor:
    found, = torch.autograd.grad(loss(logits).sum(), logits)
    return found


def test_the_gradient_of_the_hybrid_has_a_weight_that_is_held_still():
    p, logits = random(5, 1, 5).log_softmax(-1), random(6, 1, 5).requires_grad_()
    weight = (-3 * acceptance(p.exp(), logits.softmax(-1))).exp().item()
    parts = [gradient(lambda x, loss=loss: loss(p, x.log_softmax(-1)), logits)
             for loss in (forward_kl, total_variation)]
    found = gradient(lambda x: lk_hybrid(p, x.log_softmax(-1)), logits)
    assert torch.allclose(found, weight * parts[0] + (1 - weight) * parts[1])


def test_total_variation_falls_as_alpha_rises():
    """Its gradient is minus alpha's; and minus log alpha's is the same, divided by alpha."""
    p, logits = random(7, 4, 9).log_softmax(-1), random(8, 4, 9).requires_grad_()
    alpha = acceptance(p.exp(), logits.softmax(-1)).detach()[:, None]
    of_alpha = gradient(lambda x: acceptance(p.exp(), x.softmax(-1)), logits)
    assert torch.allclose(gradient(lambda x: total_variation(p, x.log_softmax(-1)), logits), -of_alpha)
    assert torch.allclose(gradient(lambda x: minus_log_alpha(p, x.log_softmax(-1)), logits), -of_alpha / alpha)


def test_of_a_sure_target_minus_log_alpha_is_cross_entropy():
    sure = torch.tensor([[0, 1., 0]], dtype=torch.float64).log()
    q = random(9, 1, 3).log_softmax(-1)
    assert minus_log_alpha(sure, q).item() == pytest.approx(-q[0, 1].item())


def test_kl_bounds_total_variation():
    """Pinsker."""
    p, q = random(10, 500, 6).mul(3).log_softmax(-1), random(11, 500, 6).mul(3).log_softmax(-1)
    assert (total_variation(p, q) <= (forward_kl(p, q) / 2).sqrt() + 1e-12).all()
