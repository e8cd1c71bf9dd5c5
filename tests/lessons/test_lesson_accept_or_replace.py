"""The distributions that their tables come from."""

import re

import pytest
import torch

from nanospec import Dice
from nanospec.draft import Draft
from nanospec.proof.walk import distance, walk
from nanospec.speculate import verify


def lines_of(out: str, columns: int) -> dict[str, list[str]]:
    """The printed tables: first column -> the others, of lines that end in `columns` words after two spaces."""
    table = {}
    for line in out.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) == columns + 1:
            table[cells[0]] = cells[1:]
    return table


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


def test_trying_again_is_exact_and_takes_C_tries(lesson):
    names, out = lesson("rejection_sampling")
    p_target, q_draft, OneRow = names["p_target"], names["q_draft"], names["OneRow"]
    truth = dict(enumerate(p_target.tolist()))
    overlap, C = p_target.minimum(q_draft).sum().item(), (p_target / q_draft).max().item()

    # of 300 draft tokens, what is accepted is p_target times 100
    counts = lines_of(out, 6)
    assert [counts[x][-2:] for x in "0123"] == [["105", "50"], ["30", "30"], ["105", "15"], ["60", "5"]]
    assert out.count(" 300        100") == 1

    # what is walked: exact, but for what is still undecided
    found, _ = walk(lambda dice: names["try_again"](p_target, q_draft, OneRow(dice), 3)[0])
    undecided = found.pop(None)
    assert undecided == pytest.approx((1 - 1 / C) ** 3, abs=1e-12)
    assert distance({x: weight / (1 - undecided) for x, weight in found.items()}, truth)[1] < 1e-12
    walked = lines_of(out, 4)
    for k in 1, 2, 3, 5:
        _, is_open, formula, off = walked[str(k)]
        assert is_open == formula == f"{(1 - 1 / C) ** k:.4f}" and number(off) < 1e-12

    # the worked number of try_again: [.5, .5] and [.8, .2]
    pair = torch.tensor([[.5, .5], [.8, .2]], dtype=torch.float64)
    found, _ = walk(lambda dice: names["try_again"](*pair, OneRow(dice), 1)[0])
    assert found[None] == pytest.approx(1 - 1 / 2.5) and found[0] == pytest.approx(.8 * .25) == found[1]

    # tries: C of them
    table = lines_of(out, 3)
    assert table["four tokens"] == [f"{C:.2f}", f"{1 / C:.2f}", f"{overlap:.2f}"] and C == pytest.approx(3)
    tries = names["tries"]
    assert f"tries per token: {sum(tries) / len(tries):.2f} on average" in out
    assert abs(sum(tries) / len(tries) - C) < 5 * (C * (C - 1) / len(tries)) ** 0.5         # five standard deviations

    # on the text: 1 / C never exceeds the overlap, so C is never below 1 / overlap; and the two are far apart
    C_text, overlap_text, i = names["C_text"], names["overlap_text"], names["i"]
    assert (C_text * overlap_text >= 1 - 1e-6).all()
    assert number(table["on the text"][2]) > 5 * number(table["on the text"][1]) > 0
    assert number(table["on the text"][0]) == pytest.approx(C_text.mean().item(), abs=0.5)
    assert overlap_text[i] > 0.9 and C_text[i] > 100
    assert names["p_text"][i, names["scarcest"][i]] < 0.1                                   # "wants it seldom"
    cut = [all_p.masked_fill(all_p < all_p.topk(20).values[:, -1:], 0) for all_p in (names["p_text"], names["q_text"])]
    assert ((cut[0] > 0) & (cut[1] == 0)).any(-1).float().mean() > 0.9                      # "what becomes of C"
    cut = [kept / kept.sum(-1, keepdim=True) for kept in cut]
    still = cut[0].minimum(cut[1]).sum(-1).mean().item()
    assert still == pytest.approx(overlap_text.mean().item(), abs=0.1)              # "the overlap hardly changes"


