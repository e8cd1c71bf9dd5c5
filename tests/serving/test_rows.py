"""Rows that come and go: whatever is kept for a text moves with it; and rows that are sampled each in its own way."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from nanospec.cache import Cache
from nanospec.dice import Dice
from nanospec.draft import Drafter
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.index import DRAFTERS
from nanospec.probs import Sampling, probs
from nanospec.proof.tables import small_gpt
from nanospec.reader import GPTReader
from nanospec.serving.rows import SamplingByRow, begin, move, moved, per_row
from nanospec.speculate import ModelDrafter
from nanospec.text import Text
from tests.proof.compare import Batch
from tests.proof.contract import OF_MODELS, drafter_of

TARGET, DRAFT_MODEL = small_gpt(5, 2, 1), small_gpt(5, 1, 2)
LOGITS = torch.tensor([[0.3, 2.0, -1.0, 1.0, 2.0], [5.0, 0.0, 0.0, -3.0, 1.0]], dtype=torch.float64)
SETTINGS = [(1.0, None, None), (0, None, None), (0.6, 2, None), (1e-300, 3, 0.5), (1.3, None, 0.8), (30.0, 1, 1.0),
            (0.6, 2, None), (1.0, 50, 1e-300)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(8, 7), (8, 1, 7), (8, 5, 7)])
def test_rows_are_what_they_are_alone(shape, dtype):
    """One setting per row, or one for all: exactly what `probs` makes of every row by itself."""
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(1)).mul(4).to(dtype)
    found = SamplingByRow([Sampling(*setting) for setting in SETTINGS])(logits)
    assert torch.equal(found, torch.stack([probs(row, *setting) for row, setting in zip(logits, SETTINGS)]))
    for setting in SETTINGS:
        alone = torch.stack([probs(row, *setting) for row in logits])
        assert torch.equal(SamplingByRow([Sampling(*setting)] * 8)(logits), alone)
        one_differs = SamplingByRow([Sampling(*setting)] * 7 + [Sampling(0.9, *setting[1:])])(logits)
        assert torch.equal(one_differs[:7], alone[:7])
        assert torch.equal(one_differs[7], probs(logits[7], 0.9, *setting[1:]))


def test_precision_is_never_below_float32_nor_lowered():
    for given, got in ((torch.bfloat16, torch.float32), (torch.float16, torch.float32), (torch.float32, torch.float32),
                       (torch.float64, torch.float64)):
        assert SamplingByRow([Sampling(0), Sampling(1)])(LOGITS.to(given)).dtype == got


@pytest.mark.parametrize("settings", [[Sampling(0.5), Sampling(1.0)], [Sampling(0.5)] * 4], ids=["two", "four alike"])
def test_settings_for_another_number_of_rows_are_refused(settings):
    with pytest.raises(ValueError, match=rf"settings for {len(settings)} rows, logits of 3"):
        SamplingByRow(settings)(torch.zeros(3, 5))


# Tensors

@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("rows, count", [([0, 1, 2, 3], 4), ([0, 3], 2), ([1, 2], 3), ([], 2), ([2], 1), ([0, 1], 6),
                                         ([3], 5), ([0, 3, 2], 4)], ids=str)
def test_row_rows_i_becomes_row_i_and_the_others_are_zeros(rows, count, dim):
    before = torch.arange(1, 25).view(4, 2, 3).movedim(0, dim).contiguous()
    expected = torch.zeros(count, 2, 3, dtype=torch.int64)
    expected[:len(rows)] = torch.arange(1, 25).view(4, 2, 3)[rows]
    here = before.data_ptr()
    found = moved(before, rows, count, dim)
    assert found.movedim(dim, 0).equal(expected)
    assert (found.data_ptr() == here) == (count <= 4)       # what only gets fewer rows is not allocated anew


# Things that keep something for every text

class Kept:
    """Keeps a number for every text in each of the ways that there are."""

    per_row = ("tensor", "by_row", "inner")

    def __init__(self, of_rows: list[int], nested: bool = True):
        self.tensor, self.by_row = torch.tensor(of_rows), dict(enumerate(of_rows))
        self.inner = Kept([10 * n for n in of_rows], False) if nested else Text([[n] for n in of_rows], 0, 99)


def test_everything_that_a_thing_names_moves_and_what_it_keeps_in_others_too():
    kept, common = Kept([1, 2, 3]), object()
    kept.of_all_rows = common
    move(kept, [0, 2], 2)
    for thing, factor in (kept, 1), (kept.inner, 10):
        assert thing.tensor.tolist() == [factor, 3 * factor] and thing.by_row == {0: factor, 1: 3 * factor}
    assert kept.inner.inner.ids() == [[10], [30]] and kept.of_all_rows is common
    del kept.by_row[1]                                      # a text for which there is nothing to be kept
    move(kept, [1, 0], 3)
    assert kept.by_row == {1: 1} and kept.tensor.tolist() == [3, 1, 0]


def test_a_text_a_cache_and_dice():
    """An empty row is a text of one token, which every drafter can look at."""
    text, cache, dice = Text([[1, 2], [3], [4, 4, 4]], 5, 9), TARGET.new_cache(3, 6), Dice([5, 6, 7])
    cache.kv[:] = torch.arange(3)[:, None, None, None]
    cache.length[:] = torch.tensor([2, 3, 4])
    dice.refill(2)
    for part in text, cache, dice:
        move(part, [0, 2], 4)
    assert text.length.tolist() == [2, 3, 1, 1] and text.ids()[:2] == [[1, 2], [4, 4, 4]]
    assert cache.kv.shape[2] == 4 and cache.kv[0, 0, :, 0, 0, 0].tolist() == [0, 2, 0, 0]
    assert cache.length.tolist() == [2, 4, 0, 0]
    slots = cache.next_slots(1)
    keys, _ = cache.write(0, slots, *torch.full((2, 4, 1, 1, 8), 9.0).to(cache.kv), 5)     # `index` was called
    assert cache.kv[0, 0, range(4), slots[:, 0]].eq(9).all() and keys.shape[0] == 4
    begin(text, dice, 2, [8, 8], 11)
    assert text.ids()[2] == [8, 8]
    seeds = [generator.initial_seed() for generator in dice.generators]
    assert len(seeds) == 4 and seeds[:3] == [5, 7, 11]
    again = [Dice([seed]) for seed in (5, 7, 11)]
    for each in again[:2]:
        each.refill(2)                                      # these rows have had a round
    dice.refill(3)
    for b, each in enumerate(again):
        each.refill(3)
        assert dice.u[b].equal(each.u[0])


def test_dice_of_another_kind_are_left_alone():
    """The walk's, for example, which know of no rows."""
    text = Text([[1]], 5, 9)
    begin(text, object(), 0, [2, 3], 4)
    assert text.ids() == [[2, 3]]


