"""Its tables say what its own rounds and costs add up to, and its verdicts follow. No clock is judged."""

import math
import re

import pytest
from shorter import shorter

from nanospec.theory import expected_tokens, speedup

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


def two(*numbers):
    return [f"{number:.2f}" for number in numbers]


@shorter(('"new": 96}', '"new": 20 if T == 3 else 28}'), ("held_out_prompts(pair, 3)", "held_out_prompts(pair, 2)"),
         ("new=24", "new=6"), ("generate(big, ids, 8, t", "generate(big, ids, 3, t"))
def test_where_it_loses(lesson, exchanged):
    names, out = lesson("where_it_loses", *exchanged)
    lines, verdicts, races = names["lines"], names["verdicts"], names["races"]
    printed = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]

    # three ways to lose, by hand: one good round, and each number alone spoils it
    by_hand = {line[0]: line[1:] for line in names["lines_by_hand"]}
    assert by_hand["a good round"][3:] == ["3.36", "1.60", "2.10"] == two(3.3616, 1.6, speedup(0.8, 4, 0.1, 1.2))
    for what, (alpha, c, v, tokens, cost, gain) in by_hand.items():
        assert [tokens, cost, gain] == two(expected_tokens(alpha, 4), 4 * c + v, speedup(alpha, 4, c, v))
        assert (float(gain) > 1) == (what == "a good round") and [what, *map(str, by_hand[what])] in printed

    # what is missing: with that number in its place, and the others as they are, the speed-up is 1
    for what, *cells in names["lines_needed"]:
        alpha, c, v = by_hand[what][:3]
        assert [what, *cells] in printed
        for i, cell in enumerate(cells):
            changed = [alpha, c, v]
            changed[i] = (1, 0, 1)[i] if cell == "-" else float(cell)
            gain = speedup(changed[0], 4, *changed[1:])
            assert gain < 1 if cell == "-" else abs(gain - 1) < 0.02
    assert [line[2] for line in names["lines_needed"]] == ["0.54", "0.01", "0.54", "-"]
    assert names["lines_needed"][1][3] == "-" and names["lines_needed"][3][1] == "0.94"

    # every line: what is predicted, what is printed, and the verdict
    for name, line in lines.items():
        alpha, c, v, predicted, measured = line
        assert abs(predicted - expected_tokens(alpha, 4) / (4 * c + v)) < 1e-9
        assert [name, *two(alpha, c, v, predicted, measured), verdicts[name]] in printed
        assert all(math.isfinite(number) and number > 0 for number in (c, v, measured))
        both = {predicted > 1, measured > 1}
        right = "unclear" if len(both) == 2 else "wins" if both == {True} else "loses"
        assert verdicts[name] == ("no fair race" if name in names["slow"] else right)
    assert [*lines] == [*races, *names["slow"]]
    assert lines["the target as its own draft model"][0] > 0.98
    assert lines["a draft model that learnt nothing"][0] < 0.3 < lines["T = 1"][0]
    assert lines["T = 3"][0] > lines["T = 1"][0] - 0.1

    # the very same race, whatever it is compared with
    ours = names["runs"]["T = 1"]
    for name, baseline in names["slow"].items():
        assert lines[name][:4] == lines["T = 1"][:4] and verdicts[name] == "no fair race"
        assert abs(lines[name][4] * ours[3] - ours[1] * baseline) < 1e-9

    # the picture's dots are these lines; beside it, the same at a v of 3
    (_, here, dots), (_, dear, none) = names["panels"]
    assert [dot[1:] for dot in dots] == [(*lines[name][:2], verdicts[name]) for name in races] and none == []
    assert (dear <= here).all() or names["costs"][1] > 3

    for name, model in ("target", names["target"]), ("draft model", names["draft_model"]):
        size = model.embedding.weight.element_size()
        cached = 2 * model.config.layers * model.config.kv_heads * model.config.head_size * size
        weights = sum(weight.numel() for weight in model.parameters()) * size
        assert f"{name}: {weights / 1e6:.1f} MB" in out and f"{cached:,} bytes for each token" in out
