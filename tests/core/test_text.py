"""The committed tokens of B texts, their way into a cache, where they end, and what may be asked."""

import sys

import pytest
import torch

from nanospec.dice import Dice
from nanospec.errors import LogitsError, RequestError, check_drafter, check_finite, check_vocabulary, one_line
from nanospec.generate import generate
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from nanospec.text import WIDTH, Text, prefill, until

TARGET, DRAFT_MODEL, GPT = TableModel(5, 1), TableModel(5, 2), small_gpt(5, 3, 7)


def test_of_a_prompt_that_is_read_no_logits_are_computed(monkeypatch):
    asked, call = [], type(GPT).forward
    monkeypatch.setattr(type(GPT), "forward", lambda model, *its, **more: (
        asked.append(more.get("scored")) or call(model, *its, **more)))
    prefill(GPT, Text([[1, 2, 3]], 4, 5))
    assert asked == [0]


def test_the_last_tokens_and_what_is_committed():
    text = Text([[5], [1, 2, 3]], room=4, vocab_size=10)
    assert text.tokens.shape == (2, WIDTH) and text.tokens[:, :4].tolist() == [[5, 0, 0, 0], [1, 2, 3, 0]]
    assert Text([[1] * (WIDTH - 4)], 4, 10).tokens.shape == (1, WIDTH) and text.vocab_size == 10
    assert Text([[1] * (WIDTH - 4)], 5, 10).tokens.shape == (1, 2 * WIDTH)
    assert Text([[2], [1] * WIDTH], 5, 10).tokens.shape == (2, 2 * WIDTH)       # the longest text decides
    assert text.last(1).tolist() == [[5], [3]] and text.last(4).tolist() == [[5, 5, 5, 5], [1, 1, 2, 3]]
    text.commit(torch.tensor([[7, 8], [9, 6]]), torch.tensor([2, 1]))
    assert text.length.tolist() == [3, 4] and text.last(2).tolist() == [[7, 8], [3, 9]]
    assert text.ids() == [[5, 7, 8], [1, 2, 3, 9]]          # the 6 was written and does not count
    text.commit(torch.tensor([[4], [4]]), 1)
    assert text.ids() == [[5, 7, 8, 4], [1, 2, 3, 9, 4]]
    text.length -= 2                                        # shrunk
    assert text.last(1).tolist() == [[7], [3]]
    assert text.last(WIDTH).tolist() == [[5] * (WIDTH - 1) + [7], [1] * (WIDTH - 2) + [2, 3]]
    with pytest.raises(RequestError, match=f"no last {WIDTH + 1} tokens of texts with room for {WIDTH}"):
        text.last(WIDTH + 1)                                # fewer columns would come out, without the last tokens


def test_until():
    assert until([1, 2, 3], {2}) == ([1, 2], True) and until([1, 2, 3], ()) == ([1, 2, 3], False)
    assert until([0, 0], {0}) == ([0], True) and until([], {0}) == ([], False)


def test_prefill_reads_all_but_the_last_token_of_some_rows():
    """What it leaves in the cache, and the hidden states, are those of each prompt read alone; other rows stay."""
    prompts = [[3, 1, 4], [2], [0, 1, 2, 3, 4, 4]]
    text = Text(prompts, 5, 5)
    cache, hidden = prefill(GPT, text, layers=[2, 0])
    assert cache.kv.shape[2:4] == (3, WIDTH) and hidden.shape == (3, 5, 2, 16)
    assert prefill(GPT, text)[1] is None and prefill(GPT, text)[0].kv.equal(cache.kv)

    def same_as_alone(b, ids, hidden):
        n = len(ids) - 1
        fresh = GPT.new_cache(1, max(n, 1))
        if n:
            alone = GPT(torch.tensor([ids[:-1]]), fresh, n, layers=[2, 0])[1][0]
            assert torch.allclose(hidden[:n], alone, atol=1e-12)
        assert torch.allclose(cache.kv[:, :, b, :n], fresh.kv[:, :, 0, :n], atol=1e-12)

    for b, ids in enumerate(prompts):
        same_as_alone(b, ids, hidden[b])
    before, late = cache.kv[:, :, [2]].clone(), {1: [4, 4], 0: [1, 0, 0, 2]}
    for b, ids in late.items():
        text.tokens[b, :len(ids)], text.length[b] = torch.tensor(ids), len(ids)
    again, hidden = prefill(GPT, text, [2, 0], cache, [1, 0])
    assert again is cache and cache.kv[:, :, [2]].equal(before) and hidden.shape == (2, 3, 2, 16)
    for own, (b, ids) in zip(hidden, late.items()):
        same_as_alone(b, ids, own)


