"""What is printed, asserted by hand: each quantity from rounds that nobody played, whose numbers all differ."""

from dataclasses import replace

import pytest

from nanospec.cli import quantities
from nanospec.cli.quantities import CallCosts, best_of_each, numbers_of
from nanospec.methods.index import Method
from tests.invented import ALPHA, ALPHAS, EMITTED, ROUNDS, chain

COSTS = CallCosts(.2, {3: 1.5, 4: 1.75}, 2.0)           # a step takes 2 seconds


def test_alpha_is_of_what_was_judged():
    """In the second round the draft token after the rejected one was not; its .9 is in no mean."""
    assert quantities.alpha_of(ROUNDS) == pytest.approx(ALPHA)
    assert quantities.betas_of(ROUNDS) == [[.5, .125, .75, 1.0], [.25, .875, .375], [.625]]
    assert quantities.alpha_of([]) == 0 and quantities.betas_of([]) == []


def test_paces():
    assert quantities.per_second(12, [1, 2, 5]) == 1.5
    # 10 at 5 a second and 60 at 20 a second: the means are 12.5, and 17.9 by count.
    assert quantities.per_second(70, [2, 3]) == 14


def test_what_a_round_takes():
    row = {"drafted": 9, "rounds": 4, "acceptance_length": 2.5, "speedup": .8}
    assert quantities.tokens_of_call(row) == 3.25 and quantities.cost_of_round(row) == 3.125
    assert COSTS.round(2, 3) == pytest.approx(.4 + 1.5)
    assert COSTS.of(ROUNDS[2]) == pytest.approx(.6 + 1.75)
    assert COSTS.of(replace(ROUNDS[2], steps=5)) == pytest.approx(1 + 1.75)     # a draft that was searched for longer


def test_quantiles():
    assert quantities.quantile([4.0, 1.0, 2.0], .5) == 2 and quantities.quantile([4.0, 1.0, 2.0], .75) == 3
    assert quantities.quantile(list(range(201)), .99) == 198


METHOD = Method("chain", "block", 3, None, None)
TEXTS = [ROUNDS[:3], ROUNDS[3:]]
# Of each of three repeats, of each of two texts, each round's seconds. All: 18, 10 and 16 seconds for 10 tokens.
TOOK = [[[5.0, 4.0, 6.0], [3.0]], [[1.0, 3.0, 4.0], [2.0]], [[6.0, 2.0, 5.0], [3.0]]]
COSTS_OF = [CallCosts(.2, {3: 1.5, 4: 1.75}, 2.0), CallCosts(.3, {3: 1.2, 4: 2.0}, 1.0),
            CallCosts(.1, {3: 1.6, 4: 1.8}, 4.0)]


def test_the_numbers_of_a_method():
    row = numbers_of(METHOD, TEXTS, TOOK, COSTS_OF, plain=.5)
    assert (row["drafter"], row["rule"], row["gamma"]) == ("chain", "block", 3)
    assert (row["rounds"], row["drafted"], row["accepted"], row["emitted"]) == (4, 9, 7, EMITTED)
    assert row["accepted_lengths"] == [1, 0, 2, 1] and row["acceptance_rate"] == pytest.approx(7 / 9)
    assert row["alpha"] == pytest.approx(ALPHA) and row["alpha_by_position"] == pytest.approx(ALPHAS)
    assert row["steps"] == 2.25 and row["acceptance_length"] == 2.5
    assert row["c"] == .2
    assert row["v"] == pytest.approx((3 * 1.5 + 1.75) / 4)      # the median of 1.5625, 1.4 and 1.65
    assert row["tokens_per_s"] == pytest.approx(10 / 16) and row["speedup"] == pytest.approx(10 / 16 / .5)
    # alpha, the method's gamma, and both medians.
    tokens = 1 + ALPHA + ALPHA ** 2 + ALPHA ** 3
    assert row["predicted_speedup"] == pytest.approx(tokens / (3 * .2 + 1.5625))
    # First rounds do not count. Others, by parts: 1.9 and 2.35 steps of 2 s, 1.8 and 2.9 of 1 s, 1.8 and 2.1 of 4 s.
    each = [(4 / 3.8 + 6 / 4.7) / 2, (3 / 1.8 + 4 / 2.9) / 2, (2 / 7.2 + 5 / 8.4) / 2]
    assert row["overhead"] == pytest.approx(each[0])
    # Of one text: 1, 4 and 2 times their parts, 3.8, 4.7 and 3.8 s. One odd round moves it little.
    row = numbers_of(METHOD, [ROUNDS], [[[5.0, 3.8, 4.7 * 4, 3.8 * 2]]], COSTS_OF[:1], 1.0)
    assert row["overhead"] == pytest.approx(2)


