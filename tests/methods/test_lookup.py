"""Prompt lookup: what it copies, by a slow version that looks everywhere; and how often that is accepted."""

import random

import pytest
import torch

from nanospec.errors import RequestError
from nanospec.methods.copies.lookup import IndexedText, PromptLookup
from nanospec.methods.trees.tree_draft import of_text
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import walk
from nanospec.speculate import speculate
from nanospec.text import Text
from nanospec.theory import acceptance

FULL, WARM = TableModel(3, 5, zeros=0), {"temperature": 0.7}


def copied(ids, count, longest=3, earliest=False):
    """The slow, obvious version: every place is looked at, and tokens are copied one by one."""
    for n in range(longest, 0, -1):
        places = [end for end in range(n, len(ids)) if ids[end - n:end] == ids[len(ids) - n:]]
        if places:
            at, longer = places[0 if earliest else -1], list(ids)
            for i in range(count):
                longer.append(longer[at + i])
            return longer[len(ids):]
    return []


def drafted(drafter, texts, lengths):
    """The tokens after so much of each text, and then so much; what stands beyond a length is rubbish."""
    text = Text(texts, 3, 10)
    drafter.begin(text)
    drafter.read(text, range(len(texts)), None)
    for of_each in lengths:
        text.length[:] = torch.tensor(of_each)
        draft = drafter.propose(text, None, None, 0)
        for b, n in enumerate(of_each):
            tokens, parents, q_draft = of_text(draft, b)
            own = 1 + sum(parent >= 0 for parent in parents)
            assert tokens[0] == texts[b][n - 1] and parents[:own] == list(range(-1, own - 1)) and draft.steps == 0
            assert q_draft[1:own].argmax(-1).tolist() == tokens[1:own] and q_draft.sum() == own - 1
            yield texts[b][:n], tokens[1:own]


@pytest.mark.parametrize("settings", [{"count": 3}, {"count": 5, "longest": 2}, {"count": 1, "longest": 1},
                                      {"count": 4, "earliest": True}], ids=str)
def test_it_copies_from_the_place_that_looking_everywhere_finds(settings):
    """One drafter for all texts, two at a time, which grow, and shrink at times."""
    made, drafter, seen = random.Random(1), PromptLookup(**settings), set()
    for size in [2, 3, 5] * 20:
        texts = [[made.randrange(size) for _ in range(made.randint(1, 30))] for _ in range(2)]
        lengths = [[made.randint(1, len(ids)) for ids in texts] for _ in range(4)]
        for ids, tokens in drafted(drafter, texts, lengths):
            assert tokens == copied(ids, **settings)
            seen.add(len(tokens))
    assert seen == {0, settings["count"]}


@pytest.mark.parametrize("ids, settings, tokens", [
    ([7, 8, 9, 7, 8], {"count": 5}, [9, 7, 8, 9, 7]),                           # the copy runs into its own
    ([3, 3], {"count": 4}, [3, 3, 3, 3]),
    ([1, 5, 2, 1, 6, 2, 1], {"count": 2, "longest": 1}, [6, 2]),                # the latest
    ([1, 5, 2, 1, 6, 2, 1], {"count": 2, "longest": 1, "earliest": True}, [5, 2]),
    ([1, 2, 5, 9, 2, 6, 1, 2], {"count": 1}, [5]),                              # two tokens, though one stood later
    ([1, 2, 3, 4], {}, []), ([1], {}, [])])
def test_worked_examples(ids, settings, tokens):
    assert list(drafted(PromptLookup(**settings), [ids], [[len(ids)]])) == [(ids, tokens)]


def test_once_the_longest_match_is_found_no_other_place_is_looked_at():
    class Places(list):
        def __reversed__(self):
            for place in super().__reversed__():
                looked.append(place)
                yield place

    looked, text = [], IndexedText().read([1, 2, 3] * 20)
    text.places[3] = Places(text.places[3])
    assert text.match([2, 3], 2) == (2, 57) and looked == [57]
    assert text.match([1, 3], 2) == (1, 57) and len(looked) == 1 + 19       # nowhere is a longer one


def test_a_copy_is_accepted_as_often_as_the_target_would_have_written_it():
    """Expected tokens accepted in the first round: p_target of the first, times that of the second, and so on."""
    request = {"ids": [0, 1, 2, 0, 1, 2], "max_new_tokens": 9} | WARM
    found, _ = walk(lambda dice: len(next(speculate(FULL, PromptLookup(4), dice=dice, **request)).path))
    done = next(speculate(FULL, PromptLookup(4), **request))
    assert done.tokens[1:] == [0, 1, 2, 0]
    alone = acceptance(done.p_target[:-1], done.q_draft[1:])
    assert alone.tolist() == [done.p_target[i, x].item() for i, x in enumerate(done.tokens[1:])]
    mean = sum(accepted * weight for accepted, weight in found.items())
    assert mean == pytest.approx(alone.cumprod(0).sum().item(), abs=1e-12)


def test_a_text_that_has_changed_before_its_last_token_is_read_anew():
    assert IndexedText().read([1, 2, 9]).read([1, 5, 9, 1]).copy(1, 3) == (1, [5])


@pytest.mark.parametrize("settings", [{"count": 0}, {"count": 10 ** 9}, {"longest": 0}, {"longest": 10 ** 9}], ids=str)
def test_bad_sizes(settings):
    with pytest.raises(RequestError, match="at least 1|at most 4095"):
        PromptLookup(**settings)


def test_a_copy_longer_than_the_context_is_refused():
    with pytest.raises(RequestError, match="exceeds the context of 96"):
        next(speculate(FULL, PromptLookup(96), [1], 10))
