"""Block verification: its worked numbers, its edges, and never fewer tokens than the token rule accepts."""

from itertools import product

import pytest
import torch

from lessons.oracles import completed
from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.methods.rules.block import verify_block
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import ModelDrafter, speculate, verify


def walked(tokens, q_draft, p_target, rule=verify_block):
    """The distribution of (accepted, token) for a chain; q_draft (gamma, V)."""
    draft = Draft(torch.tensor([[0, *tokens]]), torch.cat([torch.zeros_like(q_draft[:1]), q_draft])[None])
    return walk(lambda dice: tuple(part.item() for part in rule(draft, p_target[None], dice)))[0]


def test_equal_distributions():
    """All is accepted, though all h but the last are 0/0. Equal up to rounding, a coin can fall: p_target replaces."""
    p_target = torch.tensor([[.3, 0, .7, 0]] * 2 + [[0, 0, 0, 1]])
    assert walked([0, 2], p_target[:2], p_target) == {(2, 3): 1}
    nearly = torch.nextafter(p_target[1:2], torch.ones(1))
    assert walked([0], nearly, p_target[1:]).keys() == {(1, 3), (0, 0), (0, 2)}


def test_a_row_that_the_text_lacks_is_never_accepted():
    """What is written is as if the draft ended before it."""
    p_target, q_draft = torch.tensor([[.2, .8], [.6, .4], [.5, .5]]), torch.tensor([[.6, .4], [0, 0]])
    for x in 0, 1:
        assert walked([x, 1], q_draft, p_target) == pytest.approx(walked([x], q_draft[:1], p_target[:2]), abs=1e-7)


def test_the_worked_number_and_the_toy_of_the_paper():
    """p_target [1/3, 2/3], q_draft [2/3, 1/3] everywhere: 0, 1 is accepted, always; of all drafts 11/9, not 10/9."""
    p_target, q_draft = torch.tensor([[1, 2]] * 3).double() / 3, torch.tensor([[2, 1]] * 2).double() / 3
    for rule, of_0_1, of_all in ((verify, 1, 10 / 9), (verify_block, 2, 11 / 9)):
        accepted = {tokens: sum(n * weight for (n, _), weight in walked(tokens, q_draft, p_target, rule).items())
                    for tokens in product((0, 1), repeat=2)}
        mean = sum(q_draft[0, list(tokens)].prod().item() * n for tokens, n in accepted.items())
        assert (accepted[0, 1], mean) == pytest.approx((of_0_1, of_all), abs=1e-15)


def test_rows_do_not_mix_and_each_takes_gamma_and_one_uniforms():
    made = torch.Generator().manual_seed(1)
    p_target, q_draft = torch.rand(2, 50, 4, 3, generator=made).double().softmax(-1)
    tokens, seeds = q_draft.flatten(0, 1).multinomial(1, generator=made).view(50, 4), range(50)
    q_draft[:, 0] = 0

    def judged(rows):
        dice = Dice([seeds[b] for b in rows])
        dice.refill(6)
        out = torch.stack(verify_block(Draft(tokens[rows], q_draft[rows]), p_target[rows], dice), 1)
        assert dice.column == 4
        return out.tolist()

    assert judged(list(seeds)) == [judged([b])[0] for b in seeds]


def of_a_round(rule, target, draft_model, ids, gamma):
    """The distribution of what the first round writes."""
    return walk(lambda dice: tuple(next(speculate(target, ModelDrafter(draft_model, gamma), ids, 9, dice=dice,
                                                  rule=rule)).emitted))[0]


def by_formula(target, draft_model, ids, gamma, w=1.0) -> float:
    """The sum over i of the chance that draft tokens 1..i are accepted: the mean of w_i."""
    if gamma == 0:
        return 0.0
    p_target, q_draft = (probs(model(torch.tensor([ids]))[0, -1]).tolist() for model in (target, draft_model))
    ws = [min(1, w * p_x / q_x) if q_x > 0 else 0 for p_x, q_x in zip(p_target, q_draft)]
    return sum(q_x * (w + by_formula(target, draft_model, [*ids, x], gamma - 1, w))
               for x, (q_x, w) in enumerate(zip(q_draft, ws)))


@pytest.mark.parametrize("gamma, pairs, most", [(2, 12, 11), (3, 2, 2)])
def test_never_fewer_accepted_than_token_by_token(gamma, pairs, most):
    """Pairs of tables, every other one with zeros: how many have more accepted."""
    longer = 0
    for seed in range(pairs):
        pair = [TableModel(3, 100 + seed + more, zeros=0.25 * (seed % 2)) for more in (0, 500)]
        found = [of_a_round(rule, *pair, [1], gamma) for rule in (verify, verify_block)]
        by_token, by_block = (sum((len(tokens) - 1) * weight for tokens, weight in each.items()) for each in found)
        assert by_block == pytest.approx(by_formula(*pair, [1], gamma), abs=1e-12)
        assert by_block > by_token - 1e-12
        longer += by_block > by_token + 1e-9
        if gamma == 3:                                                      # and exact, further than the contract goes
            whole = completed(found[1], pair[0], [1], 4)
            assert distance(whole, target_distribution(pair[0], [1], 4))[1] < 1e-12
    assert longer == most


def test_one_draft_token_or_a_certain_draft_is_judged_as_token_by_token():
    full, other, certain = (TableModel(3, seed, zeros) for seed, zeros in ((5, 0), (6, 0), (8, 1)))
    for draft_model, gamma in ((other, 1), (certain, 3)):
        assert max(distance(*(of_a_round(rule, full, draft_model, [2, 0], gamma)
                              for rule in (verify, verify_block)))) < 1e-15


def test_what_does_not_fit_is_refused():
    draft = Draft(torch.tensor([[0, 1, 2]]), torch.full((1, 3, 4), .25))
    with pytest.raises(ValueError, match="this rule judges a Draft and p_target"):
        verify_block(draft, torch.full((1, 2, 4), .25), Dice([1]))
