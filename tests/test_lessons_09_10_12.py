"""Lessons 9, 10 and 12: their tables say what their own rounds, laws and costs add up to. No clock is judged."""

import math
import re

import pytest
import torch

from nanospec.proof.walk import distance, target_distribution
from nanospec.theory import expected_tokens

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


def rows_of(out, heading, count):
    """The `count` rows below the line that starts with `heading`, cut where two blanks or more stand."""
    lines = out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(heading))
    return [re.split(r"\s{2,}", line.strip()) for line in lines[at + 1:at + 1 + count]]


def two(*numbers):
    return [f"{number:.2f}" for number in numbers]


def test_how_fast(lesson):
    names, out = lesson("09")
    gammas, alpha, c, v = (names[name] for name in ("gammas", "alpha", "c", "v"))
    betas, accepted = [], {gamma: [len(done.path) for done in names["rounds"][gamma]] for gamma in gammas}
    for gamma in gammas:                                    # alpha by the other road: 1 - total variation
        for done in names["rounds"][gamma]:
            off = (done.p_target[:gamma] - done.q_draft[1:]).abs().sum(-1) / 2
            betas += (1 - off)[:min(len(done.path) + 1, gamma)].tolist()
    assert abs(alpha - sum(betas) / len(betas)) < 1e-5 and f"alpha {alpha:.3f}" in out
    assert 0.3 < alpha < 0.95 and all(0 <= n <= gamma for gamma in gammas for n in accepted[gamma])

    table = rows_of(out, "gamma", len(gammas))
    for gamma, row in zip(gammas, table):
        mean = sum(accepted[gamma]) / len(accepted[gamma]) + 1
        eq1 = (1 - alpha ** (gamma + 1)) / (1 - alpha)
        foretold = [eq1, eq1 / (gamma * c + 1), eq1 / (gamma * c + v[gamma + 1])]
        assert row[:2] + row[3:6] == [str(gamma), *two(mean, *foretold)]
        assert abs(mean - eq1) < 6 * float(row[2]) + 0.05, "what is counted has nothing to do with what is foretold"
    assert [float(row[3]) for row in table] == sorted(float(row[3]) for row in table)
    assert abs(names["free"][0] - (1 + alpha) / (1 + c)) < 1e-12
    assert all(math.isfinite(number) and number > 0 for number in [c, *v.values(), *names["measured"]])


def test_good_where_it_matters(lesson):
    names, out = lesson("10")
    alpha, places, shares = names["alpha"], names["places"], []
    for i, row in enumerate(rows_of(out, "what stands there", len(places))):
        name = list(places)[i]
        shares.append(places[name].double().mean().item())
        assert row == [name, f"{shares[i]:.1%}", *two(*(means[i] for means in alpha.values()))]
    code, prose = list(places).index("ALL CODE"), list(places).index("ALL PROSE")
    assert abs(sum(shares[:code]) - 1) < 1e-9 and abs(shares[code] + shares[prose] - 1) < 1e-9
    for means in alpha.values():                            # a mean of means, weighted by how often
        assert abs(sum(s * m for s, m in zip(shares[:6], means)) - shares[code] * means[code]) < 1e-5

    shipped, of_code, of_prose = alpha.values()
    assert of_code[code] > 1.2 * of_prose[code] and of_prose[prose] > 1.2 * of_code[prose], "no draft has a home"
    assert min(shipped) > max(*of_code, *of_prose)
    assert not torch.allclose(names["bigrams"](names["is_prose"]), names["bigrams"](~names["is_prose"]))

    beta = names["beta"]                                    # of the snippet: the picture's colours
    assert len(beta) == len(names["pieces"]) and "".join(names["pieces"]) == names["SNIPPET"]
    assert beta.min() >= 0 and beta.max() <= 1 + 1e-6 and beta.max() - beta.min() > 0.5
    word = [kind for _, kind in names["labelled"]("x = x  # y")]
    assert word[0] == "name" and "sign" in word and "name, again" in word and word[-1] == "comment"

    walked = re.findall(r"right (.+): (\d+) paths, .* at most (\S+)", out)
    assert [name for name, _, _ in walked] == ["everywhere", "in half of its contexts", "nowhere"]
    assert all(float(off) < 1e-12 for _, _, off in walked)
    paths = [int(count) for _, count, _ in walked]
    assert paths == sorted(set(paths)), "the three drafts are not three"
    model, stranger = names["model"], names["stranger"]
    theirs, ours = (target_distribution(table, [0], 3) for table in (stranger, model))
    assert distance(theirs, ours)[1] > 0.1, "the stranger is no stranger"


def test_where_it_loses(lesson):
    names, out = lesson("12")
    rows, verdicts = names["rows"], names["verdicts"]
    for (name, row), shown in zip(rows.items(), rows_of(out, "situation", len(rows)), strict=True):
        gamma, alpha, c, v, predicted, measured = row
        assert abs(predicted - expected_tokens(alpha, gamma) / (gamma * c + v)) < 1e-9
        assert shown == [name, str(gamma), *two(alpha, c, v, predicted),
                         "not run" if measured is None else f"{measured:.2f}", verdicts[name]]
        assert all(math.isfinite(number) and number > 0 for number in (c, v, measured or 1))
        if name not in names["slow"]:
            assert verdicts[name] == ("wins" if (predicted if measured is None else measured) > 1 else "loses")
    assert rows["the target as its own draft"][1] > 0.98
    assert rows["a draft that learnt nothing"][1] < 0.3 < rows["T = 1"][1]
    assert rows["T = 0"][1] > rows["T = 1"][1] and rows["T = 3"][1] > rows["T = 1"][1]
    ours = names["runs"]["T = 1"]
    for name, baseline in names["slow"].items():            # the very same race, whatever it is compared with
        assert rows[name][:5] == rows["T = 1"][:5] and verdicts[name] == "no fair race"
        assert abs(rows[name][5] * ours[3] - ours[1] * baseline) < 1e-9
    assert {count for count in names["batch"]} == {1, 8, 32}

    for name in ("target", "draft"):
        model = names[name]
        size = model.embedding.weight.element_size()
        cached = 2 * model.config.layers * model.config.kv_heads * model.config.head_size * size
        weights = sum(weight.numel() for weight in model.parameters()) * size
        assert f"{name}: {weights / 1e6:.1f} MB" in out and f"{cached:,} bytes for each token" in out
