"""All of capture.py but the recording: a stand-in does the work again into the same tensors, as a CUDA graph would."""

from functools import partial

import pytest
import torch

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.drafters.tree import TreeDrafter
from nanospec.fast import capture
from nanospec.fast.capture import captured, cloned
from nanospec.generate import generate
from nanospec.methods import DRAFTERS, Setting
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.speculate import ModelDrafter, speculate, tokens_of

TARGET, DRAFT = small_gpt(11, 3, 1), small_gpt(11, 1, 2)
SETTINGS = [{"temperature": 0}, {"temperature": 0.8, "top_k": 5, "seed": 3}, {"stop": {4}, "seed": 5}]
FIXED = [name for name, way in DRAFTERS.items() if way.fixed]


def tensors(out):
    if isinstance(out, tuple):
        return [tensor for part in out for tensor in tensors(part)]
    return [out] if isinstance(out, torch.Tensor) else []


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
        for old, tensor in zip(tensors(self.out), tensors(new)):
            old.copy_(tensor)


rerun = partial(captured, recording=Rerun)


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch):
    monkeypatch.setattr(capture, "BUCKET", 16)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", FIXED)
def test_token_for_token_the_eager_path(name, settings):
    def rounds(**more):
        return list(speculate(TARGET, DRAFTERS[name].make(Setting(DRAFT, 3)), [1, 2, 3], 50, **settings, **more))

    eager, replayed = rounds(), rounds(capture=rerun)
    assert [done.emitted for done in replayed] == [done.emitted for done in eager]
    for a, b in zip(replayed, eager):       # every round has tensors of its own, although one buffer holds them all
        assert a.parents == b.parents and a.path == b.path and a.steps == b.steps
        assert torch.allclose(a.p_target, b.p_target, atol=1e-12) and torch.allclose(a.q_draft, b.q_draft, atol=1e-12)


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_captured_plain_step(settings):
    plain = list(generate(TARGET, [1, 2, 3], 60, **settings))
    assert list(generate(TARGET, [1, 2, 3], 60, capture=rerun, **settings)) == plain


def test_a_clone_shares_nothing_and_stays_what_it_was():
    draft = Draft(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, 3), None, 4)
    copy, tokens = cloned((draft, draft.tokens))
    assert isinstance(copy, Draft) and copy.parents is None and copy.steps == 4
    draft.tokens.add_(1)
    draft.q_draft.add_(1)
    assert not copy.tokens.any() and not copy.q_draft.any() and not tokens.any()


def test_one_recording_a_bucket():
    made = []

    class Counted(Rerun):
        def __init__(self, work, warm_up):
            made.append(1)
            super().__init__(work, warm_up)

    count = partial(captured, recording=Counted)
    rounds = list(speculate(TARGET, ModelDrafter(DRAFT, 3), [1, 2, 3], 60, capture=count, seed=1))
    assert len(tokens_of(rounds)) == 60 and 4 <= len(made) <= 5         # of 16, 32, 48, 64, 80 slots


@pytest.mark.parametrize("drafter", [ModelDrafter(DRAFT, 2), TreeDrafter(DRAFT, [-1, 0, 0, 1])])
def test_a_recording_changes_nothing_and_takes_the_same_uniforms(drafter):
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
    replayed = tokens_of(speculate(TARGET, drafter, [1], 20, dice=dice, capture=watch))
    assert checked and replayed == tokens_of(speculate(TARGET, drafter, [1], 20, seed=7))


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
    seen = {}

    def watch(step, text, dice):
        def watched(upto):
            addresses = [text.tokens.data_ptr(), text.length.data_ptr(), dice.u.data_ptr(),
                         *(k.data_ptr() for k in drafter.reader.cache.k)]
            assert seen.setdefault("at", addresses) == addresses
            return step(upto)
        return watched

    drafter = ModelDrafter(draft, 3)
    assert len(tokens_of(speculate(target, drafter, [1, 2], 30, capture=watch))) == 30


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: the recording itself is not tested here")
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", FIXED)
def test_on_cuda_token_for_token_the_eager_path(name, settings):
    target, draft = (model.to("cuda") for model in (small_gpt(11, 3, 1), small_gpt(11, 1, 2)))

    def text(**more):
        return tokens_of(speculate(target, DRAFTERS[name].make(Setting(draft, 3)), [1, 2, 3], 50, **settings, **more))

    assert text(capture=captured) == text()
    assert list(generate(target, [1, 2, 3], 50, capture=captured, **settings)) == list(
        generate(target, [1, 2, 3], 50, **settings))
