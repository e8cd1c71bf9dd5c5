"""Lessons 7 and 8: the laws their tables print."""

import re

import pytest
import torch

from nanospec import ModelDrafter
from nanospec.proof.walk import distance, target_distribution, walk_by_prefix
from nanospec.proof.zoo import ALL_BUGS, planted
from nanospec.speculate import speculate

EXACT = "< 1e-12"
KINDS = {"accepted": "a", "rejected": "x", "never judged": "n", "replacement": "r", "bonus": "b"}


def rows(out: str, heading: str) -> dict[str, list[str]]:
    """The printed table whose first heading that is: first cell -> the other cells."""
    lines = iter(out.splitlines())
    assert any(line.startswith(heading) for line in lines), f"no table {heading!r} was printed"
    table = {}
    for line in lines:
        if not line.strip():
            break
        name, *cells = re.split(r" {2,}", line.strip())
        table[name] = cells
    return table


def test_a_block_and_a_bonus(lesson):
    names, out = lesson("07")
    table = rows(out, "version")
    right = "a round, by hand", "nanospec/speculate.py", "bonus as a residual"
    wrong = "goes on behind a refusal", "bonus from the draft", "replacement from the last row"
    assert set(table) == {*right, *wrong}
    for name in right:
        paths, per_call, first, four = table[name]
        assert first == four == EXACT, f"{name} has not the target's law"
        assert per_call == table[right[0]][1] and 1 < float(per_call) < 3
    assert [table[name][2] == EXACT for name in wrong] == [True, True, False], "which mistakes the first token shows"
    assert all(float(table[name][3]) > 0.05 for name in wrong), "a mistake that nobody could see"
    assert table[wrong[0]][1] == "3.00", "who never stops writes gamma + 1 tokens a call"

    # the same mistake, planted in the library, is as far off as by hand
    big, small, start = names["big"], names["small"], names["start"]
    def one_round(prefix, left, dice):
        return tuple(next(speculate(big, ModelDrafter(small, 2), [*start, *prefix], left, dice=dice)).emitted)

    with planted(next(bug for bug in ALL_BUGS if bug.name == "resample-from-last-row")):
        law, _ = walk_by_prefix(one_round, 4)
    assert table[wrong[2]][3] == f"{distance(law, target_distribution(big, start, 4))[1]:.3f}"

    steps = re.findall(r"^round_by_hand +(.+)\n(propose|one_round|verify) +(.+)$", out, re.M)
    assert len(steps) == 6 and [step[1] for step in steps] == ["propose", "one_round"] + 4 * ["verify"]
    shown = re.findall(r"^round \d: (.+)$", out, re.M)
    assert len(shown) == 4
    for line in shown:
        kinds = "".join(KINDS[kind] for kind in re.findall(rf"({'|'.join(KINDS)}) ['\"]", line))
        assert re.fullmatch(r"aaaab|a*xn*r", kinds) and len(kinds) == 5, line


def test_report_what_you_sample(lesson):
    names, out = lesson("08")
    assert "0.68 0.25 0.06 0.01" in out, "T = 0.5 squares the odds: .25, .09, .0225, .0025"
    found = {name: (int(nan), int(torn)) for name, nan, torn in re.findall(
        r"^(\S+, \S+).*? of 500 laws +(\d+) are nan, +(\d+) are torn", out, re.M)}
    assert found["float32, exp(x"] == found["float16, softmax(x"] == (500, 0)
    assert found["bfloat16, softmax(x"][0] == 0 and found["bfloat16, softmax(x"][1] > 0
    assert found["bfloat16, probs(x,"] == (0, 0)

    target, text = names["wide_target"], names["prompt"] + names["plain"]
    with torch.inference_mode():                    # one pass without a cache: is every token the best one there?
        best = target(torch.tensor([text]))[0].argmax(-1).tolist()
    assert best[len(names["prompt"]) - 1:-1] == names["plain"] and len(names["plain"]) == 32

    table = rows(out, "what is warped")
    assert list(table) == ["all warped", "draft drawn warped, told raw", "target left raw", "draft left raw, told so"]
    (fast, all_asked, all_raw), (_, *lied), (_, left_asked, left_raw), (slow, slow_asked, _) = table.values()
    assert all_asked == slow_asked == left_raw == EXACT, "three are lossless, one of them for a law nobody asked for"
    assert all_raw == left_asked == f"{distance(names['asked'], names['raw'])[1]:.3f}" and float(all_raw) > 0.05
    assert min(map(float, lied)) > 0.05, "a guess that is reported wrongly leaves a trace"
    assert 1 < float(slow) < float(fast) < 3, "a draft left raw is kept less, here"

    temperatures, both, only = names["temperatures"], names["both"], names["only"]
    assert all(later > earlier - 0.01 for earlier, later in zip(both, both[1:])) and both[-1] > both[0] + 0.1, \
        "on the same text a warmer law is kept more often"
    peak = temperatures.index(1)
    assert only[peak] == both[peak] == max(only), "a draft left at 1 fits a target at 1 best"
    assert all(a < b for a, b in zip(only, both) if a is not only[peak])
    agree = (names["of_target"].argmax(-1) == names["of_draft"].argmax(-1)).double().mean().item()
    assert both[0] == pytest.approx(agree, abs=1e-6), "at T = 0 a guess is kept where both have the same best token"
    assert " ".join(f"{a:5.2f}" for a in both) in out
