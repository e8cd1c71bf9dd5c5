"""Early exit: whoever verifies goes on where the draft has left, and the cache is one."""

import pytest
import torch

from nanospec.draft_models.early_exit import EarlyExit, FirstLayers, GoOn
from nanospec.drafters.dynamic import DynamicDrafter
from nanospec.drafters.stopping import StoppingRule
from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from nanospec.text import Text, prefill

TARGET = small_gpt(11, 3, 5)


@pytest.fixture
def exit_model():
    return small_learned("early_exit", TARGET)


@pytest.mark.parametrize("read", range(1, 5))
def test_going_on_is_a_full_pass(exit_model, read):
    """Of two texts, the first `read` of four rows have been through the first block: logits and cache as without."""
    tokens = torch.randint(11, (2, 4), generator=torch.Generator().manual_seed(read))
    whole, parts = ([prefill(TARGET, Text([[1, 2, 3, 4], [5, 6]], 8, 11))[0] for _ in range(2)])
    for cache in whole, parts:
        cache.length = torch.tensor([3, 1])
    expected, features = TARGET(tokens, whole, 8, layers=(1, 2))
    first = FirstLayers(exit_model)
    for i in range(read):                               # the draft reads token by token
        first(tokens[:, i:i + 1], parts, 8)
        parts.length = parts.length + 1
    parts.length = torch.tensor([3, 1])
    logits, found = GoOn(first)(tokens, parts, 8, layers=(1, 2))
    assert (logits - expected).abs().max() < 1e-10 and (found - features).abs().max() < 1e-10
    assert (parts.kv - whole.kv).abs().max() < 1e-12 and parts.length.tolist() == [3, 1]


def test_each_row_goes_through_each_block_once(exit_model, monkeypatch):
    """A chain's draft tokens are not read again in the first block, nor are committed ones."""
    rows = [0] * 3
    for number, block in enumerate(TARGET.blocks):
        def counting(x, call, layer, number=number, forward=block.forward):
            rows[number] += x.shape[1]
            return forward(x, call, layer)
        monkeypatch.setattr(block, "forward", counting)
    rounds = 0
    for _ in speculate(TARGET, ModelDrafter(exit_model, 3), [1, 2, 3], 20):
        rounds += 1
    assert rows == [2 + 4 * rounds] * 3                 # the prompt, then four rows a round


def test_a_tree_is_read_by_the_target_itself(exit_model):
    first, cache = FirstLayers(exit_model), prefill(TARGET, Text([[1, 2, 3]], 8, 11))[0]
    cache.length += 2
    first(torch.tensor([[3]]), cache, 8)
    tokens, sees = torch.tensor([[3, 4, 5]]), torch.tensor([[[True] * 3 + [False] * 5]]).repeat(1, 3, 1)
    positions = torch.tensor([[2, 3, 3]])
    found = GoOn(first)(tokens, cache, 8, positions, sees)
    assert torch.equal(found, TARGET(tokens, cache, 8, positions, sees)) and not first.left


def test_an_exit_behind_the_last_layer_is_the_target():
    """It drafts what the target would say, so everything is accepted."""
    oracle = EarlyExit(11, 16, [2], 8).double().attach(TARGET)
    oracle.norm.weight.data.copy_(TARGET.norm.weight)
    done = list(speculate(TARGET, ModelDrafter(oracle, 4), [1, 2], 40, 0.8, seed=3))
    assert all(len(round_.path) == 4 for round_ in done)


def test_another_target_reads_everything_and_is_drafted_for_all_the_same(exit_model):
    """The same weights in another object, as a conversion makes it: a cache of its own, the same text."""
    twin = small_gpt(11, 3, 5)
    for drafter in ModelDrafter(exit_model, 3), DynamicDrafter(exit_model, StoppingRule(), 3):
        mine, theirs = (tokens_of(speculate(model, drafter, [1, 2, 3], 30, 0)) for model in (TARGET, twin))
        assert mine == theirs == list(generate(TARGET, [1, 2, 3], 30, 0))


def test_two_requests_by_turns_are_refused(exit_model):
    """The draft is read in the target's cache, of the request that began last. In another's it would spoil the text."""
    drafter = ModelDrafter(exit_model, 3)
    first, second = (speculate(TARGET, drafter, ids, 20, 0) for ids in ([1, 2, 3], [4]))
    began = [next(first), next(second)]
    with pytest.raises(RequestError, match="one request at a time"):
        next(first)
    assert tokens_of([began[1], *second]) == list(generate(TARGET, [4], 20, 0))


def test_there_is_one_exit():
    with pytest.raises(ValueError, match="one exit"):
        EarlyExit(11, 16, [0, 1], 8)
