"""Merged trees: whatever drafters are joined, the text has the target's law, every one of them is told what is its
own, and what is left out of the joining is seen."""

import pytest
import torch

from nanospec.draft import Tree
from nanospec.drafters.lookahead import Lookahead
from nanospec.drafters.merged import MergedDrafter, _join
from nanospec.drafters.tree import TreeDrafter
from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.probs import probs
from nanospec.proof.checks import Ledger
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, walk
from nanospec.proof.checks import TOLERANCE, node_cases, rounds
from nanospec.proof.tables import prompts_of, small_gpt
from nanospec.proof.zoo import Bug, changed
from nanospec.rules.traversal import verify_traversal
from nanospec.rules.tree import verify_tree
from nanospec.speculate import speculate_tree
from nanospec.speculate import tokens_of

ONE, TWO, CHAIN, TWO_ONE = [-1, 0], [-1, 0, 0], [-1, 0, 1], [-1, 0, 0, 1]
FULL, FIRST, SECOND = (TableModel(3, seed, zeros=0) for seed in (23, 123, 223))
ZEROS, FIRST_ZEROS, SECOND_ZEROS = TableModel(3, 1), TableModel(3, 2), TableModel(3, 4)
FEW, FIRST_FEW, SECOND_FEW = (TableModel(3, seed, zeros=0.5) for seed in (8, 58, 158))
GPT, GPT_FIRST, GPT_SECOND = small_gpt(4, 2, 3), small_gpt(4, 1, 4), small_gpt(4, 1, 5)
WARM = {"temperature": 0.7}


class Chosen:
    """A drafter without chance: two guesses behind the root, `at` and the token after it, and one behind the first."""

    size = 4

    def __init__(self, at=0):
        self.at = at

    def begin(self, text, vocab_size):
        self.vocab_size = vocab_size

    def propose(self, text, law, dice):
        tree = Tree(text.last(1)[0].tolist())
        eldest = tree.add(0, self.at)
        tree.add(0, (self.at + 1) % self.vocab_size)
        tree.add(eldest, self.at)
        return tree

    def commit(self, path, p_target):
        assert len(p_target) == self.size


def off(target, drafters, new, rule=verify_tree, ids=(1, 0), merged=MergedDrafter, **settings):
    """(paths, greatest error, total variation) of whole requests of `new` tokens."""
    return rounds(target, lambda ids, **request: speculate_tree(target, merged(drafters()), ids, rule=rule, **request),
                  ids, new, **settings)


WALKS = {
    "one and one": (FULL, lambda: [TreeDrafter(FIRST, ONE), TreeDrafter(SECOND, ONE)], 2, WARM),
    "one and one, zeros": (ZEROS, lambda: [TreeDrafter(FIRST_ZEROS, ONE), TreeDrafter(SECOND_ZEROS, ONE)], 3, WARM),
    "two and one": (ZEROS, lambda: [TreeDrafter(FIRST_ZEROS, TWO), TreeDrafter(SECOND_ZEROS, ONE)], 3, WARM),
    "two independent and one": (FULL, lambda: [TreeDrafter(FIRST, TWO, True), TreeDrafter(SECOND, ONE)], 2, WARM),
    "two chains": (FEW, lambda: [TreeDrafter(FIRST_FEW, CHAIN), TreeDrafter(SECOND_FEW, CHAIN)], 3, WARM),
    "a chain and chosen": (ZEROS, lambda: [TreeDrafter(FIRST_ZEROS, CHAIN), Chosen()], 3, WARM),
    "chosen and a chain": (ZEROS, lambda: [Chosen(), TreeDrafter(FIRST_ZEROS, CHAIN)], 3, WARM),
    "one and lookahead": (ZEROS, lambda: [TreeDrafter(FIRST_ZEROS, ONE), Lookahead(2, 3, 1)], 3, WARM),
    "three, end of text": (FULL, lambda: [TreeDrafter(FIRST_ZEROS, ONE), Chosen(1), TreeDrafter(SECOND_ZEROS, ONE)],
                           3, WARM | {"stop": {0}}),
    "top-k": (TableModel(4, 3), lambda: [TreeDrafter(TableModel(4, 4), ONE), TreeDrafter(TableModel(4, 5), ONE)], 3,
              {"temperature": 1.3, "top_k": 2}),
    "one in one": (ZEROS, lambda: [MergedDrafter([TreeDrafter(FIRST_ZEROS, ONE), Chosen(2)]),
                                   TreeDrafter(SECOND_ZEROS, ONE)], 3, WARM),
}


