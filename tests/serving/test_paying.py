"""The tree that is as large as it pays, against all its sizes in plain lists."""

import pytest
import torch

from nanospec.dice import Dice
from nanospec.methods.trees.dynamic_tree import DynamicTree
from nanospec.methods.trees.paying import PayingTree
from nanospec.methods.trees.tree_draft import of_text
from nanospec.probs import Sampling
from nanospec.proof.tables import TableModel
from nanospec.text import Text
from tests.proof.compare import Batch

TARGET, DRAFT = TableModel(5, 9, zeros=0), TableModel(5, 4, zeros=0)
TEXTS = [[1, 0, 2], [3], [4, 4, 1, 0]]
CHEAP, DEAR = (0.01, 0.02), (0.3, 0.25)                 # of a step of the draft model, of a draft token


def drafter_of(costs, count=9, width=3):
    c, token = costs
    return PayingTree(DRAFT, lambda rows, tokens, steps: 1 + c * steps + token * tokens, count, width)


def proposed(drafter, texts=TEXTS):
    text = Text(texts, 40, 5)
    drafter.begin(text, range(len(texts)), None)
    return drafter.propose(text, Sampling(0), Dice(range(len(texts))), 40)


def confidences(ids, draft, b):
    """Of every row that text b has, descending: the product of the draft model's probabilities along its path."""
    tokens, parents, q_draft = of_text(draft, b)
    paths, found = {0: []}, []
    for row, parent in enumerate(parents):
        if parent < 0:
            assert row == 0 or not q_draft[row].any()
            continue
        paths[row], chance = [*paths[parent], tokens[row]], 1.0
        for depth, token in enumerate(paths[row]):
            chance *= DRAFT(torch.tensor([[*ids, *paths[row][:depth]]]))[0, -1].softmax(-1)[token].item()
        found.append(chance)
    return sorted(found, reverse=True)


@pytest.mark.parametrize("truth", [1.0, 0.6])
@pytest.mark.parametrize("costs", [CHEAP, (0.1, 0.1), DEAR], ids=["cheap", "medium", "dear"])
def test_of_the_rows_that_were_made_as_many_are_drafted_as_pay_best(costs, truth):
    """For every text its own number: one row more or less would bring fewer tokens a second."""
    drafter = drafter_of(costs)
    drafter.begin(Text(TEXTS, 40, 5), range(3), None)
    draft = proposed(drafter)
    if truth < 1:
        drafter.learned[3] = truth * drafter.learned[2]
        draft = drafter.propose(drafter.reader.text, Sampling(0), Dice(range(3)), 40)
    whole = DynamicTree(DRAFT, 99, 3)                   # every row that so many levels can have
    whole.depth = draft.steps
    every = proposed(whole)
    numbers = []
    for b, ids in enumerate(TEXTS):
        found, best = confidences(ids, draft, b), confidences(ids, every, b)
        paces = {n: (1 + truth * sum(best[:n])) / drafter.seconds(3, n, draft.steps)
                 for n in range(1, min(9, len(best)) + 1)}
        numbers.append(len(found))
        assert found == pytest.approx(best[:len(found)]) and len(found) == max(paces, key=paces.__getitem__)
    assert len(set(numbers)) > 1 or costs == CHEAP


def test_the_draft_model_reads_another_level_only_where_it_may_pay():
    assert proposed(drafter_of((2.0, 0.02))).steps == 1 < proposed(drafter_of(CHEAP)).steps


def test_what_its_rounds_bring_is_learned():
    """As if four rounds of two rows had each accepted one; then what was, and what the confidences had promised."""
    drafter = drafter_of((0.1, 0.1))
    batch, dice = Batch(TARGET, drafter, [[1, 0, 2], [4, 4, 1, 0]], 60), Dice([1, 2])
    rounds, spent, promised, accepted = 4.0, 4.0 * 1.3, 4.0, 4.0
    for _ in range(6):
        assert drafter.goodput(2) == pytest.approx([1.0, (rounds + accepted) / spent], rel=1e-5)
        texts = batch.text.ids()
        draft, _, _, count, _ = batch.round(dice, Sampling(0.8))
        hopes = sum(sum(confidences(ids, draft, b)) for b, ids in enumerate(texts))
        took = 1 + 0.1 * draft.steps + 0.1 * (draft.tokens.shape[1] - 1)
        rounds, spent, promised, accepted = (0.98 * before + new for before, new in (
            (rounds, 2), (spent, 2 * took), (promised, hopes), (accepted, int(count.sum()))))
        assert drafter.learned.tolist() == pytest.approx([rounds, spent, promised, accepted], rel=1e-5)
    drafter.propose(batch.text, Sampling(0.8), dice, 60)
    assert drafter.truth == pytest.approx(accepted / promised, rel=1e-5) and accepted != promised
