"""Trees that a draft model drafts: in which order, which nodes a text lacks, and what several children are good for."""

import random

import pytest
import torch

from nanospec.dice import Dice
from nanospec.errors import MOST_NODES, RequestError
from nanospec.methods.rules.traversal import verify_traversal
from nanospec.methods.trees.drawn import TopTree, TreeDrafter, in_drawing_order
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.probs import Sampling
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.serving.rows import SamplingByRow
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from nanospec.text import Text
from tests.proof.compare import node_cases

TABLE, DRAFT_MODEL, FULL, FULL_DRAFT_MODEL = (
    TableModel(3, seed, zeros) for seed, zeros in ((8, .4), (58, .4), (5, 0), (6, 0)))
GPT_DRAFT_MODEL, WARM = small_gpt(11, 1, 2), {"temperature": 0.7}


def test_rows_stand_in_the_order_in_which_they_are_drawn():
    """Level by level, in a level by rank among siblings; in a rank as their parents stand, which were drawn before."""
    assert in_drawing_order([-1, 0, 0, 1, 1, 2]) == [-1, 0, 0, 1, 2, 1]
    made = random.Random(1)
    for _ in range(200):
        deep = made.choice([1, 2, 30])
        topology = [-1] + [made.randrange(max(0, node - deep), node) for node in range(1, made.randint(2, 25))]

        def birth(node):
            """The ranks on the way to a node: two trees are the same if they have the same of these."""
            return (*birth(topology[node]), topology[1:node].count(topology[node])) if node else ()

        def turn(node):
            """When it is drawn: its depth, its rank, its parent's turn."""
            return (len(birth(node)), birth(node)[-1], turn(topology[node])) if node else ()

        expected = sorted(range(1, len(topology)), key=turn)
        ours = in_drawing_order(topology)
        assert [topology[node] and 1 + expected.index(topology[node]) for node in expected] == ours[1:]


def test_the_likeliest_tokens_follow_each_row_the_best_first():
    text, drafter = Text([[1, 2], [3, 1, 4]], 9, 11), TopTree(GPT_DRAFT_MODEL, [-1, 0, 0, 0])
    drafter.begin(text)
    drafter.read(text, [0, 1], None)
    draft = drafter.propose(text, Sampling(1.0), Dice([0, 1]), 10)
    best = [GPT_DRAFT_MODEL(torch.tensor([ids]))[0, -1].topk(3).indices.tolist() for ids in text.ids()]
    assert draft.tokens[:, 1:].tolist() == best


def test_at_temperature_0_every_node_has_its_own_likeliest_children_in_whatever_order_they_are_named():
    """Node 1's two children stand before node 2's, and are not drawn so."""
    drafter, paths = TopTree(GPT_DRAFT_MODEL, [-1, 0, 0, 1, 1, 2]), [[5, 9]]
    done = next(speculate(GPT_DRAFT_MODEL, drafter, paths[0], 9, 0))
    for node, parent in enumerate(done.parents[1:], 1):
        best = GPT_DRAFT_MODEL(torch.tensor([paths[parent]]))[0, -1].topk(2).indices.tolist()
        assert done.tokens[node] == best[done.parents[1:node].count(parent)]
        paths.append([*paths[parent], done.tokens[node]])
    assert sorted(done.parents) == [-1, 0, 0, 1, 1, 2]


def test_a_token_that_the_draft_model_would_not_write_is_not_drafted():
    """Where there are fewer tokens than nodes, the text lacks the rest."""
    ids = next([a, b] for a in range(3) for b in range(3) if DRAFT_MODEL(torch.tensor([[a, b]]))[0, -1].isinf().sum()
               == 1)
    text, drafter = Text([ids], 9, 3), TopTree(DRAFT_MODEL, [-1, 0, 0, 0])
    drafter.begin(text)
    drafter.read(text, [0], None)
    draft = drafter.propose(text, Sampling(1.0), Dice([0]), 10)
    assert draft.q_draft[0].sum(-1).tolist() == [0, 1, 1, 0]


