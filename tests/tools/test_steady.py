"""A token's answer is the same, bit by bit, in whatever call it is read."""

from functools import cache

import pytest
import torch

from nanospec.fast import steady as module
from nanospec.fast.int8 import can_quantise, quantise
from nanospec.fast.steady import (BLOCK, ENDS, FEW, QUERIES, Steady, are_steady, ends_here, lacking, steady,
                                  up_to)
from nanospec.generate import generate
from nanospec.model import GPT, Config
from nanospec.proof.tables import small_gpt
from nanospec.speculate import ModelDrafter, speculate, tokens_of

HEADS, KV_HEADS, CONTEXT = 6, 2, 600
needs_steadiness = pytest.mark.skipif(not ends_here(KV_HEADS, 16, torch.get_num_threads()),
                                      reason="torch's attention is not steady on this machine")
needs_int8 = pytest.mark.skipif(not can_quantise(torch.device("cpu")), reason="no exact products in 8 bits here")


def small(seed: int, layers: int = 3) -> GPT:
    torch.manual_seed(seed)
    model = GPT(Config(97, 1024, layers, 96, HEADS, KV_HEADS, 128, tied=False)).requires_grad_(False)
    for weight in model.parameters():
        weight.mul_(1 if weight.dim() == 1 else 3)          # so that roundings decide something
    return model


def some_ids():
    return torch.randint(97, (1, CONTEXT), generator=torch.Generator().manual_seed(5))


@pytest.fixture
def ids():
    return some_ids()


@cache
def in_8_bits() -> GPT:
    return quantise(small(1))


@torch.inference_mode()
def in_calls(model: GPT, ids, sizes, first: int):
    """Logits and hidden states after `first` tokens, which are read in one call; then in calls of these sizes."""
    cache, begin, found = model.new_cache(1, ids.shape[1]), first, []
    model(ids[:, :first], cache, first, scored=0)
    cache.length += first
    while begin < ids.shape[1]:
        size = min(sizes[len(found) % len(sizes)], ids.shape[1] - begin)
        found.append(model(ids[:, begin:begin + size], cache, begin + size, layers=[1]))
        cache.length += size
        begin += size
    return [torch.cat(parts, 1) for parts in zip(*found)]


@cache
def one_by_one(first: int, tokens: int):
    return in_calls(in_8_bits(), some_ids()[:, :tokens], [1], first)


@needs_steadiness
@needs_int8
@pytest.mark.parametrize("sizes", [[2], [5, 1, 3], [11], [12, 13], [33]])
def test_in_8_bits_all_is_the_same_in_whatever_calls(ids, sizes):
    """Over the ends of every kind, in calls with and without a few queries left over."""
    for first, tokens in ((150, 230), (350, 420), (490, 540)):
        together = in_calls(in_8_bits(), ids[:, :tokens], sizes, first)
        assert all(torch.equal(a, b) for a, b in zip(one_by_one(first, tokens), together))


@needs_int8
def test_a_model_that_is_not_steady_fails_this_test(ids, monkeypatch):
    monkeypatch.setattr(module, "ends_here", lambda *_: None)
    model = quantise(small(1))
    assert type(model) is GPT
    alone, together = (in_calls(model, ids[:, :230], [size], 150)[0] for size in (1, 5))
    assert not torch.equal(alone, together)


@needs_steadiness
@needs_int8
def test_a_chain_of_drafts_writes_the_text_of_plain_decoding(ids):
    target, draft_model, prompt = in_8_bits(), small(2, layers=1), ids[0, :180].tolist()
    rounds = list(speculate(target, ModelDrafter(draft_model, 4), prompt, 60, temperature=0))
    assert tokens_of(rounds) == list(generate(target, prompt, 60, temperature=0)) and len(rounds) > 15


