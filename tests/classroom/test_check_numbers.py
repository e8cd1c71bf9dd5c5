"""The numbers that a right answer is told at the end, by hand or from a formula: what it has, and what can be had."""

import re

import pytest

from lessons.check import EXERCISES
from lessons.check import ex16_when_to_stop as ex16
from lessons.check.catalogue import ANSWERS
from lessons.check.engine import check
from lessons.check.ex14_block_verification import TABLES, most_accepted
from lessons.check.ex20_a_block_drawn import IDS, TARGET
from lessons.check.rounds import distribution_of
from lessons.oracles import expected_accepted


def last_said(number: int) -> str:
    return check(EXERCISES[number], ANSWERS / EXERCISES[number].file).passed[-1][1]


@pytest.mark.parametrize("number, said", [
    # p [.4, .3, .2, .1], q [.1, .2, .3, .4]: the first child stands with .6. What is left is [3/4, 1/4, 0, 0], which
    # has .3 with q in common: .4 * .3 more. Token 0 is drafted with 1 - .9 ** 2, and the others have .6: that is most.
    (13, "1.72 tokens per target call with two children, drawn independently; with one 1.60; no rule at all has more "
         "than 1.79 (see"),
    # One token more than the draft tokens have of p_target: .2; .2 + .4; .1 + .3 + .4.
    (15, "tokens per target call: 1.20 (to reach: 1.20) with 1, 1.60 (to reach: 1.60) with 2, 1.80 (to reach: 1.80) "
         "with 3"),
    # Rule d: .7 of the first draft tokens are accepted, .3 of them token 0, .2 each of 1 and 2; the next one then with
    # .6, .5, .6. So 1.7 are drafted and .7 + .4 accepted: 2.1 tokens in 1 + 1.7 / 2 target calls.
    (16, "to beat: 1.135 tokens in the time of a target call (rule_d; a draft token costs 0.5 of one); write")])
def test_what_can_be_had_by_hand(number, said):
    assert said in last_said(number)


def test_a_rule_that_is_wrong_is_not_to_be_beaten(monkeypatch):
    """Were rule_d wrong: a and b draft 1.8 tokens and bring 2, in 1.9 target calls."""
    monkeypatch.setattr(ex16, "shown", lambda found=ex16.shown(): found | {"rule_d": ("wrong", .1, .1)})
    assert ex16.number_to_beat(None).startswith("to beat: 1.053 tokens")


def test_in_a_variant_exercise_16_speaks_of_the_letters_that_it_shows(monkeypatch):
    monkeypatch.setattr(ex16, "LETTERS", dict(zip("abcdefgh", "hgfedcba")))
    mistake, right = ex16.wrong("x", "rule_a and rule_b, by the rules", **ex16.called("wrong", "c")), ex16.shown()
    assert mistake.said == "rule_h and rule_g, by the rules"
    assert mistake.functions["verdicts"]() == {name: found[:2] for name, found in right.items()} | {
        "rule_f": ("wrong", 0.0)}


def test_what_a_block_has_and_what_token_by_token():
    target, draft_model, ids, gamma = case = TABLES["three tokens, some forbidden"]
    one_by_one = expected_accepted(target, draft_model, [*ids], gamma)
    block, other = re.findall(r"\d\.\d{3}", last_said(14))
    assert float(block) == pytest.approx(1 + most_accepted(*case), abs=6e-4) and float(block) > float(other)
    assert float(other) == pytest.approx(1 + one_by_one, abs=6e-4)


def test_what_pairs_and_tables_bring():
    """The best block is always accepted. Without the table its second place has the mean of what may follow, and the
    first lacks what the line of the last token, 0, would add.
    """
    right = "2.00 of 2 draft tokens accepted; to reach: 2.00. With"
    own, = re.findall(rf"^{right} each token beside its own hidden states: (\d\.\d\d), and", last_said(18))
    assert float(own) < 1.95
    first = distribution_of(TARGET, IDS)
    after = [distribution_of(TARGET, (*IDS, x)) for x in range(3)]
    second = sum(p * q for p, q in zip(first, after))
    drawn = first * second / after[0]
    stands = first.minimum(drawn / drawn.sum())
    alone = sum(float(p * (1 + q.minimum(second).sum())) for p, q in zip(stands, after))
    assert last_said(20).startswith(f"{right}out the table: {alone:.2f}, and") and alone < 1.95