@pytest.mark.parametrize("rule", [verify_tree, verify_traversal])
@pytest.mark.parametrize("setting", WALKS)
def test_the_text_has_the_law_of_the_target(setting, rule):
    target, drafters, new, settings = WALKS[setting]
    paths, error, tv = off(target, drafters, new if rule is verify_tree else 2, rule, **settings)
    assert paths > 10 and error < TOLERANCE and tv < TOLERANCE


@pytest.mark.parametrize("rule", [verify_tree, verify_traversal])
def test_a_node_has_the_targets_law_whatever_the_laws(rule):
    """T0: drawn and chosen guesses in any order, of laws with zeros, equal, disjoint, one-hot."""
    cases, shared, ways = list(node_cases()), 0, ["da", "ad", "dd", "db", "dad"]
    for i, (name, p_target, q_draft) in enumerate(cases[:60:6] + cases[60:]):
        laws = {"d": q_draft, "b": p_target, "a": None}

        def play(dice):
            joined = Tree([0])
            for letter in ways[i % len(ways)]:
                law = laws[letter]
                tree = Tree([0])
                tree.add(0, 1 if law is None else int(dice.pick(law[None])), law)
                _join(joined, tree)
            path, token = rule(joined, torch.stack([p_target] + [torch.eye(5).to(p_target)[4]] * 3), dice)
            return joined.tokens[path[0]] if path else token, len(joined.tokens) - len({*joined.tokens[1:]}) - 1

        law, _ = walk(play)
        shared += any(twins > 0 for _, twins in law)
        tokens = {}
        for (token, _), weight in law.items():
            tokens[token] = tokens.get(token, 0.0) + weight
        assert distance(tokens, dict(enumerate(p_target.tolist())))[0] < TOLERANCE, name
    assert shared > 5


def test_what_is_shared_has_one_row_and_as_many_coins_as_were_drawn():
    """The rows, token and parent, of three trees joined; and that a later coin for a token never stands."""
    half, ends = torch.tensor([[.5, .5, 0, 0], [.5, 0, 0, .5]], dtype=torch.float64)
    joined, drawn, other, chosen = Tree([3]), Tree([3]), Tree([3]), Tree([3])
    drawn.add(drawn.add(0, 0, half), 1, half)
    other.add(other.add(0, 0, ends), 3, ends)
    chosen.add(chosen.add(0, 0), 1)
    assert [_join(joined, tree) for tree in (drawn, other, chosen)] == [[0, 1, 2], [0, 1, 4], [0, 1, 2]]
    assert joined.tokens == [3, 0, 1, 0, 3] and joined.parents == [-1, 0, 1, 0, 1]
    assert [law is half for law in joined.q_draft] == [False, True, True, False, False]
    assert [law is ends for law in joined.q_draft] == [False, False, False, True, True]
    p_target = torch.tensor([[.3, .3, .3, .1]] * 5, dtype=torch.float64)
    for rule in (verify_tree, verify_traversal):
        paths = walk(lambda dice: tuple(rule(joined, p_target, dice)[0]))[0].keys()
        assert paths == {(), (1,), (1, 2), (1, 4)}


def test_a_merged_drafter_of_one_is_that_drafter():
    """Path for path: the same rounds with the same probability."""
    def of(drafter):
        return walk(lambda dice: tuple((tuple(one.drafted), tuple(one.path), one.token) for one in speculate_tree(
            ZEROS, drafter(), [1, 0], 2, dice=dice, **WARM)))[0]
    alone = of(lambda: TreeDrafter(FIRST_ZEROS, TWO_ONE))
    assert distance(alone, of(lambda: MergedDrafter([TreeDrafter(FIRST_ZEROS, TWO_ONE)])))[0] < TOLERANCE


def kept(drafters, merged=MergedDrafter):
    """Expected guesses kept in the first round, exact."""
    law, _ = walk(lambda dice: next(speculate_tree(FULL, merged(drafters()), [1, 0], 9, dice=dice, **WARM)).kept)
    return sum(count * weight for count, weight in law.items())


