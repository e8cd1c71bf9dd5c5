"""Traversal verification, walked: whatever the tree and however it was drawn, the text has the target's law, and no
fewer tokens are expected than from judging the guesses one by one."""

from collections import defaultdict

import pytest
import torch

from nanospec.dice import Dice
from nanospec.draft import Tree
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import completed, distance, target_distribution, walk
from nanospec.proof.checks import TOLERANCE
from nanospec.proof.zoo import Bug, changed
from nanospec.rules.block import verify_block
from nanospec.rules.traversal import verify_traversal

IDS = [1, 0]
WAYS = INDEPENDENT, WITHOUT, CHOSEN = "independent", "without replacement", "chosen"


class Table:
    """A TableModel and its settings; what it says behind a text is looked up once."""

    def __init__(self, seed, vocab_size=3, zeros=0.25, **settings):
        self.model, self.settings, self.seen = TableModel(vocab_size, seed, zeros), settings, {}

    def __call__(self, ids):
        if tuple(ids) not in self.seen:
            self.seen[tuple(ids)] = probs(self.model(torch.tensor([ids]))[0, -1], **self.settings)
        return self.seen[tuple(ids)]


def siblings(draft, ids, n, way, dice):
    """n children of one node, in the order drawn: (token, the law it was drawn from, or None)."""
    q_draft, drawn = draft(ids), []
    if way == CHOSEN:
        return [(token, None) for token in q_draft.topk(n).indices.tolist()]
    for _ in range(n):
        if q_draft.sum() == 0:                          # all that the draft thinks possible is drawn already
            break
        q_draft = q_draft / q_draft.sum()
        drawn.append((int(dice.pick(q_draft[None])), q_draft))
        if way == WITHOUT:
            q_draft = q_draft.index_fill(0, torch.tensor(drawn[-1][0]), 0.0)
    return drawn


def text(tree, row):
    return IDS + [tree.tokens[i] for i in tree.path(row)]


def laws(model, tree):
    return torch.stack([model(text(tree, row)) for row in range(len(tree.tokens))])


def grow(branches, draft, way, dice, draw=siblings):
    """Every row of depth d gets branches[d] children, as far as there are any to draw."""
    tree, level = Tree(IDS[-1:]), [0]
    for branch in branches:
        level = [tree.add(row, token, q_draft) for row in level
                 for token, q_draft in draw(draft, text(tree, row), branch, way, dice)]
    return tree


def judged(branches, target, draft, way, rule=verify_traversal, draw=siblings):
    """The law of (what was guessed, which rows stand, the token behind them)."""
    def play(dice):
        tree = grow(branches, draft, way, dice, draw)
        path, token = rule(tree, laws(target, tree), dice)
        return tuple(tree.tokens), tuple(path), token
    return walk(play)[0]


def one_round(*how):
    """The law of what a round emits."""
    law = defaultdict(float)
    for (guesses, path, token), weight in judged(*how).items():
        law[(*(guesses[row] for row in path), token)] += weight
    return law


def off(law, branches, target):
    """(greatest error, total variation) of a round that the target completes, from what the target writes alone."""
    new = len(branches) + 1
    law = completed(law, target.model, IDS, new, **target.settings)
    return distance(law, target_distribution(target.model, IDS, new, **target.settings))


def mean(law):
    return sum(len(tokens) * weight for tokens, weight in law.items())


def one_by_one(tree, p_target, dice):
    """The node rule (SpecInfer, Sequoia): from the root down, every child for its own sake."""
    row, drawn_from = 0, tree.laws(p_target)
    while True:
        law = p_target[row]
        for child in tree.children(row):
            q_draft, x = drawn_from[child], tree.tokens[child]
            if dice.flip((law[x] / q_draft[x]).view(1, 1)):
                row = child
                break
            residual = (law - q_draft).clamp(min=0)
            law = residual / residual.sum() if residual.sum() > 0 else law
        else:
            return tree.path(row), int(dice.pick(law[None]))


def block(tree, p_target, dice):
    drafted, q_draft = torch.tensor([tree.tokens[1:]]), torch.stack(tree.q_draft[1:])[None]
    kept, token = verify_block(drafted, q_draft, p_target[None], dice)
    return range(1, int(kept) + 1), int(token)


SETTINGS = {"no zeros": ({"zeros": 0.0}, {"zeros": 0.0}, 1), "zeros": ({"zeros": 0.3}, {"zeros": 0.3}, 3),
            "mostly zeros": ({"zeros": 0.6}, {"zeros": 0.6}, 4), "certain target": ({"temperature": 0}, {}, 2),
            "certain draft": ({}, {"temperature": 0}, 2), "both certain": ({"temperature": 0}, {"temperature": 0}, 4)}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("branches", [(2,), (3,), (1, 1), (2, 1), (2, 2)], ids=str)
def test_a_round_has_the_law_of_the_target(branches, way, setting):
    of_target, of_draft, tables = SETTINGS[setting]
    for seed in range(tables):
        target, draft = Table(seed, **of_target), Table(seed + 100, **of_draft)
        assert max(off(one_round(branches, target, draft, way), branches, target)) < TOLERANCE


