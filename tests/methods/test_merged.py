"""Merged trees: whatever drafters are joined the text is exact, and every drafter is told what is its own."""

import pytest
import torch

from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.errors import RequestError
from nanospec.methods.copies.lookahead import Lookahead
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.rules.traversal import verify_traversal
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.merged import MergedDrafter
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.probs import Sampling, probs
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.proof.walk import distance, walk
from nanospec.speculate import speculate
from tests.proof.compare import node_cases, rounds, together

ONE, TWO, CHAIN = [-1, 0], [-1, 0, 0], [-1, 0, 1]
FULL, FIRST, SECOND = (TableModel(3, seed, zeros=0) for seed in (23, 123, 223))
ZEROS, FIRST_ZEROS, SECOND_ZEROS = TableModel(3, 1), TableModel(3, 2), TableModel(3, 4)
GPT, GPT_FIRST, GPT_SECOND = small_gpt(4, 2, 3), small_gpt(4, 1, 4), small_gpt(4, 1, 5)
WARM = {"temperature": 0.7}


class Given(Drafter):
    """Proposes one draft, or draws one token from a given distribution."""

    def __init__(self, draft=None, q_draft=None):
        self.draft, self.q_draft = draft, q_draft
        self.size = 2 if draft is None else draft.tokens.shape[1]

    def propose(self, text, sampling, dice, kv_length, lag=0):
        if self.q_draft is None:
            return self.draft
        token = dice.pick(self.q_draft[None])
        return Draft(torch.stack([token * 0, token], 1), torch.stack([self.q_draft * 0, self.q_draft])[None])


def draft_of(tokens, parents, *q_draft):
    return TreeDraft(torch.tensor([tokens]), torch.stack([torch.zeros_like(q_draft[0]), *q_draft])[None],
                     torch.tensor([parents]))


def tree(draft, topology, independent=False):
    return lambda: TreeDrafter(draft, topology, independent)


WALKS = {
    "one and one": (FULL, [tree(FIRST, ONE), tree(SECOND, ONE)], 2, WARM),
    "two independent and one": (ZEROS, [tree(FIRST_ZEROS, TWO, True), tree(SECOND_ZEROS, ONE)], 2, WARM),
    "copied and a chain": (ZEROS, [lambda: PromptLookup(2), tree(FIRST_ZEROS, CHAIN)], 2, WARM),
    "one and lookahead, end of text": (ZEROS, [tree(FIRST_ZEROS, ONE), lambda: Lookahead(2, 3, 1)], 3,
                                       WARM | {"stop": {0}}),
    "one in one, top-k": (ZEROS, [lambda: MergedDrafter([TreeDrafter(FIRST_ZEROS, ONE), PromptLookup(1)]),
                                  tree(SECOND_ZEROS, ONE)], 3, {"temperature": 1.3, "top_k": 2}),
}


@pytest.mark.parametrize("setting, rule", [
    *((setting, verify_tree) for setting in WALKS), ("one and one", verify_traversal),
    *(pytest.param(setting, verify_traversal, marks=pytest.mark.slow) for setting in [*WALKS][1:])])
def test_the_text_has_the_distribution_of_the_target(setting, rule):
    target, drafters, new, settings = WALKS[setting]
    paths, error, tv = rounds(target, lambda ids, **request: speculate(
        target, MergedDrafter([make() for make in drafters]), ids, rule=rule, **request), [1, 0, 1], new, **settings)
    assert paths > 10 and max(error, tv) < 1e-12


