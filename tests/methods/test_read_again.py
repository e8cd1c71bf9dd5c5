"""How much is read again: the width of every call of a model, asserted. A text is right however often it is read. What
is read for nothing costs time, and no text shows it.
"""

import pytest
import torch

from lessons.recurrent import small_recurrent
from nanospec.dice import Dice
from nanospec.methods.copies.hybrid import Hybrid
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.lengths.by_load import ByLoad
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.wrappers.grammar import Grammar
from nanospec.methods.wrappers.grammar_drafter import GrammarDrafter
from nanospec.methods.wrappers.string_match import ReadText
from nanospec.methods.stack import Stack
from nanospec.probs import Sampling
from nanospec.proof.tables import small_gpt
from nanospec.serving.conversation import RecordingDrafter
from nanospec.speculate import ModelDrafter
from tests.proof.compare import Batch

TARGET, DRAFT_MODEL = small_gpt(5, 2, 1), small_gpt(5, 1, 2)
PROMPTS = [[1, 2, 3, 0, 4], [4, 0, 1]]


class Counting:
    """A model, and how many tokens of each text it was asked to read, and to score, call by call."""

    def __init__(self, model):
        self.model, self.widths, self.scored = model, [], []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, tokens, *its, **more):
        self.widths.append(tokens.shape[1])
        self.scored.append(tokens.shape[1] if more.get("scored") is None else more["scored"])
        return self.model(tokens, *its, **more)

    def taken(self) -> list[int]:
        widths, self.widths = self.widths, []
        return widths


def begun(drafter, draft_model: Counting) -> tuple[Batch, Dice]:
    batch = Batch(TARGET, drafter, PROMPTS, 150)
    draft_model.taken()                                           # the prompts
    return batch, Dice([1, 2])


def test_a_chain_reads_two_tokens_and_each_of_its_own_but_the_last():
    draft_model = Counting(DRAFT_MODEL)
    batch, dice = begun(ModelDrafter(draft_model, 3), draft_model)
    for _ in range(6):
        batch.round(dice, Sampling())
        assert draft_model.taken() == [2, 1, 1]


@pytest.mark.parametrize("topology, widths", [([-1, 0, 0, 1, 2], [3, 2]), ([-1, 0, 0, 0, 0, 0, 0], [2])])
def test_a_tree_reads_its_longest_path_and_each_level_but_the_last(topology, widths):
    """Not as many tokens as it has nodes."""
    draft_model = Counting(DRAFT_MODEL)
    batch, dice = begun(TreeDrafter(draft_model, topology), draft_model)
    batch.round(dice, Sampling())
    draft_model.taken()
    for _ in range(6):
        batch.round(dice, Sampling())
        assert draft_model.taken() == widths


@pytest.mark.parametrize("make, scored", [
    (lambda model: ModelDrafter(model, 3), [1, 1, 1]), (lambda model: TreeDrafter(model, [-1, 0, 0, 1, 2]), [1, 2]),
    (lambda model: GrammarDrafter(model, Grammar(torch.zeros(1, 5, dtype=torch.int64)), 3), [1, 1, 1])])
def test_of_all_that_a_draft_model_reads_only_what_is_asked_is_scored(make, scored):
    """Logits of a large vocabulary take longer than the tokens."""
    draft_model = Counting(DRAFT_MODEL)
    batch, dice = begun(make(draft_model), draft_model)
    for _ in range(4):
        draft_model.scored.clear()
        batch.round(dice, Sampling())
        assert draft_model.scored == scored


def test_what_a_model_reads_to_catch_up_is_not_scored():
    """A stack's middle model, what the target wrote; a draft model with another tokenizer, all but the last token."""
    middle = Counting(DRAFT_MODEL)
    batch, dice = begun(Stack(middle, PromptLookup(2), 3), middle)
    middle.scored.clear()
    for _ in range(4):
        batch.round(dice, Sampling())
    assert 0 in middle.scored
    other = Counting(DRAFT_MODEL)
    ReadText(other).likeliest([1, 2, 3, 0], 2, 4)
    assert (other.widths, other.scored) == ([4, 1], [1, 1])


