"""The statistics behind the judge: against textbook values, and by their own promises, sampled with a fixed seed."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from nanospec.errors import RequestError
from nanospec.proof import stats
from nanospec.proof.stats import (Fit, chi_square_bar, chi_square_tail, goodness_of_fit, miss_rate, pit, settled,
                                  smallest_visible, two_samples)


@pytest.mark.parametrize("x, df, tail", [(3.841, 1, .05), (6.635, 1, .01), (18.307, 10, .05), (29.588, 10, .001)])
def test_the_tail_is_the_textbooks(x, df, tail):
    assert chi_square_tail(x, df) == pytest.approx(tail, rel=1e-3)
    assert chi_square_bar(df, tail) == pytest.approx(x, abs=1e-3)


def test_the_miss_rate_at_both_ends():
    assert miss_rate(0.0, 5, chi_square_bar(5, .05)) == pytest.approx(.95, abs=1e-9)
    assert miss_rate(1000.0, 5, chi_square_bar(5, .05)) < 1e-9
    # two cells: the chi-square is the square of a normal, and so is the miss rate: P(|Z + 3| < 1.96)
    normal = torch.distributions.Normal(0.0, 1.0)
    bar = chi_square_bar(1, .05) ** .5
    expected = normal.cdf(torch.tensor(bar - 3)) - normal.cdf(torch.tensor(-bar - 3))
    assert miss_rate(9.0, 1, bar ** 2) == pytest.approx(expected.item(), abs=1e-6)


def counts_from(truth: dict, samples: int, seed: int) -> Counter:
    weights = torch.tensor(list(truth.values()), dtype=torch.float64)
    drawn = torch.multinomial(weights, samples, True, generator=torch.Generator().manual_seed(seed))
    return Counter(list(truth)[i] for i in drawn.tolist())


TRUTH = {"abcdefghij"[i]: w / 55 for i, w in enumerate(range(1, 11))}


def test_false_alarms_come_as_often_as_promised():
    """1,000 seeded runs of the distribution itself: 50 +- 7 below .05, 10 +- 3 below .01."""
    p_values = [goodness_of_fit(counts_from(TRUTH, 500, seed), TRUTH).p_value for seed in range(1000)]
    assert 25 <= sum(p < .05 for p in p_values) <= 75
    assert 2 <= sum(p < .01 for p in p_values) <= 20
    assert sum(p < .001 for p in p_values) <= 6


@pytest.mark.parametrize("taken, given", [("j", "a"), ("hij", "abc"), ("acegi", "bdfhj")])
def test_what_is_called_visible_is_seen(taken, given):
    """Distributions moved by exactly the visible distance, in three shapes: at most 1 in 100 of 500 runs is missed;
    within sampling, 13."""
    fit = goodness_of_fit(counts_from(TRUTH, 500, 0), TRUTH)
    distance = fit.visible(false_alarm=.01, miss=.01)
    room = sum(TRUTH[x] for x in taken)
    assert fit.pooled < .05 and distance < .3
    distance = min(distance, room * .99) if len(taken) == 1 else distance
    wrong = {x: w - distance * w / room * (x in taken) + distance / len(given) * (x in given) for x, w in TRUTH.items()}
    assert sum(abs(wrong[x] - TRUTH[x]) for x in TRUTH) / 2 == pytest.approx(distance)
    missed = sum(goodness_of_fit(counts_from(wrong, 500, seed), TRUTH).p_value >= .01 for seed in range(500))
    assert missed <= 13


def test_what_pearson_calls_rare_is_drawn():
    """125 samples, of which 5 are expected to be b; exact, by all that they may be. By Pearson's tail alone it would be
    called wrong more than twice as often as promised.
    """
    truth, samples = {"a": .96, "b": .04}, 125
    chances = [math.comb(samples, b) * .04 ** b * .96 ** (samples - b) for b in range(25)]      # of more: 1e-10
    fits = [goodness_of_fit({"a": samples - b, "b": b}, truth) for b in range(25)]
    for bar in 5e-4, 1e-4:
        called, settles = (sum(chance for chance, fit in zip(chances, fits) if of(fit).p_value < bar)
                           for of in (lambda fit: fit, lambda fit: settled(fit, bar)))
        assert settles < 1.25 * bar < 2 * bar < called          # what is drawn is luck, too
    assert settled(fits[24], 1e-3) == fits[24]                      # where it is rare, by how much is Pearson's affair
    exact = sum(chances[13:])
    assert fits[13].p_value < exact / 3 and 1 / 3 < settled(fits[13], 5e-4).p_value / exact < 3
    assert settled(fits[7], 1e-3) is fits[7]                        # nothing is drawn for what is not called wrong
    forbidden = goodness_of_fit({"a": 10, "z": 1}, {"a": .5, "b": .5})
    assert settled(forbidden, 1e-3) is forbidden


def test_more_samples_see_smaller_distances():
    far, near = (smallest_visible(9, n, .001, .01) for n in (100, 10_000))
    assert far == pytest.approx(10 * near)


def test_what_is_visible_on_a_pooled_fit():
    """The rare d is pooled with c: three cells, of .2, .3 and .5. With two degrees of freedom the bar is -2 log(alarm),
    and the noncentral chi-square is a normal point's distance from a corner of the plane, integrated here.
    """
    truth = {"a": .5, "b": .3, "c": .199, "d": .001}
    fit = goodness_of_fit({"a": 90, "b": 70, "c": 39, "d": 1}, truth)
    statistic = 100 / 100 + 100 / 60
    assert (fit.df, fit.samples, fit.pooled) == (2, 200, pytest.approx(.2))
    assert [seen for _, seen in fit.cells] == [70, 90, 40]
    assert [expected for expected, _ in fit.cells] == pytest.approx([60, 100, 40])
    assert fit.p_value == pytest.approx(math.exp(-statistic / 2), rel=1e-9)
    for alarm, miss in (.0005, .01), (.001, .01), (.01, .2):
        bar = -2 * math.log(alarm)
        x = torch.linspace(-bar ** .5, bar ** .5, 200_001, dtype=torch.float64)

        def missed(away: float) -> float:
            inside = torch.special.erf(((bar - x ** 2).clamp(min=0) / 2).sqrt())
            return torch.trapezoid((-(x - away) ** 2 / 2).exp() / math.sqrt(2 * math.pi) * inside, x).item()

        low, high = 0.0, 20.0
        for _ in range(50):
            low, high = ((low + high) / 2, high) if missed((low + high) / 2) > miss else (low, (low + high) / 2)
        assert fit.visible(alarm, miss) == pytest.approx(.2 + low / math.sqrt(4 * 200), abs=1e-6)


def test_the_edges():
    assert goodness_of_fit({"a": 10}, {"a": 1.0}) == Fit(1.0, 0, 0.0, 10)
    assert goodness_of_fit({"a": 10, "z": 1}, {"a": 1.0}).p_value == 0.0        # impossible
    assert goodness_of_fit({"a": 10, "z": 1}, {"a": 1.0, "z": 0.0}).p_value == 0.0
    assert goodness_of_fit({"a": 10}, {"z": 0.0, "a": 1.0}).p_value == 1.0          # what is forbidden did not come
    assert 1 - smallest_visible(0, 100, .001, .01) == pytest.approx(.01 ** .01)
    rare = goodness_of_fit({"a": 500, "b": 500}, {"a": .499, "b": .499, "c": .001, "d": .001})
    assert rare.df == 1 and rare.pooled == pytest.approx(.501)      # c and d need company to fill a cell
    with pytest.raises(RequestError, match="no samples"):
        goodness_of_fit({}, TRUTH)
    for parts, total in (.2, "0.4"), (.4995, "0.999"), (math.nan, "nan"):
        with pytest.raises(RequestError, match=f"this one to {total}"):
            goodness_of_fit({"a": 30, "b": 50}, {"a": parts, "b": parts})


def test_five_expected_samples_fill_a_cell():
    """Of one outcome, or of two together; a is no company for them then. Four and a half do not."""
    truth = {"a": .75, "b": .25}
    assert [seen for _, seen in goodness_of_fit({"a": 14, "b": 6}, truth).cells] == [6, 14]
    assert goodness_of_fit({"a": 14, "b": 6}, truth).pooled == 0
    assert goodness_of_fit({"a": 12, "b": 6}, truth).pooled == 1
    two = goodness_of_fit({"a": 13, "b": 3, "c": 4}, {"a": .75, "b": .125, "c": .125})
    assert two.cells == ((15, 13), (5, 7)) and two.pooled == .25
    assert goodness_of_fit({"a": 11, "b": 3, "c": 4}, {"a": .75, "b": .125, "c": .125}).df == 0


def test_pit_is_uniform_only_for_the_distribution_itself():
    torch.manual_seed(0)
    p_target = torch.rand(4000, 6, dtype=torch.float64).softmax(-1)
    q_draft = torch.rand(4000, 6, dtype=torch.float64).mul(2).softmax(-1)
    score, u = q_draft - p_target, torch.rand(4000, dtype=torch.float64)
    bins = {}
    for name, drawn_from in (("target", p_target), ("draft", q_draft)):
        drawn = torch.multinomial(drawn_from, 1)[:, 0]
        for order, by in (("by what the draft model favours", score), ("by id", torch.arange(6.0).expand(4000, 6))):
            values = pit(drawn, p_target, by, u)
            assert 0 <= values.min() and values.max() < 1
            fit = goodness_of_fit(Counter((values * 16).long().tolist()), {i: 1 / 16 for i in range(16)})
            bins[name, order] = fit.p_value
    assert bins["target", "by what the draft model favours"] > .01 and bins["target", "by id"] > .01
    assert bins["draft", "by what the draft model favours"] < 1e-9
    assert bins["draft", "by id"] > .01                             # blind: an id says nothing about the error


def test_pit_by_hand():
    """Scores 3, 1, 2: token 2 has token 1's mass below it, .2, and half of its own .3."""
    values = pit(torch.tensor([2]), torch.tensor([[.5, .2, .3]]), torch.tensor([[3., 1., 2.]]), torch.tensor([.5]))
    assert values.item() == pytest.approx(.35)
    half = pit(torch.tensor([2]), torch.tensor([[.25, .1, .15]]), torch.tensor([[3., 1., 2.]]), torch.tensor([.5]))
    assert half.item() == pytest.approx(.35)                    # of what it adds up to