@pytest.mark.parametrize("rule", [verify_tree, verify_traversal])
def test_a_node_has_the_targets_distribution_whatever_was_joined(rule):
    """T0: drawn and chosen tokens in any order, from distributions with zeros, equal, disjoint, one-hot."""
    certain, ways, shared = torch.eye(5, dtype=torch.float64), ["dc", "cd", "dd", "db", "dcd"], 0
    for i, (name, p_target, q_draft) in enumerate([*node_cases()][::5]):
        from_what = {"d": q_draft, "b": p_target, "c": certain[1]}
        drafter = MergedDrafter([Given(q_draft=from_what[letter]) for letter in ways[i % len(ways)]])

        def play(dice):
            draft = drafter.propose(None, None, dice, 0)
            tokens = draft.tokens[0].tolist()
            rows = torch.stack([p_target] + [certain[4]] * (len(tokens) - 1))[None]
            accepted, token = rule(draft, rows, dice)
            return tokens[accepted] if accepted else int(token), len(tokens) > 1 + len(set(tokens[1:]))

        found = walk(play)[0]
        shared += any(twins for _, twins in found)
        tokens = {x: found.get((x, True), 0.0) + found.get((x, False), 0.0) for x in range(5)}
        assert distance(tokens, dict(enumerate(p_target.tolist())))[0] < 1e-12, name
    assert shared > 2


def test_what_is_shared_has_one_row_and_as_many_coins_as_were_drawn():
    """Three trees joined, their rows in it; a later coin for a token never stands."""
    half, ends, one = torch.tensor([[.5, .5, 0, 0], [.5, 0, 0, .5], [1, 0, 0, 0]], dtype=torch.float64)
    drafter = MergedDrafter(list(map(Given, (draft_of([3, 0, 1], [-1, 0, 1], half, half),
                                             draft_of([3, 0, 3], [-1, 0, 1], ends, ends),
                                             draft_of([3, 0, 1], [-1, 0, 1], one, one.roll(1))))))
    draft = drafter.propose(None, None, None, 0)
    assert draft.tokens.tolist() == [[3, 0, 1, 0, 3]] and draft.parents.tolist() == [[-1, 0, 1, 0, 1]]
    assert draft.q_draft[0].equal(torch.stack([one * 0, half, half, ends, ends]))
    assert [rows.tolist() for rows in drafter.rows] == [[[0, 1, 2]], [[0, 1, 4]], [[0, 1, 2]]]
    p_target = torch.tensor([[[.3, .3, .3, .1]] * 5], dtype=torch.float64)
    for rule in (verify_tree, verify_traversal):
        assert walk(lambda dice: int(rule(draft, p_target, dice)[0]))[0].keys() == {0, 1, 2, 4}


def test_the_example():
    """A chain 5 6, drawn, and a chain 5 7, copied; and 5 7 drawn too."""
    even, copied = torch.full((8,), 1 / 8), torch.eye(8)
    drawn = Given(draft_of([0, 5, 6], [-1, 0, 1], even, even))
    for other, tokens, parents in ((draft_of([0, 5, 7], [-1, 0, 1], copied[5], copied[7]), [0, 5, 6, 7], [-1, 0, 1, 1]),
                                   (draft_of([0, 5, 7], [-1, 0, 1], even, even), [0, 5, 6, 5, 7], [-1, 0, 1, 0, 1])):
        draft = MergedDrafter([drawn, Given(other)]).propose(None, None, None, 0)
        assert (draft.tokens.tolist(), draft.parents.tolist()) == ([tokens], [parents])


def test_a_merged_drafter_of_one_is_that_drafter():
    """Path for path: the same rounds with the same probability."""
    def rounds_of(drafter):
        return walk(lambda dice: tuple((tuple(done.tokens), tuple(done.path), done.token) for done in speculate(
            ZEROS, drafter, [1, 0], 2, dice=dice, **WARM)))[0]
    alone = rounds_of(TreeDrafter(FIRST_ZEROS, TWO))
    assert distance(alone, rounds_of(MergedDrafter([TreeDrafter(FIRST_ZEROS, TWO)])))[0] < 1e-12


def test_two_drafters_have_more_accepted_than_either():
    def expected(*drafters):
        """Draft tokens accepted in the first round, exact."""
        found = walk(lambda dice: len(next(speculate(FULL, MergedDrafter([make() for make in drafters]), [1, 0], 9,
                                                     dice=dice, **WARM)).path))[0]
        return sum(count * weight for count, weight in found.items())
    first, second = tree(FIRST, ONE), tree(SECOND, ONE)
    assert expected(first, second) > max(expected(first), expected(second)) + .1


