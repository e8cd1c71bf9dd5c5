"""Lesson 16 and its exercise: what a stopping rule may look at, and what the rules cost."""

import math
import re
from fractions import Fraction
from itertools import product

from lessons.check.ex16_when_to_stop import RULES, shown
from nanospec.drafters.dynamic import DynamicDrafter
from nanospec.drafters.stopping import Confidence, Fixed
from nanospec.proof.walk import distance, target_distribution, walk_by_prefix
from nanospec.proof.zoo import ALL_BUGS, planted
from nanospec.proof.zoo.plant import bug
from nanospec.speculate import ModelDrafter, speculate

DRAW = "tokens.append(dice.pick(torch.where(on, q, certain)))"


def thrown_away(name, why):
    """The library's drafter, made to throw draft tokens away."""
    edit = DRAW, (f"token = dice.pick(torch.where(on, q, certain))\n            if {why}:\n                break\n"
                  "            tokens.append(token)")
    return bug(name, "", "", "", edit, file="drafters.dynamic")


def test_when_to_stop(lesson):
    names, out = lesson("16")
    big, small, lines = names["big"], names["small"], out.splitlines()

    def library(when=Fixed()):
        def one_round(prefix, new, dice):
            return tuple(next(speculate(big, DynamicDrafter(small, when, 2), [0, 1, *prefix], new, dice=dice)).emitted)
        return distance(walk_by_prefix(one_round, 3)[0], target_distribution(big, [0, 1], 3))[1]
    by_coin, = (known for known in ALL_BUGS if known.name == "residual-is-target")
    mistakes = [thrown_away("unlikely", "own[0, token] < 0.35"), thrown_away("end", "token == 0"), by_coin,
                thrown_away("flat", "own.max() < 0.5")]
    for row, mistake in zip(lines[1:5], mistakes):
        with planted(mistake):
            off = library()
        assert row.split("off by")[1].strip() == "nothing"
        assert row.split("off by")[2].strip() == ("nothing" if off < 1e-12 else f"{off:.3f}")
    assert library(Confidence(0.35)) < 1e-12
    assert [line.count("nothing") for line in lines[1:5]] == [1, 1, 1, 2]

    c, v, runs, texts = (names[name] for name in ("c", "v", "runs", "texts"))
    assert c > 0 and all(math.isfinite(price) for price in v.values()) and v[1] == 1
    assert list(v.values()) == sorted(v.values())
    at = next(i for i, line in enumerate(lines) if line.startswith("rule "))
    table = {(cells := re.split(r"\s{2,}", line.strip()))[0]: cells[1:] for line in lines[at + 1:at + 13]}
    assert [*table] == [*(f"gamma {gamma}" for gamma in range(1, 9)), *runs]
    for name, run in runs.items():
        rounds = sum(run, [])
        cost = sum(done.steps * c + v[len(done.tokens)] for done in rounds)
        written = sum(len(done.emitted) for done in rounds)
        assert table[name][:4] == [f"{number:.2f}" for number in (
            sum(done.steps for done in rounds) / len(rounds), cost / len(rounds), written / len(rounds),
            written / cost)]
    costs = {gamma: [] for gamma in range(1, 9)}
    for ids, text in zip(names["prompts"], texts):
        for gamma in costs:
            rounds = 0
            if gamma == 3:                                      # the library's own chain of that length
                drafter = ModelDrafter(names["draft"], gamma)
                rounds = len(list(speculate(names["target"], drafter, ids, len(text), temperature=0)))
            places = names["right"][len(costs[gamma])]
            assert names["calls"](places, gamma) == rounds or gamma != 3
            costs[gamma].append(names["calls"](places, gamma) * (gamma * c + v[gamma + 1]))
    for gamma, each in costs.items():
        assert table[f"gamma {gamma}"][3] == f"{sum(map(len, texts)) / sum(each):.2f}"
    ours = [sum(done.steps * c + v[len(done.tokens)] for done in rounds) for rounds in runs["goodput"]]
    against = min(min(all_of_it) / mine - 1 for mine, all_of_it in zip(ours, zip(*costs.values())))
    assert table["goodput"][4] == f"{against:+.0%}"
    assert sum(ours) < 1.05 * min(map(sum, costs.values())), "it has the prices, and cannot use them"


def test_the_verdicts_by_fractions():
    """Every way in which two guesses and their coins can fall, for rules written anew; no dice, no walk."""
    p = {text: [Fraction(n, 10) for n in law] for text, law in
         {(): (5, 3, 2), (0,): (2, 2, 6), (1,): (4, 5, 1), (2,): (3, 3, 4)}.items()}
    q = {text: [Fraction(n, 10) for n in law] for text, law in
         {(): (3, 2, 5), (0,): (6, 2, 2), (1,): (3, 1, 6), (2,): (2, 7, 1)}.items()}
    handed_on = {           # x, y, how their coins fall -> how many guesses the target gets
        "a": lambda x, y, one, two: 1 if x == 1 else 2, "b": lambda x, y, one, two: 1 if x == 1 else 2,
        "c": lambda x, y, one, two: 0 if x == 1 else 1 if q[x,][y] < Fraction(1, 4) else 2,
        "d": lambda x, y, one, two: 1 + one, "e": lambda x, y, one, two: 1 + two,
        "f": lambda x, y, one, two: 1 if x == 1 else 2,
        "g": lambda x, y, one, two: 2 if q[()][x] * q[x,][y] > Fraction(8, 100) else 1,
        "h": lambda x, y, one, two: 0 if x == 1 else 1 if y == 1 else 2}
    texts = list(product(range(3), range(3)))
    for letter, count in handed_on.items():
        law = dict.fromkeys(texts, Fraction(0))
        for x, y, one, two in product(range(3), range(3), (True, False), (True, False)):
            stand, stand_too = min(1, p[()][x] / q[()][x]), min(1, p[x,][y] / q[x,][y])
            weight = q[()][x] * q[x,][y] * (stand if one else 1 - stand) * (stand_too if two else 1 - stand_too)
            n = count(x, y, one, two)
            for a, b in texts:
                first = p[()][a] if n == 0 else (a == x) if one else left(p[()], q[()])[a]
                after = p[a,][b] if n < 2 or not one else (b == y) if two else left(p[x,], q[x,])[b]
                law[a, b] += weight * first * after
        off = sum(abs(law[a, b] - p[()][a] * p[a,][b]) for a, b in texts) / 2
        assert shown()[f"rule_{letter}"][:2] == ("wrong" if off else "exact", float(off)), letter
        assert off == 0 or (1000 * off).denominator == 1, "three decimals are not all of it"
    assert [found[0] for found in shown().values()].count("wrong") == 4 and len(RULES) == len(handed_on)


def left(p_target, q_draft):
    residual = [max(Fraction(0), p - q) for p, q in zip(p_target, q_draft)]
    return [weight / sum(residual) for weight in residual]
