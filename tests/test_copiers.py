"""Prompt lookup and suffix decoding: what holds for whoever copies, and draws nothing."""

from functools import partial

import pytest

from nanospec.drafters.lookup import PromptLookup
from nanospec.drafters.suffix import SuffixDrafter
from nanospec.generate import generate
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, walk
from nanospec.proof.checks import TOLERANCE, rounds
from nanospec.proof.tables import prompts_of, small_gpt
from nanospec.rules.traversal import verify_traversal
from nanospec.rules.tree import verify_tree
from nanospec.speculate import speculate_tree
from nanospec.speculate import tokens_of

TABLE, FULL, GPT = TableModel(3, 1), TableModel(3, 5, zeros=0), small_gpt(4, 2, 3)
WARM, PAST = {"temperature": 0.7}, [[0, 1, 2, 0], [1, 1, 0, 2], []]
COPIERS = {"latest": PromptLookup(3), "earliest": PromptLookup(2, 2, earliest=True), "path": SuffixDrafter(3, PAST),
           "tree": SuffixDrafter(4, PAST, tree=True)}


@pytest.mark.parametrize("rule", [verify_tree, verify_traversal])
@pytest.mark.parametrize("settings", [WARM, WARM | {"top_k": 2}, {"top_p": 0.8}, WARM | {"stop": {2}}], ids=str)
@pytest.mark.parametrize("drafter", COPIERS.values(), ids=COPIERS)
def test_whole_requests_have_the_law_of_the_target(drafter, settings, rule):
    """One drafter for all paths: what it forgot to forget would show as odds that change between two of them."""
    for target, ids, new in (TABLE, [1, 0, 1, 2, 1], 4), (FULL, [0, 1, 2, 0, 1, 2], 4), (GPT, [2, 3, 1, 2], 3):
        paths, error, tv = rounds(target, partial(speculate_tree, target, drafter, rule=rule), ids, new, **settings)
        assert paths > 1 and max(error, tv) < TOLERANCE


def matched(tree, p_target, dice):
    """One draw for each row: where a child is what was drawn, on with it."""
    row, path = 0, []
    while True:
        token = int(dice.pick(p_target[row][None]))
        row = tree.find(row, token)
        if row is None:
            return path, token
        path.append(row)


@pytest.mark.parametrize("drafter, ids", [(PromptLookup(3), [0, 1, 2, 0, 1, 2]),
                                          (SuffixDrafter(3, PAST, tree=True), [0, 1, 2, 0, 1])])
def test_drawing_once_and_comparing_is_the_same_law_of_text_and_rounds(drafter, ids):
    def play(rule):
        return walk(lambda dice: tuple((tuple(one.emitted), one.kept) for one in speculate_tree(
            FULL, drafter, ids, 4, dice=dice, rule=rule, **WARM)))[0]
    assert distance(play(matched), play(verify_tree))[1] < TOLERANCE


@pytest.mark.parametrize("drafter", [PromptLookup(), PromptLookup(3, 5), PromptLookup(earliest=True), SuffixDrafter(),
                                     SuffixDrafter(tree=True), SuffixDrafter(5, [list(range(11)) * 3], tree=True)])
def test_greedy_is_greedy_and_guesses_are_kept(drafter):
    target, kept = small_gpt(11, 2, 1), 0
    for ids in prompts_of(11, 20, 9):
        done = list(speculate_tree(target, drafter, ids, 40, temperature=0))
        assert tokens_of(done) == list(generate(target, ids, 40, temperature=0))
        kept += sum(one.kept for one in done)
    assert kept > 400


@pytest.mark.parametrize("settings", [{"temperature": 0.5, "top_k": 5}, {"top_p": 0.6}, {"stop": {4, 7}, "seed": 5}])
@pytest.mark.parametrize("make", [PromptLookup, partial(SuffixDrafter, past=[[2, 3, 2, 5, 1], [4, 2]], tree=True)])
def test_lengths_stops_and_a_second_request(make, settings):
    """None remembers another request."""
    target, stop, drafter = small_gpt(11, 2, 1), settings.get("stop", ()), make(6)
    for new in (1, 2, 7, 30):
        done, alone = (list(speculate_tree(target, one, [2, 3, 2], new, **settings)) for one in (drafter, make(6)))
        text = tokens_of(done)
        assert (len(text) == new or text[-1] in stop) and not set(text[:-1]) & set(stop)
        assert [(one.drafted, one.parents, one.emitted) for one in done] == [
            (one.drafted, one.parents, one.emitted) for one in alone]
