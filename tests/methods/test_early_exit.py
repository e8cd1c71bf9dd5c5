"""Early exit: the target goes on where the draft model left, in one cache. Without the wrapper the text is the same."""

import pytest
import torch

from nanospec.dice import Dice
from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.draft_models.early_exit import EarlyExit, ContinuingTarget, target_for
from nanospec.methods.index import method_of
from nanospec.methods.lengths.dynamic import DynamicDrafter
from nanospec.methods.lengths.stopping import StoppingRule
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.tree_draft import tree_mask
from nanospec.probs import Sampling
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.serving.server import Server
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from nanospec.text import Text, prefill
from tests.proof.compare import together

TARGET = small_gpt(11, 3, 5)


@pytest.fixture
def exit_model():
    return small_learned("early_exit", TARGET)


@pytest.fixture
def counted(monkeypatch):
    """How many nodes have gone through each of the target's blocks."""
    nodes = [0] * 3
    for number, block in enumerate(TARGET.blocks):
        def counting(x, call, layer, number=number, forward=block.forward):
            nodes[number] += x.shape[1]
            return forward(x, call, layer)
        monkeypatch.setattr(block, "forward", counting)
    return nodes


def begun(exit_model, prompts):
    """The wrapped target and its reader, in one cache: prompts read but for the last token."""
    drafter = ModelDrafter(exit_model, 4)
    target, text = target_for(TARGET, drafter), Text(prompts, 8, 11)
    cache, _ = prefill(target, text)
    drafter.begin(text)
    drafter.read(text, range(len(prompts)), None)
    assert drafter.reader.shared and drafter.reader.cache is cache
    return target, drafter.reader, text, cache


@pytest.mark.parametrize("read", range(1, 5))
def test_going_on_is_a_full_pass(exit_model, read):
    """Of two texts, the first `read` of four nodes have been through the first block: logits and cache as without."""
    prompts, last = [[1, 2, 3, 4], [5, 6]], torch.tensor([[4], [6]])
    drawn = torch.randint(11, (2, 3), generator=torch.Generator().manual_seed(read))
    tokens = torch.cat([last, drawn], 1)
    whole = prefill(TARGET, Text(prompts, 8, 11))[0]
    whole.length = torch.tensor([3, 1])
    expected, hidden = TARGET(tokens, whole, 8, layers=(1, 2))
    target, reader, text, cache = begun(exit_model, prompts)
    reader.start(text, reader.lag, 8)                   # the draft model reads token by token
    for i in range(1, read):
        reader.step(tokens[:, i:i + 1], 8)
    cache.length = torch.tensor([3, 1])
    logits, found = target(tokens, cache, 8, layers=(1, 2))
    assert (logits - expected).abs().max() < 1e-10 and (found - hidden).abs().max() < 1e-10
    assert (cache.kv - whole.kv)[:, :, :, :8].abs().max() < 1e-12 and cache.length.tolist() == [3, 1]


def test_each_row_goes_through_each_block_once(exit_model, counted):
    """A chain's draft tokens are not read again in the first block, nor are committed ones."""
    drafter, rounds = ModelDrafter(exit_model, 3), 0
    for _ in speculate(target_for(TARGET, drafter), drafter, [1, 2, 3], 20):
        rounds += 1
    assert counted == [2 + 4 * rounds] * 3              # the prompt, then four nodes a round


def test_a_method_by_its_name_goes_on_too(exit_model, counted):
    rounds = len(list(method_of(TARGET, exit_model, gamma=3).run([1, 2, 3], max_new_tokens=20)))
    assert counted == [2 + 4 * rounds] * 3


def test_a_tree_is_read_by_the_target_itself(exit_model):
    target, reader, text, cache = begun(exit_model, [[1, 2, 3]])
    reader.start(text, reader.lag, 8)
    cache.length = text.length - 1
    own = torch.tensor([[[1, 0, 0], [1, 1, 0], [1, 0, 1]]]).bool()          # two tokens after the last one
    tree = {"positions": torch.tensor([[2, 3, 3]]), "attention_mask": tree_mask(cache, cache.length, own, 8)}
    tokens = torch.tensor([[3, 4, 5]])
    assert torch.equal(target(tokens, cache, 8, **tree), TARGET(tokens, cache, 8, **tree))
    assert not reader.model.computed


