"""Which loss a draft model should learn by: by hand, by trying, and on a small student."""

import pytest
import torch
from shorter import shorter

from nanospec.theory import acceptance
from tests.printed import lines_of

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@shorter(("train_texts, 48)", "train_texts, 24, 64)"),
         ("held_texts, 20, length=40), 40)", "held_texts, 8, length=24), 24)"),
         ("target(judged)[:, 40:]", "target(judged)[:, 24:]"), ("student(judged)[:, 40:]", "student(judged)[:, 24:]"),
         ("steps=100, rate=1e-2", "steps=30, rate=3e-2"))
def test_which_loss(lesson, exchanged):
    names, out = lesson("which_loss", *exchanged)

    # two students: which loss prefers which, and the example of losses.py
    prefers, by_hand = names["prefers"], names["BY_HAND"]
    assert {name for name in prefers if prefers[name] == "A"} == {"total-variation", "minus-log-alpha"}
    assert by_hand["forward-kl"]([.5, .5], [.8, .2]) == pytest.approx(.223, abs=1e-3)
    assert by_hand["total-variation"]([.5, .5], [.8, .2]) == pytest.approx(.3)

    # the claim: q(j) ([j in U] - q(U)), also by trying; forward KL: q - p
    gradient = names["gradient"]
    for p, q in names["places"].values():
        p_target, q_draft = (torch.tensor(part, dtype=torch.float64) for part in (p, q))
        under = (q_draft < p_target).double()
        claimed = q_draft * (under - (q_draft * under).sum())
        assert (gradient("total-variation", p, q) + claimed).abs().max() < 1e-12
        assert (moved(p_target, q_draft) - claimed).abs().max() < 1e-8
        assert (gradient("forward-kl", p, q) - (q_draft - p_target)).abs().max() < 1e-12
    pull = names["pull"]
    assert pull["near"]["total-variation"] > pull["near"]["forward-kl"]
    assert pull["far off"]["minus-log-alpha"] > 50 * pull["far off"]["total-variation"]

    # one hump for two: the best alpha is total variation's, and forward KL fills the valley
    fits, two_humps = names["fits"], names["two_humps"].exp()
    assert names["fit_alpha"]["total-variation"] == max(names["fit_alpha"].values())
    assert acceptance(two_humps, names["tried"].exp()).max().item() == pytest.approx(
        names["fit_alpha"]["total-variation"])
    assert fits["forward-kl"][18] > 10 * two_humps[18] and fits["reverse-kl"][26] < 1e-6

    # training helps, whatever the loss
    trained = names["trained"]
    assert [line for line in lines_of(out, 2) if line[0] in trained] == [
        [name, f"{alpha:.3f}"] for name, alpha in trained.items()]
    assert min(list(trained.values())[1:]) > trained["untrained"] + .05


def moved(p_target, q_draft, step=1e-6):
    """alpha's gradient, by trying: each logit a little up, and a little down."""
    logits = q_draft.log()
    nudged = logits + step * torch.stack([torch.eye(len(logits)), -torch.eye(len(logits))]).double()
    up, down = torch.minimum(p_target, nudged.softmax(-1)).sum(-1)
    return (up - down) / (2 * step)
