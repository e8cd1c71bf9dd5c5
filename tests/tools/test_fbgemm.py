"""Weights in float16 and in 8 bits: what is computed. That it is faster is for the clock."""

import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from nanospec.errors import DeviceError, RequestError
from nanospec.fast.autotune import Tuning, described, dtypes_of, fastest, set_up, tuning_of, weights_of
from nanospec.fast.fbgemm import FBGEMMLinear, HalfLinear, use_copies, halve, has_fbgemm
from nanospec.fast.int8 import Int8Linear, can_quantise, hadamard, quantise, turned, unwarned
from nanospec.fast.packed import can_pack, pack
from nanospec.generate import generate
from nanospec.model import Linear
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from tests.three_calls import logits

CPU = torch.device("cpu")
NAMES = {halve: "float16", quantise: "int8"}
halving = pytest.mark.skipif(not has_fbgemm(CPU), reason="this build of torch has no products in float16")
quantising = pytest.mark.skipif(not can_quantise(CPU), reason="this machine has no exact products in 8 bits")
both = pytest.mark.parametrize("convert", [pytest.param(halve, marks=halving),
                                           pytest.param(quantise, marks=quantising)])


@pytest.fixture
def model():
    return small_gpt(97, 3, 1).float().requires_grad_(False)


@both
def test_whatever_type_it_had_it_computes_in_float32(convert):
    assert {weight.dtype for weight in convert(small_gpt(97, 1, 1)).parameters()} == {torch.float32}


def test_what_torch_says_of_its_tensors_of_8_bits_is_not_for_users():
    """It says so once only, and may have by now."""
    with warnings.catch_warnings(record=True) as said, unwarned():
        warnings.warn("what torch says")
    assert not said


@halving
def test_float16_is_the_rounded_model_and_computes_in_float32(model):
    """Its answers are those of the rounded weights up to the order of sums, and differ from those of the model."""
    before = logits(model)
    rounded = small_gpt(97, 3, 1).float().requires_grad_(False)
    for weight in rounded.parameters():
        weight.copy_(weight.half())
    expected, found = logits(rounded), logits(halve(model))
    assert found.dtype == torch.float32 and (found - expected).abs().max() < 1e-5 * expected.abs().max()
    assert (found - before).abs().max() > 1e-5 * before.abs().max()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), rounded.parameters()))


@both
@pytest.mark.parametrize("make", [lambda: small_gpt(11, 2, 1), lambda: small_learned("prefix", small_gpt(11, 2, 1))])
def test_every_product_is_converted_and_every_parameter_stays(convert, make):
    """The same objects under the same names, tied ones still one."""
    model = make().float()
    before = dict(model.named_parameters(remove_duplicate=False))
    linear = {name for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    assert convert(model) is model
    after = dict(model.named_parameters(remove_duplicate=False))
    assert before.keys() == after.keys() == model.state_dict().keys()
    assert all(before[name] is after[name] for name in before)
    found = {name for name, part in model.named_modules() if isinstance(part, FBGEMMLinear) and part.copy is not None}
    assert linear and found == linear


@both
def test_the_copy_is_what_is_read_until_it_is_made_anew(convert, model):
    before = logits(convert(model))
    for part in model.modules():
        if isinstance(part, FBGEMMLinear) and part is not model.head:
            part.weight.data.mul_(1.5).add_(0.01)
    assert torch.equal(logits(model), before)                       # not seen yet
    fresh = small_gpt(97, 3, 1).float()
    fresh.load_state_dict(model.state_dict())
    again = logits(convert(model))
    assert not torch.allclose(again, before) and torch.equal(again, logits(convert(fresh)))


@both
def test_biases_are_added(convert):
    plain = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 3, bias=False)).requires_grad_(False).half().float()
    plain[0].bias.copy_(torch.tensor([1.0, -2.0, 3.0, -4.0]))
    x = torch.ones(5, 8)
    expected, atol = plain(x), {halve: 1e-6, quantise: 0.05}[convert]
    assert torch.allclose(convert(plain)(x), expected, atol=atol) and plain[0].copy is not None


