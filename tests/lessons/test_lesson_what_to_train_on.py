"""What a draft model is taught, on which text, with which loss: by hand, and the claims about accepted prefixes."""

import math

import pytest
import torch
from shorter import shorter

from nanospec import Draft
from nanospec.proof.walk import walk
from nanospec.speculate import verify
from tests.printed import lines_of

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@shorter(("train_texts, 48)", "train_texts, 24, 64)"),
         ("held_texts, 20, length=40), 40)", "held_texts, 8, length=24), 24)"),
         ("target(judged)[:, 40:]", "target(judged)[:, 24:]"), ("student(judged)[:, 40:]", "student(judged)[:, 24:]"),
         ("steps=100, rate=1e-2", "steps=30, rate=3e-2"))
def test_what_to_train_on(lesson, exchanged):
    names, out = lesson("what_to_train_on", *exchanged)

    # one look at a token: sum p p; all looks at people's tokens: .8
    p_four, alpha_of = names["p_four"], names["alpha_of"]
    assert (p_four * p_four).sum().item() == pytest.approx(.365)
    assert alpha_of(p_four, names["people"]).item() == pytest.approx(.8)
    looks = [line for line in lines_of(out, 4) if line[0] in ("1", "10", "100", "all")]
    assert [float(line[2]) for line in looks] == sorted(float(line[2]) for line in looks)
    assert all(line[3] == "1.00" for line in looks)

    # what is drafted is not what is judged further on
    assert names["accepted"] == pytest.approx([.2, .3, 0]) and names["in_text"] == pytest.approx([.6, .4, 0])

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
    assert alpha_of(two_humps, names["tried"].exp()).max().item() == pytest.approx(
        names["fit_alpha"]["total-variation"])
    assert fits["forward-kl"][18] > 10 * two_humps[18] and fits["reverse-kl"][26] < 1e-6

    # training helps, whatever the loss
    trained = names["trained"]
    assert [line for line in lines_of(out, 2) if line[0] in trained] == [
        [name, f"{alpha:.3f}"] for name, alpha in trained.items()]
    assert min(list(trained.values())[1:]) > trained["untrained"] + .05

    # the text changes: alpha falls; what was rejected teaches the new text, and costs some of the old one
    before, after = names["drift"].values()
    assert before[0] == pytest.approx(after[0]) == pytest.approx(before[3])
    assert after[2] > before[2] + .02 and after[3] < before[3]
    for name, line in names["drift"].items():
        assert [name, *(f"{alpha:.2f}" for alpha in line)] in lines_of(out, 5)


def moved(p_target, q_draft, step=1e-6):
    """alpha's gradient, by trying: each logit a little up, and a little down."""
    logits = q_draft.log()
    nudged = logits + step * torch.stack([torch.eye(len(logits)), -torch.eye(len(logits))]).double()
    up, down = torch.minimum(p_target, nudged.softmax(-1)).sum(-1)
    return (up - down) / (2 * step)


def test_a_path_is_accepted_as_often_as_the_lesson_claims():
    """p_target(path) times the product of min(1, q_draft / p_target): two draft tokens, every outcome."""
    p_target = torch.tensor([[.6, .3, .1], [.2, .2, .6], [.3, .3, .4]], dtype=torch.float64)
    q_draft = torch.tensor([[.2, .3, .5], [.5, .4, .1]], dtype=torch.float64)

    def play(dice):
        x = dice.pick(q_draft)[None]                                        # (1, 2)
        draft = Draft(torch.nn.functional.pad(x, (1, 0)), torch.nn.functional.pad(q_draft, (0, 0, 1, 0))[None])
        accepted, _ = verify(draft, p_target[None], dice)
        return tuple(x[0, :int(accepted)].tolist())

    found, _ = walk(play)
    for first in range(3):
        for second in range(3):
            p = [p_target[0, first].item(), p_target[1, second].item()]
            q = [q_draft[0, first].item(), q_draft[1, second].item()]
            claimed = math.prod(p) * math.prod(min(1, b / a) for a, b in zip(p, q))
            assert found.get((first, second), 0) == pytest.approx(claimed, abs=1e-12)
