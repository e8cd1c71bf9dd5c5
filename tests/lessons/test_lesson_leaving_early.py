"""The numbers of its tables, by another road where there is one."""

import pytest
import torch

from printed import rows
from shorter import shorter

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@shorter(("128] for text in texts]", "32] for text in texts]"), ("len(ids) == 128", "len(ids) == 32"),
         ("train_texts, 96", "train_texts, 72"), ("arange(8) + 8 * (step % 12)", "arange(12) + 12 * (step % 6)"),
         ("steps=60", "steps=15"), ("lr=3e-3", "lr=6e-3"), ("[depth] + 0.04", "[depth] + 0.01"),
         ("prompt, 40, seed", "prompt, 12, seed"), ("goes_on, drafter, prompt, 40", "goes_on, drafter, prompt, 12"),
         ("(target, prompt, 40", "(target, prompt, 12"))
def test_leaving_early(lesson, exchanged):
    names, out = lesson("leaving_early", *exchanged)
    untrained, exits, target = names["untrained"], names["exits"], names["target"]
    assert rows(out, "layers  ")["beta"] == [f"{beta:.2f}" for beta in untrained.values()]
    assert [*untrained.values()] == sorted(untrained.values()) and untrained[6] < 0.4

    # a layer's output, by another road: the hidden states
    with torch.no_grad():
        h = target(names["test"], layers=(5,))[1][:, :, 0]
        beta = target.head(target.norm(h)).softmax(-1).minimum(names["p_test"]).sum(-1).mean().item()
        assert beta == pytest.approx(untrained[6], abs=1e-4)
    assert all(f"{beta:.2f}" in out for _, beta in exits.values())
    assert exits[3][1] < exits[6][1] < exits[12][1] < names["of_gpt"]

    # whose keys may stay, and who reads what
    gap = names["gap"]
    assert gap["the same, with the last two after them"] < 1e-4 < 1 < gap["the last two layers, fed by layer 6"]
    assert all(row == [5.0] * 24 for row in names["counts"].values()) and names["off"] < 1e-12

    # speed by the formula
    printed = rows(out, "drafter")
    for name, (alpha, c, gamma, times) in names["speed"].items():
        assert printed[name] == [f"{alpha:.2f}", f"{c:.2f}", str(gamma), f"{times:.2f}"]
        assert times == pytest.approx(sum(alpha ** k for k in range(gamma + 1)) / (gamma * c + 1 + 0.05 * gamma))
