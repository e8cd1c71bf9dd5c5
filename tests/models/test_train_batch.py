"""Another batch: as many texts in all, and what follows for steps and learning rates."""

import argparse
from dataclasses import replace

import pytest
import torch

import train_tiny
from nanospec.model import GPT
from training.jobs import scaled

SIZES = train_tiny.SIZES
TEXT = argparse.__file__


def test_as_many_texts_in_all():
    size = scaled(SIZES["shallow"], 32)
    assert size.steps == (2000, 375, 1500) and size.held_out_every == 62 and size.batch == 32
    assert size.rate == tuple(rate * 2 for rate in SIZES["shallow"].rate)
    assert scaled(SIZES["shallow"], 8) == SIZES["shallow"] and min(scaled(SIZES["dust"], 1024).steps) == 1


def test_what_is_asked_for_is_trained(monkeypatch, tmp_path):
    """Twice the batch, half the steps; steps that are named stay as they are."""
    steps, train_step = [], train_tiny.train_step

    def step(training):
        steps.append((training.size.batch, training.steps, training.name))
        return train_step(training)

    monkeypatch.setattr(train_tiny, "train_step", step)
    monkeypatch.setattr(train_tiny, "report", lambda *_: None)
    monkeypatch.setitem(SIZES, "dust", replace(SIZES["dust"], sampled=8, steps=(4, 2, 2), held_out_every=99))
    asked = ["--size", "dust", "--batch", "16", "--text", TEXT]
    assert train_tiny.main([*asked, "--out", str(tmp_path / "half")]) == 0
    assert steps == [(16, 2, "target")] * 2 + [(16, 1, "draft"), (16, 1, "distil")]
    steps.clear()
    assert train_tiny.main([*asked, "--steps", "1", "3", "1", "--out", str(tmp_path / "named")]) == 0
    assert steps == [(16, 1, "target"), *[(16, 3, "draft")] * 3, (16, 1, "distil")]


@pytest.mark.parametrize("asked", ["0", "1025", "many"])
def test_what_is_refused(asked, tmp_path, capsys):
    assert train_tiny.main(["--size", "dust", "--out", str(tmp_path / "no"), "--batch", asked]) == 2
    assert "from 1 to 1024" in " ".join(capsys.readouterr().err.split())


def test_long_is_ten_minutes_by_the_arithmetic_of_the_page():
    """FLOPs of a token: 6 for each weight that is trained, 2 for one that is only read, and attention."""
    size, of = SIZES["long"], {}
    for name in "target", "draft":
        config = getattr(size, name)
        with torch.device("meta"):
            weights = sum(weight.numel() for weight in {*GPT(config).parameters()})
        of[name] = 2 * weights + 4 * config.layers * config.channels * config.context / 2
    tokens = [steps * size.batch * size.target.context for steps in size.steps]
    assert tokens[0] == SIZES["shallow"].steps[0] * 8 * 512             # the target sees what shallow's sees
    flops = 3 * of["target"] * tokens[0] + 3 * of["draft"] * tokens[1] + (of["target"] + 3 * of["draft"]) * tokens[2]
    assert flops == pytest.approx(1.390e16, rel=0.002)
    drawn = size.sampled / 256 * (size.target.context - 64)             # steps, one after the other
    assert flops / 40e12 + 0.012 * drawn == pytest.approx(519, rel=0.002)
