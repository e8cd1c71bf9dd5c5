"""The distributions their tables print."""

import re

import pytest
import torch
from printed import table_under
from shorter import shorter

from nanospec.probs import probs
from nanospec.proof.walk import distance

EXACT = "< 1e-12"


@shorter(("exact.target, prompt, 32", "exact.target, prompt, 12"), ("4), prompt, 32", "4), prompt, 12"),
         ("prompt, 4, 32, OneRow()", "prompt, 4, 12, OneRow()"), ("sum(rounds, ()))[:32]", "sum(rounds, ()))[:12]"),
         ("assert 7 <= len(rounds) <= 32", "assert 3 <= len(rounds) <= 12"))
def test_temperature_and_greedy(lesson, exchanged):
    names, out = lesson("temperature_and_greedy", *exchanged)
    assert re.search(r"^T = 0\.5 +0\.685 +0\.247 +0\.062 +0\.007 *$", out, re.M), "squares: .25, .09, .0225, .0025"
    kept = table_under(out, "what is kept")
    assert kept["top-k 2"] == ["0.625", "0.375", "0.000", "0.000"]
    assert kept["top-p 0.9"] == ["0.526", "0.316", "0.158", "0.000"]
    assert kept["T = 0.5, top-p 0.9"][2:] == ["0.000", "0.000"], "two tokens hold .93 at T = 0.5"
    towards = re.findall(r"^T = ([\d.]+) +([\d.]+) .*$", out.split("what is kept")[1], re.M)
    assert [float(T) for T, _ in towards[:5]] == [1, 0.5, 0.25, 0.1, 0]
    assert [float(best) for _, best in towards[:5]] == sorted(float(best) for _, best in towards[:5])

    counts = table_under(out, f"of {len(names['ids'])} places")
    assert len(names["ids"]) == 500
    assert counts["by_exp"] == counts["in_float16"] == ["500", "0"]
    assert counts["in_bfloat16"][0] == "0" and int(counts["in_bfloat16"][1]) > 0
    assert counts["by_probs"] == ["0", "0"]
    assert all([str(number) for number in names["counts"][way]] == line for way, line in counts.items())
    assert torch.equal(names["by_probs"](names["of_target"]).argmax(-1), names["of_target"].bfloat16().argmax(-1))

    walked = table_under(out, "sampling")
    assert set(walked) == set(names["settings"]) and all(off == EXACT for _, off in walked.values())
    assert walked["T = 0"][0] == "1" and int(walked["top-k 2"][0]) < int(walked["as it is"][0])

    target, text = names["exact"].target, names["prompt"] + names["plain"]
    with torch.inference_mode():                    # one call without a cache: is every token the best one there?
        best = target(torch.tensor([text]))[0].argmax(-1).tolist()
    assert best[len(names["prompt"]) - 1:-1] == names["plain"] and len(names["plain"]) == (12 if exchanged else 32)
    assert f"{len(names['plain'])} one token at a time, {len(names['rounds'])} in rounds" in out
    for number, T in enumerate((0, 0.5, 1, 2)):     # the picture's bars
        high = list(names["heights"].values())[number]
        assert high == probs(names["of_target"][names["place"]], T)[names["best"]].tolist()


@pytest.mark.usefixtures("packed")
@shorter(("continued(beginnings, T, 100)", "continued(beginnings, T, 40)"), ("range(0, 960, 96)", "range(0, 960, 160)"),
         ("in (0, 1, 2):", "in (0, 1):"))
def test_report_what_you_sample(lesson, exchanged):
    names, out = lesson("report_what_you_sample", *exchanged)
    by_hand = table_under(out, "p_target [.5, .5]")
    assert list(by_hand.values()) == [["0.625", "0.375"], ["0.500", "0.500"], ["0.500", "0.500"]]

    table = table_under(out, "way")
    assert list(table) == ["all warped", "drawn warped, told raw", "target left raw", "draft model left raw"]
    (fast, all_asked, all_raw), (looks_fast, *lied), (_, left_asked, left_raw), (slow, slow_asked, _) = table.values()
    assert all_asked == slow_asked == left_raw == EXACT, "three are lossless, one of them for what nobody asked for"
    assert all_raw == left_asked == f"{distance(names['asked'], names['raw'])[1]:.3f}" and float(all_raw) > 0.05
    assert min(map(float, lied)) > 0.05, "a draft token that is reported wrongly leaves a trace"
    assert 1 < float(slow) < float(fast) < 3, "a draft model left raw is accepted less, here"
    assert float(looks_fast) > float(fast), "the wrong rule does not look fast"

    places = table_under(out, "beta at T =")
    assert places["sure"][:2] == ["1.00", "0.90"] and places["unsure"][:2] == ["0.00", "0.90"]
    assert all(float(line[2]) > 0.97 for line in places.values()), "flat distributions are alike"

    temperatures, both, only = names["temperatures"], names["both"], names["only"]
    assert all(later > earlier - 0.01 for earlier, later in zip(both, both[1:])) and both[-1] > both[0] + 0.02, \
        "on the same text a warmer distribution is accepted more often"
    peak = temperatures.index(1)
    assert only[peak] == both[peak] and temperatures[only.index(max(only))] in (1, 1.5), \
        "a draft model left at 1 fits a target at 1 or a bit above best"
    assert all(a < b for a, b, T in zip(only, both, temperatures) if T not in (1, 1.5))
    agree = (names["of_target"].argmax(-1) == names["of_draft"].argmax(-1)).double().mean().item()
    assert both[0] == pytest.approx(agree, abs=1e-6), "at T = 0 accepted where both have the same best token"
    assert table_under(out, "a human's text")["alpha, both models at T"] == [f"{a:.2f}" for a in both]

    own = names["own"]
    if not exchanged:                               # a few short texts say little
        assert own[0] > both[0], "the target's own greedy text is not easier than a human's"
        assert not own[0] < own[1] < own[2], "on its own text alpha rises with T, as on a human's"
    sure, of_human = names["sure"], names["sure_of_human"]
    assert sure[0][0] > max(sure[1][0], of_human[0]), "the target is no surer of its greedy text"
    assert table_under(out, "T =") == {"alpha on the target's own text": [f"{a:.2f}" for a in own.values()],
                                "alpha on the human's text": [f"{both[temperatures.index(T)]:.2f}" for T in own]}
    beginnings, greedy = names["beginnings"], names["continued"]
    with torch.inference_mode():                    # the cached loop, against a call that reads everything
        text = greedy(beginnings[:2], 0, 12)
        scores = names["target"](text)[:, 31:-1]
    assert torch.equal(text[:, :32], beginnings[:2]) and text.shape == (2, 44)
    assert (scores.gather(-1, text[:, 32:, None])[..., 0] > scores.amax(-1) - 1e-3).all()