def test_accepting_or_replacing_is_exact_and_never_drafts_twice(lesson):
    names, out = lesson("accept_or_replace")
    p_target, q_draft, OneRow = names["p_target"], names["q_draft"], names["OneRow"]
    truth = dict(enumerate(p_target.tolist()))
    overlap, C = p_target.minimum(q_draft).sum().item(), (p_target / q_draft).max().item()

    # the hundred rounds
    counts = lines_of(out, 6)
    assert counts["0"] == ["50", "35", "35", "0", "15", "50"] and counts["1"] == ["30", "10", "10", "0", "20", "30"]
    assert counts["all"] == ["100", "100", "65", "35", "35", "100"]

    # what is walked: an exact rule and a wrong one, which is off by what its formula says
    found, _ = walk(lambda dice: names["accept_or_replace"](p_target, q_draft, OneRow(dice)))
    assert distance(found, truth)[1] < 1e-12 and names["off"]["accept or replace"] < 1e-12
    redrawn = p_target.minimum(q_draft) + (1 - overlap) * p_target
    off = ((redrawn - p_target).abs().sum() / 2).item()
    assert off > 0.05 and names["off"]["accept or redraw"] == pytest.approx(off, abs=1e-12)
    said = re.findall(r"^accept or (replace|redraw) +(\[.*?\]) +(\[.*?\]) +(\S+)", out, re.M)
    assert [rule for rule, *_ in said] == 2 * ["replace"] + 2 * ["redraw"]
    assert [wanted == came for _, wanted, came, _ in said] == [True, True, False, False]
    assert said[2][2] == "[0.65, 0.35]" and said[3][3] == f"{off:.2g}"          # of 100 rounds: 50 + 15, 20 + 15
    assert all(number(line[3]) < 1e-12 for line in said[:2])

    # tries and draft tokens accepted: C and 1 / C against 1 and the overlap
    table = lines_of(out, 4)
    again, right, wrong = (table[name] for name in ("rejection sampling", "accept or replace",
                                                    "accept or redraw (wrong)"))
    assert again[:2] == [f"{C:.2f}", f"{1 / C:.2f}"] and C == pytest.approx(3)
    assert right == wrong and right[:2] == ["1", f"{overlap:.2f}"] and right[2] == "1"
    assert number(right[3]) > 5 * number(again[3]) > 0
    assert number(again[2]) == pytest.approx(names["C_text"].mean().item(), abs=0.5)

    # the draft model of the first question, and whose distribution comes out in the second
    perfect = torch.tensor([.50, .30, .195, .005], dtype=torch.float64)
    assert p_target.minimum(perfect).sum().item() == pytest.approx(.955)
    assert (p_target / perfect).max().item() == pytest.approx(10)
    assert torch.allclose(p_target.minimum(q_draft) + (q_draft - p_target).clamp(min=0), q_draft)

    # `verify`, thrown with the same dice, says the same tokens
    library = Dice(range(100))
    library.refill(3)
    x = library.pick(q_draft.expand(100, 4))
    q_both = torch.stack([0 * q_draft, q_draft]).expand(100, 2, 4)                          # node 0 is no draft token
    draft = Draft(torch.stack([x, x], 1), q_both)
    accepted, token = verify(draft, p_target.expand(100, 2, 4), library)
    by_hand = [names["accept_or_replace"](p_target, q_draft, OneRow(seed=seed)) for seed in range(100)]
    assert by_hand == torch.where(accepted == 1, x, token).tolist()


def test_every_way_adds_up_to_the_targets_distribution(lesson):
    names, out = lesson("why_it_is_lossless")
    p_target, OneRow = names["p_target"], names["OneRow"]
    table = lines_of(out, 4)
    assert len(table) == 1 + len(names["cases"]) == 9

    for kind, q_draft in names["q_drafts"].items():
        overlap, residual, excess = names["pieces"](p_target, q_draft)
        assert (overlap + residual - p_target).abs().max() < 1e-15
        assert (overlap + excess - q_draft).abs().max() < 1e-15
        by_hand = [(accepted, y, torch.tensor(along, dtype=torch.float64).prod().item())
                   for _, accepted, y, along in names["ways"](p_target, q_draft)]
        for rule in names["accept_or_replace"], names["library"]:
            found, paths = walk(lambda dice: rule(p_target, q_draft, OneRow(dice)))
            assert paths == len(by_hand) == number(table[kind][2])
            for y, probability in enumerate(p_target.tolist()):
                ends = sum(weight for (_, token), weight in found.items() if token == y)
                assert ends == pytest.approx(probability, abs=1e-12)
                assert ends == pytest.approx(sum(odds for _, token, odds in by_hand if token == y), abs=1e-12)
            accepted = sum(weight for (stood, _), weight in found.items() if stood)
            assert accepted == pytest.approx(overlap.sum().item(), abs=1e-12)
            assert table[kind][0] == f"{accepted:.4f}"

    assert [table[kind][0] for kind in names["q_drafts"]] == ["1.0000", "0.9000", "0.5000", "0.0000"]
    pair = [line for name, line in table.items() if name.startswith("the pair")]
    assert len(pair) == 4 and all(0 < number(line[0]) < 1 for line in pair)
    assert sum(number(line[2]) > 1_000 for line in pair) == 2                               # every way of 1,024 tokens
    for accepted, overlap, _, off in [*table.values()][1:]:
        assert accepted == overlap and number(off) < 1e-12

    # what is printed of the bad draft model: the pieces, the ways, and what they add up to
    assert lines_of(out, 5)["all"] == ["0.50", "0.50", "0.50", "1.00", "1.00"]
    assert out.count(" drafted, ") == number(table["bad"][2]) == 7
    for name, probability in zip(names["names"], p_target.tolist()):
        assert f"{name} comes out with {probability:.2f}; its p_target is {probability:.2f}" in out

    # the third question: a residual of nothing, and what saves the library
    hair = p_target.nextafter(p_target + 1)
    with pytest.raises(AssertionError, match="positive total"):
        walk(lambda dice: names["accept_or_replace"](p_target, hair, OneRow(dice)))
    found, _ = walk(lambda dice: names["library"](p_target, hair, OneRow(dice)))
    assert sum(found.values()) == pytest.approx(1)
