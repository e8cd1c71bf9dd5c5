"""The estimator of acceptance, by hand. That each drafter feeds it what it should: test_what_is_learned.py."""

import pytest
import torch

from nanospec.methods.lengths.acceptance_rate import Acceptance, by_sureness, sureness


def told(known: Acceptance, *seen: tuple[int, float]) -> Acceptance:
    """A round: (class, how much of it was accepted) of each draft token that was judged."""
    classes = torch.tensor([its for its, _ in seen], dtype=torch.int64)
    known.learn(torch.ones(len(seen)), torch.tensor([part for _, part in seen]), classes)
    return known


def test_the_docstring_s_example():
    known = told(Acceptance(torch.tensor([0.5]), trust=4), (0, 0.0), (0, 1.0), (0, 0.0))
    assert known.judged.tolist() == pytest.approx([6.92]) and known.accepted.tolist() == pytest.approx([2.96])
    assert known.share.tolist() == pytest.approx([0.4277], abs=1e-4)


def test_every_class_learns_of_its_own_draft_tokens_and_all_of_them_count_together():
    known = told(Acceptance(torch.tensor([0.5, 1.0]), trust=2), (1, 0.25), (1, 0.0))
    assert known.share.tolist() == pytest.approx([0.5, (1.96 + 0.25) / 3.96])
    assert float(known.overall) == pytest.approx((0.98 + 1.96 + 0.25) / (1.96 + 3.96))


def test_several_of_a_class_may_come_together():
    """As of a batch, (B,) each: three judged and two accepted, none, one and none."""
    known = Acceptance(torch.tensor([0.6]), trust=16, lasting=16)
    known.learn(torch.tensor([3, 0, 1]), torch.tensor([2, 0, 0]), torch.zeros(3, dtype=torch.int64))
    assert known.judged.item() == 4 and known.accepted.item() == 2
    assert known.share.item() == pytest.approx((16 * 0.6 + 2) / 20) == known.overall.item()


@pytest.mark.parametrize("lasting, soon", [({}, 0.0), ({"lasting": 4.0}, 0.5)], ids=["nothing lasts", "all lasts"])
def test_what_a_silence_does(lasting, soon):
    """After 300 rounds what was seen weighs .98^300 = .002. After 10,000 nothing is left of it: the share is what it
    was at first, and no 0 / 0.
    """
    known = Acceptance(torch.tensor([0.5]), trust=4, **lasting)
    for _ in range(200):
        told(known, (0, 0.0))
    assert known.share.item() < 0.04
    for _ in range(300):
        told(known)
    assert known.share.item() == pytest.approx(soon, abs=0.03)
    for _ in range(10_000):
        told(known)
    assert known.share.item() == pytest.approx(0.5, abs=1e-3)


def test_classes_of_sureness():
    assert sureness(torch.tensor([[0.0, 0.124, 0.125], [0.5, 0.999, 1.0]])).tolist() == [[0, 0, 1], [4, 7, 7]]
    assert by_sureness().share.tolist() == pytest.approx([(1 + (i + 0.5) / 8) / 2 for i in range(8)])
