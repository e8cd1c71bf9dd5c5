"""Block verification, walked: exact, never shorter than token by token, and every misreading of it is seen."""

from itertools import islice, product

import pytest
import torch

from nanospec.dice import Dice
from nanospec.text import Text, prefill
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import completed, distance, target_distribution, product_of, walk
from nanospec.proof.tables import small_gpt
from nanospec.proof.zoo import Bug, changed
from nanospec.rules.block import verify_block
from nanospec.speculate import ModelDrafter, chain_round, speculate, tokens_of, verify

TARGET3, DRAFT3, TARGET4, DRAFT4 = (TableModel(v, seed) for v, seed in ((3, 1), (3, 2), (4, 3), (4, 4)))
FULL3, FULLER3, CERTAIN3, SURE3 = (TableModel(3, seed, zeros) for seed, zeros in ((5, 0), (6, 0), (7, 1), (8, 1)))
WARM = {"temperature": 0.7}


def law_of(rule, target, draft, ids, gamma, new, rounds=None, **settings):
    """What the loop has written after so many rounds, or once it is done: the exact law."""
    return walk(lambda dice: tuple(tokens_of(islice(speculate(target, ModelDrafter(draft), ids, gamma, new, dice=dice,
                                                              rule=rule, **settings), rounds))))[0]


def tv(rule, target, draft, ids, gamma, new, rounds=None, **settings) -> float:
    """The same, completed by the target, from the target's law of `new` tokens."""
    law = completed(law_of(rule, target, draft, ids, gamma, new, rounds, **settings), target, ids, new, **settings)
    return distance(law, target_distribution(target, ids, new, **settings))[1]


@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("target, draft, settings", [
    (TARGET3, DRAFT3, {}), (DRAFT3, TARGET3, {"top_p": 0.6}), (FULL3, FULLER3, {}), (FULLER3, FULL3, WARM),
    (TARGET4, DRAFT4, WARM | {"top_k": 2}), (DRAFT4, TARGET4, {"top_k": 3}), (TARGET4, DRAFT4, {"temperature": 0}),
    (CERTAIN3, DRAFT3, {}), (TARGET3, SURE3, {}), (CERTAIN3, SURE3, {}), (FULL3, FULL3, {})])
def test_one_round_is_exact(target, draft, settings, gamma):
    """T1. Tables with zeros and without, clipped, one-hot targets, drafts and both, and a draft that is the target."""
    for ids in ([1], [2, 0, 1]):
        assert tv(verify_block, target, draft, ids, gamma, gamma + 1, rounds=1, **settings) < 1e-12


@pytest.mark.parametrize("target, draft, gamma, new, settings", [
    (FULL3, FULLER3, 1, 4, {}), (TARGET3, DRAFT3, 2, 3, {"top_p": 0.8}), (FULL3, FULLER3, 2, 3, WARM | {"top_k": 2}),
    (small_gpt(3, 2, 1), small_gpt(3, 1, 2), 1, 4, WARM | {"top_k": 2})])
def test_several_rounds_are_exact(target, draft, gamma, new, settings):
    """T2 and, with the real GPT, T3."""
    assert tv(verify_block, target, draft, [1, 0], gamma, new, **settings) < 1e-12


@pytest.mark.parametrize("gamma", [1, 2])
def test_two_rows_do_not_mix(gamma):
    """Prompts of 1 and 4 tokens in one batch, one round: the joint law is the product of the rows' own."""
    prompts = [[1], [0, 2, 1, 1]]

    def play(dice):
        text, drafter = Text(prompts, room=gamma + 1), ModelDrafter(DRAFT3)
        drafter.begin(text, 3)
        chain_round(TARGET3, prefill(TARGET3, text), drafter, text, gamma, probs, dice, 4 + gamma, verify_block)
        return tuple(tuple(row[len(ids):n]) for row, ids, n in zip(text.tokens.tolist(), prompts, text.length.tolist()))

    alone = [law_of(verify_block, TARGET3, DRAFT3, ids, gamma, gamma + 1, 1) for ids in prompts]
    assert max(distance(walk(play)[0], product_of(*alone))) < 1e-12


ODDS, STEP, STACK = "torch.where(reached == 0, 1.0, ", "/ q_guess[:, i]).clamp(max=1)", "torch.stack(w, 1)"
MUTANTS = {     # and how far off: one round of four tokens, a small loop
    "contiguous prefix": (.206, .0256, ("F.pad(stands * torch.arange(1, w.shape[1], device=w.device), (1, 0)).amax(-1)",
                                        "stands.long().cumprod(-1).sum(-1)")),
    "h is w": (.124, .0127, (ODDS, "torch.where(reached > -1, w, ")),
    "no inner minimum": (.00839, .0000673, (STEP, "/ q_guess[:, i])"), (STACK, STACK + ".clamp(max=1)")),
    "plain residual": (.0171, 0, ("residual[row, kept]", "(p_target - q_draft)[row, kept].clamp(min=0)")),
}


