"""Exercise 16: which rules may end a draft early, and which of them spoil the text."""

import re
from functools import lru_cache, partial

from lessons.check import engine, seeds
from lessons.check.catalogue import ENTRIES
from lessons.check.engine import Exercise
from lessons.check.rounds import count
from lessons.check.seen import Row, Seen
from lessons.check.verdicts import contract, verdict_distances, verdict_values
from nanospec.proof.walk import distance, walk

COST = 0.5              # of a draft token, in calls of the target
RULES = [f"rule_{letter}" for letter in "abcdefgh"]
VERDICTS = ("exact", "wrong")
LETTERS = seeds.letters(len(RULES), 16)


@lru_cache(maxsize=None)
def names_of_the_answer() -> dict:
    names: dict = {}
    exec(ENTRIES[16].answer, names)
    return names


def written_by(rule, dice) -> tuple:
    return names_of_the_answer()["rule_played"](rule, dice)


@lru_cache(maxsize=None)
def right() -> dict[tuple, float]:
    return right_by(names_of_the_answer())


def right_by(names: dict) -> dict[tuple, float]:
    """The target's distribution of two tokens."""
    p_target = {text: weights.tolist() for text, weights in names["P_TARGET"].items()}
    return {(x, y): p_target[()][x] * p_target[x,][y] for x in range(3) for y in range(3)}


@lru_cache(maxsize=None)
def shown() -> dict[str, tuple[str, float, float]]:
    """What the eight rules are, by name."""
    return {name: (verdict, round(off, 3), round(first, 3))
            for name, (verdict, off, first) in judged(names_of_the_answer()).items()}


def judged(names: dict) -> dict[str, tuple[str, float, float]]:
    """Walked, as those names have them: verdict, distance over two tokens, distance over the first."""
    found, truth = {}, right_by(names)
    for name in RULES:
        texts, _ = walk(lambda dice: names["rule_played"](names[name], Row(dice)))
        off, first = distance(texts, truth)[1], distance(of_the_first(texts), of_the_first(truth))[1]
        found[name] = "wrong" if off > 1e-9 else "exact", off, first
    return found


def of_the_first(texts: dict) -> dict:
    first: dict = {}
    for (x, _), weight in texts.items():
        first[x] = first.get(x, 0.0) + weight
    return first


def distances(f) -> list[Seen]:
    """Of those that are wrong. For an exact rule the verdict is all there is to know."""
    return verdict_distances(f, shown, VERDICTS, [name for name, found in shown().items() if found[0] == "wrong"])


def first_round(rule, dice) -> tuple[int, int]:
    """How many tokens that rule draws in a first round, and how many the round writes."""
    names, drawn = names_of_the_answer(), []

    def distributions(chain):
        before = tuple(token.x for token in chain)
        return names["P_TARGET"][before], names["Q_DRAFT"][before]

    def draw(chain):
        p_target, q_draft = distributions(chain)
        drawn.append(dice.pick(q_draft))
        x = drawn[-1]
        return names["DraftToken"](x, float(q_draft[x]), dice.flip(p_target[x] / q_draft[x]))
    accepted = count([token.accepted for token in rule(distributions, draw)])
    return len(drawn), accepted + 1


def pace_of(rule) -> float:
    """Tokens in the time of one target call, walked."""
    found, _ = walk(lambda dice: first_round(rule, Row(dice)))
    drawn, written = (sum(outcome[side] * weight for outcome, weight in found.items()) for side in (0, 1))
    return written / (1 + COST * drawn)


def number_to_beat(f) -> str:
    """What the best exact rule of the eight has; and the learner's own rule_i, if there is one and it is exact."""
    best, name = max((pace_of(names_of_the_answer()[name]), name) for name in RULES if shown()[name][0] == "exact")
    said = f"to beat: {best:.3f} tokens in the time of a target call ({name}; a draft token costs {COST} of one)"
    if not hasattr(f, "rule_i"):
        return f"{said}; write an exact rule_i that has more"
    off = distance(walk(lambda dice: written_by(f.rule_i, Row(dice)))[0], right())[1]
    yours = f"is wrong: {off:.3f} off" if off > 1e-9 else f"has {pace_of(f.rule_i):.3f}"
    return f"your rule_i {yours}; {said}"


