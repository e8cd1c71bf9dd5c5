"""Suffix decoding: it drafts what followed most often, by a slow version that counts everything; and its past."""

import random
from collections import Counter
from fractions import Fraction
from functools import partial

import pytest
import torch

from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.copies.suffix import SuffixDrafter
from nanospec.methods.rules.traversal import each_text
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.tree_draft import of_text
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate, tokens_of
from nanospec.text import Text

FULL, GPT, PAST = TableModel(3, 5, zeros=0), small_gpt(11, 2, 1), [[0, 1, 2, 0], [1, 1, 0, 2], []]


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
                longer[(*before, token)] = share * n / len(after)
        found, level = found | longer, longer
    return found


def candidates(ids, past, count, tree, longest, least):
    """For every length of the match, in the past and in the text: (all shares, the greatest sum of `count` of them)."""
    for texts in past, [ids]:
        for n in range(1, min(longest, len(ids)) + 1):
            found = shares(texts, ids[-n:], count, tree)
            likeliest = sorted((share for share in found.values() if share >= least), reverse=True)
            yield found, sum(likeliest[:count], Fraction(0))


def drafted(drafter, texts, lengths):
    """Tokens, parents of each text's own nodes, after so much of each; what stands beyond a length is rubbish."""
    text = Text(texts, 3, 10)
    drafter.begin(text)
    drafter.read(text, range(len(texts)), None)
    for of_each in lengths:
        text.length[:] = torch.tensor(of_each)
        draft = drafter.propose(text, None, None, 0)
        for b, n in enumerate(of_each):
            tokens, parents, q_draft = of_text(draft, b)
            own = 1 + sum(parent >= 0 for parent in parents)
            assert tokens[0] == texts[b][n - 1] and draft.steps == 0
            assert q_draft[1:own].argmax(-1).tolist() == tokens[1:own] and q_draft.sum() == own - 1
            yield texts[b][:n], tokens[:own], parents[:own]


def is_best(ids, tokens, parents, past, count, *how):
    """Is it a candidate, whole, and has none a greater sum?"""
    paths = [()]
    for token, parent in zip(tokens[1:], parents[1:]):
        paths.append((*paths[parent], token))
    found = list(candidates(ids, past, count, *how))
    best = max(expected for _, expected in found)
    return len(paths) == len(set(paths)) <= count + 1 and any(
        expected == best == sum(shares.get(path, 0) for path in paths[1:]) for shares, expected in found)


@pytest.mark.parametrize("settings", [
    {"count": 3, "past": PAST, "least": 0.12}, {"count": 4, "past": PAST, "tree": True, "longest": 3},
    {"count": 6, "tree": True, "least": 0.34}, {"count": 4, "longest": 2, "least": 0.41}], ids=str)
def test_it_drafts_what_counting_everything_finds(settings):
    """One drafter for all texts, two at a time, which grow, and shrink at times."""
    made, drafter, sizes = random.Random(1), SuffixDrafter(**settings), set()
    slow = {"past": (), "tree": False, "longest": 8, "least": 0.1} | settings
    for i in range(30):
        texts = [[made.randrange(3 + i % 2) for _ in range(made.randint(1, 16))] for _ in range(2)]
        lengths = [[made.randint(1, len(ids)) for ids in texts] for _ in range(3)]
        for ids, tokens, parents in drafted(drafter, texts, lengths):
            assert is_best(ids, tokens, parents, *(slow[key] for key in ("past", "count", "tree", "longest", "least")))
            sizes.add(len(tokens) - 1)
    assert sizes == set(range(settings["count"] + 1))


@pytest.mark.parametrize("ids, settings, tokens, parents", [
    ([5, 1, 2, 6, 1, 3, 7, 1, 2, 8, 1], {"count": 2}, [2, 8], [0, 1]),
    ([5, 1, 2, 6, 1, 3, 7, 1, 2, 8, 1], {"count": 2, "tree": True}, [2, 3], [0, 0]),
    ([5, 1, 2, 6, 1, 3, 7, 1, 2, 8, 1], {"count": 9, "tree": True, "least": 0.5}, [2], [0]),
    ([4, 1, 2, 5, 1, 3, 1], {"count": 2, "tree": True, "least": 0.5}, [3, 2], [0, 0]),      # just as much is enough
    ([4, 1, 2, 6, 5, 1, 3, 6, 4, 1], {"count": 1}, [2], [0]),                       # two tokens are surer than one
    ([1, 2, 3], {"count": 2, "past": [[8, 3, 4, 5]]}, [4, 5], [0, 1]),              # only the past knows
    ([3, 1, 3], {"count": 2, "past": [[8, 3, 4, 5]]}, [1, 3], [0, 1]),              # of equals the text itself
    ([6, 2, 3, 6], {"count": 2, "least": 1}, [2, 3], [0, 1]),                       # nothing else ever followed
    ([3, 3], {"count": 4}, [3], [0]), ([1, 2, 3], {"count": 4}, [], []), ([1], {"tree": True}, [], [])])