def test_a_drafter_with_a_grammar_reads_what_the_last_round_has_written():
    """It does not rely on what was drafted: at most all of it, and the token after it. Of a prompt the last token."""
    draft_model = Counting(DRAFT_MODEL)
    batch, dice = begun(GrammarDrafter(draft_model, Grammar(torch.zeros(1, 5, dtype=torch.int64)), 3), draft_model)
    for number in range(6):
        batch.round(dice, Sampling())
        first, *others = draft_model.taken()
        assert first <= (1 + 3 + 1 if number else 1) and others == [1, 1]


def test_after_a_silence_it_reads_what_was_written_meanwhile_once():
    draft_model, silent = Counting(DRAFT_MODEL), [0, 1, 1, 1, 0, 0, 1, 0]
    drafter = ByLoad(draft_model, lambda rows, gamma: 1.0, 3)
    batch, dice = begun(drafter, draft_model)
    missed = 0
    for quiet in silent:
        drafter.best = lambda rows, quiet=quiet: 0 if quiet else 2
        batch.round(dice, Sampling())
        assert draft_model.taken() == ([] if quiet else [2 + missed, 1])
        missed = missed + 1 if quiet else 0


def test_after_copies_the_draft_model_reads_the_longest_of_them_once():
    """Of each text what it was given since the draft model last read; the greatest of these counts."""
    draft_model = Counting(DRAFT_MODEL)
    drafter = Hybrid(ByLoad(draft_model, lambda rows, gamma: 1.0 if gamma == 2 else 9.0, 2),
                     {m: 1.0 for m in range(2, 6)})
    batch, dice = begun(drafter, draft_model)
    known: dict[int, int] = {}
    for which in [(0, 0), (1, 1), (1, 1), (0, 1), (1, 0), (1, 1), (0, 0), (0, 0)]:
        of = drafter.memory.seen
        drafter._copy = lambda b, rate: (1, [of[b].ids[0], of[b].ids[-1], 0][:2 + b]) if which[b] else (0, [])
        lengths = batch.text.length.tolist()
        missed = max([lengths[b] - length for b, length in known.items()], default=0)
        batch.round(dice, Sampling())
        assert draft_model.taken() == ([] if all(which) else [2 + missed, 1]), which
        known = known if all(which) else {}
        for b, copies in enumerate(which):
            if copies:
                known.setdefault(b, lengths[b])


def test_a_stack_reads_what_its_middle_model_has_not():
    """Known to it is what it has read and what the text still is, both counted token by token."""
    middle, widths, agreed = Counting(small_gpt(5, 2, 6)), [], set()
    stack = Stack(middle, PromptLookup(2), 3)
    batch, dice = begun(stack, middle)
    lengths = [len(ids) for ids in PROMPTS]
    for _ in range(12):
        # All but the last token of what it went on with.
        read, inner, new = [length - 1 for length in lengths], stack.inner.tokens.tolist(), []
        for b, ids in enumerate(batch.text.ids()):
            known = 0
            while known < min(read[b], len(ids)) and inner[b][known] == ids[known]:
                known += 1
            new.append(len(ids) - 1 - known)
        rounds = batch.round(dice, Sampling(0.3))[0].steps
        widths, lengths = middle.taken(), stack.inner.length.tolist()
        wanted = [max(new)] if max(new) > 0 else []
        assert widths == wanted + [w for w in widths[len(wanted):]] and len(widths) == len(wanted) + rounds
        agreed.add(max(new))
    assert len(agreed) > 1                                  # at times something had to be read, at others nothing


def test_strings_of_any_length_have_slots_for_what_is_drafted_after_them():
    """Read longer and longer, and anew: the same tokens."""
    draft_model, text = small_gpt(9, 1, 4, context=1024), [1, 2, 3, 4, 5]
    kept = ReadText(draft_model)
    while len(text) < 420:
        found = kept.likeliest(text, 7, 8)
        assert found == ReadText(draft_model).likeliest(text, 7, 8)
        text = [*text, *found[:1 + len(text) % 3]]


