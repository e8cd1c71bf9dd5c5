"""The batch that fills a device. No clock decides: what a step takes is made up."""

import argparse
from dataclasses import replace

import pytest
import torch

import train_tiny
from nanospec.commands import train_job
from nanospec.commands.train_batch import fullest, scaled, seconds_of
from nanospec.errors import TextError
from nanospec.model import GPT

SIZES = train_tiny.SIZES
TEXT = argparse.__file__


def device(idle_up_to: int, fits: int, error=torch.OutOfMemoryError):
    """A step takes one second up to so many texts, and then in proportion; more than `fits` have no room."""
    asked = []

    def seconds(batch):
        asked.append(batch)
        if batch > fits:
            raise error("no room")
        return max(1.0, batch / idle_up_to)
    return seconds, asked


@pytest.mark.parametrize("idle_up_to, fits, found, asked", [
    (64, 10 ** 6, 64, [8, 16, 32, 64, 128]), (1, 10 ** 6, 8, [8, 16]), (10 ** 6, 40, 32, [8, 16, 32, 64]),
    (10 ** 6, 10 ** 6, 1024, [8, 16, 32, 64, 128, 256, 512, 1024])])
def test_the_batch_is_doubled_as_long_as_it_gains_and_fits(idle_up_to, fits, found, asked):
    for error in torch.OutOfMemoryError, TextError:
        seconds, tried = device(idle_up_to, fits, error)
        assert fullest(8, seconds) == found and tried == asked


def test_a_first_batch_that_does_not_fit_is_no_batch():
    with pytest.raises(torch.OutOfMemoryError):
        fullest(8, device(1, 4)[0])


def test_as_many_texts_in_all():
    size = scaled(SIZES["shallow"], 32)
    assert size.steps == (2000, 375, 1500) and size.held_out_every == 62 and size.batch == 32
    assert size.rate == tuple(rate * 2 for rate in SIZES["shallow"].rate)
    assert scaled(SIZES["shallow"], 8) == SIZES["shallow"] and min(scaled(SIZES["dust"], 1024).steps) == 1


def test_the_tries_run_on_the_training_itself(monkeypatch, tmp_path, capsys):
    """Each on its own batch, without the target's own texts; the one that is trained is begun anew."""
    tried, steps = [], []

    def seconds(training):
        tried.append((training.size.batch, training.size.sampled, training.step))
        assert seconds_of(training) > 0
        return 1.0 if training.size.batch < 32 else 9.0

    def step(training):
        steps.append((training.size.batch, training.steps, training.name))
        return train_step(training)

    train_step = train_tiny.train_step
    monkeypatch.setattr(train_job, "seconds_of", seconds)
    monkeypatch.setattr(train_tiny, "train_step", step)
    monkeypatch.setattr(train_tiny, "report", lambda *_: None)
    monkeypatch.setitem(SIZES, "dust", replace(SIZES["dust"], sampled=8, steps=(4, 2, 2), held_out_every=99))
    assert train_tiny.main(["--size", "dust", "--batch", "auto", "--text", TEXT, "--out", str(tmp_path / "new")]) == 0
    assert tried == [(8, 0, 0), (16, 0, 0), (32, 0, 0)]
    assert steps == [(16, 2, "target")] * 2 + [(16, 1, "draft"), (16, 1, "distil")]
    assert "batch: 16 texts" in capsys.readouterr().out


@pytest.mark.parametrize("argv, words", [(["--batch", "0"], "from 1 to 1024, or auto"),
                                         (["--batch", "many"], "or auto"),
                                         (["--batch", "auto", "--resume"], "begun with a number")])
def test_what_is_refused(argv, words, tmp_path, capsys):
    assert train_tiny.main(["--size", "dust", "--out", str(tmp_path / "no"), *argv]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


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
    assert flops == pytest.approx(1.436e16, rel=0.002)
    drawn = size.sampled / 256 * (size.target.context - 64)             # steps, one after the other
    assert flops / 40e12 + 0.012 * drawn == pytest.approx(531, rel=0.002)