def test_two_drafters_keep_more_than_the_first_alone_and_sharing_more_than_not():
    first, second = (lambda: TreeDrafter(FIRST, CHAIN)), (lambda: TreeDrafter(SECOND, CHAIN))
    both = kept(lambda: [first(), second()])
    assert both > kept(lambda: [first()]) + .1 and both > kept(lambda: [second()]) + .1
    apart = kept(lambda: [first(), second()], spoilt("row if elder is None else elder", "row"))
    assert both > apart + .01                           # exact too, but what stands behind a second coin is lost


class Watched(TreeDrafter):
    """Holds what it is told, and its own laws, against those of the whole text, read anew; and counts rounds that kept
    more than it had guessed."""

    def __init__(self, draft, topology, target):
        super().__init__(draft, topology)
        self.target, self.wrong, self.beyond, self.own = target, 0.0, 0, 0

    def begin(self, text, vocab_size):
        super().begin(text, vocab_size)
        self.told = None

    def propose(self, text, law, dice):
        ids = text.tokens[0, :int(text.length)].tolist()
        if self.told is not None:                       # the longest of its paths that the text has taken
            taken = ids[self.before:]
            longest = max((row for row in range(len(self.tree.tokens)) if self.guesses(row) == taken[:-1][:len(
                self.guesses(row))]), key=self.tree.depths().__getitem__)
            self.wrong += self.guesses(self.told[-1] if self.told else 0) != self.guesses(longest)
            self.wrong += any(self.tree.parents[row] != parent for parent, row in zip([0, *self.told], self.told))
            self.beyond += len(taken) - 1 > len(self.told) > 0
            self.own += len(self.told) > 1
        tree = super().propose(text, law, dice)
        self.before, self.ids, self.tree, self.law = len(ids), ids, tree, law
        for row, parent in enumerate(tree.parents):
            if row and tree.children(parent)[0] == row:
                self.compare(self.draft, parent, tree.q_draft[row])
        return tree

    def commit(self, path, p_target):
        super().commit(path, p_target)
        self.told = list(path)
        self.wrong += len(p_target) != len(self.tree.tokens)
        for row in range(len(self.tree.tokens)):
            self.compare(self.target, row, p_target[row])

    def guesses(self, row):
        return [self.tree.tokens[i] for i in self.tree.path(row)]

    def compare(self, model, row, law):
        recomputed = self.law(model(torch.tensor([self.ids + self.guesses(row)]))[0, -1])
        self.wrong = max(self.wrong, (recomputed - law).abs().max().item())


def watched(merged=MergedDrafter):
    """Long runs of three drafters: the greatest error that one of them saw."""
    def drafters():
        return [Watched(GPT_FIRST, TWO_ONE, GPT), Chosen(), Watched(GPT_SECOND, CHAIN, GPT)]
    error, beyond, own = 0.0, [0, 0], [0, 0]
    for seed, ids in enumerate(prompts_of(4, 3, 5)):
        for rule in (verify_tree, verify_traversal):
            drafter = merged(drafters())
            text = list(ids)
            for one in speculate_tree(GPT, drafter, ids, 16, seed=seed, rule=rule, **WARM):
                for row in range(len(one.parents)):
                    tree = Tree([text[-1], *one.drafted], one.parents)
                    path = text + [tree.tokens[i] for i in tree.path(row)]
                    recomputed = probs(GPT(torch.tensor([path]))[0, -1], **WARM)
                    error = max(error, (recomputed - one.p_target[row]).abs().max().item())
                text += one.emitted
            for i, each in enumerate(drafter.drafters[::2]):
                error, beyond[i], own[i] = max(error, each.wrong), beyond[i] + each.beyond, own[i] + each.own
    assert error > TOLERANCE or min(beyond) > 0 and min(own) > 0        # else what such rounds leave was not seen
    return error


def test_every_drafter_is_told_its_own_rows_and_its_cache_is_right_next_round():
    assert watched() < TOLERANCE


def test_greedy_is_greedy():
    for seed, ids in enumerate(prompts_of(4, 10, 5)):
        drafter = MergedDrafter([TreeDrafter(GPT_FIRST, TWO_ONE), Chosen(), TreeDrafter(GPT_SECOND, CHAIN)])
        fast = tokens_of(speculate_tree(GPT, drafter, ids, 30, temperature=0, seed=seed))
        assert fast == list(generate(GPT, ids, 30, temperature=0))


