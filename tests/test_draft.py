"""The draft itself: what its rows see, which path they make, how it is built and lifted from one text to B. All against
the slow version, which follows parents by hand."""

import random

import pytest
import torch

from nanospec.dice import Dice
from nanospec.draft import MOST_ROWS, Draft, Tree, check_size
from nanospec.drafters.lookahead import Lookahead
from nanospec.drafters.lookup import PromptLookup
from nanospec.drafters.suffix import SuffixDrafter
from nanospec.drafters.tree import TreeDrafter
from nanospec.errors import RequestError
from nanospec.methods import RULES
from nanospec.proof.tables import small_gpt
from nanospec.proof.walk import distance, walk
from nanospec.rules.traversal import each_text
from nanospec.rules.tree import verify_tree
from nanospec.speculate import ModelDrafter, speculate, verify
from nanospec.text import Text


def ragged_draft(rows, made, V=7):
    """A random tree for each of three texts, wide, deep or a chain, and p_target. The first text has all rows; the
    others lack some, and what stands behind these."""
    parents = []
    for b in range(3):
        deep = made.choice([1, 2, rows])                    # a parent is one of the last `deep` rows
        own = [-1] + [made.randrange(max(0, row - deep), row) for row in range(1, rows)]
        for row in range(1, rows):
            if b and (made.random() < 0.1 or own[row] > 0 and own[own[row]] == -1):
                own[row] = -1
        parents.append(own)
    tokens = torch.tensor([[made.randrange(V) for _ in range(rows)] for _ in parents])
    q_draft, p_target = torch.tensor([made.random() for _ in range(6 * rows * V)]).double().view(2, 3, rows, V)
    q_draft = q_draft / q_draft.sum(-1, keepdim=True) * (torch.tensor(parents)[:, :, None] >= 0)
    return Draft(tokens, q_draft, torch.tensor(parents)), p_target / p_target.sum(-1, keepdim=True)


def path_of(parents, row):
    path = [row]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 17, 40])
def test_ancestors_and_paths(rows):
    made = random.Random(rows)
    for _ in range(6):
        draft, _ = ragged_draft(rows, made)
        ancestors = draft.ancestors()
        for b, parents in enumerate(draft.parents.tolist()):
            assert [seen.nonzero()[:, 0].tolist() for seen in ancestors[b]] == [path_of(parents, i) for i in
                                                                                range(rows)]
            present = [i for i, parent in enumerate(parents) if i == 0 or parent >= 0]
            row = made.choice(present)
            path, count = draft.path(torch.full((3,), row), ancestors)
            assert path[b, :count[b] + 1].tolist() == path_of(parents, row)
            assert path[b].sort().values.tolist() == list(range(rows))              # slots of a cache: none is lost


def test_a_chains_path_is_its_first_rows():
    chain = Draft(torch.zeros(2, 4, dtype=torch.int64), torch.zeros(2, 4, 5))
    assert chain.ancestors() is None
    path, count = chain.path(torch.tensor([0, 3]), None)
    assert path.tolist() == [[0, 1, 2, 3]] * 2 and count.tolist() == [0, 3]
    assert chain.of_text(1)[1] == [-1, 0, 1, 2]
    long = Draft(torch.zeros(1, 300, dtype=torch.int64), torch.zeros(1, 300, 1), torch.arange(-1, 299)[None])
    assert long.ancestors()[0].equal(torch.ones(300, 300).tril().bool())            # ways from row to row overflow


def test_trees_are_padded_to_one_draft_and_come_back():
    made, text = random.Random(3), Text([[1]] * 4, 0, 9)
    for _ in range(20):
        trees = [Tree(made.randrange(9)) for _ in range(4)]
        for tree in trees:
            for _ in range(made.randrange(6)):
                tree.add(made.randrange(len(tree.tokens)), made.randrange(9))
        draft = Draft.of(trees, text)
        n = max(len(tree.tokens) for tree in trees)
        assert draft.tokens.shape == (4, n) and draft.q_draft.shape == (4, n, 9) and draft.steps == 0
        assert (draft.parents is None) == all(tree.parents == list(range(-1, n - 1)) for tree in trees)
        for b, tree in enumerate(trees):
            tokens, parents, q_draft = draft.of_text(b)
            own = len(tree.tokens)
            assert tokens[:own] == tree.tokens and parents == tree.parents + [-1] * (n - own)
            assert q_draft[1:own].argmax(-1).tolist() == tree.tokens[1:]
            assert q_draft.sum(-1).tolist() == [0.0] + [1.0] * (own - 1) + [0.0] * (n - own)
    alone, chain = Tree(5), Tree(5)
    chain.behind(0, [1, 2])
    assert Draft.of([alone] * 2, text).parents is None and Draft.of([chain] * 2, text).parents is None
    assert Draft.of([chain, alone], text).parents.tolist() == [[-1, 0, 1], [-1, -1, -1]]


def test_what_is_put_behind_a_row_shares_what_stands_there():
    tree = Tree(7)
    assert [tree.behind(0, [1, 2]), tree.behind(0, [1, 3]), tree.behind(1, [2, 2]), tree.behind(0, []),
            tree.behind(3, [1])] == [2, 3, 4, 0, 5]
    assert tree.tokens == [7, 1, 2, 3, 2, 1] and tree.parents == [-1, 0, 1, 1, 2, 3]


