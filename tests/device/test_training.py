"""A step of every training on the pretend GPU: of the pair's phases and of every draft model."""

import argparse
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import train_tiny
from nanospec.fast import mixed
from nanospec.files.corpus import HeldOut, read_texts, to_ids
from nanospec.files.tokenizer import Tokenizer, train
from nanospec.methods.draft_models import LEARNED
from nanospec.model import GPT
from train_tiny import SIZES, Training
from training.learning import LearnedTraining, plan_of
from tests.device.pretend import NAME

DUST = SIZES["dust"]
SIZE = replace(DUST, target=replace(DUST.target, context=32), draft_model=replace(DUST.draft_model, context=32),
               batch=2, steps=(2, 2, 2, 2), written=2)          # the target writes 16 tokens of a text, one by one


@pytest.fixture(scope="module")
def text():
    training, held = read_texts(Path(argparse.__file__))
    tokenizer = Tokenizer(train(training[0], 319))
    return to_ids(training, tokenizer).int()[:9_000], held, tokenizer


@pytest.fixture
def float32(monkeypatch):
    """Without autocast."""
    for module in mixed, train_tiny:
        monkeypatch.setattr(module, "bfloat16_is_faster", lambda device: False)


def trained(what, text, device, folder):
    """A step of every phase, a look at the held-out text, and saved: the training, and all numbers that are shown."""
    ids, held, tokenizer = text
    folder.mkdir()
    more = 7, ids.to(device), tokenizer, folder
    if what == "pair":
        training = Training(SIZE, *more)
    else:
        torch.manual_seed(5)
        target = GPT(SIZE.target).requires_grad_(False).to(device)
        training = LearnedTraining(target, replace(plan_of(what, target.config), batch=2, written=2), *more)
    losses = []
    for phase in range(len(training.phases)):
        if phase:
            training.begin_phase(phase)
        losses.append(training.take_step())
    shown = training.look(HeldOut.of(held, tokenizer, device), 2)[0]
    training.save()
    return training, [loss.item() for loss in losses] + shown


@pytest.mark.parametrize("what", ["pair", *LEARNED])
def test_a_step_of_each_phase_is_the_cpus(gpu, float32, text, tmp_path, what):
    """Losses, gradients, the fused AdamW, the texts that the target writes, what a look finds, and what is saved. And
    a step waits for nothing, so that the CPU can ask for the next one while the device is busy with this one.
    (Gradients are put together from other parts there, so that the last bits differ.)
    """
    with sdpa_kernel(SDPBackend.MATH):              # the attention that the device has
        here, shown = trained(what, text, "cpu", tmp_path / "cpu")
    there, found = trained(what, text, NAME, tmp_path / "device")
    assert found == pytest.approx(shown, abs=1e-5)
    weights = [[weight.cpu() for model in training.models.values() for weight in model.state_dict().values()]
               for training in (here, there)]
    far = [(a - b).abs().max().item() for a, b in zip(*weights, strict=True)]
    assert len(far) > 3 and max(far) < 1e-4                     # a step of AdamW is 5e-5 at most, whatever the gradient
    there.load()                                    # goes on from what lies on the disk
    gpu.taken()
    loss = there.take_step()
    assert [transfer for transfer in gpu.taken() if transfer.waits] == []
    assert loss.isfinite() and loss.device.type == NAME


def test_in_bfloat16_a_step_is_about_the_same(gpu, text, tmp_path, monkeypatch):
    """Autocast, as on CUDA, where bfloat16 is taken for granted."""
    ids, _, tokenizer = text
    losses = {}
    for half in False, True:
        monkeypatch.setattr(mixed, "bfloat16_is_faster", lambda device, half=half: half)
        training = Training(SIZE, 7, ids.to(NAME), tokenizer, tmp_path)
        assert mixed.mixed(training.ids)._enabled == half
        losses[half] = [training.take_step().item() for _ in range(2)]
        assert all(weight.dtype == torch.float32 for weight in training.model.parameters())
    assert losses[True] != losses[False]
    assert losses[True] == pytest.approx(losses[False], abs=2e-2)
