"""A full batch: its tables follow from its calls, rounds and rules. A budget is exact, and the wrong one is not.

No clock is judged.
"""

import pytest
from shorter import shorter

from nanospec.theory import expected_tokens
from tests.printed import table_under

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@shorter(("STEPS = 5", "STEPS = 3"), ("counts, gammas = (1, 4, 16, 32)", "counts, gammas = (1, 8, 32)"))
def test_a_full_batch(lesson, exchanged, monkeypatch):
    drafted = []
    monkeypatch.setattr("nanospec.fast.clock.draft_seconds", lambda *its, rows, **more: drafted.append(rows) or 1e-3)
    names, out = lesson("a_full_batch", *exchanged)
    took, gains, counts = names["took"], names["gains"], names["counts"]

    # the roof: reading, or multiplying where that takes longer; the seconds are what is printed
    for (count, m), seconds in took.items():
        roof = max(names["reading"], count * m * names["multiplying"](1))
        assert names["roof"][count * m] == pytest.approx(roof)
        assert f"{1e3 * roof:.2f}" in out and f"{1e3 * seconds:.2f}" in out
    assert names["size"] == names["weights"] * names["target"].embedding.weight.element_size()

    # gains: by the formula, and from the rounds' own tokens
    for (count, gamma), (alpha, c, v, tokens, predicted, measured) in gains.items():
        assert v == took[count, gamma + 1] / took[count, 1] and 0.2 < alpha < 1
        assert c == 1e-3 / took[count, 1]
        assert predicted == pytest.approx(expected_tokens(alpha, gamma) / (gamma * c + v))
        assert 1 <= tokens <= gamma + 1 and all(f"{number:.2f}" in out for number in (predicted, measured))
    assert [*gains] == [(count, gamma) for count in counts for gamma in (1, 4)]
    assert drafted[:len(counts)] == [*counts]               # a draft step has as many rows as the call beside it

    # by load: of gamma 0 to 6, none has a goodput that is better by more than the margin
    for texts, gamma in names["chosen"].items():
        goodput = [expected_tokens(names["mean_alpha"], g) / names["round_takes"](texts, g) for g in range(7)]
        assert goodput[gamma] >= max(goodput) / 1.03 - 1e-9


def test_a_budget_for_all(lesson):
    names, out = lesson("a_budget_for_all")

    # the budget by hand: three texts, and what two for each would bring
    verified = {name: sum(its == name for _, _, its in names["sent"]) for name in "ABC"}
    assert verified == {"A": 4, "B": 1, "C": 1}
    assert [line[-1] for line in table_under(out, "text   survival").values()][:3] == ["4", "1", "1"]
    two_each = .9 + .81 + .6 + .24 + .4 + .32
    by_survival = .9 + .81 + .729 + .5832 + .6 + .4
    assert f"{two_each:.2f} with two for each text, {by_survival:.2f} by survival" in out

    # exact, and not
    assert names["off"]["BySurvival"] < 1e-12 < 1e-3 < names["off"]["IfItIsSure"]
    assert len(names["exist"]) == 2 * 16 + 3 and all(ms > 0 for ms in names["saved"].values())
