"""Suffix decoding: the guesses that followed most often are found, and whatever they are the law is left alone."""

import random
from collections import Counter
from fractions import Fraction
from functools import partial

import pytest

from nanospec.drafters.suffix import SuffixDrafter
from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.text import Text
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.proof.checks import rounds
from nanospec.proof.tables import small_gpt
from nanospec.proof.zoo import Bug, changed
from nanospec.speculate import speculate_tree
from nanospec.speculate import tokens_of

TABLE, FULL = TableModel(3, 1), TableModel(3, 5, zeros=0)
WARM, PAST = {"temperature": 0.7}, [[0, 1, 2, 0], [1, 1, 0, 2], []]


def shares(texts, tail, depth, tree):
    """The slow, obvious version, in fractions: continuation of `tail` -> its share, for all of up to `depth` tokens; if
    not `tree`, the likeliest token each time, of equals the one that stood there last.
    """
    found, level = {}, {(): Fraction(1)}
    for _ in range(depth):
        longer = {}
        for before, share in level.items():
            context = [*tail, *before]
            after = [ids[at + len(context)] for ids in texts for at in range(len(ids) - len(context))
                     if ids[at:at + len(context)] == context]
            times = Counter(after[::-1])
            for token, n in times.items() if tree else times.most_common(1):
                longer[*before, token] = share * n / len(after)
        found, level = found | longer, longer
    return found


def candidates(ids, past, count, tree, longest, least):
    """For every length of the match, in the past and in the text: (all shares, the greatest sum of `count` of them)."""
    for texts in past, [ids]:
        for n in range(1, min(longest, len(ids)) + 1):
            found = shares(texts, ids[-n:], count, tree)
            likeliest = sorted((one for one in found.values() if one >= least), reverse=True)
            yield found, sum(likeliest[:count], Fraction(0))


def proposals(drafter, ids, lengths):
    """What it guesses as the text grows; what stands beyond the length is rubbish."""
    text = Text([ids], 3)
    text.tokens[0, len(ids):] = ids[0]
    text.length[0] = lengths[0]
    drafter.begin(text, 9)
    for length in lengths:
        text.length[0] = length
        tree = drafter.propose(text, None, None)
        assert tree.tokens[0] == ids[length - 1] and tree.q_draft == [None] * len(tree.tokens) and tree.steps == 0
        yield tree


def is_best(tree, ids, past, count, *how):
    """Is it a candidate, whole, and has none a greater sum?"""
    rows = [tuple(tree.tokens[i] for i in tree.path(row)) for row in range(1, len(tree.tokens))]
    found = list(candidates(ids, past, count, *how))
    best = max(expected for _, expected in found)
    return len(rows) == len(set(rows)) <= count and any(
        expected == best == sum(shares.get(row, 0) for row in rows) for shares, expected in found)


SETTINGS = [{"count": 3, "past": PAST, "least": 0.12}, {"count": 4, "past": PAST, "tree": True, "longest": 3},
            {"count": 6, "tree": True, "least": 0.34}, {"count": 4, "longest": 2, "least": 0.41}]


def disagreements(drafter_class, settings=SETTINGS, each=40):
    """How often it guesses what is not best, one drafter for all texts; and of how many."""
    made, wrong, total = random.Random(1), 0, 0
    for setting in settings:
        drafter = drafter_class(**setting)
        slow = [setting.get("past", ()), setting["count"], setting.get("tree", False), setting.get("longest", 8),
                setting.get("least", 0.1)]
        for i in range(each):
            ids = [made.randrange(3 + i % 2) for _ in range(made.randint(1, 16))]
            lengths = sorted({made.randint(1, len(ids)), len(ids)})
            total += len(lengths)
            try:
                for tree, length in zip(proposals(drafter, ids, lengths), lengths):
                    wrong += not is_best(tree, ids[:length], *slow)
            except (IndexError, ZeroDivisionError, AssertionError):             # it fell over: a mutant
                wrong += 1
    return wrong, total