def test_siblings_may_come_from_anywhere():
    """One drawn from the draft, one from another, one chosen: the tree of several drafters."""
    target, other = Table(5, zeros=0.1), Table(205)

    def draw(draft, ids, n, way, dice):
        return [(int(dice.pick(law[None])), law) for law in (draft(ids), other(ids))] + [(1, None)]

    law = one_round((3,), target, Table(105), INDEPENDENT, verify_traversal, draw)
    assert max(off(law, (3,), target)) < TOLERANCE


TABLES = [(Table(seed, zeros=seed % 3 * 0.2), Table(seed + 100, zeros=seed % 2 * 0.3)) for seed in range(20)]


@pytest.mark.parametrize("branches", [(1,), (1, 1), (1, 1, 1)], ids=str)
def test_on_a_chain_it_is_block_verification(branches):
    """Not the text's law alone: of every drafted chain each prefix is kept, and each token follows, as often."""
    for tables in TABLES[:8]:
        ours, theirs = (judged(branches, *tables, INDEPENDENT, rule) for rule in (verify_traversal, block))
        assert distance(ours, theirs)[0] < TOLERANCE


def test_the_toy_of_the_paper_on_block_verification():
    """p_target [1/3, 2/3] and q_draft [2/3, 1/3] everywhere, two guesses: 11/9 of them are kept, one by one 10/9."""
    p_target = torch.tensor([1, 2], dtype=torch.float64) / 3
    ours, plain = (one_round((1, 1), lambda ids: p_target, lambda ids: p_target.flip(0), INDEPENDENT, rule)
                   for rule in (verify_traversal, one_by_one))
    assert mean(ours) - 1 == pytest.approx(11 / 9, abs=1e-12) and mean(plain) - 1 == pytest.approx(10 / 9, abs=1e-12)


@pytest.mark.parametrize("way", [INDEPENDENT, WITHOUT])
@pytest.mark.parametrize("branches", [(2,), (1, 1), (2, 1)], ids=str)
def test_never_fewer_tokens_than_one_by_one(branches, way):
    more = [mean(one_round(branches, *tables, way)) - mean(one_round(branches, *tables, way, one_by_one))
            for tables in TABLES]
    assert min(more) > -1e-12
    if len(branches) == 1:
        assert max(more) < 1e-12                        # nothing stands behind a guess that could save it
    else:
        assert sum(gain > 0.01 for gain in more) >= 12 and max(more) > 0.08


@pytest.mark.parametrize("branches", [(3,), (2, 2), (2, 1, 1)], ids=str)
def test_guesses_that_were_chosen_are_judged_as_one_by_one(branches):
    for tables in TABLES:
        ours, plain = (one_round(branches, *tables, CHOSEN, rule) for rule in (verify_traversal, one_by_one))
        assert distance(ours, plain)[0] < TOLERANCE


def test_where_all_that_can_come_was_drawn_something_is_kept():
    law = one_round((3,), Table(3, zeros=0), Table(4, zeros=0), WITHOUT)
    assert {len(tokens) for tokens in law} == {2}


def test_the_example():
    tree, q_draft = Tree([0]), torch.tensor([.8, .2], dtype=torch.float64)
    tree.add(tree.add(0, 0, q_draft), 0, q_draft)
    p_target = torch.full((3, 2), .5, dtype=torch.float64)
    law, _ = walk(lambda dice: str(verify_traversal(tree, p_target, dice)))
    both, first = .625 ** 2, (1 - .625 ** 2) * .1125 / (.1125 + .375)
    assert law == pytest.approx({"([1, 2], 0)": both / 2, "([1, 2], 1)": both / 2, "([1], 1)": first,
                                 "([], 1)": 1 - both - first}, abs=1e-12)


def test_a_row_takes_one_uniform_at_most():
    """And where the target is certain, in float32 too, the path is the greedy one."""
    target, draft, dice, most = Table(1, 8, zeros=0.5), Table(2, 8, zeros=0.5), Dice([0]), 0
    for _ in range(50):
        dice.refill(10)
        tree = grow((2, 2, 1), draft, WITHOUT, dice)
        p_target = laws(target, tree)
        dice.refill(len(tree.tokens))
        verify_traversal(tree, p_target, dice)
        most = max(most, dice.column)
        dice.refill(len(tree.tokens))
        path, token = verify_traversal(tree, (p_target == p_target.amax(1, keepdim=True)).float(), dice)
        assert [tree.tokens[row] for row in path] + [token] == [int(p_target[row].argmax()) for row in [0, *path]]
        assert token not in [tree.tokens[child] for child in tree.children(path[-1] if path else 0)]
    assert most == 11


CHANCE, CHILDREN = "chance[row] * law[row][x] / q_draft[x]", "tree.children(row) for row"
LESS_CHANCE, LESS_LAW = "(total / (total + (1 - chance[row]))).nan_to_num(1.0)", "law[row] = residual / total"
BY_Q, BY_P = (f"sorted(tree.children(row), key=lambda child: -{law}[tree.tokens[child]]) for row"
              for law in ("laws[child]", "p_target[row]"))
