"""Layers that keep a state: both ways back are exact, and what each costs in tokens and bytes is as its page says."""

import pytest
import torch

from lessons.recurrent import small_recurrent
from nanospec import ModelDrafter
from nanospec.dice import Dice
from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.probs import Sampling
from nanospec.proof.walk import TOLERANCE
from nanospec.speculate import speculate, tokens_of
from nanospec.text import Text, prefill
from tests.proof.checks import CHECKS
from tests.proof.compare import Batch, prompts_of
from tests.proof.served import schedules

WAYS = [None, 3, 5]
ways = pytest.mark.parametrize("snapshots", WAYS)


def pair(snapshots):
    """A target with a layer of each kind, and a draft model that is a state alone."""
    return small_recurrent(4, 2, 3, (0,), snapshots), small_recurrent(4, 1, 4, (), snapshots)


@pytest.mark.parametrize("name", ["states", "state rows", "state caches"])
def test_it_is_exact(name):
    _, error, tv = CHECKS[name].run()
    assert error <= TOLERANCE and tv <= TOLERANCE


@ways
def test_a_call_answers_as_a_whole_text(snapshots):
    """The states of whole texts, the decay by hand, and a text read in pieces that go back."""
    target, _ = pair(snapshots)
    ids = torch.tensor([[1, 2, 0, 3, 1, 1, 2], [3, 0, 0, 1, 2, 2, 1]])
    whole, hidden = target(ids, layers=[1])
    cache = target.new_cache(2, 12)
    for length, tokens in ((0, ids[:, :3]), (3, ids[:, 3:5]), (3, ids[:, 3:4]), (1, ids[:, 1:6]), (6, ids[:, 6:])):
        cache.length = torch.tensor([length, length])
        found, at = target(tokens, cache, layers=[1])
        part = slice(length, length + tokens.shape[1])
        assert (found - whole[:, part]).abs().max() < 1e-12 > (at - hidden[:, part]).abs().max()


def test_a_state_is_linear_attention_with_a_decay():
    """The recurrence against the sum over all tokens that it stands for."""
    model = small_recurrent(4, 1, 5)
    tokens = torch.tensor([[0, 3, 1, 2, 2]])
    attention, x = model.gpt.blocks[0].attention, model.gpt.embedding(tokens)
    q, k, v = attention.turned(model.gpt.blocks[0].attention_norm(x), model.gpt.rope(5))
    far = torch.arange(5)[:, None] - torch.arange(5)
    weights = torch.where(far >= 0, 0.75 ** far * 0.25, 0.0).to(q)                  # the first head's decay: 1 - 1 / 4
    y = (q @ k.transpose(-1, -2) * weights) @ v
    x = x + attention.out(y.transpose(1, 2).flatten(2))
    x = x + model.gpt.blocks[0].mlp(model.gpt.blocks[0].mlp_norm(x))
    assert (model.gpt.head(model.gpt.norm(x)) - model(tokens)).abs().max() < 1e-12


@ways
def test_greedy_text_and_what_is_read_again(snapshots):
    """A state for each of the 5 nodes of a draft reads nothing again. Replay reads each accepted token again at most
    once, and no other. With too few states the text is the same.
    """
    target, draft_model = pair(snapshots)
    for drafter in (ModelDrafter(draft_model, 4), PromptLookup(4)):
        for ids in prompts_of(4, 3, 5):
            made = []
            new_cache, target.new_cache = target.new_cache, lambda *of: made.append(new_cache(*of)) or made[-1]
            done = list(speculate(target, drafter, ids, 24, temperature=0))
            target.new_cache = new_cache
            assert tokens_of(done) == list(generate(target, ids, 24, 0))
            again, rejected = made[0].again, [len(one.path) < len(one.tokens) - 1 for one in done[:-1]]
            if snapshots == 5:
                assert again == 0
            elif snapshots is None and isinstance(drafter, ModelDrafter):
                assert again == sum(1 + len(one.path) for one, was in zip(done, rejected) if was)


def test_what_a_state_takes():
    """State bytes do not grow with the text: heads x D x D numbers for a layer that has a state, for each one kept."""
    for snapshots, kept in ((None, 2), (5, 5)):
        target, _ = pair(snapshots)
        c = target.config
        for slots in (8, 64):
            assert target.new_cache(3, slots).states[0].nbytes == kept * c.kv_heads * c.head_size ** 2 * 8
        assert target.new_cache(3, 8).kv.shape[0] == 1                              # only one layer attends


@ways
def test_requests_come_and_go(snapshots):
    """In a server every request is written as if it were alone; so is one that begins in a row while another writes."""
    target, draft_model = pair(snapshots)
    served, wrong, _ = schedules(target, lambda: ModelDrafter(draft_model, 2), range(1))
    assert served == 6 and not wrong
    batch, dice = Batch(target, ModelDrafter(draft_model, 2), [[1, 2, 3], [2]], 60), Dice([1, 2])
    for _ in range(3):
        batch.round(dice, Sampling(0))
    batch.begin_anew(1, [3, 1])
    for _ in range(3):
        batch.round(dice, Sampling(0))
    for ids, prompt in zip(batch.text.ids(), ([1, 2, 3], [3, 1])):
        assert ids[len(prompt):] == list(generate(target, prompt, len(ids) - len(prompt), 0))


def test_a_text_fills_its_cache_beside_one_that_went_back():
    """The other has a token to read again, so a slot more is asked of this one than it has. Attention comes last."""
    target, ids = small_recurrent(4, 2, 3, (1,)), torch.tensor([[1, 2, 0, 3, 1, 1], [3, 0, 0, 1, 2, 2]])
    cache, whole = target.new_cache(2, 6), target(ids)
    target(ids[:, :3], cache)
    cache.length = torch.tensor([1, 3])
    found = target(torch.stack([ids[0, 1:4], ids[1, 3:]]), cache)
    assert (found - torch.stack([whole[0, 1:4], whole[1, 3:]])).abs().max() < 1e-12


def test_a_text_takes_over_what_its_states_have_read():
    """5 tokens and, with the new token that is read now, 4. The row had a text of 7 before."""
    target, _ = pair(3)
    old, new = target.new_cache(2, 12), target.new_cache(1, 12)
    for cache, tokens in (old, [[3, 1, 2, 1, 3, 3, 2]] * 2), (new, [[1, 2, 2, 3, 1]]):
        target(torch.tensor(tokens), cache, len(tokens[0]))
    old.put([1], new)
    assert old.after.tolist()[1] == new.after.tolist()[0] != old.after.tolist()[0]


def test_trees_are_refused():
    target, draft_model = pair(None)
    with pytest.raises(RequestError, match="chains, and no trees"):
        list(speculate(target, TreeDrafter(draft_model, [-1, 0, 0]), [1, 2], 4))
    with pytest.raises(RequestError, match="chains, and no trees"):
        target(torch.tensor([[1]]), target.new_cache(1, 4), 4, positions=torch.tensor([[0]]))


def test_one_token_prompts_begin_with_an_empty_state():
    """A drafter feeds the last two tokens of a text that has one: the first is no token of the text."""
    _, draft_model = pair(None)
    text = Text([[2], [1, 3]], 8, 4)
    cache, _ = prefill(draft_model, text)
    cache.length = text.length - 2
    found = draft_model(text.last(2), cache, 8)[:, -1]
    for b, ids in enumerate(([2], [1, 3])):
        assert (found[b] - draft_model(torch.tensor([ids]))[0, -1]).abs().max() < 1e-12
