"""What its tables say, by hand and by counting rounds."""

import random

import pytest
from printed import lines_of, table_under

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


def counted_by_playing(alphas, gamma, seed=1):
    """Tokens, rounds, accepted, judged: 20,000 tokens for each alpha, written round by round with coins."""
    coins, tokens, rounds, accepted, judged = random.Random(seed), 0, 0, 0, 0
    for alpha in alphas:
        written = 0
        while written < 20_000:
            right = 0
            while right < gamma and coins.random() < alpha:
                right += 1
            written, rounds, accepted, judged = (written + right + 1, rounds + 1, accepted + right,
                                                 judged + min(gamma, right + 1))
        tokens += written
    return tokens, rounds, accepted, judged


def test_numbers_that_mislead(lesson):
    names, out = lesson("numbers_that_mislead")

    # alpha .7, gamma 4 by hand: .7 + .49 + .343 + .2401 = 1.7731 accepted of 1 + .7 + .49 + .343 = 2.533 judged
    assert list(table_under(out, "the same run").values()) == [["2.77"], ["1.77"], ["0.44"], ["0.70"], ["0.24"],
                                                               ["0.70"]]
    assert ["16", "3.33", "0.15", "0.70"] in lines_of(out, 4)
    assert ["8", "2.92", "3.20", "3.10", "0.69"] in lines_of(out, 5)

    # two halves: as rounds that are played, one by one (each number's error is below 1%; off by 4 to 17%)
    for gamma in 2, 8:
        tokens, played, accepted, judged = counted_by_playing((.95, .45), gamma)
        real, alpha, _ = names["two_halves"](.95, .45, gamma)
        assert real == pytest.approx(tokens / played, rel=.01) and alpha == pytest.approx(accepted / judged, rel=.01)
        assert names["mixed"][gamma][0] == real < min(names["mixed"][gamma][1:]) - .02

    # a copier by hand: after "abc" nothing is known and "a" is written; "bca" followed the "a" before, then comes "b"
    copied = names["copied"]
    assert copied(list("abcabcab"), 4, 3) == 5 / 2
    assert copied(list("abcdefgh"), 4, 2) == 1
    assert copied(list("abcde" * 20), 4, 50) == 5
    assert names["speeds"]["one line, again and again"] == pytest.approx(5, abs=.1)

    # 1.7731 of 2.7731 tokens come with the one before them: 64%, so the median is 0, and 1.4 / 2.7731 = .505 is left
    assert list(table_under(out, "in plain steps").values())[:4] == [["1.00", "1.40"], ["1.00", "0.00"],
                                                                     ["1.00", "1.40"],
                                                          ["1.00", "0.50"]]
    # over 60 tokens after 100 without a cache: (100 + 129.5 - 100) / 50 = 2.59
    assert table_under(out, "baseline")["no cache"] == ["2.59", "5.44", "1.98"]
