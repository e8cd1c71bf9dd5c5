"""How to test a sampler: the error rates it prints are those it promises, and the walked distances are exact."""

import re

import pytest
import torch
from shorter import shorter

from nanospec.proof.stats import smallest_visible
from nanospec.proof.walk import distance, target_distribution

BLIND = {"row-before", "target-not-rolled-back"}        # they leave the first token exact


def within(share: float, expected: float, runs: int, errors: float = 4) -> bool:
    """Whether a share of so many runs lies within four standard errors: missed once in 16,000 times."""
    return abs(share - expected) <= errors * (expected * (1 - expected) / runs) ** 0.5


def line_of(out: str, name: str, columns: int, number: int = 0) -> list[str]:
    """The printed line of a sampler, in the `number`-th table of so many columns that has one."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines() if line.startswith(f"{name}  ")]
    return [line for line in lines if len(line) == columns][number][1:]


@pytest.mark.usefixtures("packed")
@shorter(('"residual-is-target",\n', "\n"), ("n, runs=200)", "n, runs=80)"), ("2_000, 300)", "2_000, 150)"),
         ("100, 300, 1_000, 3_000, 10_000, 30_000", "300, 3_000, 30_000"), ("range(500))", "range(250))"),
         ('f"500 real runs', 'f"250 real runs'))
def test_how_to_test_a_sampler(lesson, exchanged):
    names, out = lesson("how_to_test_a_sampler", *exchanged)
    bugs, off, first, truth = names["names"][1:], names["off"], names["off_first"], names["truth"]

    # walked: the one that ships is exact, every bug is not, and one token shows all but two of them
    assert target_distribution(names["target"], [1], 3) == truth and len(truth) == 27
    assert distance(names["walked"]["as it ships"], truth)[1] == off["as it ships"] <= 1e-12
    assert first["as it ships"] <= 1e-12
    for bug in bugs:
        assert off[bug] > 1e-5 and (first[bug] <= 1e-12) == (bug in BLIND)
        assert first[bug] <= off[bug] + 1e-12           # what the first token shows, the whole text shows
        assert names["zoo"][bug].what in out
    for name in names["names"]:
        assert line_of(out, name, 3) == [f"{first[name]:.2g}", f"{off[name]:.2g}"]

    # two texts: the share that is the same is a sum over both distributions
    same = re.findall(r"the same text in ([\d.]+)%", out)
    assert same[0] == f"{100 * sum(p * p for p in truth.values()):.1f}" and 0 < float(same[1]) < 10

    # chi-square by hand; degrees of freedom are one fewer than outcomes
    assert names["chi_square"]([42, 33, 25], [50, 30, 20]) == pytest.approx(2.83)
    assert within(names["at_least"], names["by_formula"], 10_000, errors=6)     # a sum of counts has gaps
    assert "chi-square 2.83" in out and f"{names['by_formula']:.1%}" == "24.3%"

    # false alarms: as many as chosen; the bug has more at every bar
    runs, p_right, p_wrong = names["runs"], names["p_right"], names["p_wrong"]
    printed = re.findall(r"p < ([\d.]+) +([\d.]+)% +([\d.]+)%", out)
    assert [float(bar) for bar, _, _ in printed] == [0.5, 0.05, 0.01] and runs == len(p_right) == len(p_wrong) == 2_000
    for bar, accused, seen in printed:
        assert within(float(accused) / 100, float(bar), runs) and float(seen) > 1.3 * float(accused)
    shares = torch.histc(torch.tensor(p_right), 20, 0, 1) / runs
    assert all(within(share, 0.05, runs) for share in shares.tolist())
    assert f"share of 2,000 runs of {names['n']} texts" in out and names["n"] * min(truth.values()) >= 5

    # power: rises with the samples, and keeps what is promised where it is promised
    for shares in names["power"].values():
        assert all(later >= earlier - 0.06 for earlier, later in zip(shares, shares[1:])) and shares[-1] == 1
    for bug, (samples, share) in names["promised"].items():
        assert smallest_visible(26, samples, 0.001, 0.01) == pytest.approx(off[bug], rel=0.01) and share >= 0.96
    needed = names["needed"]
    assert set(needed) == set(bugs)
    for bug in bugs:                                    # samples * distance^2 is the same for all
        assert needed[bug] * off[bug] ** 2 == pytest.approx(names["of_one"] ** 2, rel=0.01)
    by_two, by_one = (int(number.replace(",", "")) for number in
                      re.search(r"off by 0.2: ([\d,]+) texts needed; by 0.1: ([\d,]+)", out).groups())
    assert by_one == pytest.approx(4 * by_two, rel=0.01)

    # the printed table is these numbers
    caught = {}
    for name in names["names"]:
        line = line_of(out, name, 4)
        assert line[:2] == [f"{off[name]:.2g}", f"{needed[name]:,}" if name in needed else "-"]
        caught[name] = float(line[2].rstrip("%")) / 100
        assert caught[name] >= 0.97 or needed.get(name, 2_001) > 2_000
    assert max(caught["as it ships"], caught["draft-dtype-mismatch"]) <= 0.008       # 1 of 1,000 expected
    assert 0.05 < caught["target-not-rolled-back"] < 0.3
    assert needed["draft-dtype-mismatch"] > 1e9

    # what the walk cannot see, real runs do
    good, bad = names["p_of_dice"].values()
    assert good > 0.001 > 0.0001 > bad
    assert re.findall(r"\d+ real runs, .*: +p = (\S+);", out) == [f"{good:.1g}", f"{bad:.1g}"]

    # PIT, by hand; what the order of the ids hides, the right order shows; and there is a right sampler beside it
    assert names["back_to_u"](torch.tensor([.2, .5, .3]), 1, 0.4) == pytest.approx(0.4)
    correct, by_id, by_gap = names["p_of_order"].values()
    assert correct > 0.001 and by_id > 0.001 and by_gap < 1e-20
    assert [float(p) for p in re.findall(r"3,000 tokens, .*: +p = (\S+)", out)] == pytest.approx(
        [correct, by_id, by_gap], rel=0.5)
    assert (names["wrong"].sum(-1) - 1).abs().max() < 1e-9
    p_target, wrong = names["p_target"], names["wrong"]
    favoured = (names["q_draft"] > p_target) & (p_target > 0)       # written too often: what the draft likes more
    assert (wrong[favoured] > p_target[favoured]).all() and (wrong - p_target).sum(-1).abs().max() < 1e-9