CHAIN, PAIR = (1, 1), (2,)

# (what is done wrong, the tree on which it shows, how that is drawn, old, new, least total variation)
WRONG_RULES = [
    ("the parent's chance is forgotten", CHAIN, INDEPENDENT, CHANCE, "law[row][x] / q_draft[x]", .08),
    ("a chance above 1 is handed on", CHAIN, INDEPENDENT, ".clamp(max=1)\n", "\n", .07),
    ("the residual is that of one guess alone", CHAIN, INDEPENDENT, "(chance[row] * law[row] - q_draft)",
     "(law[row] - q_draft)", .08),
    ("so is its law, but not its total, vllm-ascend#7807", CHAIN, INDEPENDENT, LESS_LAW,
     "plain = (law[row] - q_draft).clamp(min=0); law[row] = plain / plain.sum()", .007),
    ("the chance outlives a refusal", CHAIN, INDEPENDENT, LESS_CHANCE, "chance[row]", .09),
    ("the chance is the residual's total", CHAIN, INDEPENDENT, LESS_CHANCE, "total", .07),
    ("the law outlives a refusal", CHAIN, INDEPENDENT, LESS_LAW, "pass", .12),
    ("only leaves get a coin", CHAIN, INDEPENDENT, "row == 0 or", "row == 0 or not tree.children(row) and", .09),
    ("the bonus is the parent's residual, EAGLE PR 47", PAIR, WITHOUT, "dice.pick(law[row][None])",
     "dice.pick(law[max(tree.parents[row], 0)][None])", .27),
    ("token 0 is taken for padding, EAGLE@b09a256", PAIR, WITHOUT, CHILDREN,
     "[child for child in tree.children(row) if tree.tokens[child]] for row", .14),
    ("siblings are sorted by q_draft", PAIR, WITHOUT, CHILDREN, BY_Q, .09),
    ("siblings are sorted by p_target", PAIR, WITHOUT, CHILDREN, BY_P, .17),
    ("equal siblings are judged once", PAIR, INDEPENDENT, CHILDREN, "[child for child in tree.children(row) if "
     "tree.tokens[child] not in [tree.tokens[i] for i in tree.children(row) if i < child]] for row", .02)]


def spoilt(old, new):
    return changed(Bug("", "", "", "", "rules.traversal", ((old, new),)))["verify_traversal"]


@pytest.mark.parametrize("wrong", WRONG_RULES, ids=lambda wrong: wrong[0])
def test_a_wrong_rule_is_seen(wrong):
    _, branches, way, old, new, least = wrong
    target, draft = Table(14, 4, zeros=0), Table(114, 4, zeros=0)
    assert off(one_round(branches, target, draft, way, spoilt(old, new)), branches, target)[1] > least


def stale(draft, ids, n, way, dice):
    """Every sibling reported as if it had been drawn first, EAGLE@2f982e2."""
    return [(token, draft(ids)) for token, _ in siblings(draft, ids, n, way, dice)]


def ordered(draft, ids, n, way, dice):
    """Drawn without replacement, put in the order of q_draft, and reported as if drawn in it."""
    tokens = [token for token, _ in siblings(draft, ids, n, way, dice)]
    tokens.sort(key=lambda token: -draft(ids)[token])
    left = [draft(ids).index_fill(0, torch.tensor(tokens[:i], dtype=torch.long), 0.0) for i in range(n)]
    return [(token, law / law.sum()) for token, law in zip(tokens, left)]


def pruned(draft, ids, n, way, dice):
    """One too many drawn, the unlikeliest dropped."""
    drawn = siblings(draft, ids, n + 1, way, dice)
    drawn.remove(min(drawn, key=lambda one: draft(ids)[one[0]]))
    return drawn


@pytest.mark.parametrize("draw, way, least", [(stale, WITHOUT, .03), (ordered, WITHOUT, .18),
                                              (pruned, INDEPENDENT, .14), (pruned, WITHOUT, .2)])
def test_a_tree_that_misreports_its_laws_is_seen(draw, way, least):
    target, draft = Table(14, 4, zeros=0), Table(114, 4, zeros=0)
    assert off(one_round(PAIR, target, draft, way, verify_traversal, draw), PAIR, target)[1] > least


def as_if_chosen(draft, ids, n, way, dice):
    return [(token, None) for token, _ in siblings(draft, ids, n, way, dice)]


@pytest.mark.parametrize("way, draw, order", [(CHOSEN, siblings, BY_P), (INDEPENDENT, as_if_chosen, CHILDREN),
                                              (WITHOUT, as_if_chosen, CHILDREN)])
def test_controls_that_only_look_wrong(way, draw, order):
    """Chosen guesses may be sorted by what the target thinks; drawn ones may be judged as chosen, which is slower."""
    target, draft = Table(14, 4, zeros=0), Table(114, 4, zeros=0)
    law = one_round(PAIR, target, draft, way, spoilt(CHILDREN, order), draw)
    assert max(off(law, PAIR, target)) < TOLERANCE
    assert way == CHOSEN or mean(law) < mean(one_round(PAIR, target, draft, way)) - .01