class Counted(Dice):
    """Dice that note which column of which row was handed out."""

    def __init__(self, seeds):
        super().__init__(seeds)
        self.handed = []

    def _take(self, n):
        self.handed += [(u, self.column + i) for i in range(n) for u in self.u[:, self.column + i].tolist()]
        return super()._take(n)


def test_a_rule_for_one_text_is_the_same_in_any_batch_and_moves_the_dice_on():
    """The batch's next uniform is one that no row has seen, its pick's included."""
    @each_text
    def flips(tokens, parents, q_draft, p_target, dice):
        """As many coins as the first token says."""
        row = sum(bool(dice.flip(torch.full((1, 1), 0.5))) for _ in range(tokens[0]))
        return row, p_target[0]

    draft = Draft(torch.tensor([[2, 0], [0, 0], [5, 0]]), torch.zeros(3, 2, 7))
    p_target = torch.full((3, 2, 7), 1 / 7)
    dice = Counted([4, 5, 6])
    dice.refill(9)
    together = torch.stack(flips(draft, p_target, dice), 1).tolist()
    assert dice.column == 6 and len(dice.handed) == len(set(dice.handed)) == 2 + 0 + 5 + 3
    for b, seed in enumerate((4, 5, 6)):
        alone = Dice([seed])
        alone.refill(9)
        assert torch.stack(flips(Draft(draft.tokens[b:b + 1], draft.q_draft[:1]), p_target[:1], alone),
                           1).tolist() == [together[b]]


@pytest.mark.parametrize("rule", [verify_tree, RULES["traversal"]])
def test_ragged_trees_are_judged_as_if_each_text_were_alone(rule):
    made = random.Random(5)
    for seed in range(40):
        draft, p_target = ragged_draft(made.randint(2, 12), made)
        dice = Dice([seed, seed + 100, seed + 200])
        dice.refill(20)
        together = torch.stack(rule(draft, p_target, dice), 1).tolist()
        for b in range(3):
            present = [row for row in range(draft.tokens.shape[1]) if row == 0 or draft.parents[b, row] >= 0]
            alone = Dice([seed + 100 * b])
            alone.refill(20)
            if rule is verify_tree:         # it takes a uniform for a row that is lacking, too
                alone.u = alone.u[:, [row - 1 for row in present[1:]] + [draft.tokens.shape[1] - 1]]
            own = Draft(draft.tokens[b:b + 1, present], draft.q_draft[b:b + 1, present], torch.tensor(
                [[present.index(parent) if parent >= 0 else -1 for parent in draft.parents[b, present].tolist()]]))
            accepted, token = rule(own, p_target[b:b + 1, present], alone)
            assert [present[int(accepted)], int(token)] == together[b]


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_on_a_chain_verify_and_the_node_rule_are_each_others_oracle(gamma):
    """The joint distribution of (accepted, token); with the same uniforms the very same ones, for both flip a coin for
    every row in turn, and pick."""
    made = torch.Generator().manual_seed(gamma)
    tables = torch.rand(2, 300, gamma + 1, 3, generator=made, dtype=torch.float64)
    tables[:, :150] *= torch.rand(2, 150, gamma + 1, 3, generator=made) > 0.4           # the first half has zeros
    tables[..., 0] += 1e-3
    p_target, q_draft = tables / tables.sum(-1, keepdim=True)
    tokens = q_draft.flatten(0, 1).multinomial(1, generator=made).view(300, gamma + 1)
    q_draft[:, 0] = 0
    for b in range(140, 160):
        found = [walk(lambda dice: tuple(map(int, rule(Draft(tokens[b:b + 1], q_draft[b:b + 1]), p_target[b:b + 1],
                                                       dice))))[0] for rule in (verify, verify_tree)]
        assert max(distance(*found)) < 1e-14
    answers = []
    for rule in (verify, verify_tree):
        dice = Dice(range(300))
        dice.refill(gamma + 1)
        answers.append(torch.stack(rule(Draft(tokens, q_draft), p_target, dice)))
    assert answers[0].equal(answers[1]) and len(set(answers[0][0].tolist())) == gamma + 1


GPT = small_gpt(4, 1, 3)


@pytest.mark.parametrize("make", [
    lambda: ModelDrafter(GPT, MOST_ROWS), lambda: ModelDrafter(GPT, 0), lambda: PromptLookup(10 ** 9),
    lambda: PromptLookup(0), lambda: PromptLookup(longest=10 ** 9), lambda: SuffixDrafter(count=10 ** 9),
    lambda: Lookahead(10 ** 6), lambda: Lookahead(10 ** 3, 10 ** 3), lambda: TreeDrafter(GPT, [-1] + [0] * MOST_ROWS),
    lambda: TreeDrafter(GPT, [-1])])
def test_a_draft_of_no_tokens_or_of_too_many_is_refused_before_anything_is_laid_out(make):
    with pytest.raises(RequestError, match="at least 1|at most 4095"):
        make()


def test_as_many_rows_as_may_be_and_a_draft_longer_than_the_context():
    assert check_size(MOST_ROWS, "gamma") == MOST_ROWS
    for drafter in (ModelDrafter(GPT, 4000), PromptLookup(96), TreeDrafter(GPT, [-1] + [0] * 96)):
        with pytest.raises(RequestError, match="longer than the context of 96"):
            next(speculate(GPT, drafter, [1], 10))
    assert sum(len(done.emitted) for done in speculate(GPT, ModelDrafter(GPT, 95), [1], 95)) == 95
