"""What a stopping rule may look at, and what the rules cost."""

import math
import re
from fractions import Fraction
from itertools import product

import pytest

from shorter import shorter

from lessons.check.ex16_when_to_stop import RULES, shown
from nanospec.methods.lengths.dynamic import DynamicDrafter
from nanospec.methods.lengths.stopping import Confidence, StoppingRule
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.proof.zoo import planted
from nanospec.proof.zoo.plant import bug
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from nanospec.theory import best_gamma
from tests.proof.compare import walk_by_prefix
from tests.proof.zoo import ALL_BUGS

DRAW = "tokens.append(dice.pick(torch.where(on, q, certain)))"


def thrown_away(name, why):
    """The library's drafter, made to throw draft tokens away."""
    edit = DRAW, (f"token = dice.pick(torch.where(on, q, certain))\n            if {why}:\n                break\n"
                  "            tokens.append(token)")
    return bug(name, "", "", "", edit, file="methods.lengths.dynamic")


@pytest.mark.usefixtures("packed")
def test_what_a_stopping_rule_may_see(lesson):
    names, out = lesson("what_a_stopping_rule_may_see")

    # one place: the ways are those of a walk, the lines' mean is p_target, and the numbers in the text
    p_target, q_draft, ways, comes_out = (names[name] for name in ("p_target", "q_draft", "ways", "comes_out"))

    def one_place(dice, disliked):
        x = dice.pick(q_draft)
        if x == disliked:
            return "thrown away", x, dice.pick(p_target)
        if dice.flip(p_target[x] / q_draft[x]):
            return "accepted", x, x
        return "rejected", x, dice.pick((p_target - q_draft).clamp(min=0))
    wrong = {None: [.5, .4, .1], 0: [.4, .48, .12], 1: [.7, .16, .14], 2: [.4, .56, .04]}
    for disliked, heights in wrong.items():
        found = ways(p_target, q_draft, disliked)
        walked, paths = walk(lambda dice: one_place(names["OneRow"](dice), disliked))
        assert paths == len(found) == len(walked)
        assert all(walked[fate, x, y] == pytest.approx(math.prod(odds)) for fate, x, y, odds in found)
        assert comes_out(found) == pytest.approx(heights)
        if disliked is not None:
            off = sum(abs(a - b) for a, b in zip(heights, p_target.tolist())) / 2
            cells = f"{names['names'][disliked]} is thrown away", *(f"{height:.2f}" for height in heights), f"{off:.2f}"
            assert cells in [tuple(re.split(r"\s{2,}", line.strip())) for line in out.splitlines()]
    assert (q_draft @ names["lines"]).tolist() == pytest.approx(p_target.tolist())
    assert all((line - p_target).abs().max() > .1 for line in names["lines"]), "no line alone is p_target"
    for name, share, wanted in (("range", 0.40, 0.50), ("items", 0.48, 0.40), ("zip", 0.12, 0.10),
                                ("range", 0.50, 0.50)):
        assert f"{name:6} comes out with {share:.2f}; its p_target is {wanted:.2f}" in out

    # two places: what is thrown away by hand is as far off as in the library, made to throw it away
    big, small = names["target"], names["draft_model"]

    def library(when=StoppingRule()):
        def one_round(prefix, new, dice):
            return tuple(next(speculate(big, DynamicDrafter(small, when, 2), [0, 1, *prefix], new, dice=dice)).emitted)
        return distance(walk_by_prefix(one_round, 3)[0], target_distribution(big, [0, 1], 3))[1]
    by_coin, = (known for known in ALL_BUGS if known.name == "residual-is-target")
    mistakes = [thrown_away("unlikely", "own[0, token] < 0.35"), thrown_away("end", "token == 0"), by_coin,
                thrown_away("flat", "own.max() < 0.5")]
    lines = [line for line in out.splitlines() if line.startswith(tuple(names["reasons"]))]
    for line, mistake, (stopping, throwing) in zip(lines, mistakes, names["walked"].values(), strict=True):
        with planted(mistake):
            off = library()
        assert stopping < 1e-12 and throwing == pytest.approx(off, abs=1e-12)
        assert line.split()[-2:] == ["nothing", "nothing" if off < 1e-12 else f"{off:.3f}"]
    assert library(Confidence(0.35)) < 1e-12
    assert [line.count("nothing") for line in lines] == [1, 1, 1, 2]
    the_look_back(names, out)
    the_figures_of_the_answers(names)