class Watched(TreeDrafter):
    """Holds what it is told, and its own distributions, against those of the whole text, read anew."""

    def __init__(self, draft, topology):
        super().__init__(draft, topology)
        self.error, self.beyond, self.own, self.lacked = 0.0, 0, 0, 0

    def propose(self, text, sampling, dice, kv_length, lag=0):
        self.text, self.before = text, text.ids()
        self.proposed = draft = super().propose(text, sampling, dice, kv_length, lag)
        for b, parents in enumerate(draft.parents.tolist()):
            self.lacked += parents.count(-1) - 1
            firsts = [row for row, parent in enumerate(parents) if parent >= 0 and parents.index(parent) == row]
            self.compare(self.reader.model, draft, b, [(self.path(b, parents[row]), draft.q_draft[b, row])
                                                       for row in firsts])
        return draft

    def commit(self, draft, path, count, p_target, hidden):
        """Its own rows come first. Other rows that it is told of are those of the accepted path."""
        assert draft.q_draft.shape == (*draft.tokens.shape, 4)
        for b, (old, new, rows) in enumerate(zip(self.before, self.text.ids(), path.tolist())):
            accepted = rows[:count[b] + 1]
            self.error += [draft.tokens[b, row].item() for row in accepted[1:]] != new[len(old):-1]
            own = [row for row, parent in enumerate(self.proposed.parents[b].tolist()) if row == 0 or parent >= 0]
            self.error += draft.tokens[b, own].tolist() != self.proposed.tokens[b, own].tolist()
            self.error += any(self.path(b, row) != accepted[:i + 1] for i, row in enumerate(accepted)
                              if row < self.size)
            self.own += sum(row < self.size for row in accepted[1:])
            self.beyond += sum(row >= self.size for row in accepted[1:])
            self.compare(GPT, draft, b, [(self.path(b, row), p_target[b, row]) for row in own])
            self.compare(GPT, draft, b, [(accepted[:i + 1], p_target[b, row]) for i, row in enumerate(accepted)])

    def path(self, b, row):
        """From the root to one of its own rows."""
        return self.proposed.ancestors[b, row].nonzero()[:, 0].tolist()

    def compare(self, model, draft, b, found):
        """What the model predicts after these paths."""
        for path, its in found:
            again = probs(model(torch.tensor([self.before[b] + draft.tokens[b, path[1:]].tolist()]))[0, -1], 0.8, 3)
            self.error = max(self.error, (again - its).abs().max().item())


NESTED = {"flat": lambda first, second: MergedDrafter([first, PromptLookup(3), second]),
          "one in one": lambda first, second: MergedDrafter([MergedDrafter([first, second]), PromptLookup(3)])}


@pytest.mark.parametrize("join", NESTED.values(), ids=NESTED)
def test_every_drafter_is_told_of_the_whole_path_and_its_cache_is_right_next_round(join):
    """In a batch of two ragged texts; where a text lacks rows, and where others drafted what was accepted."""
    ours = [Watched(GPT_FIRST, [-1, 0, 0, 0, 0, 0, 1]), Watched(GPT_SECOND, CHAIN)]
    together(GPT, join(*ours), [[2, 1, 2, 1], [3, 3, 0, 3, 3, 0, 3]], 24, Dice([1, 2]), Sampling(0.8, 3))
    assert max(each.error for each in ours) < 1e-12
    assert ours[0].lacked and min(each.beyond for each in ours) and min(each.own for each in ours)


def test_bad_requests():
    one = TreeDrafter(GPT_FIRST, ONE)
    for drafters in ([], [one, PromptLookup(), one]):
        with pytest.raises(RequestError, match="twice"):
            MergedDrafter(drafters)
    with pytest.raises(RequestError, match="at most 4095"):
        MergedDrafter([PromptLookup(3000), PromptLookup(3000)])
