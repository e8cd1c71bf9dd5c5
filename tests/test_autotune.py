"""How a model is set up for this machine. That the choice is the fastest is for the clock; that it is the same model,
for these.
"""

import pytest
import torch

from nanospec.draft_models.medusa import Medusa
from nanospec.fast.autotune import DTYPES, Tuning, fastest, set_up, settle, way_of
from nanospec.fast.clock import draft_seconds, round_seconds
from nanospec.generate import generate
from nanospec.model import GPT, can_pack
from nanospec.proof.tables import small_gpt
from nanospec.speculate import ModelDrafter, speculate, tokens_of

packing = pytest.mark.skipif(not can_pack(torch.zeros(1)), reason="this build of torch has no packed oneDNN layout")


@pytest.fixture
def model():
    return small_gpt(97, 3, 1).float()


def logits(model: GPT):
    """A prompt of 7, one token and a block of 5 behind it, two rows."""
    cache, tokens, out = model.new_cache(2, 20), torch.arange(26).view(2, 13), []
    with torch.inference_mode():
        for a, b in ((0, 7), (7, 8), (8, 13)):
            out.append(model(tokens[:, a:b], cache, b))
            cache.length += b - a
    return torch.cat(out, 1)


@packing
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_packed_model_is_the_same_model(model, dtype):
    if not can_pack(torch.zeros(1, dtype=dtype)):
        pytest.skip(f"this processor has no packed layout for {dtype}")
    plain = logits(model.to(dtype))
    packed = logits(model.pack())
    assert model.head.packed is not None and all(b.mlp.down.packed is not None for b in model.blocks)
    gap = (plain - packed).abs().max() / plain.abs().max()
    assert gap <= 8 * torch.finfo(dtype).eps           # sums taken in another order


@packing
def test_packed_from_some_tokens_on(model):
    """What is packed is kept; the weight as it lies is set to zero, so that one sees which of them a call has read."""
    model.pack(3)
    assert way_of(model) == "float32, packed from 3 tokens on"
    model.head.weight.data.zero_()
    few, many = torch.ones(1, 2, 16), torch.ones(1, 3, 16)
    assert not model.head(few).any() and not model.head(few[:, :1]).any()
    assert model.head(many).all() and model.head(many.view(3, 1, 16)).all()


@packing
def test_packed_weights_are_really_what_is_read(model):
    """Else the test above would compare a thing with itself."""
    before = logits(model.pack())
    for weight in model.parameters():
        if weight.dim() == 2 and weight is not model.embedding.weight:
            weight.data.zero_()
    assert torch.equal(logits(model), before)


@packing
def test_a_conversion_forgets_the_packed_copy(model):
    model.pack().to(torch.float64)
    assert model.head.packed is None and model.blocks[0].attention.qkv.packed is None
    assert logits(model).dtype == torch.float64


def test_what_cannot_be_packed_says_so():
    assert not can_pack(torch.zeros(1, dtype=torch.float64)) and not can_pack(torch.zeros(1, device="meta"))
    with pytest.raises(RuntimeError, match="float64"):
        small_gpt(11, 1, 1).pack()


def test_fastest_leaves_everything_as_it_was(model):
    threads, before = torch.get_num_threads(), logits(model)
    tuning = fastest(model, threads=[1], seconds=lambda model: float(model.dtype == torch.float32))
    assert tuning.dtype == torch.bfloat16 and tuning.threads == 1
    assert torch.get_num_threads() == threads and torch.equal(logits(model), before)


def test_the_quickest_of_all_ways_is_taken(model):
    tried = []

    def seconds(model):
        tried.append((model.dtype, torch.get_num_threads(), 0 if model.head.packed is None else model.head.fewest))
        return 1 / len(tried)

    last = fastest(model, [torch.float64, torch.float32], [1, 2], seconds)
    assert last == Tuning(*tried[-1])
    first = int(can_pack(torch.zeros(1)))                                          # packed for every call, at first
    assert tried[:3] == [(torch.float64, 1, 0), (torch.float64, 2, 0), (torch.float32, 1, first)]
    half = 6 if can_pack(torch.zeros(1)) else 4
    assert len(set(tried)) == half and tried[half:] == tried[:half]        # two turns


def test_a_machine_that_others_use_too_does_not_decide(model):
    """float64 takes 1.3 times as long as float32. In one turn the machine is quick just while float64 is measured."""
    mood = iter([.5, 1, 1, 1, 2, 2, 1, 1, 2, 2])

    def seconds(model):
        return next(mood) * (1.3 if model.dtype == torch.float64 else 1.0)

    assert fastest(model, [torch.float64, torch.float32], [1], seconds, False, turns=5).dtype == torch.float32


def test_what_a_glance_shows_to_be_hopeless_is_not_measured(model):
    """Two threads take three times as long as one; what takes less than twice the least is measured."""
    tried = []

    def seconds(model):
        tried.append(torch.get_num_threads())
        return 1.0

    def glance(model):
        return 3.0 if torch.get_num_threads() == 2 else 1.9 if model.dtype == torch.float64 else 1.0

    assert fastest(model, [torch.float64, torch.float32], [1, 2], seconds, False, glance).threads == 1
    assert tried == [1] * 4


def test_settled_models_decode():
    threads = torch.get_num_threads()
    try:
        target, draft = small_gpt(11, 3, 1), small_gpt(11, 1, 2)
        settle(target, draft, [torch.float32])
        assert target.dtype == draft.dtype == torch.float32 and way_of(target).startswith("float32")
        rounds = speculate(target, ModelDrafter(draft), [1, 2], 10, temperature=0)
        assert tokens_of(rounds) == list(generate(target, [1, 2], 10, temperature=0))
    finally:
        torch.set_num_threads(threads)


def test_a_round_is_timed_in_a_short_context_and_with_a_draft_model_of_a_few_draft_tokens():
    """A text of 8 tokens may be written in a single round. Two heads draft no four tokens."""
    target = small_gpt(11, 2, 1, context=16)
    heads = Medusa(11, 16, [1], heads=2).double().attach(target)
    assert all(seconds > 0 for seconds in (round_seconds(target, target), round_seconds(target, heads),
                                           draft_seconds(heads, context=8, repeats=1)))


def test_models_that_will_be_compiled_are_measured_so_and_not_packed():
    """A compiler has layouts of its own."""
    threads, captured = torch.get_num_threads(), []
    try:
        target, draft = small_gpt(11, 2, 1), small_gpt(11, 1, 2)
        settle(target, draft, [torch.float32, torch.bfloat16], capture=lambda step, *_: captured.append(1) or step)
        assert len(captured) == 8 and "packed" not in way_of(target) + way_of(draft)    # 2 models, 2 types, 2 turns
    finally:
        torch.set_num_threads(threads)


def test_set_up_sets_what_it_is_told(model):
    threads = torch.get_num_threads()
    try:
        set_up(model, Tuning(torch.bfloat16, 1, 0))
        assert way_of(model) == "bfloat16" and torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)
