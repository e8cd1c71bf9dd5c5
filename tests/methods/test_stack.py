"""A stack: exact whatever drafts at the bottom; it reports the middle model's distribution, and no cache is stale."""

import pytest
import torch

from nanospec.dice import Dice
from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.stack import Stack
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.probs import Sampling
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from nanospec.text import Text
from tests.proof.compare import Batch, ragged, rounds

TABLE, MIDDLE, LOWEST = (TableModel(3, seed, zeros=0.4) for seed in (8, 58, 108))
TARGET, GPT_MIDDLE, GPT_LOWEST = (small_gpt(11, layers, seed) for layers, seed in ((3, 5), (2, 6), (1, 7)))


@pytest.mark.parametrize("lowest", [ModelDrafter(LOWEST, 1), TreeDrafter(LOWEST, [-1, 0, 0])], ids=["chain", "tree"])
def test_three_levels_write_the_targets_text(lowest):
    def run(ids, **request):
        return speculate(TABLE, Stack(MIDDLE, lowest, 2), ids, **request)
    _, error, tv = rounds(TABLE, run, [1, 0], 2, temperature=0.7)
    assert error < 1e-12 and tv < 1e-12


def test_two_texts_of_which_one_is_drafted_faster():
    _, error, tv = ragged(TABLE, Stack(MIDDLE, ModelDrafter(LOWEST, 1), 2), [[1], [0, 2, 1]], 1,
                          settings=[{"top_k": 2}, {"temperature": 0.7, "top_k": 2}])
    assert error < 1e-12 and tv < 1e-12


@pytest.mark.parametrize("lowest", [lambda: ModelDrafter(GPT_LOWEST, 2), lambda: TreeDrafter(GPT_LOWEST, [-1, 0, 0, 1]),
                                    lambda: PromptLookup(3), lambda: Stack(GPT_LOWEST, PromptLookup(2), 2)],
                         ids=["chain", "tree", "lookup", "stack"])
def test_what_is_reported_is_the_middle_models_distribution(lowest):
    ids, length = [1, 2, 1, 2], 4
    for done in speculate(TARGET, Stack(GPT_MIDDLE, lowest(), 4), ids, 60, 0.8, seed=2):
        q = GPT_MIDDLE(torch.tensor([[*ids, *done.tokens[1:]]]))[0, length - 1:-1] / 0.8
        assert (q.softmax(-1) - done.q_draft[1:]).abs().max() < 1e-12
        ids = ids + done.emitted
        length = len(ids)
    wrote = tokens_of(speculate(TARGET, Stack(GPT_MIDDLE, lowest(), 4), [3, 1], 60, 0))
    assert wrote == list(generate(TARGET, [3, 1], 60, 0))


@pytest.mark.parametrize("lowest", [lambda twin: ModelDrafter(twin, 2), lambda twin: TreeDrafter(twin, [-1, 0, 1]),
                                    lambda twin: ModelDrafter(twin, 1)], ids=["chain", "tree", "a single token"])
def test_a_twin_at_the_bottom_is_never_rejected(lowest):
    """The lowest model is what the middle one is: each of its rounds writes 3 tokens, so four take two rounds. It
    would be rejected if it had missed a token, or kept one that the target has rejected. (A chain of one: 2 tokens.)
    """
    stack, seen = Stack(GPT_MIDDLE, lowest(small_gpt(11, 2, 6)), 4), 0
    for done in speculate(TARGET, stack, [1, 2, 3], 80, 0.8, seed=3):
        assert done.steps == 2
        seen += len(done.path) in (0, 4)
    assert seen > 3                                         # the text has shrunk, and the whole draft was accepted


def test_the_middle_model_reads_nothing_twice(monkeypatch):
    """What was accepted of its own draft is in its cache: before the next, it has missed a token at most."""
    missed, call = [], type(GPT_MIDDLE).forward
    monkeypatch.setattr(type(GPT_MIDDLE), "forward", lambda model, tokens, *its, **more: (
        missed.append(tokens.shape[1]) if model is GPT_MIDDLE and more.get("scored") == 0 else None)
        or call(model, tokens, *its, **more))
    done = list(speculate(TARGET, Stack(GPT_MIDDLE, PromptLookup(2), 4), [1, 2, 3], 60, 0.8, seed=3))
    assert max(len(one.path) for one in done) > 1 and missed[0] == 2 and set(missed[1:]) <= {1}     # 2: of the prompt


def test_no_text_of_a_batch_is_drafted_less_than_another():
    """Of one prompt the lowest drafter copies at once, of the other nothing."""
    batch, dice = Batch(TARGET, Stack(GPT_MIDDLE, PromptLookup(4), 4), [[1, 2, 1, 2, 1], [3, 9, 5]], 60), Dice([1, 2])
    for _ in range(5):
        draft, *_ = batch.round(dice, Sampling(0))
        assert draft.exist[:, 1:].all() and draft.tokens.shape == (2, 5)


def test_one_text_takes_no_more_room_than_its_draft():
    """Several may wait for the slowest one, and go on meanwhile."""
    drafter = Stack(MIDDLE, PromptLookup(3), 90)
    for rows, room in (1, 90 + 3), (2, 90 * (3 + 1)):
        text = Text([[1, 2]] * rows, 50, MIDDLE.config.vocab_size)
        drafter.begin(text)
        assert drafter.inner.tokens.shape[1] == Text([[0]], text.tokens.shape[1] + room, 3).tokens.shape[1]


def test_who_cannot_be_in_a_stack():
    for middle, lowest in ((GPT_MIDDLE, ModelDrafter(small_learned("mlp", TARGET), 2)),
                           (small_learned("mlp", TARGET), PromptLookup(2))):
        with pytest.raises(RequestError, match="in a stack"):
            Stack(middle, lowest)
    with pytest.raises(RequestError, match="a vocabulary of 3 tokens, the target of 11"):
        next(speculate(TARGET, Stack(MIDDLE, PromptLookup(2)), [1], 4))