@both
@pytest.mark.skipif(not can_pack(torch.zeros(1)), reason="this build of torch has no packed oneDNN layout")
def test_a_conversion_drops_the_copy_and_another_layout_takes_its_place(convert, model):
    convert(model)
    assert weights_of(model) == described(model) == NAMES[convert]
    assert described(model.double()) == "float64" and logits(model).dtype == torch.float64
    assert described(pack(model.float())) == "float32 packed" and described(convert(model)) == NAMES[convert]


@both
def test_speculation_writes_the_text_of_plain_decoding(convert):
    target, draft_model = (convert(small_gpt(11, layers, seed).float()) for layers, seed in ((3, 1), (1, 2)))
    rounds = list(speculate(target, ModelDrafter(draft_model), [1, 2], 12, temperature=0))
    assert tokens_of(rounds) == list(generate(target, [1, 2], 12, temperature=0))


@both
def test_it_is_chosen_where_it_is_fastest(convert, model):
    before, dtype = logits(model), getattr(torch, NAMES[convert])
    tuning = fastest(model, [torch.float32, torch.bfloat16, dtype], threads=[1],
                     seconds=lambda copy: float(tuning_of(copy).dtype != dtype))
    assert tuning == Tuning(dtype, 1, 0) and torch.equal(logits(model), before)


@both
def test_a_tuning_converts_and_does_it_once(convert, model):
    tuning = Tuning(getattr(torch, NAMES[convert]), 1, 0)
    set_up(model, tuning)
    copy = model.head.copy
    set_up(model, tuning)
    assert weights_of(model) == NAMES[convert] and model.head.copy is copy
    set_up(model, Tuning(torch.float32, 1, 0))
    assert weights_of(model) == "float32" and model.head.copy is None


@halving
@quantising
def test_each_takes_the_place_of_the_other(model):
    first = logits(quantise(model))
    assert described(halve(model)) == "float16" and not any(isinstance(part, Int8Linear) for part in model.modules())
    assert torch.allclose(logits(quantise(model)), first, atol=0.2)         # of weights that float16 has rounded
    assert not any(isinstance(part, HalfLinear) for part in model.modules())


def test_where_it_cannot_be_had(model, monkeypatch):
    cuda = torch.device("cuda")
    assert not has_fbgemm(cuda) and not can_quantise(cuda)
    assert dtypes_of("auto", cuda) == [torch.float32, torch.bfloat16]
    for name, has in (("float16", "x86 processors"), ("int8", "x86 processors with VNNI")):
        with pytest.raises(RequestError, match=f"--dtype {name} is for {has}"):
            dtypes_of(name, cuda)
    before = list(model.bfloat16().parameters())[0].data.clone()
    for kind, name in ((HalfLinear, "float16"), (Int8Linear, "int8")):
        with pytest.raises(DeviceError, match=f"no products with weights in {name} on cpu"):
            use_copies(model, kind, lambda device: False)
    monkeypatch.setattr("nanospec.fast.fbgemm.has_fbgemm", lambda device: False)
    with pytest.raises(DeviceError, match="no products with weights in float16 on cpu"):
        halve(model)
    assert not any(isinstance(part, FBGEMMLinear) for part in model.modules())
    after, *_ = model.parameters()
    assert after.dtype == before.dtype and torch.equal(after, before)


@pytest.mark.parametrize("engine, has", [("x86", True), ("fbgemm", True), ("qnnpack", False), ("none", False)])
def test_builds_of_torch_for_other_processors_have_other_products(engine, has, monkeypatch):
    monkeypatch.setattr(torch.backends, "quantized", SimpleNamespace(engine=engine))
    assert has_fbgemm(CPU) == has


def test_nothing_chooses_8_bits_unasked():
    assert torch.int8 not in dtypes_of("auto", CPU)


# Weights and activations in 8 bits.