def test_it_guesses_what_counting_everything_finds():
    wrong, total = disagreements(SuffixDrafter, each=100)
    assert wrong == 0 and total > 500


@pytest.mark.parametrize("ids, settings, tokens, parents", [
    ([5, 1, 2, 6, 1, 3, 7, 1, 2, 8, 1], {"count": 2}, [2, 8], [0, 1]),
    ([5, 1, 2, 6, 1, 3, 7, 1, 2, 8, 1], {"count": 2, "tree": True}, [2, 3], [0, 0]),
    ([5, 1, 2, 6, 1, 3, 7, 1, 2, 8, 1], {"count": 9, "tree": True, "least": 0.5}, [2], [0]),
    ([4, 1, 2, 6, 5, 1, 3, 6, 4, 1], {"count": 1}, [2], [0]),                       # two tokens are surer than one
    ([1, 2, 3], {"count": 2, "past": [[8, 3, 4, 5]]}, [4, 5], [0, 1]),              # only the past knows
    ([3, 1, 3], {"count": 2, "past": [[8, 3, 4, 5]]}, [1, 3], [0, 1]),              # of equals the text itself
    ([3, 3], {"count": 4}, [3], [0]), ([1, 2, 3], {"count": 4}, [], []), ([1], {"tree": True}, [], [])])
def test_worked_examples(ids, settings, tokens, parents):
    tree, = proposals(SuffixDrafter(**settings), ids, [len(ids)])
    assert (tree.tokens[1:], tree.parents[1:]) == (tokens, parents)


def spoilt(old, new):
    return changed(Bug("", "", "", "", "drafters.suffix", ((old, new),)))["SuffixDrafter"]


MATCH = "if at >= n and ids[at - n] == self.ids[-n]"
MUTANTS = [
    ("places not forgotten at begin", "self.own: Index = defaultdict(list)",
     "self.own = getattr(self, 'own', defaultdict(list))"),
    ("text not forgotten at begin", "self.ids: list[int] = []", "self.ids = getattr(self, 'ids', [])"),
    ("where the last tokens stand now is an earlier place", "if at < len(ids):\n                behind[ids[at]]",
     "if at <= len(ids):\n                behind[(ids + self.ids[-1:])[at]]"),
    ("what stands beyond the length is read too", "int(text.length)].tolist()", "].tolist()"),
    ("a match of one token only", MATCH, "if n == 1"),
    ("the longest match only", "for places in found.values():", "for places in [*found.values()][-1:]:"),
    ("the past is forgotten", "for index in self.past, self.own:", "for index in [self.own]:"),
    ("the text itself is forgotten", "for index in self.past, self.own:", "for index in [self.past]:"),
    ("the worst candidate", "if expected >= best:", "if expected <= best or not best:"),
    ("shares not multiplied", "(-share * part,", "(-part,"),
    ("small shares are proposed too", "-heap[0][0] < self.least", "False and -heap[0][0] < self.least"),
    ("the unlikeliest child", "key=lambda token: -len(behind[token])", "key=lambda token: len(behind[token])"),
    ("one guess too few", "== self.size:", "== self.size - 1:"),
    ("all behind the root", "tree.add(parent, token)", "tree.add(0, token)")]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant[0])
def test_a_mutant_guesses_worse(mutant):
    wrong, total = disagreements(spoilt(*mutant[1:]))
    assert wrong > total / 50


def one_draw_for_each_path(tree, p_target, dice):
    """The longest path that draws of its own agree with, and a new draw behind it, as REST and Medusa sample."""
    leaves = [row for row in range(len(tree.tokens)) if not tree.children(row)]
    best = []
    for leaf in leaves:
        agreed = 0
        for row in tree.path(leaf):
            drawn = int(dice.pick(p_target[tree.parents[row]][None]))
            if drawn != tree.tokens[row]:
                break
            agreed += 1
        best = max(best, tree.path(leaf)[:agreed], key=len)
    return best, int(dice.pick(p_target[best[-1] if best else 0][None]))


