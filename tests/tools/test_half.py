"""Weights in float16: what is computed is the rounded model, in float32. That it is faster is for the clock."""

import pytest
import torch
from torch import nn

from nanospec.errors import DeviceError, RequestError
from nanospec.fast.autotune import Tuning, described, dtypes_of, fastest, set_up, tuning_of, weights_of
from nanospec.fast.half import HalfLinear, can_halve, halve
from nanospec.fast.packed import can_pack, pack
from nanospec.generate import generate
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from tests.three_calls import logits

CPU = torch.device("cpu")
halving = pytest.mark.skipif(not can_halve(CPU), reason="this build of torch has no products with weights in float16")


@pytest.fixture
def model():
    return small_gpt(97, 3, 1).float().requires_grad_(False)


@halving
def test_it_is_the_rounded_model_and_computes_in_float32(model):
    """Its answers are those of the rounded weights up to the order of sums, and differ from those of the model."""
    before = logits(model)
    rounded = small_gpt(97, 3, 1).float().requires_grad_(False)
    for weight in rounded.parameters():
        weight.copy_(weight.half())
    expected, found = logits(rounded), logits(halve(model))
    assert found.dtype == torch.float32 and (found - expected).abs().max() < 1e-5 * expected.abs().max()
    assert (found - before).abs().max() > 1e-5 * before.abs().max()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), rounded.parameters()))


@halving
@pytest.mark.parametrize("make", [lambda: small_gpt(11, 2, 1), lambda: small_learned("prefix", small_gpt(11, 2, 1))])
def test_every_product_is_halved_and_every_parameter_stays(make):
    """The same objects under the same names, tied ones still one."""
    model = make().float()
    before = dict(model.named_parameters(remove_duplicate=False))
    linear = {name for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    assert halve(model) is model
    after = dict(model.named_parameters(remove_duplicate=False))
    assert before.keys() == after.keys() == model.state_dict().keys()
    assert all(before[name] is after[name] for name in before)
    halved = {name for name, part in model.named_modules() if isinstance(part, HalfLinear) and part.half is not None}
    assert linear and halved == linear


@halving
def test_the_copy_is_what_is_read_until_it_is_made_anew(model):
    before = logits(halve(model))
    for part in model.modules():
        if isinstance(part, HalfLinear) and part is not model.head:
            part.weight.data.mul_(1.5)
    assert torch.equal(logits(model), before)                       # not seen yet
    fresh = small_gpt(97, 3, 1).float()
    fresh.load_state_dict(model.state_dict())
    again = logits(halve(model))
    assert not torch.allclose(again, before) and torch.equal(again, logits(halve(fresh)))


@halving
def test_biases_are_added():
    plain = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 3, bias=False)).requires_grad_(False).half().float()
    x = torch.ones(5, 8)
    expected = plain(x)
    assert torch.allclose(halve(plain)(x), expected, atol=1e-6) and plain[0].half is not None


@halving
@pytest.mark.skipif(not can_pack(torch.zeros(1)), reason="this build of torch has no packed oneDNN layout")
def test_a_conversion_drops_the_copy_and_another_layout_takes_its_place(model):
    halve(model)
    assert weights_of(model) == described(model) == "float16"
    assert described(model.double()) == "float64" and logits(model).dtype == torch.float64
    assert described(pack(model.float())) == "float32 packed" and described(halve(model)) == "float16"


@halving
def test_speculation_writes_the_text_of_plain_decoding():
    target, draft = (halve(small_gpt(11, layers, seed).float()) for layers, seed in ((3, 1), (1, 2)))
    rounds = list(speculate(target, ModelDrafter(draft), [1, 2], 12, temperature=0))
    assert tokens_of(rounds) == list(generate(target, [1, 2], 12, temperature=0))


@halving
def test_it_is_chosen_where_it_is_fastest(model):
    before = logits(model)
    tuning = fastest(model, threads=[1], seconds=lambda copy: float(tuning_of(copy).dtype != torch.float16))
    assert tuning == Tuning(torch.float16, 1, 0) and torch.equal(logits(model), before)


@halving
def test_a_tuning_halves_and_does_it_once(model):
    set_up(model, Tuning(torch.float16, 1, 0))
    copy = model.head.half
    set_up(model, Tuning(torch.float16, 1, 0))
    assert weights_of(model) == "float16" and model.head.half is copy
    set_up(model, Tuning(torch.float32, 1, 0))
    assert weights_of(model) == "float32" and model.head.half is None


def test_where_it_cannot_be_had(model, monkeypatch):
    assert not can_halve(torch.device("cuda")) and torch.float16 not in dtypes_of("auto", torch.device("cuda"))
    with pytest.raises(RequestError, match="--dtype float16 is for x86 processors"):
        dtypes_of("float16", torch.device("cuda"))
    monkeypatch.setattr("nanospec.fast.half.can_halve", lambda device: False)
    with pytest.raises(DeviceError, match="no products with weights in float16 on cpu"):
        halve(model)
    assert not any(isinstance(part, HalfLinear) for part in model.modules())