def by_definition(layer, x):
    """Both factors turned and rounded to 127 steps each way of their row's largest; the product without rounding."""
    def rounded(rows):
        scale = rows.abs().amax(-1, keepdim=True) / 127
        return (rows / scale).round().double(), scale.double()
    (a, of_rows), (w, of_weights) = rounded(turned(x)), rounded(turned(layer.weight))
    return (a @ w.T * of_rows * of_weights.T).float() + layer.bias


@quantising
@pytest.mark.parametrize("inputs", [576, 96, 40, 7])
def test_8_bits_are_what_they_are_said_to_be(inputs):
    torch.manual_seed(inputs)
    layer, x = Linear(inputs, 33, bias=True).requires_grad_(False), torch.randn(2, 9, inputs)
    expected = by_definition(layer, x)
    found = quantise(nn.Sequential(layer))(x)
    assert found.shape == (2, 9, 33) and torch.allclose(found, expected, atol=1e-5)
    assert 1e-4 < (found - layer(x)).abs().max() < 0.1


@quantising
def test_small_numbers_have_as_many_bits():
    torch.manual_seed(3)
    layer, x = Linear(64, 33).requires_grad_(False), torch.randn(9, 64)
    exact = layer(x)
    layer.weight *= 1e-9
    found = quantise(nn.Sequential(layer))(x * 1e-9) * 1e9 * 1e9
    assert (found - exact).abs().max() < 0.05


@quantising
def test_a_row_is_the_same_bit_by_bit_whatever_is_beside_it():
    torch.manual_seed(1)
    layer = quantise(nn.Sequential(Linear(576, 80))).requires_grad_(False)
    x = torch.randn(16, 576) * torch.logspace(-3, 3, 16)[:, None]
    alone = torch.cat([layer(row[None]) for row in x])
    assert all(torch.equal(layer(x[:rows]), alone[:rows]) for rows in range(1, 17))


@quantising
def test_a_row_of_zeros_and_a_weight_of_zeros_give_zeros():
    layer = Linear(64, 4).requires_grad_(False)
    layer.weight[2] = 0
    x = torch.ones(3, 64)
    x[1] = 0
    out = quantise(nn.Sequential(layer))(x)
    assert not out[1].any() and not out[:, 2].any() and out[[0, 2]][:, [0, 1, 3]].abs().min() > 0


@quantising
def test_turning_leaves_bits_to_small_channels_beside_a_large_one():
    """One channel is a hundred times as large as the others, as in transformers, and its weights are small."""
    torch.manual_seed(2)
    layer, x = Linear(64, 50).requires_grad_(False), torch.randn(40, 64)
    x[:, 5] *= 100
    layer.weight[:, 5] /= 100
    exact = layer(x)
    scale = x.abs().amax(-1, keepdim=True) / 127
    unturned = F.linear((x / scale).round() * scale, layer.weight)
    off, without = ((y - exact).square().mean().sqrt() for y in (quantise(nn.Sequential(layer))(x), unturned))
    assert without > 2 * off


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_hadamards_matrix_is_orthogonal_and_mixes_evenly(size):
    h = hadamard(size)
    assert torch.allclose(h @ h.T, torch.eye(size), atol=1e-6)
    assert torch.allclose(h.abs(), torch.full_like(h, size ** -0.5))


def test_64_channels_are_turned_at_a_time():
    assert torch.equal(turned(torch.eye(128)), torch.block_diag(hadamard(64), hadamard(64)))


@quantising
def test_sums_that_overflow_16_bits_are_not_taken_for_exact(monkeypatch):
    can_quantise.cache_clear()
    exact = Int8Linear.product
    monkeypatch.setattr(Int8Linear, "product", staticmethod(lambda x, copy: exact(x, copy).clamp(max=0.4)))
    assert not can_quantise(CPU)
    with pytest.raises(RequestError, match="VNNI"):
        dtypes_of("int8", CPU)
    monkeypatch.undo()
    can_quantise.cache_clear()
    assert can_quantise(CPU)