def mutant(*edits):
    return changed(Bug("", "", "", "", "rules.block", edits))["verify_block"]


@pytest.mark.parametrize("name", MUTANTS)
def test_every_misreading_is_seen(name):
    """Each by the round; the plain residual, on other tables as little as .0002 away, not by this loop."""
    in_a_round, in_the_loop, *edits = MUTANTS[name]
    assert tv(mutant(*edits), TARGET4, DRAFT4, [1, 3, 0], 3, 4, rounds=1) == pytest.approx(in_a_round, rel=.01)
    in_all = tv(mutant(*edits), FULL3, FULLER3, [1, 0], 2, 3, top_k=2, **WARM)
    assert in_all == pytest.approx(in_the_loop, rel=.01, abs=1e-12)


def walked(drafted, q_draft, p_target, rule=verify_block):
    """The law of (kept, token) for one block."""
    return walk(lambda dice: tuple(part.item() for part in rule(torch.tensor([drafted]), q_draft, p_target, dice)))[0]


def test_equal_laws():
    """All is kept, though every h but the last is 0/0. Equal up to rounding, the coin can fall: p_target replaces."""
    p_target = torch.tensor([[[.3, 0, .7, 0]] * 2 + [[0, 0, 0, 1]]])
    equal = [0, 2], p_target[:, :2], p_target
    nearly = [0], torch.nextafter(p_target[:, 1:2], torch.ones(1)), p_target[:, 1:]
    assert walked(*equal) == {(2, 3): 1} and set(walked(*nearly)) == {(1, 3), (0, 0), (0, 2)}
    for block, guard in ((equal, "reached =="), (nearly, "keepdim=True) ==")):
        with pytest.raises(AssertionError, match="weights"):
            walked(*block, mutant((guard, guard.replace("==", "<"))))


def test_the_worked_number_and_the_toy_of_the_paper():
    """p_target [1/3, 2/3], q_draft [2/3, 1/3] everywhere: 0, 1 is kept, always; of all drafts, 11/9 against 10/9."""
    p_target, q_draft = (torch.tensor([law], dtype=torch.float64) / 3 for law in ([1, 2], [2, 1]))
    laws, dice = (q_draft.expand(1, 2, 2), p_target.expand(1, 3, 2)), Dice([0])
    for rule, of_0_1, of_all in ((verify, 1, 10 / 9), (verify_block, 2, 11 / 9)):
        kept = {drafted: sum(n * weight for (n, _), weight in walked(drafted, *laws, rule).items())
                for drafted in product((0, 1), repeat=2)}
        assert kept[0, 1] == pytest.approx(of_0_1, abs=1e-15)
        assert sum(q_draft[0, list(x)].prod().item() * n for x, n in kept.items()) == pytest.approx(of_all, abs=1e-15)
        dice.refill(3)
        rule(torch.tensor([[0, 1]]), *laws, dice)
        assert dice.column == 3             # gamma + 1 uniforms


def kept_by_formula(target, draft, ids, gamma, w=1.0) -> float:
    """The sum over i of the chance that guesses 1..i stay: the mean of w_i."""
    if gamma == 0:
        return 0.0
    p_target, q_draft = (probs(model(torch.tensor([ids]))[0, -1]).tolist() for model in (target, draft))
    ws = [min(1, w * p_x / q_x) if q_x > 0 else 0 for p_x, q_x in zip(p_target, q_draft)]
    return sum(q_x * (w + kept_by_formula(target, draft, [*ids, x], gamma - 1, w))
               for x, (q_x, w) in enumerate(zip(q_draft, ws)))


@pytest.mark.parametrize("gamma, most", [(2, 18), (3, 20)])
def test_never_shorter_than_token_by_token(gamma, most):
    """20 pairs of tables, every other one with zeros: how many keep more."""
    longer = 0
    for seed in range(20):
        pair = [TableModel(3, 100 + seed + more, zeros=0.25 * (seed % 2)) for more in (0, 500)]
        laws = [law_of(rule, *pair, [1], gamma, gamma + 1, 1).items() for rule in (verify, verify_block)]
        by_token, by_block = (sum((len(tokens) - 1) * weight for tokens, weight in law) for law in laws)
        assert by_block == pytest.approx(kept_by_formula(*pair, [1], gamma), abs=1e-12)
        assert by_block > by_token - 1e-12
        longer += by_block > by_token + 1e-9
    assert longer == most


@pytest.mark.parametrize("target, draft, gamma", [(FULL3, FULLER3, 1), (TARGET4, DRAFT4, 1), (FULL3, SURE3, 3)])
def test_one_guess_or_a_certain_draft_is_judged_as_token_by_token(target, draft, gamma):
    laws = [law_of(rule, target, draft, [2, 0], gamma, gamma + 1, 1) for rule in (verify, verify_block)]
    assert max(distance(*laws)) < 1e-15