def test_a_node_that_a_text_of_a_batch_lacks_was_not_drafted():
    lacking = replace(chain([.5, .25, .7], 1), parents=[-1, 0, 1, -1])
    row = numbers_of(METHOD, [[lacking]], [[[5.0]]], COSTS_OF[:1], 1.0)
    assert row["drafted"] == 2 and row["accepted"] == 1


def test_what_no_formula_predicts_is_predicted_from_its_rounds():
    row = numbers_of(replace(METHOD, drafter="lookup"), TEXTS, TOOK, COSTS_OF, plain=.5)
    gains = [10 / (3 * 1.9 + 2.35), 10 / (3 * 1.8 + 2.9), 10 / (3 * 1.8 + 2.1)]
    assert row["predicted_speedup"] == pytest.approx(sorted(gains)[1])


def test_of_texts_of_one_round_no_overhead_is_known():
    assert numbers_of(METHOD, [ROUNDS[:1], ROUNDS[1:2]], [[[5.0], [4.0]]], COSTS_OF[:1], 1.0)["overhead"] == 1


def test_of_eager_and_compiled_the_faster_one_counts_over_the_faster_baseline():
    def row(plain, fast, **more):
        return {"baseline_tokens_per_s": plain, "tokens_per_s": fast, "speedup": fast / plain, "busy": False} | more

    eager, compiled = row(100.0, 150.0, c=.1), row(200.0, 260.0, c=.2, busy=True)
    assert best_of_each([[(eager, [1])]]) == [(eager, [1])]
    ((best, rounds),) = best_of_each([[(eager, [1])], [(compiled, [2])]])
    assert rounds == [2]                                # the text is that of the run whose numbers these are
    assert best["speedup"] == 1.3 and best["c"] == .2 and best["busy"] and best["tokens_per_s_eager"] == 150
    ((best, rounds),) = best_of_each([[(row(100.0, 300.0, c=.1), [1])], [(compiled, [2])]])     # over plain compiled
    assert rounds == [1] and best["speedup"] == 1.5 and best["c"] == .1
    assert best["busy"]                                 # as the run was that lost
    assert best["baseline_tokens_per_s_compiled"] == 200


def test_an_answer():
    """The first round has read the question, and the first plain step is the warm-up. 7 tokens in 4 seconds, then plain
    steps of .5, .8 and 1 second: the median counts, and the others are the least and the most. Tokens per call are of
    all rounds.
    """
    its = quantities.answer_of(ROUNDS, [9.0, 1.0, 2.5, .5], [7.0, .5, 1.0, .8])
    assert its == pytest.approx({"acceptance_length": 2.5, "tokens_per_s": 1.75, "baseline_tokens_per_s": 1.25,
                                 "speedup": 1.4, "least": .875, "most": 1.75, "repeated": 0})
    for plain in [7.0, .5], [.5]:                       # the first step counts where it is alone, as the round does
        its = quantities.answer_of(ROUNDS[:1], [9.0], plain)
        assert its == pytest.approx({"acceptance_length": 3, "tokens_per_s": 1 / 3, "baseline_tokens_per_s": 2,
                                     "speedup": 1 / 6, "least": 1 / 6, "most": 1 / 6, "repeated": 0})


@pytest.mark.parametrize("tokens, share", [
    ([], 0), ([1] * 8, 0), ([1] * 9, 1 / 2), ([1] * 16, 8 / 9), ([*range(16)], 0),
    ([*range(8)] * 2, 1 / 9), ([*range(8)] * 3, 9 / 17), ([*range(7), 9, *range(7), 8], 0),
    ([*range(20), *range(5, 15)], 3 / 23)])         # runs that begin with 5, 6 and 7, of 30 - 7
def test_how_much_a_text_repeats_itself(tokens, share):
    """It begins again after 8 tokens: with the second 8 a run has stood there before, and then each."""
    assert quantities.repeated(tokens) == pytest.approx(share)


def test_waits():
    """First tokens after 1, 2, 4 and 8 s. Then 3 s for 3 tokens, 10 s for 4, none for a request of one token,
    which does not count, and 28 s for 7."""
    found = quantities.waits_of([0, 1, 2, 4], [1, 3, 6, 12], [4, 13, 6, 40], [4, 5, 1, 8])
    assert found == pytest.approx({"first_p50": 3, "first_p99": 8 - .03 * 4, "each_p50": 2.5,
                                   "each_p99": 4 - .02 * 1.5})


def test_the_gain_over_plain_decoding_in_as_many_rows():
    found = [{"rows": rows, "method": method, "tokens_per_s": pace} for rows, method, pace in (
        (1, "plain", 10), (1, "chain", 25), (4, "plain", 20), (4, "chain", 30))]
    assert quantities.gain_of(found, 1, "chain") == 2.5 and quantities.gain_of(found, 4, "chain") == 1.5