def test_a_subclass_repeats_its_parents_names():
    class Counting(ModelDrafter):
        per_row = ("reader", "count")

    assert per_row(Counting(DRAFT_MODEL, 1)) == ("reader", "count") and per_row(ModelDrafter(DRAFT_MODEL,
                                                                                             1)) == ("reader",)
    assert per_row(object()) == () and per_row(PromptLookup(1)) == ("seen",)


# Every drafter names all that it keeps for every text.

B = 11                                                      # texts: no size, depth or vocabulary here is as large
PROMPTS = [[b % 5, 1, 2] for b in range(B)]


def of_each_text(kept: Any) -> bool:
    """Whether it has an entry for each of B texts."""
    if isinstance(kept, torch.Tensor):
        return kept.dim() > 0 and len(kept) == B
    if isinstance(kept, Cache):
        return len(kept.length) == B
    if isinstance(kept, Text):
        return len(kept.tokens) == B
    return isinstance(kept, dict) and set(kept) == set(range(B)) or isinstance(kept, list) and len(kept) == B


def forgotten(thing: Any, not_its_own: list, path: str, named: bool = True) -> Iterator[tuple[Any, str, str]]:
    """(whose, name, path) of what `thing` keeps for each of B texts and `move` would not reach, in itself or in what it
    holds. not_its_own: what others move. named: whether the way here is named throughout.
    """
    if not type(thing).__module__.startswith("nanospec") or isinstance(thing, torch.nn.Module | Cache | Text):
        return
    for name, kept in (thing._asdict() if hasattr(thing, "_asdict") else vars(thing)).items():
        here, reached = f"{path}.{name}", named and name in per_row(thing)
        if any(kept is other for other in not_its_own):
            continue
        if of_each_text(kept):
            if not reached or isinstance(kept, list):       # a list is not moved
                yield thing, name, here
        else:
            for i, part in enumerate(kept if isinstance(kept, list | tuple) else [kept]):
                yield from forgotten(part, [*not_its_own, thing], f"{here}[{i}]" if part is not kept else here,
                                     reached and part is kept)