def test_two_samples_of_one_distribution_and_of_two():
    """1,000 seeded pairs: as many false alarms as promised. And what is as far off as stated is hardly missed."""
    pairs = [(counts_from(TRUTH, 400, 2 * seed), counts_from(TRUTH, 400, 2 * seed + 1)) for seed in range(1000)]
    p_values = [two_samples(*pair).p_value for pair in pairs]
    assert abs(sum(p < .05 for p in p_values) - 50) < 21 and abs(sum(p < .01 for p in p_values) - 10) < 10
    fit = two_samples(*pairs[0])
    off = fit.visible(.001, .01)
    assert fit.samples == 200 and .2 < off < .6
    share = off / (1 - TRUTH["a"])
    moved = {name: (1 - share) * weight + share * (name == "a") for name, weight in TRUTH.items()}
    missed = sum(two_samples(counts_from(moved, 400, 2 * seed), counts_from(TRUTH, 400, 2 * seed + 1)).p_value > .001
                 for seed in range(300))
    assert missed <= 9


def test_two_samples_by_hand():
    """Chi-square of [30, 10] against [20, 20]: 100 / 50 + 100 / 30. What is rare is pooled, as by goodness_of_fit: with
    more of what is rare until it fills a cell.
    """
    fit = two_samples({"a": 30, "b": 10}, {"a": 20, "b": 20})
    assert fit == Fit(chi_square_tail(100 / 50 + 100 / 30, 1), 1, 0.0, 20) and fit.worst == ("b", 0.5, 0.25)
    assert two_samples({"a": 40}, {"a": 40}).p_value == 1.0
    assert two_samples({"a": 54, "b": 6}, {"a": 54, "c": 6}) == Fit(1.0, 1, pytest.approx(.1), 30)
    assert two_samples({"a": 36, "b": 4}, {"a": 36, "c": 4}).pooled == 1
    assert two_samples({"a": 54, "b": 6}, {"a": 54, "c": 6}).cells == ()        # nothing is known that could be drawn
    assert two_samples({"a": 40}, {"b": 40}).p_value < 1e-15
    for counts, others in ({}, {}), ({"a": 2}, {"a": 3}):
        with pytest.raises(RequestError, match="two samples of one size"):
            two_samples(counts, others)


