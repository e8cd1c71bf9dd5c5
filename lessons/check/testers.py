"""Exercises 11 and 12: tell honest samplers from biased ones, by hand and by a test of your own."""

from functools import lru_cache, partial

from lessons.check.engine import ANSWERS, Exercise, wrong
from lessons.check.seen import Failure, Row, Seen, values
from lessons.check.verdicts import contract, verdict_distances, verdict_values
from nanospec.dice import Dice
from nanospec.proof.checks import DRAFT, TABLE
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.proof.judge import AS_IT_SHIPS, sampler_with
from nanospec.proof.zoo import BUGS, CONTROLS

# 11. spot the bug

RULES = [f"rule_{letter}" for letter in "abcdef"]
VERDICTS = ("exact", "slow", "wrong")


@lru_cache(maxsize=None)
def shown() -> dict[str, tuple[str, float, float]]:
    """What the six rules are, walked: verdict, distance, how often the guess stands."""
    names: dict = {}
    exec((ANSWERS / "ex11_spot_the_bug.py").read_text(encoding="utf-8"), names)
    p_target, q_draft, found = names["P_TARGET"], names["Q_DRAFT"], {}
    at_best = float(p_target.minimum(q_draft).sum())
    for name in RULES:
        def play(dice, rule=names[name]):
            row = Row(dice)
            x = row.pick(q_draft)
            return x, rule(x, p_target, q_draft, row)
        pairs, law = walk(play)[0], {}
        for (_, y), weight in pairs.items():
            law[y] = law.get(y, 0.0) + weight
        off = distance(law, dict(enumerate(p_target.tolist())))[1]
        stands = sum(weight for (x, y), weight in pairs.items() if x == y)
        found[name] = ("wrong" if off > 1e-9 else "exact" if stands > at_best - 1e-9 else "slow"), round(off, 3), stands
    return found


def distances(f) -> list[Seen]:
    return verdict_distances(f, {name: found[1] for name, found in shown().items()})


def relabelled(change) -> dict:
    return {"verdicts": lambda: {name: change(*found) for name, found in shown().items()}}


SPOT = Exercise(
    "ex11_spot_the_bug.py", ("verdicts",), partial(contract, rules=RULES, verdicts=VERDICTS),
    {"verdicts": partial(verdict_values, shown=shown, verdicts=VERDICTS), "distances": distances},
    [wrong("slow-called-wrong", "you call a rule wrong because it keeps too few guesses; that costs speed, the law "
          "is right",
           **relabelled(lambda verdict, off, _: ("wrong" if verdict == "slow" else verdict, off))),
     wrong("slow-called-exact", "you call every honest rule exact: compare how often the guess stands with "
           "sum min(P_TARGET, Q_DRAFT)",
           **relabelled(lambda verdict, off, _: ("exact" if verdict == "slow" else verdict, off))),
     wrong("judged-by-acceptance", "you judge by how often the guess stands; a kind coin keeps most and is wrong",
           **relabelled(lambda verdict, off, stands: ("slow" if stands < .5 else "exact", 0.0))),
     wrong("not-halved", "your distances are twice too large: total variation is half the sum of the differences",
           **relabelled(lambda verdict, off, _: (verdict, 2 * off)))],
    ("Take one rule and one guess x. Write down what comes out with which probability, times Q_DRAFT[x]; add over x.",
     "walk(play) does that for you: play(dice) draws x from Q_DRAFT, then calls the rule. lessons.kit.OneRow(dice) has "
     "pick and flip for one text.",
     "law, paths = walk(lambda dice: rule_a(x := OneRow(dice).pick(Q_DRAFT), P_TARGET, Q_DRAFT, OneRow(dice))); then "
     "distance(law, dict(enumerate(P_TARGET.tolist()))). Do the same for (x, token) to see how often the guess stands"),
    [("nanospec.proof.walk", "walk", "", "")])


# 12. write the test

