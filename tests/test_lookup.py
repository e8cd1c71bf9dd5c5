"""Prompt lookup: the right place is copied from, and a copied guess leaves the law alone."""

import random
from functools import partial

import pytest
import torch

from nanospec.drafters.lookup import PromptLookup
from nanospec.errors import RequestError
from nanospec.text import Text
from nanospec.proof.checks import Ledger
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, walk
from nanospec.proof.checks import TOLERANCE, rounds
from nanospec.proof.zoo import Bug, changed
from nanospec.rules.tree import verify_tree
from nanospec.speculate import speculate_tree
from nanospec.theory import acceptance

TABLE, FULL = TableModel(3, 1), TableModel(3, 5, zeros=0)
WARM = {"temperature": 0.7}


def copied(ids, count, longest, earliest=False):
    """The slow, obvious version: every place is looked at, and tokens are copied one by one."""
    for n in range(longest, 0, -1):
        places = [end for end in range(n, len(ids)) if ids[end - n:end] == ids[len(ids) - n:]]
        if places:
            at, longer = places[0 if earliest else -1], list(ids)
            for i in range(count):
                longer.append(longer[at + i])
            return longer[len(ids):]
    return []


def texts(alphabets=(2, 3, 5), each=40):
    """Random texts, and for each the lengths at which somebody asks for guesses."""
    made = random.Random(1)
    for size in alphabets:
        for _ in range(each):
            ids = [made.randrange(size) for _ in range(made.randint(1, 30))]
            yield ids, sorted({*made.sample(range(1, len(ids) + 1), min(4, len(ids))), len(ids)})


def proposals(drafter, ids, lengths):
    """What it guesses as the text grows, (tokens, parents) each time; what stands beyond the length is rubbish."""
    text = Text([ids], 3)
    text.tokens[0, len(ids):] = ids[0]
    text.length[0] = lengths[0]
    drafter.begin(text, 9)
    for length in lengths:
        text.length[0] = length
        tree = drafter.propose(text, None, None)
        assert tree.tokens[0] == ids[length - 1] and tree.q_draft == [None] * len(tree.tokens) and tree.steps == 0
        assert len(tree.tokens) <= drafter.size
        yield tree.tokens[1:], tree.parents[1:]


SETTINGS = [{"count": 3}, {"count": 5, "longest": 2}, {"count": 1, "longest": 1}, {"count": 4, "earliest": True}]


def disagreements(drafter_class, settings=SETTINGS):
    """How often it does not guess what the slow version guesses, one drafter for all texts; and of how many."""
    wrong = total = 0
    for setting in settings:
        drafter, slow = drafter_class(**setting), {"longest": 3} | setting
        for ids, lengths in texts():
            total += len(lengths)
            try:
                for (tokens, parents), length in zip(proposals(drafter, ids, lengths), lengths):
                    wrong += tokens != copied(ids[:length], **slow) or parents != list(range(len(tokens)))
            except (IndexError, ZeroDivisionError, AssertionError):             # it fell over: a mutant
                wrong += 1
    return wrong, total


def test_it_copies_from_the_place_that_looking_everywhere_finds():
    wrong, total = disagreements(PromptLookup)
    assert wrong == 0 and total > 1_500


@pytest.mark.parametrize("ids, settings, guesses", [
    ([7, 8, 9, 7, 8], {"count": 5}, [9, 7, 8, 9, 7]),                           # the copy runs into its own
    ([3, 3], {"count": 4}, [3, 3, 3, 3]),
    ([1, 5, 2, 1, 6, 2, 1], {"count": 2, "longest": 1}, [6, 2]),                # the latest
    ([1, 5, 2, 1, 6, 2, 1], {"count": 2, "longest": 1, "earliest": True}, [5, 2]),
    ([1, 2, 5, 9, 2, 6, 1, 2], {"count": 1}, [5]),                              # two tokens, though one stood later
    ([1, 2, 3, 4], {}, []), ([1], {}, [])])
def test_worked_examples(ids, settings, guesses):
    (tokens, _), = proposals(PromptLookup(**settings), ids, [len(ids)])
    assert tokens == guesses


def spoilt(old, new):
    return changed(Bug("", "", "", "", "drafters.lookup", ((old, new),)))["PromptLookup"]


