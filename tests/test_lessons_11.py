"""Lesson 11: the error rates it prints are the ones it promises, and the walked distances are exact."""

import re

import pytest
import torch

from nanospec.proof.stats import smallest_visible
from nanospec.proof.walk import distance, target_distribution, walk

BLIND = {"row-before", "target-not-rolled-back"}        # they leave the first token exact


def within(share: float, expected: float, runs: int, errors: float = 4) -> bool:
    """Whether a share of so many runs lies within four standard errors: missed once in 16,000 times."""
    return abs(share - expected) <= errors * (expected * (1 - expected) / runs) ** 0.5


def test_lesson_11(lesson):
    names, out = lesson("11")
    bugs, off, first, truth = names["names"][1:], names["off"], names["off_first"], names["truth"]

    # walked: the one that ships is exact, every bug is not, and one token shows all but two of them
    assert target_distribution(names["target"], [1], 3) == truth and len(truth) == 27
    assert distance(walk(names["sampler"]("as it ships"))[0], truth)[1] == off["as it ships"] <= 1e-12
    assert first["as it ships"] <= 1e-12
    for bug in bugs:
        assert off[bug] > 1e-5 and (first[bug] <= 1e-12) == (bug in BLIND)
        assert first[bug] <= off[bug] + 1e-12           # what the first token shows, the whole text shows

    # false alarms: as many as chosen; the bug has more at every bar
    runs, p_right, p_wrong = names["runs"], names["p_right"], names["p_wrong"]
    printed = re.findall(r"p < ([\d.]+) +in +([\d.]+)% of 2,000 runs of \d+ texts as it ships, +([\d.]+)%", out)
    assert [float(bar) for bar, _, _ in printed] == [0.5, 0.05, 0.01] and runs == len(p_right) == len(p_wrong) == 2_000
    for bar, accused, seen in printed:
        assert within(float(accused) / 100, float(bar), runs) and float(seen) > 1.3 * float(accused)
    shares = torch.histc(torch.tensor(p_right), 20, 0, 1) / runs
    assert all(within(share, 0.05, runs) for share in shares.tolist())

    # power: rises with the samples, and keeps what is promised where it is promised
    for shares in names["power"].values():
        assert all(later >= earlier - 0.06 for earlier, later in zip(shares, shares[1:])) and shares[-1] == 1
    for bug, (samples, share) in names["promised"].items():
        assert smallest_visible(26, samples, 0.001, 0.01) == pytest.approx(off[bug], rel=0.01) and share >= 0.96
    needed = names["needed"]
    assert set(needed) == set(bugs)
    for bug in bugs:                                    # samples * distance^2 is the same for all
        assert needed[bug] * off[bug] ** 2 == pytest.approx(names["of_one"] ** 2, rel=0.01)

    # the printed table is these numbers
    caught = {}
    for name in names["names"]:
        row = re.search(rf"^{name} +(\S+) +(\S+) +(\S+) +([\d.]+)%", out, re.M)
        assert row[1] == f"{first[name]:.2g}" and row[2] == f"{off[name]:.2g}"
        assert row[3] == (f"{needed[name]:,}" if name in needed else "-")
        caught[name] = float(row[4]) / 100
        assert caught[name] >= 0.97 or needed.get(name, 2_001) > 2_000
    assert max(caught["as it ships"], caught["draft-dtype-mismatch"]) <= 0.008       # 1 of 1,000 expected
    assert 0.05 < caught["target-not-rolled-back"] < 0.3

    # two texts: the share that is the same is a sum over both laws
    same = re.findall(r"the same in ([\d.]+)%", out)
    assert same[0] == f"{100 * sum(p * p for p in truth.values()):.1f}" and 0 < float(same[1]) < 10

    # what the walk cannot see, real runs do; what the order of the ids hides, the right order shows
    good, bad, by_id, by_gap = [float(p) for p in re.findall(r": +p = ([\d.e-]+)", out)]
    assert good > 0.001 > 0.0001 > bad
    assert by_id > 0.001 and by_gap < 1e-20