def the_look_back(names, out):
    """DSpark's Appendix A, by hand: .5 + .5 * .7 where B is taken back."""
    printed = [line.split() for line in out.splitlines()]
    assert ["A", "1.00", "0.90", "1.13"] in printed and ["B", "1.00", "0.90", "0.85"] in printed
    assert [names["best_of_all"](x) for x in range(2)] == [2, 0]
    assert [names["stop_at_the_first_fall"](x) for x in range(2)] == [0, 0]
    for name, of_a in ("best_of_all", .85), ("stop_at_the_first_fall", .7):
        found = names["looked"][name]
        assert (found[0], found[1]) == pytest.approx((of_a, 1 - of_a), abs=1e-12)
        assert [*name.split("_"), f"{of_a:.2f}", f"{1 - of_a:.2f}"] in printed


def the_figures_of_the_answers(names):
    """The figures in lessons/answers/: of fixed tables, and so for ever."""
    off_by, stopping, throwing = (names[name] for name in ("off_by", "round_stopping", "round_throwing"))
    for off, dislikes in ((.249, lambda q_draft, x, accepted: x != q_draft.argmax()),
                          (.045, lambda q_draft, x, accepted: q_draft.max() < .5 and x == 0),
                          (.220, lambda q_draft, x, accepted: accepted)):
        assert off_by(stopping, dislikes) < 1e-12 and off_by(throwing, dislikes) == pytest.approx(off, abs=5e-4)
    p_target = names["p_target"]
    assert names["comes_out"](names["ways"](p_target, p_target, 0)) == pytest.approx([.25, .6, .15])


@shorter(("generate(target, ids, 64,", "generate(target, ids, 28,"), ("rule, 8), ids, 64,", "rule, 8), ids, 28,"),
         ('square(1) == 1\\n" * 3)]', 'square(1) == 1\\n" * 3)][:2]'))
def test_when_to_stop(lesson, exchanged):
    names, out = lesson("when_to_stop", *exchanged)
    lines = out.splitlines()

    # sureness: the classes hold all places, and the draft model that is surer is right more often
    table = {cells[0]: cells[1:] for line in lines if (cells := re.split(r"\s{2,}", line.strip()))}
    hits = [hit for of_text in names["right"] for hit in of_text]
    probabilities = [p for of_text in names["sure"] for p in of_text]
    counts = [int(table[f"{n / 4:.2f} to {(n + 1) / 4:.2f}"][0]) for n in range(4)]
    assert sum(counts) == len(hits) == sum(map(len, names["texts"])) == int(table["all"][0])
    assert table["all"][1] == f"{sum(hits) / len(hits):.2f}"
    mean = {right: sum(p for p, hit in zip(probabilities, hits) if hit == right) / hits.count(right)
            for right in (True, False)}
    assert mean[True] > mean[False] + .1

    # prices, the sum by hand, and its answer where all places are alike: the best gamma
    c, v, runs, texts = (names[name] for name in ("c", "v", "runs", "texts"))
    assert c > 0 and all(math.isfinite(price) for price in v.values()) and v[1] == 1
    assert list(v.values()) == sorted(v.values())
    toy = names["toy_c"], names["toy_v"]
    assert f"{.75 ** 3:.2f}" == "0.42" and f"{names['worth']:.2f}" == "0.29" and f"{names['rate']:.2f}" == "1.91"
    assert names["lengths"] == {.9: 8, .75: 4, .4: 1}
    assert names["lengths"][.75] == best_gamma(.75, toy[0], lambda tokens: toy[1][tokens], most=8)

    # the table: every gamma, counted, and every rule, run
    at = next(i for i, line in enumerate(lines) if line.startswith("rule "))
    table = {(cells := re.split(r"\s{2,}", line.strip()))[0]: cells[1:] for line in lines[at + 1:at + 13]}
    assert [*table] == [*(f"gamma {gamma}" for gamma in range(1, 9)), *runs]
    for name, run in runs.items():
        assert [tokens_of(rounds) for rounds in run] == texts
        rounds = sum(run, [])
        cost = sum(done.steps * c + v[len(done.tokens)] for done in rounds)
        written = sum(len(done.emitted) for done in rounds)
        assert table[name][:4] == [f"{number:.2f}" for number in (
            sum(done.steps for done in rounds) / len(rounds), cost / len(rounds), written / len(rounds),
            written / cost)]
    costs = {gamma: [] for gamma in range(1, 9)}
    assert names["calls"]([True, False, True, True], 2) == 2
    for ids, text in zip(names["prompts"], texts):
        for gamma in costs:
            rounds = 0
            if gamma == 3:                                      # the library's own chain of that length
                drafter = ModelDrafter(names["draft_model"], gamma)
                rounds = len(list(speculate(names["target"], drafter, ids, len(text), temperature=0)))
            places = names["right"][len(costs[gamma])]
            assert names["calls"](places, gamma) == rounds or gamma != 3
            costs[gamma].append(names["calls"](places, gamma) * (gamma * c + v[gamma + 1]))
    for gamma, each in costs.items():
        assert table[f"gamma {gamma}"][3] == f"{sum(map(len, texts)) / sum(each):.2f}"
    calls = [sum(names["calls"](places, gamma) for places in names["right"]) for gamma in costs]
    assert calls == sorted(calls)[::-1], "a longer draft never writes fewer tokens in a round"
    ours = [sum(done.steps * c + v[len(done.tokens)] for done in rounds) for rounds in runs["goodput"]]
    against = min(min(all_of_it) / mine - 1 for mine, all_of_it in zip(ours, zip(*costs.values())))
    assert table["goodput"][4] == f"{against:+.0%}"
    assert sum(ours) < 1.05 * min(map(sum, costs.values())), "it has the prices, and cannot use them"

    # the verdict follows the numbers
    gamma = min(costs, key=lambda gamma: sum(costs[gamma]))
    assert f"the best single gamma is gamma {gamma}: {table[f'gamma {gamma}'][3]} tokens per target step" in out
    better = sum(costs[gamma]) / sum(ours) - 1
    assert f"goodput makes {table['goodput'][3]}: {abs(better):.0%} {'more' if better > 0 else 'fewer'}" in out
    best = max(runs, key=lambda name: float(table[name][3]))
    assert table[re.search("best of all rules: (\\w+)", out)[1]][3] == table[best][3]


