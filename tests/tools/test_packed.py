"""Packed weights: the same model, in another layout. That it is faster is for the clock."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from nanospec.errors import DeviceError
from nanospec.fast.autotune import described
from nanospec.fast.packed import PackedLinear, can_pack, pack
from nanospec.model import GPT
from nanospec.proof.tables import small_gpt, small_learned
from tests.three_calls import logits

packing = pytest.mark.skipif(not can_pack(torch.zeros(1)), reason="this build of torch has no packed oneDNN layout")


@pytest.fixture
def model():
    return small_gpt(97, 3, 1).float().requires_grad_(False)


@packing
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_packed_model_is_the_same_model(model, dtype):
    if not can_pack(torch.zeros(1, dtype=dtype)):
        pytest.skip(f"this processor has no packed layout for {dtype}")
    plain = logits(model.to(dtype))
    packed = logits(pack(model))
    assert model.head.copy is not None and all(b.mlp.down.copy is not None for b in model.blocks)
    gap = (plain - packed).abs().max() / plain.abs().max()
    assert gap <= 8 * torch.finfo(dtype).eps           # sums taken in another order


@packing
@pytest.mark.parametrize("make", [lambda: small_gpt(11, 2, 1), lambda: small_learned("prefix", small_gpt(11, 2, 1))])
def test_every_product_is_packed_and_every_parameter_stays(make):
    """The same objects under the same names, tied ones still one; and what it answers is still its."""
    model = make().float()
    before, tied = dict(model.named_parameters(remove_duplicate=False)), isinstance(model, GPT)
    linear = {name for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    assert pack(model) is model
    after = dict(model.named_parameters(remove_duplicate=False))
    assert before.keys() == after.keys() == model.state_dict().keys()
    assert all(before[name] is after[name] for name in before)
    assert not tied or model.head.weight is model.embedding.weight
    assert linear and {name for name, part in model.named_modules() if isinstance(part, PackedLinear)} == linear
    assert all(part.copy is not None for part in model.modules() if isinstance(part, PackedLinear))


@packing
def test_biases_are_added():
    plain = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 3, bias=False)).requires_grad_(False)
    x = torch.ones(5, 8)
    expected = plain(x)
    assert torch.allclose(pack(plain)(x), expected, atol=1e-6) and plain[0].copy is not None


@packing
def test_packed_from_some_tokens_on(model):
    """What is packed is kept. The weight as it lies is set to zero, so that one sees which of them a call has read."""
    pack(model, 3)
    assert described(model) == "float32, packed from 3 tokens on"
    model.head.weight.data.zero_()
    few, many = torch.ones(1, 2, 16), torch.ones(1, 3, 16)
    assert not model.head(few).any() and not model.head(few[:, :1]).any()
    assert model.head(many).all() and model.head(many.view(3, 1, 16)).all()


@packing
def test_packed_weights_are_really_what_is_read(model):
    """Else the first test would compare a thing with itself."""
    before = logits(pack(model))
    for weight in model.parameters():
        if weight.dim() == 2 and weight is not model.embedding.weight:
            weight.data.zero_()
    assert torch.equal(logits(model), before)


@packing
def test_packed_again_after_a_change_it_has_the_weights_as_they_are_now(model):
    first = logits(pack(model))
    for part in model.modules():
        if isinstance(part, PackedLinear) and part is not model.head:
            part.weight.data.mul_(1.5)
    assert torch.equal(logits(model), first)                        # not seen yet
    again = logits(pack(model, 1))
    fresh = small_gpt(97, 3, 1).float()
    fresh.load_state_dict(model.state_dict())
    assert not torch.allclose(again, first) and torch.allclose(again, logits(fresh), atol=1e-4)
    assert described(pack(model, 4)) == "float32, packed from 4 tokens on"


@packing
@pytest.mark.parametrize("convert", [lambda model: model.to(torch.float64), lambda model: model.double()])
def test_a_conversion_drops_the_packed_copy(model, convert):
    convert(pack(model))
    assert model.head.copy is None and model.blocks[0].attention.qkv.copy is None
    assert logits(model).dtype == torch.float64 and described(model) == "float64"


@pytest.mark.parametrize("weight", [torch.zeros(1, dtype=torch.float64), torch.zeros(1, device="meta")])
def test_what_cannot_be_packed(weight):
    assert not can_pack(weight)


def test_a_build_of_torch_without_these_products_has_no_layout(monkeypatch):
    monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace())
    assert not can_pack(torch.zeros(1))


def test_a_model_that_cannot_be_packed_stays_as_it_is():
    model = small_gpt(11, 1, 1)
    with pytest.raises(DeviceError, match="float64"):
        pack(model)
    assert not any(isinstance(part, PackedLinear) for part in model.modules())
