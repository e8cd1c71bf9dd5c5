"""A step of every training on the pretend GPU: what `train_tiny.py --what` takes."""

import argparse
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import train_tiny
from nanospec.files.checkpoint import Pair
from nanospec.files.corpus import read_texts, to_ids
from nanospec.files.tokenizer import Tokenizer, train
from nanospec.methods.draft_models import LEARNED
from nanospec.model import GPT
from training import batches, mixed
from training.batches import HeldOut
from training.learning import LearnedTraining, plan_of
from training.pair import Distillation, Training, further
from tests.device.pretend import NAME

SIZE = replace(train_tiny.SIZES["dust"], batch=2, steps=(2, 2, 2), short=0.5, sampled=2)


@pytest.fixture(scope="module")
def text():
    training, held = read_texts(Path(argparse.__file__))
    tokenizer = Tokenizer(train(training[0], 319))
    return to_ids(training, tokenizer)[:9_000], held, tokenizer


@pytest.fixture
def float32(monkeypatch):
    """Without autocast."""
    for module in mixed, batches:
        monkeypatch.setattr(module, "bfloat16_is_faster", lambda device: False)


def trained(what, text, device, folder):
    """A step of every phase, a look at the held-out text, and saved: the training, and all numbers that are shown."""
    ids, held, tokenizer = text
    folder.mkdir()
    more = 7, ids.to(device), tokenizer, folder
    torch.manual_seed(5)
    pair = Pair(*(GPT(config).requires_grad_(False).to(device) for config in (SIZE.target, SIZE.draft)), tokenizer)
    if what == "pair":
        training = Training(SIZE, *more)
    elif what == "distil":
        training = Distillation(pair, further(SIZE, pair), *more, loss="total-variation")
    else:
        training = LearnedTraining(pair.target, plan_of(what, pair.target.config, SIZE), *more, loss="lk-hybrid")
    losses = []
    for phase in range(len(training.phases)):
        if phase:
            training.begin_phase(phase)
        losses.append(train_tiny.train_step(training))
    shown = training.look(HeldOut.of("held out", held, tokenizer, device), 2)[0]
    training.save()
    return training, [loss.item() for loss in losses] + shown


@pytest.mark.parametrize("what", ["pair", "distil", *LEARNED])
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
    loss = train_tiny.train_step(there)
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
        losses[half] = [train_tiny.train_step(training).item() for _ in range(2)]
        assert all(weight.dtype == torch.float32 for weight in training.model.parameters())
    assert losses[True] != losses[False]
    assert losses[True] == pytest.approx(losses[False], abs=2e-2)