def test_the_verdicts_by_fractions():
    """Every way in which two draft tokens and their coins can fall, for rules written anew; no dice, no walk."""
    p = {text: [Fraction(n, 10) for n in tenths] for text, tenths in
         {(): (5, 3, 2), (0,): (2, 2, 6), (1,): (4, 5, 1), (2,): (3, 3, 4)}.items()}
    q = {text: [Fraction(n, 10) for n in tenths] for text, tenths in
         {(): (3, 2, 5), (0,): (6, 2, 2), (1,): (3, 1, 6), (2,): (2, 7, 1)}.items()}
    handed_on = {           # x, y, how their coins fall -> how many draft tokens the target gets
        "a": lambda x, y, one, two: 1 if x == 1 else 2, "b": lambda x, y, one, two: 1 if x == 1 else 2,
        "c": lambda x, y, one, two: 0 if x == 1 else 1 if q[x,][y] < Fraction(1, 4) else 2,
        "d": lambda x, y, one, two: 1 + one, "e": lambda x, y, one, two: 1 + two,
        "f": lambda x, y, one, two: 1 if x == 1 else 2,
        "g": lambda x, y, one, two: 2 if q[()][x] * q[x,][y] > Fraction(8, 100) else 1,
        "h": lambda x, y, one, two: 0 if x == 1 else 1 if y == 1 else 2}
    texts = list(product(range(3), range(3)))
    for letter, count in handed_on.items():
        found = dict.fromkeys(texts, Fraction(0))
        for x, y, one, two in product(range(3), range(3), (True, False), (True, False)):
            accepts, accepts_too = min(1, p[()][x] / q[()][x]), min(1, p[x,][y] / q[x,][y])
            weight = q[()][x] * q[x,][y] * (accepts if one else 1 - accepts) * (accepts_too if two else 1 - accepts_too)
            n = count(x, y, one, two)
            for a, b in texts:
                first = p[()][a] if n == 0 else (a == x) if one else left(p[()], q[()])[a]
                after = p[a,][b] if n < 2 or not one else (b == y) if two else left(p[x,], q[x,])[b]
                found[a, b] += weight * first * after
        off = sum(abs(found[a, b] - p[()][a] * p[a,][b]) for a, b in texts) / 2
        assert shown()[f"rule_{letter}"][:2] == ("wrong" if off else "exact", float(off)), letter
        assert off == 0 or (1000 * off).denominator == 1, "three decimals are not all of it"
    assert [verdict for verdict, *_ in shown().values()].count("wrong") == 4 and len(RULES) == len(handed_on)


def left(p_target, q_draft):
    residual = [max(Fraction(0), p - q) for p, q in zip(p_target, q_draft)]
    return [weight / sum(residual) for weight in residual]
