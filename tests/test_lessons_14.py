"""Lesson 14: its tables say what its own rounds and costs add up to, and its verdicts follow. No clock is judged."""

import math
import re

import pytest

from nanospec.theory import expected_tokens, speedup

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


def two(*numbers):
    return [f"{number:.2f}" for number in numbers]


def test_where_it_loses(lesson):
    names, out = lesson("14")
    rows, verdicts, races = names["rows"], names["verdicts"], names["races"]
    printed = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]

    # three ways to lose, by hand: one good round, and each number alone spoils it
    by_hand = {row[0]: row[1:] for row in names["rows_by_hand"]}
    assert by_hand["a good round"][3:] == ["3.36", "1.60", "2.10"] == two(3.3616, 1.6, speedup(0.8, 4, 0.1, 1.2))
    for what, (alpha, c, v, tokens, cost, gain) in by_hand.items():
        assert [tokens, cost, gain] == two(expected_tokens(alpha, 4), 4 * c + v, speedup(alpha, 4, c, v))
        assert (float(gain) > 1) == (what == "a good round") and [what, *map(str, by_hand[what])] in printed

    # every row: what is predicted, what is printed, and the verdict
    for name, row in rows.items():
        gamma, alpha, c, v, predicted, measured = row
        assert abs(predicted - expected_tokens(alpha, gamma) / (gamma * c + v)) < 1e-9
        assert [name, str(gamma), *two(alpha, c, v, predicted, measured), verdicts[name]] in printed
        assert all(math.isfinite(number) and number > 0 for number in (c, v, measured))
        both = {predicted > 1, measured > 1}
        right = "unclear" if len(both) == 2 else "wins" if both == {True} else "loses"
        assert verdicts[name] == ("no fair race" if name in names["slow"] else right)
    assert [*rows] == [*races, "8 texts, gamma 4", "32 texts, gamma 4", "32 texts, gamma 1", *names["slow"]]
    assert rows["the target as its own draft"][1] > 0.98
    assert rows["a draft that learnt nothing"][1] < 0.3 < rows["T = 1"][1]
    assert rows["T = 0"][1] > rows["T = 1"][1] and rows["T = 3"][1] > rows["T = 1"][1]

    # many texts at once: the last race's rounds give its alpha and its tokens, text by text
    betas, counts = [], []
    for made, p_target, accepted, _ in names["done"]:
        for b, n in enumerate(accepted.tolist()):
            counts.append(n + 1)
            for i in range(min(n + 1, 1)):                  # gamma is 1
                betas.append(p_target[b, i].minimum(made.q_draft[b, i + 1]).sum().item())
    assert len(counts) == 32 * names["STEPS"] and rows["32 texts, gamma 1"][0] == 1
    assert sum(betas) / len(betas) == pytest.approx(rows["32 texts, gamma 1"][1], abs=1e-5)
    assert sum(counts) / len(counts) == pytest.approx(names["tokens_of_many"]["32 texts, gamma 1"], abs=1e-6)
    for name, tokens in names["tokens_of_many"].items():    # counted, beside Eq. 1
        gamma, alpha = rows[name][:2]
        assert 0.3 < alpha < 1 and abs(tokens - expected_tokens(alpha, gamma)) < 0.8
    assert {count for count in names["costs"]} == {1, 8, 32}

    # the very same race, whatever it is compared with
    ours = names["runs"]["T = 1"]
    for name, baseline in names["slow"].items():
        assert rows[name][:5] == rows["T = 1"][:5] and verdicts[name] == "no fair race"
        assert abs(rows[name][5] * ours[3] - ours[1] * baseline) < 1e-9

    # the picture's dots are these rows
    dots = [dot for _, _, dots in names["panels"] for dot in dots]
    drawn = [*races, "32 texts, gamma 4", "32 texts, gamma 1"]
    assert [dot[1:] for dot in dots] == [(*rows[name][1:3], verdicts[name]) for name in drawn]

    for name in ("target", "draft"):
        model = names[name]
        size = model.embedding.weight.element_size()
        cached = 2 * model.config.layers * model.config.kv_heads * model.config.head_size * size
        weights = sum(weight.numel() for weight in model.parameters()) * size
        assert f"{name}: {weights / 1e6:.1f} MB" in out and f"{cached:,} bytes for each token" in out