def relabelled(change, *names: str) -> dict:
    """Right verdicts, but for the rules of those letters, as they ship; all, if there are none."""
    letters = [LETTERS[name] for name in names]
    return {"verdicts": lambda: {name: change(*found) if not names or name[-1] in letters else found[:2]
                                 for name, found in shown().items()}}


def called(verdict: str, *names: str) -> dict:
    return relabelled(lambda *found: (verdict, 0.0), *names)


def wrong(name: str, said: str, **functions) -> engine.Wrong:
    """A sentence names rules by the letters that they have in what ships."""
    return engine.wrong(name, re.sub(r"rule_([a-h])\b", lambda found: f"rule_{LETTERS[found[1]]}", said), **functions)


EXERCISE = Exercise(
    "ex16_when_to_stop.py", ("verdicts",), partial(contract, rules=RULES, verdicts=VERDICTS),
    {"verdicts": partial(verdict_values, shown=shown, verdicts=VERDICTS), "distances": distances},
    [wrong("every-rule-called-exact", "you call all of them exact: to draft less does no harm, but a draft token "
           "thrown away because of what it is will be missed, and what the rule likes comes too often",
           **called("exact")),
     wrong("hand-on-then-stop-called-wrong", "you call rules wrong that hand on the draft token they look at: it is "
           "accepted or replaced as ever, and whether the next place has one may depend on it",
           **called("wrong", "b", "d")),
     wrong("dislike-called-wrong", "you call rule_b wrong, but the draft token that it dislikes is handed on: what is "
           "missing?",
           **called("wrong", "b")),
     wrong("coin-before-called-wrong", "you call rule_d wrong, but the coin that it looks at is that of the draft "
           "token before, and that one is handed on", **called("wrong", "d")),
     wrong("asking-the-target-called-wrong", "you call rule_a wrong, but it decides before the token is drawn, and "
           "then it may look at p_target, at q_draft and at whatever else there is", **called("wrong", "a")),
     wrong("every-drop-called-wrong", "you call rule_f wrong: it does drop a draft token, but never asks what that one "
           "is or how its coin fell", **called("wrong", "f")),
     wrong("unlikely-dropped-called-harmless", "you call rule_c exact: an unlikely token is part of what the "
           "draft model draws, and only together do its draft tokens have the distribution q_draft",
           **called("exact", "c")),
     wrong("own-coin-called-harmless", "you call rule_e exact: where a coin rejects, the token must come from what "
           "q_draft left uncovered, and without the draft token it comes from all of p_target",
           **called("exact", "e")),
     wrong("product-called-harmless", "you call rule_g exact: it asks how likely both draft tokens are together, and "
           "so it asks what the second one is", **called("exact", "g")),
     wrong("end-of-text-called-harmless", "you call rule_h exact: an end of text is a token like any other, and where "
           "it was drafted it can no longer be accepted", **called("exact", "h")),
     wrong("first-token-only", "you look at the first token alone, and some rules spoil only the second",
           **relabelled(lambda _, off, first: ("wrong" if first else "exact", first))),
     wrong("not-halved", "your distances are twice too large: total variation is half the sum of the differences",
           **relabelled(lambda verdict, off, _: (verdict, 2 * off)))],
    ("For each place that a rule leaves without a draft token: what settled that? Was it known before that token was "
     "drawn?",
     "Five of them draw a token and may not hand it on. With one of these the reason is not the token that is missing.",
     "found, paths = walk(lambda dice: rule_played(rule_a, OneRow(dice))); the target gives (x, y) the probability "
     "float(P_TARGET[()][x] * P_TARGET[(x,)][y]); then distance(found, that)"),
    [("nanospec.methods.lengths.dynamic", "DynamicDrafter.propose", "", "")], {"number to beat": number_to_beat},
    optional=("rule_i",))