REPORTED = ("tree.add(parent, token)", "tree.add(parent, token, __import__('torch').full((3,), (1 + minus_share) / 2)"
            ".index_fill(0, __import__('torch').tensor(token), -minus_share))")


def test_wrong_laws_are_seen():
    """One draw for every path; shares that judge as if the guess had been drawn by them."""
    right, wrong = (drafter(3, PAST, tree=True) for drafter in (SuffixDrafter, spoilt(*REPORTED)))
    by_path = partial(speculate_tree, TABLE, right, rule=one_draw_for_each_path)
    assert rounds(TABLE, by_path, [1, 0, 1, 2, 1], 3, **WARM)[2] > 0.28
    assert rounds(TABLE, partial(speculate_tree, TABLE, wrong), [1, 0, 1, 2, 1], 3, **WARM)[2] > 0.38


def test_a_row_is_kept_as_often_as_the_target_would_have_written_its_path():
    """Expected guesses kept in the first round: for every row, the product of p_target along its path."""
    drafter, ids = SuffixDrafter(6, PAST, tree=True, longest=1), [0, 1, 2, 0, 2, 0]
    law, _ = walk(lambda dice: next(speculate_tree(FULL, drafter, ids, 9, dice=dice, **WARM)).kept)
    one = next(speculate_tree(FULL, drafter, ids, 9, **WARM))
    assert max(map(one.parents.count, one.parents)) > 1 and one.steps == 0
    chance = [1.0]
    for token, parent in zip(one.drafted, one.parents[1:]):
        chance.append(chance[parent] * one.p_target[parent][token].item())
    assert sum(kept * weight for kept, weight in law.items()) == pytest.approx(sum(chance) - 1, abs=1e-12)


def test_no_request_changes_the_past():
    past = [[2, 3, 2, 5, 1], [4, 2]]
    list(speculate_tree(small_gpt(11, 2, 1), SuffixDrafter(6, past, tree=True), [2, 3, 2], 30))
    assert past == [[2, 3, 2, 5, 1], [4, 2]]


def test_a_text_that_was_written_before_is_written_again_in_fewer_calls():
    target, ids = small_gpt(11, 2, 1), [2, 3, 2]
    text = list(generate(target, ids, 40, temperature=0))
    calls = [sum(1 for _ in speculate_tree(target, SuffixDrafter(past=past), ids, 40, temperature=0))
             for past in ([], [ids + text])]
    assert calls[1] == 5 < calls[0]                                             # 9 tokens a call: all are kept, always


def test_a_past_that_was_drawn_with_the_same_dice_makes_the_law_wrong():
    """What no walk sees: the guess knows how the coin will fall. With other seeds all is well."""
    ids, seeds, law, distances = [0, 1, 2], 600, target_distribution(FULL, [0, 1, 2], 2), []
    for shift in 0, 10 ** 6:
        seen = Counter()
        for seed in range(seeds):
            past = [ids + list(generate(FULL, ids, 2, seed=seed + shift))]
            seen[tuple(tokens_of(speculate_tree(FULL, SuffixDrafter(2, past), ids, 2, seed=seed)))] += 1 / seeds
        distances.append(distance(seen, law)[1])
    assert distances[0] > 0.25 and distances[1] < 0.1       # 600 samples of these 9 outcomes: 0.03, and 0.05 is rare


@pytest.mark.parametrize("settings", [{"count": 0}, {"longest": 0}, {"least": 0}, {"least": 1.5},
                                      {"least": float("nan")}], ids=str)
def test_bad_settings(settings):
    with pytest.raises(RequestError, match="at least 1"):
        SuffixDrafter(**settings)


@pytest.mark.parametrize("token", [3, -1])
def test_a_past_in_another_vocabulary_is_refused(token):
    with pytest.raises(RequestError, match="0..2"):
        next(speculate_tree(TABLE, SuffixDrafter(past=[[1, token]]), [1], 4))