def written(drafter: Drafter, without: bool = True) -> list[list[int]]:
    """What B texts have become after some rounds. without: before every round, all that is kept for each text and would
    not be moved is deleted. It may be there only because the last round has left it.
    """
    batch, dice = Batch(TARGET, drafter, PROMPTS, 60), Dice(range(B))
    for _ in range(4):
        for thing, name, _ in list(forgotten(drafter, [batch.text, batch.cache], "drafter")) if without else []:
            delattr(thing, name)
        batch.round(dice, Sampling(0.9))
    return batch.text.ids()


@pytest.mark.parametrize("name", [*DRAFTERS, *(name for name, _ in OF_MODELS)])
def test_every_drafter_names_all_that_it_keeps_for_every_text(name):
    """In per_row, which is all that `move` knows. (That moving is right: `alone` in tests/proof/contract.py.)"""
    one, other = (drafter_of(name, TARGET, DRAFT_MODEL, gamma=3, topology=[-1, 0, 0, 1]) for _ in range(2))
    assert written(one) == written(other, without=False)


KEPT = {"tensor": lambda model: torch.zeros(B, 2), "dict": lambda model: {b: [] for b in range(B)},
        "cache": lambda model: model.new_cache(B, 4), "text": lambda model: Text(PROMPTS, 4, 5),
        "list": lambda model: [0] * B, "drafter": lambda model: PromptLookup(2),
        "drafters": lambda model: [PromptLookup(1), PromptLookup(2)]}


@pytest.mark.parametrize("what", KEPT)
@pytest.mark.parametrize("depth", [0, 1], ids=["itself", "its reader"])
def test_one_that_forgets_to_is_found(what, depth):
    class Forgetful(ModelDrafter):
        __module__ = "nanospec.somewhere"

        def read(self, text, rows, hidden):
            super().read(text, rows, hidden)
            kept = KEPT[what](self.draft_model)
            for drafter in kept if what == "drafters" else [kept] * (what == "drafter"):
                drafter.begin(text)
                drafter.read(text, rows, None)
            (self.reader if depth else self).kept = kept

        def propose(self, *of):
            kept = (self.reader if depth else self).kept
            for drafter in kept if what == "drafters" else [kept] * (what == "drafter"):
                drafter.propose(*of)
            return super().propose(*of)

    with pytest.raises(AttributeError, match="has no attribute '(kept|seen)'"):
        written(Forgetful(DRAFT_MODEL, 2))
    assert written(Forgetful(DRAFT_MODEL, 2), without=False) == written(ModelDrafter(DRAFT_MODEL, 2))


def test_what_is_named_has_to_lead_on_to_what_is_kept():
    """A drafter that names its reader is not done where the reader names nothing."""
    class Silent(GPTReader):
        __module__, per_row = "nanospec.somewhere", ()

    drafter = ModelDrafter(DRAFT_MODEL, 2)
    drafter.reader = Silent(DRAFT_MODEL)
    with pytest.raises(AttributeError, match="has no attribute 'cache'"):
        written(drafter)