def test_the_outcome_that_is_most_off():
    assert goodness_of_fit({"a": 70, "b": 15, "c": 15}, {"a": .5, "b": .25, "c": .25}).worst == ("a", .5, .7)
    assert goodness_of_fit({"a": 50, "c": 1}, {"a": .5, "b": .5}).worst == ("c", 0.0, 1 / 51)
    rare = {"a": .9899, "b": .01, "c": .0001}
    assert goodness_of_fit({"a": 973, "b": 25, "c": 2}, rare).worst == ("c", .0001, .002)
    # For its probability: a is .1 off where .64 was expected, b .06 where .04 was.
    assert goodness_of_fit({"a": 54, "b": 10, "c": 36}, {"a": .64, "b": .04, "c": .32}).worst == ("b", .04, .1)


def test_a_settled_p_value_counts_the_found_one_too(monkeypatch):
    """Of 9 right samples 2 are as strange as what was found, 10, or stranger: (2 + 1) / (9 + 1). With none it is .1.
    """
    fit = Fit(0.01, 1, 0.0, 20, cells=((10.0, 20), (10.0, 10)))             # its statistic is 10
    for drawn, p_value in ([10.0, 11.0, *range(7)], .3), ([*range(9)], .1), ([20.0] * 9, 1.0):
        monkeypatch.setattr(stats, "_of_right_samples", lambda expected, count: np.array(drawn, dtype=float))
        assert settled(fit, 0.1).p_value == pytest.approx(p_value)


def test_right_samples_are_drawn_from_one_seed():
    """In every run of a program the same p-value."""
    again, once = (stats._of_right_samples.__wrapped__((8.0, 12.0), 50) for _ in range(2))
    assert len(set(once)) > 5 and (once == again).all()


def test_as_many_are_drawn_as_were_expected():
    """Ten, though the two numbers add up to a little less: so no cell has more without the other having fewer."""
    expected = .6, 9.399999999999999
    may_be = np.array([(first - .6) ** 2 * (1 / .6 + 1 / 9.4) for first in range(11)])
    drawn = stats._of_right_samples.__wrapped__(expected, 50)
    assert sum(expected) < 10 and (abs(drawn[:, None] - may_be).min(1) < 1e-6).all()
