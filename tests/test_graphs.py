"""All of graphs.py but the recording: a stand-in does the work again into the same tensors, as a CUDA graph would."""

from functools import partial

import pytest
import torch

from nanospec.fast import capture as graphs
from nanospec.dice import Dice
from nanospec.generate import generate
from nanospec.fast.capture import captured
from nanospec.proof.tables import TableModel
from nanospec.proof.tables import small_gpt
from nanospec.speculate import ModelDrafter, speculate, tokens_of

TARGET, DRAFT = small_gpt(11, 3, 1), small_gpt(11, 1, 2)
SETTINGS = [{"temperature": 0}, {"temperature": 0.8, "top_k": 5, "seed": 3}, {"stop": {4}, "seed": 5}]


class Rerun:
    """Stands in for a Recording: does the work again, into the same tensors."""

    def __init__(self, work, warm_up):
        for _ in range(3):
            warm_up()
        self.work, self.out = work, None

    def replay(self) -> None:
        new = self.work()
        if self.out is None:
            self.out = new
        for old, one in zip(self.out, new):
            if isinstance(old, torch.Tensor):
                old.copy_(one)


rerun = partial(captured, recording=Rerun)


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch):
    monkeypatch.setattr(graphs, "BUCKET", 16)


@pytest.mark.parametrize("settings", SETTINGS)
def test_token_for_token_the_eager_path(settings):
    eager = list(speculate(TARGET, ModelDrafter(DRAFT), [1, 2, 3], 3, 60, **settings))
    replayed = list(speculate(TARGET, ModelDrafter(DRAFT), [1, 2, 3], 3, 60, capture=rerun, **settings))
    assert [one.emitted for one in replayed] == [one.emitted for one in eager]
    for a, b in zip(replayed, eager):       # every round has laws of its own, although one buffer holds them all
        assert torch.allclose(a.p_target, b.p_target, atol=1e-12) and torch.allclose(a.q_draft, b.q_draft, atol=1e-12)
        assert a.draft_seconds >= 0 and a.verify_seconds > 0
    plain = list(generate(TARGET, [1, 2, 3], 60, **settings))
    assert list(generate(TARGET, [1, 2, 3], 60, capture=rerun, **settings)) == plain


def test_one_recording_a_bucket_and_none_beyond_the_slots():
    made = []

    class Counted(Rerun):
        def __init__(self, work, warm_up):
            made.append(1)
            super().__init__(work, warm_up)

    count = partial(captured, recording=Counted)
    rounds = list(speculate(TARGET, ModelDrafter(DRAFT), [1, 2, 3], 3, 60, capture=count, seed=1))
    assert len(tokens_of(rounds)) == 60 and 4 <= len(made) <= 5         # 67 slots: 16, 32, 48, 64, 67


def test_a_recording_changes_nothing_and_takes_the_same_uniforms():
    """Three warm-up rounds are undone; the dice stand where they stood."""
    class Watched(Rerun):
        def __init__(self, work, warm_up):
            before = text.tokens.clone(), text.length.clone(), dice.u.clone()
            super().__init__(work, warm_up)
            assert all(torch.equal(a, b) for a, b in zip(before, (text.tokens, text.length, dice.u)))
            checked.append(1)

    def watch(step, its_text, its_dice):
        nonlocal text
        text = its_text
        return captured(step, its_text, its_dice, Watched)

    text, dice, checked = None, Dice([7]), []
    replayed = tokens_of(speculate(TARGET, ModelDrafter(DRAFT), [1], 2, 20, dice=dice, capture=watch))
    assert checked and replayed == tokens_of(speculate(TARGET, ModelDrafter(DRAFT), [1], 2, 20, seed=7))


def test_uniforms_keep_their_address():
    """A recording reads the buffer it was made with."""
    dice = Dice([1, 2])
    dice.refill(5)
    address, first = dice.u.data_ptr(), dice.u.clone()
    dice.refill(5)
    assert dice.u.data_ptr() == address and not torch.equal(dice.u, first)


def test_what_a_round_carries_is_written_in_place():
    """Text and caches stay where they are: a new tensor in their place would be lost on a recording."""
    target, draft = TableModel(5, 1), TableModel(5, 2)
    kept = {}

    def watch(step, text, dice):
        def watched(upto):
            addresses = [text.tokens.data_ptr(), text.length.data_ptr(), dice.u.data_ptr(),
                         *(k.data_ptr() for k in drafter.cache.k)]
            assert kept.setdefault("at", addresses) == addresses
            return step(upto)
        return watched

    drafter = ModelDrafter(draft)
    assert len(tokens_of(speculate(target, drafter, [1, 2], 3, 30, capture=watch))) == 30


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: the recording itself is not tested here")
@pytest.mark.parametrize("settings", SETTINGS)
def test_on_cuda_token_for_token_the_eager_path(settings):
    target, draft = (model.to("cuda") for model in (small_gpt(11, 3, 1), small_gpt(11, 1, 2)))
    eager = tokens_of(speculate(target, ModelDrafter(draft), [1, 2, 3], 3, 60, **settings))
    assert tokens_of(speculate(target, ModelDrafter(draft), [1, 2, 3], 3, 60, capture=captured, **settings)) == eager
    assert list(generate(target, [1, 2, 3], 60, capture=captured, **settings)) == list(
        generate(target, [1, 2, 3], 60, **settings))