TASK = {"target": TABLE, "draft": DRAFT, "ids": [1], "new": 3, "gamma": 1, "temperature": 0.7}
KNOWN = {one.name: one for one in [AS_IT_SHIPS, *BUGS, *CONTROLS]}
GIVEN = {"as it ships": 1, "no-bonus": 1, "residual-is-target": 0, "row-before": 0, "bonus-from-draft": 0}
OTHERS = {"soft-draft-judged-as-one-hot": 1, "unnormalised-residual": 1, "ratio-flipped": 0,
          "resample-from-last-row": 0, "bonus-unwarped": 0, "draft-dtype-mismatch": 0}


@lru_cache(maxsize=None)
def truth() -> dict:
    return target_distribution(TABLE, [1], 3, temperature=0.7)


@lru_cache(maxsize=None)
def sampler_of(name: str):
    run = sampler_with(KNOWN[name], **TASK)
    return lambda dice: tuple(run(dice))


def judged(title: str, samplers: dict[str, int]):
    def look(f) -> list[Seen]:
        return [values(f"{title}: 1 if is_exact says yes", lambda: {
            name: bool(f.is_exact(sampler_of(name), dict(truth()))) for name in samplers},
            {name: float(right) for name, right in samplers.items()})]
    return look


def test_contract(f) -> None:
    found = f.is_exact(sampler_of(AS_IT_SHIPS.name), dict(truth()))
    if type(found) is not bool:
        raise Failure(f"is_exact must return True or False; it returned {found!r:.80}")


def by_samples(bar: float, samples: int):
    def is_exact(sampler, law) -> bool:
        seen: dict = {}
        for seed in range(samples):
            outcome = tuple(sampler(Dice([seed])))
            seen[outcome] = seen.get(outcome, 0.0) + 1 / samples
        return distance(seen, law)[1] < bar
    return is_exact


def first_only(sampler, law) -> bool:
    def first(whole: dict) -> dict:
        short: dict = {}
        for tokens, weight in whole.items():
            short[tokens[0]] = short.get(tokens[0], 0.0) + weight
        return short
    return distance(first(walk(sampler)[0]), first(law))[0] < 1e-9


WRITE = Exercise(
    "ex12_write_the_test.py", ("is_exact",), test_contract,
    {"three bugs, two honest": judged("samplers that you were told of", GIVEN),
     "others": judged("samplers that you were not told of", OTHERS)},
    [wrong("always-yes", "your test passes everything: a test must be seen to "
          "fail", is_exact=lambda sampler, law: True),
     wrong("always-no", "your test fails everything, the honest as well: is the tolerance 0, or the comparison exact?",
           is_exact=lambda sampler, law: False),
     wrong("first-token-only", "you look at the first token only; many bugs leave it perfect and spoil the second",
           is_exact=first_only),
     wrong("bar-too-wide", "your tolerance is wider than the bug: the smallest here is 1e-5 off",
           is_exact=lambda sampler, law: distance(walk(sampler)[0], law)[1] < 0.05),
     wrong("bar-too-wide", "your tolerance is wider than the bug: the smallest here is 1e-5 off",
           is_exact=lambda sampler, law: distance(walk(sampler)[0], law)[1] < 0.001),
     wrong("exact-equality", "you compare floats for equality: honest samplers add up in another order, and differ "
           "in the last digit", is_exact=lambda sampler, law: walk(sampler)[0] == law),
     wrong("support-only", "you look at which texts come out, not at how often",
           is_exact=lambda sampler, law: set(walk(sampler)[0]) == {key for key, p in law.items() if p > 0}),
     wrong("too-few-samples", "you sample, and a few hundred samples wander further off than the smaller bugs are: "
           "walk",
           is_exact=by_samples(0.08, 300))],
    ("How would you know the law of a sampler without drawing a single sample?",
     "walk(sampler) runs it once for every way its dice can fall, and adds up.",
     "law, paths = walk(sampler); compare law with truth by distance(...), whose first number is the greatest error of "
     "any outcome; a walk is right to about 1e-12"),
    [("nanospec.proof.layers", "rounds", "", "")])
EXERCISES = [SPOT, WRITE]