def test_hidden_states_of_the_first_blocks_are_the_target_s_to_show(exit_model):
    target, reader, text, cache = begun(exit_model, [[1, 2, 3]])
    reader.start(text, reader.lag, 8)
    cache.length = text.length - 1
    tokens = torch.tensor([[3, 4]])
    for mine, own in zip(target(tokens, cache, 8, layers=(0, 2)), TARGET(tokens, cache, 8, layers=(0, 2))):
        assert (mine - own).abs().max() < 1e-12


def test_an_exit_after_the_last_layer_is_the_target():
    """It drafts what the target would write, so everything is accepted."""
    oracle = EarlyExit(11, 16, [2], 8).double().attach(TARGET)
    oracle.norm.weight.data.copy_(TARGET.norm.weight)
    for wrap in target_for, lambda target, drafter: target:
        drafter = ModelDrafter(oracle, 4)
        done = list(speculate(wrap(TARGET, drafter), drafter, [1, 2], 40, 0.8, seed=3))
        assert all(len(round_.path) == 4 for round_ in done)


def test_only_this_very_target_goes_on(exit_model):
    """The same weights in another object, as a conversion makes it, read everything; so does a table."""
    table = TableModel(11, 3)
    for target, model in (small_gpt(11, 3, 5), exit_model), (table, small_learned("early_exit", table)):
        assert target_for(target, ModelDrafter(model, 3)) is target
    assert target_for(TARGET, ModelDrafter(small_gpt(11, 1, 2), 3)) is TARGET
    assert isinstance(target_for(TARGET, TreeDrafter(exit_model, [-1, 0, 0])), ContinuingTarget)


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_the_text_is_the_same_with_and_without_the_wrapper(exit_model, temperature):
    """Also with another target of equal weights; and for drafts that are decided on the way."""
    twin = small_gpt(11, 3, 5)
    for make in (lambda: ModelDrafter(exit_model, 3), lambda: DynamicDrafter(exit_model, StoppingRule(), 3)):
        texts = []
        for target, wrap in (TARGET, True), (TARGET, False), (twin, False):
            drafter = make()
            target = target_for(target, drafter) if wrap else target
            texts.append(tokens_of(speculate(target, drafter, [1, 2, 3], 30, temperature, seed=4)))
        assert texts[0] == texts[1] == texts[2]
        if not temperature:
            assert texts[0] == list(generate(TARGET, [1, 2, 3], 30, 0))


def test_the_same_drafter_with_and_without_the_wrapper_in_turns(exit_model):
    """What was lent for one text is not used for the next."""
    drafter = ModelDrafter(exit_model, 3)
    wrapped = target_for(TARGET, drafter)
    for target in wrapped, TARGET, wrapped, TARGET:
        assert tokens_of(speculate(target, drafter, [4, 2], 20, 0)) == list(generate(TARGET, [4, 2], 20, 0))


def test_copies_in_the_draft_s_place_are_read_in_full(exit_model):
    """A hybrid's draft need not be what the draft model has read."""
    drafter = method_of(TARGET, exit_model, "hybrid", gamma=4).make()
    prompts = [[1, 2, 1, 2, 1, 2], [3, 4, 5]]
    found = together(TARGET, drafter, prompts, 16, Dice([0, 1]), Sampling(0))
    assert found == [list(generate(TARGET, ids, 16, 0)) for ids in prompts]


def test_in_a_server_requests_come_and_go_in_one_cache(exit_model, counted):
    drafter = ModelDrafter(exit_model, 3)
    server = Server(target_for(TARGET, drafter), drafter, rows=2)
    asked = [([1, 2, 3], 9), ([4] * 70, 14), ([5, 6], 7), ([7], 12)]
    requests = [server.submit(ids, max_new_tokens=new, temperature=0) for ids, new in asked]
    while not all(request.done for request in requests):
        server.step()
        assert drafter.reader.shared and drafter.reader.cache is server.cache
    assert counted[0] == counted[1] == counted[2]
    assert [request.tokens for request in requests] == [list(generate(TARGET, ids, new, 0)) for ids, new in asked]


def test_two_requests_by_turns_are_refused(exit_model):
    """The draft is read in the target's cache, of the request that began last. In another's it would spoil the text."""
    drafter = ModelDrafter(exit_model, 3)
    target = target_for(TARGET, drafter)
    first, second = (speculate(target, drafter, ids, 20, 0) for ids in ([1, 2, 3], [4]))
    began = [next(first), next(second)]
    with pytest.raises(RequestError, match="one request at a time"):
        next(first)
    assert tokens_of([began[1], *second]) == list(generate(TARGET, [4], 20, 0))


def test_there_is_one_exit():
    with pytest.raises(ValueError, match="one exit"):
        EarlyExit(11, 16, [0, 1], 8)
