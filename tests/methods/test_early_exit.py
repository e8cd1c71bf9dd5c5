"""Early exit: a draft model that is made of the target's own first blocks."""

import pytest
import torch

from nanospec.methods.draft_models.early_exit import EarlyExit
from nanospec.proof.tables import small_gpt
from nanospec.speculate import ModelDrafter, speculate

TARGET = small_gpt(11, 3, 5)


def test_an_exit_after_the_last_layer_is_the_target():
    """It drafts what the target would write, so everything is accepted."""
    oracle = EarlyExit(11, 16, [2], 8).double().attach(TARGET)
    oracle.norm.weight.data.copy_(TARGET.norm.weight)
    done = list(speculate(TARGET, ModelDrafter(oracle, 4), [1, 2], 40, 0.8, seed=3))
    assert all(len(round_.path) == 4 for round_ in done)


def test_a_draft_token_goes_through_the_first_blocks_alone(monkeypatch):
    through = []
    for number, block in enumerate(TARGET.blocks):
        def counting(x, call, layer, number=number, forward=block.forward):
            through.append(number)
            return forward(x, call, layer)
        monkeypatch.setattr(block, "forward", counting)
    early = EarlyExit(11, 16, [1], 8).double().attach(TARGET)
    logits = early.reader(1).model(torch.tensor([[3, 4, 5]]), scored=1)
    assert through == [0, 1] and logits.shape == (1, 1, 11)


def test_there_is_one_exit():
    with pytest.raises(ValueError, match="one exit"):
        EarlyExit(11, 16, [0, 1], 8)