def test_it_is_the_gpt_up_to_the_order_of_sums(ids):
    """Positions, masks, hidden states, what is scored, several rows, and a length that is not given."""
    plain, model = small_gpt(97, 3, 1, context=64).float(), small_gpt(97, 3, 1, context=64).float()
    model.__class__, model.ends = Steady, ENDS[0]
    tokens, first = torch.randint(97, (2, 17)), torch.tensor([7, 4])
    for T, scored, given in ((1, None, 9), (1, 1, None), (2, None, 12), (3, 2, 10), (5, 0, 13), (17, 6, 24)):
        out = []
        for one in (plain, model):
            cache = one.new_cache(2, 40)
            one(tokens[:, :7], cache, 7, scored=0)
            cache.length += first
            length = given or 7 + T
            mask = torch.rand(2, T, length, generator=torch.Generator().manual_seed(1)) < 0.7
            mask[:, :, 0] = True
            mask[:, torch.arange(T), length - T + torch.arange(T)] = False      # slots that nothing was written to
            mask[:, :, 4:] = False
            out.append(one(tokens[:, :T], cache, given and length, torch.arange(T).repeat(2, 1) + 5, mask, [0, 2],
                           scored))
            out.append(one(tokens[:, :T], cache, given and length, scored=scored))
            assert cache.length.tolist() == [7, 4]
        (logits, hidden), alone, (same_logits, same_hidden), same_alone = out
        assert same_logits.shape == logits.shape and same_hidden.shape == hidden.shape
        for a, b in ((logits, same_logits), (hidden, same_hidden), (alone, same_alone)):
            assert torch.allclose(a, b, atol=1e-5)
    assert torch.equal(plain(tokens), model(tokens))
    assert all(map(torch.equal, plain(tokens, layers=[0, 2], scored=4), model(tokens, layers=[0, 2], scored=4)))


@torch.inference_mode()
def test_rows_of_different_lengths_up_to_an_end():
    """A length that is not given is the longest row's, and the token that is added may need the next end."""
    plain, model = small(4, layers=1), small(4, layers=1)
    model.__class__, model.ends = Steady, ENDS[0]
    tokens, out = torch.randint(97, (2, 191), generator=torch.Generator().manual_seed(2)), []
    for one in (plain, model):
        cache = one.new_cache(2, 200)
        one(tokens, cache, 191, scored=0)
        cache.length += torch.tensor([3, 191])
        out.append((one(tokens[:, :1], cache), one(tokens[:, :2], cache)))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*out))


@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 9])
def test_no_few_queries_are_left_over(group):
    for tokens in range(1, 100):
        calls = [group * (tokens + more) % QUERIES for more in range(lacking(tokens, group) + 1)]
        assert all(0 < left < FEW for left in calls[:-1]) and not 0 < calls[-1] < FEW


def test_where_calls_end():
    assert [up_to(ENDS[0], slots) for slots in (1, 192, 193, 384, 385, 512, 513, 704, 705, 1024)] == \
        [192, 192, 384, 384, 512, 512, 704, 704, 896, 1024]
    assert [up_to(ENDS[1], slots) for slots in (1, 512, 513)] == [512, 512, 1024]
    model = small(1, layers=1)
    model.__class__, model.ends = Steady, ENDS[0]
    rooms = [model.new_cache(1, slots).kv.shape[3] for slots in (189, 190, BLOCK - FEW + 1, BLOCK)]
    assert rooms == [192, 384, 512, 704]


def test_ends_that_the_kernel_divides_differently_are_found_out():
    assert not are_steady((64, 256, 320), 3, 64)


@pytest.mark.parametrize("ends, odd", [
    (ends, odd) for ends in ENDS for odd in [
        lambda queries, slots, heads: queries == FEW + 1, lambda queries, slots, heads: queries == FEW + 5,
        lambda queries, slots, heads: queries == QUERIES, lambda queries, slots, heads: queries == QUERIES + FEW,
        lambda queries, slots, heads: slots == BLOCK, lambda queries, slots, heads: slots == 2 * BLOCK,
        lambda queries, slots, heads: heads == KV_HEADS and queries > FEW]] + [
    (ENDS[0], lambda queries, slots, heads: slots == 384),
    *((ends, lambda queries, slots, heads, least=ends[0]: queries > FEW and slots == least) for ends in ENDS)])
def test_a_kernel_with_one_odd_call_is_found_out(ends, odd, monkeypatch):
    """The kernel is made up, for torch's is not steady on every machine: each query's answer is the query."""
    def attention(q, k, v, attn_mask):
        assert q.shape[3] == 16 and attn_mask.shape == (1, 1, q.shape[2], k.shape[2])
        return q + 1e-6 * strange(q.shape[2], k.shape[2], q.shape[1])

    monkeypatch.setattr(module.F, "scaled_dot_product_attention", attention)
    strange = lambda *_: False                                          # noqa: E731
    assert are_steady(ends, KV_HEADS, 16)
    strange = odd
    assert not are_steady(ends, KV_HEADS, 16)


def test_a_model_asks_for_its_own_heads_and_stays_as_it_is_where_nothing_is_steady(monkeypatch):
    asked = []
    monkeypatch.setattr(module, "ends_here", lambda *of: asked.append(of))
    assert type(steady(small(1, layers=1))) is GPT and asked == [(KV_HEADS, 16, torch.get_num_threads())]
    monkeypatch.setattr(module, "ends_here", lambda *of: ENDS[1])
    assert type(steady(small(1, layers=1))) is Steady and steady(small(1, layers=1)).ends == ENDS[1]