MUTANTS = [
    ("places not forgotten at begin", "self.behind: dict[tuple[int, ...], int] = {}",
     "self.behind = vars(self).get('behind', {})"),
    ("text not forgotten at begin", "self.ids: list[int] = []", "self.ids = vars(self).get('ids', [])"),
    ("earliest and latest swapped", "if not (self.earliest and", "if not (not self.earliest and"),
    ("shortest match first", "range(min(self.longest, end), 0, -1)", "range(1, min(self.longest, end) + 1)"),
    ("one too late", "self.behind[tokens] = at", "self.behind[tokens] = at + 1"),
    ("the match itself is proposed", "self.behind[tokens] = at", "self.behind[tokens] = at - n"),
    ("the last match is left out", "range(1, min(self.longest, at) + 1)", "range(1, min(self.longest, at - 1) + 1)"),
    ("a copy does not go on with its own", "start + i % (end - start)", "min(start + i, end - 1)"),
    ("one guess too few", "range(self.count)", "range(self.count - 1)"),
    ("where the last tokens stand now is an earlier place", "        self.ids.append(token)\n",
     "        self.ids.append(token)\n        self.behind[token,] = at + 1\n"),
    ("what stands beyond the length is read too", "int(text.length)].tolist()", "].tolist()")]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant[0])
def test_a_mutant_copies_from_elsewhere(mutant):
    wrong, total = disagreements(spoilt(*mutant[1:]))
    assert wrong > total / 100


def redrawn(tree, p_target, dice):
    """A guess that falls is replaced by a draw from all of p_target."""
    path = []
    for row in range(1, len(tree.tokens)):
        if not dice.flip(p_target[row - 1][tree.tokens[row]].view(1, 1)):
            return path, int(dice.pick(p_target[row - 1][None]))
        path.append(row)
    return path, int(dice.pick(p_target[-1][None]))


def soft(tree, p_target, dice):
    """The guess is judged as if it had been drawn, with even odds among all tokens."""
    tree.q_draft = [None, *[torch.full_like(p_target[0], 1 / p_target.shape[1])] * (len(tree.tokens) - 1)]
    return verify_tree(tree, p_target, dice)


def replaced_in_the_wrong_row(tree, p_target, dice):
    """Wherever a guess fell, its replacement is drawn for the first place."""
    path, token = verify_tree(tree, p_target, dice)
    return path, token if len(path) == len(tree.tokens) - 1 else int(dice.pick(p_target[0][None]))


def no_bonus(tree, p_target, dice):
    """Where all were kept the last one is the target's own. Lossless: only slower."""
    path, token = verify_tree(tree, p_target, dice)
    return (path[:-1], tree.tokens[path[-1]]) if len(path) == len(tree.tokens) - 1 and path else (path, token)


def test_wrong_rules_are_seen():
    for rule, least in (redrawn, 0.33), (soft, 0.78), (replaced_in_the_wrong_row, 0.33):
        run = partial(speculate_tree, FULL, PromptLookup(2), rule=rule)
        assert rounds(FULL, run, [0, 1, 2, 0, 1, 2], 3, **WARM)[2] > least


def test_without_a_bonus_it_is_only_slower():
    run = partial(speculate_tree, FULL, PromptLookup(3))
    assert rounds(FULL, partial(run, rule=no_bonus), [0, 1, 2, 0, 1, 2], 4, **WARM)[2] < TOLERANCE

    def play(rule):
        return walk(lambda dice: tuple((tuple(one.emitted), one.kept) for one in run(
            [0, 1, 2, 0, 1, 2], 4, dice=dice, rule=rule, **WARM)))[0]
    assert distance(play(no_bonus), play(verify_tree))[1] > 0.1


def test_a_guess_is_kept_as_often_as_the_target_would_have_written_it():
    """Expected guesses kept in the first round: p_target of the first, times that of the second, and so on."""
    ids, drafter = [0, 1, 2, 0, 1, 2], PromptLookup(4)
    law, _ = walk(lambda dice: next(speculate_tree(FULL, drafter, ids, 9, dice=dice, **WARM)).kept)
    one = next(speculate_tree(FULL, drafter, ids, 9, **WARM))
    assert one.drafted == [0, 1, 2, 0] and one.steps == 0
    alone = acceptance(one.p_target[:-1], one.q_draft)
    assert alone.tolist() == [one.p_target[i, x].item() for i, x in enumerate(one.drafted)]
    assert sum(kept * weight for kept, weight in law.items()) == pytest.approx(alone.cumprod(0).sum().item(), abs=1e-12)


def test_no_uniform_is_handed_out_twice_and_the_drafter_asks_for_none():
    dice = Ledger([5])
    done = list(speculate_tree(TABLE, PromptLookup(3), [1, 0, 1], 40, dice=dice, **WARM))
    assert len(dice.handed) == len(set(dice.handed)) == sum(
        min(one.kept + 1, len(one.drafted)) + 1 for one in done) > 40


@pytest.mark.parametrize("settings", [{"count": 0}, {"longest": 0}])
def test_bad_requests(settings):
    with pytest.raises(RequestError, match="at least 1"):
        PromptLookup(**settings)