def test_worked_examples(ids, settings, tokens, parents):
    (_, found, its_parents), = drafted(SuffixDrafter(**settings), [ids], [[len(ids)]])
    assert (found[1:], its_parents[1:]) == (tokens, parents)


def test_the_past_and_what_is_remembered_are_counted_together():
    drafter = SuffixDrafter(2, [[8, 3, 4]], tree=True, remember=99)
    *_, (_, tokens, parents) = drafted(drafter, [[3, 5], [1, 3]], [[2, 2]])
    assert (tokens, parents) == ([3, 5, 4], [-1, 0, 0])


@pytest.mark.parametrize("least", [0, 1.01])
def test_a_share_is_above_0_and_at_most_1(least):
    with pytest.raises(RequestError, match=rf"least must lie in \(0, 1\], got {least}"):
        SuffixDrafter(least=least)


def test_a_row_is_accepted_as_often_as_the_target_would_have_written_its_path():
    """Expected tokens accepted in the first round: for every node, the product of p_target along its path."""
    drafter, ids = SuffixDrafter(6, PAST, tree=True, longest=1), [0, 1, 2, 0, 2, 0]
    found, _ = walk(lambda dice: len(next(speculate(FULL, drafter, ids, 9, 0.7, dice=dice)).path))
    done, chance = next(speculate(FULL, drafter, ids, 9, 0.7)), [1.0]
    assert max(map(done.parents.count, done.parents)) > 1
    for token, parent in zip(done.tokens[1:], done.parents[1:]):
        chance.append(chance[parent] * done.p_target[parent][token].item())
    mean = sum(accepted * weight for accepted, weight in found.items())
    assert mean == pytest.approx(sum(chance) - 1, abs=1e-12)


@each_text
def matched(tokens, parents, q_draft, p_target, dice):
    """One draw for each node: where a child is what was drawn, on with it."""
    node = 0
    while True:
        token = int(dice.pick(p_target[node][None]))
        child = next((i for i, parent in enumerate(parents) if parent == node and tokens[i] == token), None)
        if child is None:
            return node, torch.eye(p_target.shape[1], dtype=p_target.dtype)[token]
        node = child


@pytest.mark.parametrize("drafter", [PromptLookup(3), SuffixDrafter(3, PAST, tree=True)])
def test_drawing_once_and_comparing_is_the_same_distribution_of_text_and_rows(drafter):
    """What any copier may do: each is the other's oracle, in a first round."""
    def play(rule, dice):
        done = next(speculate(FULL, drafter, [0, 1, 2, 0, 1], 9, 0.7, dice=dice, rule=rule))
        return tuple(done.emitted), len(done.path)
    assert distance(*(walk(partial(play, rule))[0] for rule in (matched, verify_tree)))[1] < 1e-12


def test_a_text_that_was_written_before_is_written_again_in_fewer_calls():
    """And no request changes the past."""
    ids = [2, 3, 2]
    past = [[4, 2], ids + list(generate(GPT, ids, 40, temperature=0))]
    before = [list(text) for text in past]
    calls = [sum(1 for _ in speculate(GPT, SuffixDrafter(past=texts), ids, 40, temperature=0)) for texts in ([], past)]
    assert calls[1] == 5 < calls[0]                                             # 9 tokens a call: all are accepted
    assert past == before


def test_a_past_that_was_drawn_with_the_same_dice_makes_the_text_wrong():
    """What no walk sees: the drafter knows how the coin will fall. With other seeds all is well."""
    ids, seeds, distances = [0, 1, 2], 250, []
    for shift in 0, 10 ** 6:
        seen = Counter()
        for seed in range(seeds):
            past = [ids + list(generate(FULL, ids, 2, seed=seed + shift))]
            seen[tuple(tokens_of(speculate(FULL, SuffixDrafter(2, past), ids, 2, seed=seed)))] += 1 / seeds
        distances.append(distance(seen, target_distribution(FULL, ids, 2))[1])
    assert distances[0] > 0.25 and distances[1] < 0.15      # 250 samples of these 9 outcomes: 0.05, and 0.09 is rare


@pytest.mark.parametrize("settings, words", [
    ({"longest": 0}, "at least 1"), ({"count": 10 ** 9}, "at most 4095"), ({"least": 0}, "lie in"),
    ({"least": 1.5}, "lie in"), ({"least": float("nan")}, "lie in"), ({"past": [[1, 3]]}, "outside 0..2"),
    ({"past": [[-1, 2]]}, "outside 0..2")], ids=str)
def test_what_cannot_be_is_refused(settings, words):
    """A past of another vocabulary, when the target is known."""
    with pytest.raises(RequestError, match=words):
        next(speculate(FULL, SuffixDrafter(**settings), [1], 4))
