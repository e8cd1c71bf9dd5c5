"""Exercise 11: six rules, to be told apart by hand: who is honest, and how far off are the others?"""

from functools import lru_cache, partial

from lessons.check.catalogue import ENTRIES
from lessons.check.engine import Exercise, wrong
from lessons.check.seen import Row, Seen
from lessons.check.verdicts import contract, verdict_distances, verdict_values
from nanospec.proof.walk import distance, walk

RULES = [f"rule_{letter}" for letter in "abcdef"]
VERDICTS = ("exact", "slow", "wrong")


@lru_cache(maxsize=None)
def shown() -> dict[str, tuple[str, float, float]]:
    """What the six rules are, by name."""
    names: dict = {}
    exec(ENTRIES[11].answer, names)
    return {name: (verdict, round(off, 3), accepted) for name, (verdict, off, accepted) in judged(names).items()}


def judged(names: dict) -> dict[str, tuple[str, float, float]]:
    """Walked, as those names have them: verdict, distance, how often the draft token is accepted."""
    p_target, q_draft, found = names["P_TARGET"], names["Q_DRAFT"], {}
    at_best = float(p_target.minimum(q_draft).sum())
    for name in RULES:
        def play(dice, rule=names[name]):
            row = Row(dice)
            x = row.pick(q_draft)
            return x, rule(x, p_target, q_draft, row)
        pairs, tokens = walk(play)[0], {}
        for (_, y), weight in pairs.items():
            tokens[y] = tokens.get(y, 0.0) + weight
        off = distance(tokens, dict(enumerate(p_target.tolist())))[1]
        accepted = sum(weight for (x, y), weight in pairs.items() if x == y)
        verdict = "wrong" if off > 1e-9 else "exact" if accepted > at_best - 1e-9 else "slow"
        found[name] = verdict, off, accepted
    return found


def distances(f) -> list[Seen]:
    return verdict_distances(f, shown, VERDICTS, of=RULES)


def relabelled(change) -> dict:
    return {"verdicts": lambda: {name: change(*found) for name, found in shown().items()}}


EXERCISE = Exercise(
    "ex11_spot_the_bug.py", ("verdicts",), partial(contract, rules=RULES, verdicts=VERDICTS),
    {"verdicts": partial(verdict_values, shown=shown, verdicts=VERDICTS), "distances": distances},
    [wrong("slow-called-wrong", "you call a rule wrong because it accepts too few draft tokens; that costs speed, "
           "the distribution is right",
           **relabelled(lambda verdict, off, _: ("wrong" if verdict == "slow" else verdict, off))),
     wrong("slow-called-exact", "you call every honest rule exact: compare how often the draft token is accepted "
           "with "
           "sum min(P_TARGET, Q_DRAFT)",
           **relabelled(lambda verdict, off, _: ("exact" if verdict == "slow" else verdict, off))),
     wrong("judged-by-acceptance", "you judge by how often the draft token is accepted; a kind coin accepts most and "
           "is wrong", **relabelled(lambda verdict, off, accepted: ("slow" if accepted < .5 else "exact", 0.0))),
     wrong("not-halved", "your distances are twice too large: total variation is half the sum of the differences",
           **relabelled(lambda verdict, off, _: (verdict, 2 * off)))],
    ("Take one rule and one draft token x. Write down what comes out with which probability, times Q_DRAFT[x]; add "
     "over x.",
     "walk(play) does that for you: play(dice) draws x from Q_DRAFT, then calls the rule. lessons.kit.OneRow(dice) has "
     "pick and flip for one text.",
     "found, paths = walk(lambda dice: rule_a(x := OneRow(dice).pick(Q_DRAFT), P_TARGET, Q_DRAFT, OneRow(dice))); then "
     "distance(found, dict(enumerate(P_TARGET.tolist()))). Do the same for (x, token) to see how often x is accepted"),
    [("nanospec.proof.walk", "walk", "", "")])