def test_siblings_are_drawn_from_what_the_elder_ones_left():
    """A certain draft leaves nothing after its first child: the second is any other token. The other text's draft is
    rescaled without the first one's token.
    """
    text = Text([[1, 2], [3, 1, 4]], 9, 11)
    drafter, dice = TreeDrafter(GPT_DRAFT_MODEL, [-1, 0, 0, 1, 2, 2, 3]), Dice([0, 1])
    drafter.begin(text)
    drafter.read(text, [0, 1], None)
    dice.refill(6)
    draft = drafter.propose(text, SamplingByRow([Sampling(0), Sampling(1.0)]), dice, 10)
    assert draft.parents.tolist() == [[-1, 0, 0, 1, 2, 2, 3]] * 2 and draft.steps == 3
    assert draft.q_draft.sum(-1).round(decimals=9).tolist() == [[0, 1, 1, 1, 1, 1, 1]] * 2
    assert dice.column == 6                             # a uniform for every node
    assert [level.nodes.tolist() for level in drafter.levels] == [[0], [1, 2], [3]]   # nodes with children
    for b, elder, younger in (0, 1, 2), (0, 4, 5), (1, 1, 2), (1, 4, 5):
        first, second = draft.q_draft[b, elder], draft.q_draft[b, younger]
        again = first if b else torch.ones(11, dtype=torch.float64)
        again = again.index_fill(0, draft.tokens[b, elder], 0.0)
        assert torch.allclose(second, again / again.sum(), atol=1e-12)
        assert b or first.tolist() == torch.eye(11)[draft.tokens[b, elder]].tolist()


def test_the_rows_that_a_text_lacks():
    """Of five siblings over three tokens two, and all that would follow these. A token that q_draft lacks comes last,
    and after it all are tried. Drawn independently no node is lacking.
    """
    text = Text([[0, 1], [1, 2]], 9, 3)
    topology = [-1, 0, 0, 0, 0, 0, 3, 4]
    for independent in False, True:
        drafter, dice = TreeDrafter(DRAFT_MODEL, topology, independent), Dice([0, 1])
        drafter.begin(text)
        drafter.read(text, [0, 1], None)
        dice.refill(7)
        draft = drafter.propose(text, Sampling(1.0), dice, 10)
        there = [0, 1, 1, 1, 1, 1, 1, 1] if independent else [0, 1, 1, 1, 0, 0, 1, 0]
        assert draft.q_draft.sum(-1).round(decimals=9).tolist() == [there] * 2
        assert draft.parents.tolist() == [[own if node else -1 for own, node in zip(topology, there)]] * 2
        assert independent or draft.tokens[:, 1:4].sort().values.tolist() == [[0, 1, 2]] * 2


def test_as_many_siblings_as_tokens_cover_the_vocabulary():
    """Sequoia's property, also for a q_draft with zeros, and at temperature 0, where all but one token are zeros: some
    sibling is accepted. The text is the target's.
    """
    for sampling in WARM, {"temperature": 0}, {"temperature": 1.0, "top_k": 1}:
        found = walk(lambda dice: tuple((tuple(done.emitted), len(done.path)) for done in speculate(
            TABLE, TreeDrafter(DRAFT_MODEL, [-1, 0, 0, 0]), [1, 0], 3, dice=dice, **sampling)))[0]
        texts = {}
        for rounds, weight in found.items():
            assert all(accepted == 1 for emitted, accepted in rounds[:-1]), sampling
            whole = tuple(token for emitted, _ in rounds for token in emitted)
            texts[whole] = texts.get(whole, 0) + weight
        assert distance(texts, target_distribution(TABLE, [1, 0], 3, **sampling))[0] < 1e-12


@pytest.mark.parametrize("count, independent", [(2, True), (2, False), (3, False)])
def test_a_node_has_the_targets_distribution_whatever_the_two_distributions(count, independent):
    """T0 for several children: zeros, equal, disjoint, one-hot. A distribution may run out of tokens to draw."""
    drawn_out, cases, bonus = 0, list(node_cases()), torch.eye(5, dtype=torch.float64)[0]
    for name, p_target, q_draft in cases[:60:6] + cases[60:]:
        rows = torch.stack([p_target] + [bonus] * count)[None]

        def play(dice):
            tokens, q_rows, left = [0], [q_draft * 0], q_draft
            while len(tokens) <= count and left.sum() > 0:
                tokens.append(int(dice.pick(left[None])))
                q_rows.append(left / left.sum())
                left = left if independent else left.index_fill(0, torch.tensor(tokens[-1]), 0.0)
            n = len(tokens)
            draft = TreeDraft(torch.tensor([tokens]), torch.stack(q_rows)[None], torch.tensor([[-1] + [0] * (n - 1)]))
            accepted, token = verify_tree(draft, rows[:, :n], dice)
            return tokens[accepted] if accepted else int(token), n

        found = walk(play)[0]
        drawn_out += any(n <= count for _, n in found)
        tokens = {x: sum(weight for (token, _), weight in found.items() if token == x) for x in range(5)}
        assert distance(tokens, dict(enumerate(p_target.tolist())))[0] < 1e-12, name
    assert independent or drawn_out