@pytest.mark.parametrize("settings", [WARM, {"top_p": 0.8}, {"stop": {2}, "seed": 5}])
def test_lengths_stops_uniforms_and_a_second_request(settings):
    def drafters():
        return [TreeDrafter(GPT_FIRST, TWO_ONE), Chosen(), TreeDrafter(GPT_SECOND, TWO, True)]
    drafter, stop = MergedDrafter(drafters()), settings.get("stop", ())
    for new in (1, 2, 7, 30):
        dice = Ledger([settings.get("seed", 0)])
        done = list(speculate_tree(GPT, drafter, [2, 3], new, dice=dice, **settings))
        text = tokens_of(done)
        assert len(text) == new or text[-1] in stop
        assert not set(text[:-1]) & set(stop)
        assert len(dice.handed) == len(set(dice.handed))
        assert all(len(one.parents) <= drafter.size == 9 and one.steps == 3 for one in done)
        assert text == tokens_of(speculate_tree(GPT, MergedDrafter(drafters()), [2, 3], new, **settings))


def test_bad_requests():
    one = TreeDrafter(GPT_FIRST, ONE)
    for drafters in ([], [one, Chosen(), one]):
        with pytest.raises(RequestError, match="twice"):
            MergedDrafter(drafters)
    with pytest.raises(RequestError, match="tokenizer"):
        next(speculate_tree(ZEROS, MergedDrafter([Chosen(), one]), [1], 5))


def spoilt(old, new):
    return changed(Bug("", "", "", "", "drafters.merged", ((old, new),)))["MergedDrafter"]


TWIN, ADD = "if elder is None or q_draft is not None:", "joined.add(rows[parent], token, q_draft)"
JOIN, TELL = "for tree in self.trees]\n        return", "one.commit(tree.path(deepest), p_target[rows])"
GUESSES = "zip(tree.parents[1:], tree.tokens[1:], tree.q_draft[1:])"

# (what is done wrong, the first drafter's topology, old, new, least total variation of the first two tokens)
WRONG_LAWS = [
    ("what a second drafter has drawn too is dropped", ONE, TWIN, "if elder is None:", .06),
    ("a second coin has the first one's law", ONE, ADD,
     "joined.add(rows[parent], token, q_draft if elder is None else joined.q_draft[elder])", .03),
    ("a second coin counts as chosen, so takes nothing away", ONE, ADD,
     "joined.add(rows[parent], token, q_draft if elder is None else None)", .06),
    ("siblings stand in another order than they were drawn", TWO, GUESSES, f"list({GUESSES})[::-1]", .07),
    ("one law for all rows", ONE, JOIN, JOIN.replace("\n", "; joined.q_draft[1:] = [self.trees[0].q_draft[1]] * "
                                                     "(len(joined.tokens) - 1)\n"), .03)]


@pytest.mark.parametrize("wrong", WRONG_LAWS, ids=lambda wrong: wrong[0])
def test_a_wrong_joining_is_seen(wrong):
    _, topology, old, new, least = wrong
    assert off(FULL, lambda: [TreeDrafter(FIRST, topology), TreeDrafter(SECOND, ONE)], 2, merged=spoilt(old, new),
               **WARM)[2] > least


# What leaves the text exact: the walk passes it, and what a drafter is told shows it, where it costs anything.
ONLY_SLOWER = [
    ("the whole path is told to everybody", TELL, "one.commit(path, p_target[rows])", True),
    ("the target's laws are told by the merged tree's rows", TELL, "one.commit(tree.path(deepest), p_target)", True),
    ("nobody is told that anything was kept", TELL, "one.commit([], p_target[rows])", True),
    ("only a path that ends in an own row is told", "reversed(path)", "path[-1:]", True),
    ("a later drafter's siblings stand first", JOIN, "for tree in self.trees[::-1]][::-1]\n        return", False)]


@pytest.mark.parametrize("wrong", ONLY_SLOWER, ids=lambda wrong: wrong[0])
def test_what_leaves_the_text_exact_is_seen_by_who_is_told(wrong):
    _, old, new, seen = wrong
    merged = spoilt(old, new)
    assert off(FULL, lambda: [TreeDrafter(FIRST, ONE), TreeDrafter(SECOND, ONE)], 2, merged=merged,
               **WARM)[2] < TOLERANCE
    try:
        assert (watched(merged) > TOLERANCE) == seen
    except (AssertionError, IndexError):                # rows that a drafter does not have
        assert seen