def test_strings_are_read_from_where_they_differ():
    draft_model = Counting(small_gpt(9, 1, 4, context=512))
    kept, text = ReadText(draft_model), [1, 2, 3, 4, 5]
    found = kept.likeliest(text, 3, 8)
    assert draft_model.taken() == [5, 1, 1] and 8 not in found
    more = kept.likeliest([*text, *found, 7], 3, 8)         # two of the three were read, the last one was not
    assert draft_model.taken() == [2, 1, 1]
    kept.likeliest([*text, found[0], (found[1] + 1) % 8, 7], 2, 8)
    assert draft_model.taken() == [2, 1]
    kept.likeliest(text[:3], 1, 8)                          # it has shrunk: the last token is read for its answer
    assert draft_model.taken() == [1]
    kept.likeliest([*text, *found, *more] * 30, 1, 8)       # a larger cache has read nothing
    assert draft_model.taken() == [330]


@pytest.mark.parametrize("snapshots", [None, 4])
def test_recurrent_states_in_a_batch_read_again_what_was_accepted(snapshots):
    """Of each text by itself: with replay the accepted tokens and the one before them, after a rejection; with a state
    for each node of a draft nothing.
    """
    target, draft_model = small_recurrent(4, 2, 3, (0,), snapshots), small_recurrent(4, 1, 4, (), 4)
    batch, dice = Batch(target, ModelDrafter(draft_model, 3), [[1, 2, 3], [2]], 90), Dice([1, 2])
    again, before, seen = 0, [3, 3], set()
    for _ in range(12):
        start = batch.cache.again
        _, _, _, count, _ = batch.round(dice, Sampling())
        for accepted in before:
            if accepted < 3 and snapshots is None:
                again += 1 + accepted
        assert batch.cache.again == again
        seen.add(batch.cache.again - start)
        before = count.tolist()
    assert len(seen) > 2 if snapshots is None else seen == {0}


def test_hidden_states_are_kept_along_a_path_with_gaps():
    """Rows 0, 2 and 5 of a tree were accepted; then a chain of one more; then the text goes back."""
    recording, hidden = RecordingDrafter(ModelDrafter(DRAFT_MODEL, 1)), torch.arange(7 * 2.0).view(1, 7, 1, 2)
    recording.record(hidden[:, :2])
    recording.record(hidden, torch.tensor([[0, 2, 5, 1, 3, 4, 6]]), torch.tensor([2]))
    recording.record(hidden + 100, torch.tensor([[0, 1, 2, 3, 4, 5, 6]]), torch.tensor([1]))
    wanted = torch.cat([hidden[0, :2], hidden[0, [0, 2, 5]], hidden[0, :2] + 100])
    assert torch.equal(recording.recorded()[0], wanted)
    recording.forget_after(4)
    recording.record(hidden + 200, torch.tensor([[0, 3, 6, 1, 2, 4, 5]]), torch.tensor([1]))
    assert torch.equal(recording.recorded()[0], torch.cat([wanted[:4], hidden[0, [0, 3]] + 200]))


def test_a_recurrent_text_without_a_cache_shows_its_hidden_states():
    """The same as with one, in the order that was asked for."""
    target, tokens = small_recurrent(4, 2, 3, (0,), None), torch.tensor([[1, 2, 0, 3, 1]])
    logits, hidden = target(tokens, layers=[1, 0])
    cached, of_cache = target(tokens, target.new_cache(1, 9), layers=[1, 0])
    assert hidden.shape == (1, 5, 2, target.config.channels) and not torch.equal(hidden[:, :, 0], hidden[:, :, 1])
    assert (logits - cached).abs().max() < 1e-12 and (hidden - of_cache).abs().max() < 1e-12
    assert torch.equal(hidden[:, :, 1], target(tokens, layers=[0])[1][:, :, 0])