@pytest.mark.parametrize("rule", [verify_tree, verify_traversal])
def test_siblings_may_each_have_a_distribution_of_their_own(rule):
    """T0: drawn and chosen tokens in any order, the same one twice, from what the draft model or the target says."""
    certain, ways = torch.eye(5, dtype=torch.float64), ["dc", "cd", "dd", "dt", "dcd"]
    for i, (name, p_target, q_draft) in enumerate([*node_cases()][::5]):
        siblings = [{"d": q_draft, "t": p_target, "c": certain[1]}[letter] for letter in ways[i % len(ways)]]
        parents = torch.tensor([[-1] + [0] * len(siblings)])
        rows = torch.stack([p_target] + [certain[4]] * len(siblings))[None]

        def play(dice):
            tokens = [0, *(int(dice.pick(q[None])) for q in siblings)]
            draft = TreeDraft(torch.tensor([tokens]), torch.stack([q_draft * 0, *siblings])[None], parents)
            accepted, token = rule(draft, rows, dice)
            return tokens[accepted] if accepted else int(token)

        assert distance(walk(play)[0], dict(enumerate(p_target.tolist())))[0] < 1e-12, name


def test_a_child_of_less_than_the_smallest_normal_number():
    """All that the elder child leaves may be subnormal, as of logits that lie 90 apart, in single precision. It is a
    distribution all the same: the younger child is drawn from it, and its q_draft must say so.
    """
    target, draft_model = TableModel(3, 1), TableModel(3, 2)
    for model, logits in ((target, torch.tensor([.5, .3, .2]).log()), (draft_model, torch.tensor([0., -90, -91]))):
        model.logits = logits.expand_as(model.logits)
    assert 0 < draft_model.logits[0].softmax(-1)[1] < torch.finfo(torch.float32).tiny
    found, _ = walk(lambda dice: tuple(tokens_of(speculate(target, TreeDrafter(draft_model, [-1, 0, 0]), [1], 1,
                                                           dice=dice))))
    assert distance(found, target_distribution(target, [1], 1))[0] < 1e-6


def test_a_tree_that_is_a_chain_is_the_chain():
    """The same distribution of text and rounds, path for path: each is the other's oracle."""
    found = [walk(lambda dice: tuple((tuple(done.emitted), len(done.path)) for done in speculate(
        TABLE, drafter, [1, 0], 3, dice=dice, **WARM)))[0]
        for drafter in (TreeDrafter(DRAFT_MODEL, [-1, 0, 1]), ModelDrafter(DRAFT_MODEL, 2))]
    assert distance(*found)[1] < 1e-12


def test_more_children_are_accepted_more_often_and_without_replacement_best():
    """Expected tokens of the first round, exact."""
    def expected(topology, independent=False):
        found = walk(lambda dice: len(next(speculate(FULL, TreeDrafter(FULL_DRAFT_MODEL, topology, independent), [1, 0],
                                                     9,
                                                     dice=dice, **WARM)).path))[0]
        return 1 + sum(accepted * weight for accepted, weight in found.items())
    assert expected([-1, 0]) < expected([-1, 0, 0], True) < expected([-1, 0, 0])
    assert expected([-1, 0, 0, 0]) == pytest.approx(2)              # every token is drafted: one of them must stand


@pytest.mark.parametrize("topology", [[], [0, 0], [-1, 1], [-1, 0, 5], [0, -1], [-1, 0, -1]])
def test_what_is_no_topology_is_refused(topology):
    with pytest.raises(RequestError, match="topology"):
        TreeDrafter(GPT_DRAFT_MODEL, topology)


@pytest.mark.parametrize("topology", [[-1], [-1] + [0] * MOST_NODES], ids=["none", "too many"])
def test_a_tree_of_no_draft_tokens_or_of_too_many_is_refused(topology):
    with pytest.raises(RequestError, match="at least 1|at most 4095"):
        TreeDrafter(GPT_DRAFT_MODEL, topology)


def test_a_tree_longer_than_the_context_is_refused():
    with pytest.raises(RequestError, match="exceeds the context of 96"):
        next(speculate(GPT_DRAFT_MODEL, TreeDrafter(GPT_DRAFT_MODEL, [-1] + [0] * 96), [1], 10))