def test_a_new_cache_is_read_into_at_once_and_one_that_is_given_by_way_of_a_smaller_one(monkeypatch):
    """What stands in other rows of a cache that is given may not be written over, so it cannot be read into."""
    made, new_cache, text = [], GPT.new_cache, Text([[3, 1, 4], [2, 0, 1, 1]], 5, 5)
    monkeypatch.setattr(GPT, "new_cache", lambda *shape: made.append(shape) or new_cache(*shape))
    cache, _ = prefill(GPT, text)
    assert made == [(2, WIDTH)]
    assert prefill(GPT, text, (), cache, [1])[0] is cache and made[1:] == [(1, 3)]
    assert not cache.length.any()                           # whoever reads the rest says where it begins


def test_prompts_of_one_token_leave_nothing_to_read():
    text = Text([[1], [2]], 3, 5)
    cache, hidden = prefill(GPT, text, layers=[1])
    assert not cache.kv.any() and hidden.shape == (2, 0, 1, 16) and hidden.dtype == torch.float64
    assert prefill(GPT, text)[1] is None


BAD = [({"ids": []}, "empty"), ({"ids": [4, 9]}, "outside 0..4"), ({"ids": [1, 5]}, "outside"),
       ({"ids": [-1]}, "outside"), ({"max_new_tokens": -1}, "negative"),
       ({"max_new_tokens": 95}, "exceed the context of 96"),
       ({"temperature": -0.1}, "temperature"), ({"temperature": float("nan")}, "temperature"),
       ({"temperature": float("inf")}, "temperature"), ({"top_k": 0}, "top_k"), ({"top_p": 0.0}, "top_p"),
       ({"min_p": -0.1}, "min_p"), ({"min_p": float("nan")}, "min_p"),
       ({"top_p": 1.1}, "top_p"), ({"top_p": float("nan")}, "top_p"), ({"seed": 2 ** 32}, "32 bits"),
       ({"seed": -1}, "32 bits"), ({"seed": 5 + (7 << 32)}, "32 bits"), ({"seed": True}, "whole number")]


@pytest.mark.parametrize("bad, words", BAD, ids=lambda value: str(value))
def test_requests_that_cannot_be_answered(bad, words):
    """Refused by whoever writes, before anything is read."""
    request = {"ids": [1, 2], "max_new_tokens": 20} | bad
    with pytest.raises(RequestError, match=words):
        next(speculate(TARGET, ModelDrafter(DRAFT_MODEL, 3), **request))
    with pytest.raises(RequestError, match=words):
        next(generate(TARGET, **request))


@pytest.mark.parametrize("edge", [{"top_p": 1.0}, {"min_p": 0}, {"min_p": 1}, {"top_k": 1},
                                  {"temperature": sys.float_info.max},
                                  {"seed": 2 ** 32 - 1}, {"ids": [0, 4]}], ids=str)
def test_the_last_numbers_that_can_be_answered(edge):
    request = {"ids": [1, 2], "max_new_tokens": 1} | edge
    assert len(list(generate(TARGET, **request))) == 1
    assert len(tokens_of(speculate(TARGET, ModelDrafter(DRAFT_MODEL, 3), **request))) == 1


def test_plain_decoding_takes_one_uniform_a_token():
    dice, die = Dice([7]), torch.Generator().manual_seed(7)
    list(generate(TARGET, [1, 2], 5, dice=dice))
    torch.rand(5, generator=die, dtype=torch.float64)
    assert torch.equal(dice.generators[0].get_state(), die.get_state())


def test_the_single_checks():
    for seed in (0, 2 ** 32 - 1):
        assert len(list(generate(TARGET, [1], 1, seed=seed))) == 1      # what passes is a seed
    check_vocabulary(DRAFT_MODEL, 5)
    with pytest.raises(RequestError, match="vocabulary of 5 tokens, the target of 4"):
        check_vocabulary(DRAFT_MODEL, 4)
    drafter = ModelDrafter(GPT, 2)
    drafter.layers = [2, 0, 1]
    check_drafter(GPT, drafter)
    for layers in ([3], [0, -1]):
        with pytest.raises(RequestError, match="the target has 0 to 2"):
            drafter.layers = layers
            check_drafter(GPT, drafter)
    for wrong, words in ({"dice": 7}, "dice must be Dice, got 7"), ({"compiler": 7}, "the compiler must be a function"):
        with pytest.raises(RequestError, match=words):
            next(generate(TARGET, [1], 1, **wrong))
    check_finite(3.0)
    for total in (float("nan"), float("inf")):
        with pytest.raises(LogitsError, match="NaN or infinity"):
            check_finite(total)


def test_words_of_others_are_shortened():
    assert one_line("x" * 240) == "x" * 240 and one_line("x" * 240 + "y") == "x" * 240 + "..."


def test_the_context_can_be_filled_and_no_more():
    assert len(list(generate(TARGET, [1] * 92, 4))) == 4
    with pytest.raises(RequestError, match="context"):
        next(generate(TARGET, [1] * 92, 5))
