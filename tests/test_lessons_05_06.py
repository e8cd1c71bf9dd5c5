"""Lessons 5 and 6: the laws behind what they print."""

import re

import pytest
import torch

from nanospec.proof.walk import distance, walk


def rows_of(out: str, columns: int) -> dict[str, list[str]]:
    """The printed table: its first column -> the others, of lines that end in `columns` words after two spaces."""
    rows = {}
    for line in out.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) == columns + 1:
            rows[cells[0]] = cells[1:]
    return rows


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


def test_lesson_5_keeping_or_replacing_is_exact_and_never_guesses_twice(lesson):
    names, out = lesson("05")
    p_target, q_draft, OneRow = names["p_target"], names["q_draft"], names["OneRow"]
    truth = dict(enumerate(p_target.tolist()))
    overlap, C = p_target.minimum(q_draft).sum().item(), (p_target / q_draft).max().item()
    table = rows_of(out, 5)
    assert [*table] == ["rule", "try again", "keep or replace", "keep or redraw"]

    # what is walked: two exact rules and a wrong one, which is off by what its formula says
    law, _ = walk(lambda dice: names["keep_or_replace"](p_target, q_draft, OneRow(dice)))
    assert distance(law, truth)[1] < 1e-12 and number(table["keep or replace"][2]) < 1e-12
    redrawn = p_target.minimum(q_draft) + (1 - overlap) * p_target
    off = ((redrawn - p_target).abs().sum() / 2).item()
    assert off > 0.05 and table["keep or redraw"][2] == f"{off:.2g}"
    law, _ = walk(lambda dice: names["try_again"](p_target, q_draft, OneRow(dice), 3)[0])
    undecided = law.pop(None)
    assert undecided == pytest.approx((1 - 1 / C) ** 3, abs=1e-12)
    assert distance({x: weight / (1 - undecided) for x, weight in law.items()}, truth)[1] < 1e-12
    assert number(table["try again"][2]) < 1e-12

    # tries and guesses kept: C and 1 / C against 1 and the overlap
    assert table["try again"][:2] == [f"{C:.2f}", f"{1 / C:.2f}"] and C == pytest.approx(3)
    assert table["keep or replace"][:2] == table["keep or redraw"][:2] == ["1", f"{overlap:.2f}"]
    tries = names["tries"]
    assert abs(sum(tries) / len(tries) - C) < 5 * (C * (C - 1) / len(tries)) ** 0.5         # five standard deviations

    # on the text: 1 / C never exceeds the overlap, so C is never below 1 / overlap; and the two are far apart
    assert (names["C_text"] * names["kept_text"] >= 1 - 1e-6).all()
    assert number(table["keep or replace"][4]) > 5 * number(table["try again"][4]) > 0
    assert number(table["try again"][3]) == pytest.approx(names["C_text"].mean().item(), abs=0.5)
    assert names["kept_text"][names["i"]] > 0.9 and names["C_text"][names["i"]] > 100
    cut = [law.masked_fill(law < law.topk(20).values[:, -1:], 0) for law in (names["p_text"], names["q_text"])]
    assert ((cut[0] > 0) & (cut[1] == 0)).any(-1).float().mean() > 0.9                      # "what becomes of C"


def test_lesson_6_every_path_adds_up_to_the_targets_law(lesson):
    names, out = lesson("06")
    p_target, OneRow = names["p_target"], names["OneRow"]
    table = rows_of(out, 4)
    assert len(table) == 1 + len(names["cases"]) == 9

    for kind, q_draft in names["drafts"].items():
        overlap, residual, excess = names["pieces"](p_target, q_draft)
        assert (overlap + residual - p_target).abs().max() < 1e-15
        assert (overlap + excess - q_draft).abs().max() < 1e-15
        by_hand = [(kept, y, torch.tensor(odds, dtype=torch.float64).prod().item())
                   for _, kept, y, odds in names["ways"](p_target, q_draft)]
        for rule in names["keep_or_replace"], names["library"]:
            law, paths = walk(lambda dice: rule(p_target, q_draft, OneRow(dice)))
            assert paths == len(by_hand) == number(table[kind][2])
            for y, probability in enumerate(p_target.tolist()):
                ends = sum(weight for (_, token), weight in law.items() if token == y)
                assert ends == pytest.approx(probability, abs=1e-12)
                assert ends == pytest.approx(sum(odds for _, token, odds in by_hand if token == y), abs=1e-12)
            kept = sum(weight for (stood, _), weight in law.items() if stood)
            assert kept == pytest.approx(overlap.sum().item(), abs=1e-12)
            assert table[kind][0] == f"{kept:.4f}"

    assert [table[kind][0] for kind in names["drafts"]] == ["1.0000", "0.9000", "0.5000", "0.0000"]
    pair = [row for name, row in table.items() if name.startswith("the pair")]
    assert len(pair) == 4 and all(0 < number(row[0]) < 1 for row in pair)
    assert sum(number(row[2]) > 100_000 for row in pair) == 2                               # every path of 1,024 tokens
    for kept, overlap, _, off in [*table.values()][1:]:
        assert kept == overlap and number(off) < 1e-12

    # what is printed of the bad draft: the ways, and what they add up to
    assert out.count(" guessed, ") == number(table["bad"][2]) == 7
    for name, probability in zip(names["names"], p_target.tolist()):
        assert f"{name} comes out with {probability:.2f}; p_target says {probability:.2f}" in out
