"""Exercise 16: which rules may end a draft early, and which of them spoil the text."""

from functools import lru_cache, partial

from lessons.check.engine import ANSWERS, Exercise, wrong
from lessons.check.seen import Row, Seen
from lessons.check.verdicts import contract, verdict_distances, verdict_values
from nanospec.proof.walk import distance, walk

RULES = [f"rule_{letter}" for letter in "abcdefgh"]
VERDICTS = ("exact", "wrong")


@lru_cache(maxsize=None)
def shown() -> dict[str, tuple[str, float, float]]:
    """What the eight rules are, walked: verdict, distance over two tokens, distance over the first."""
    names: dict = {}
    exec((ANSWERS / "ex16_when_to_stop.py").read_text(encoding="utf-8"), names)
    p_target, found = {text: weights.tolist() for text, weights in names["P_TARGET"].items()}, {}
    right = {(x, y): p_target[()][x] * p_target[x,][y] for x in range(3) for y in range(3)}
    for name in RULES:
        texts, _ = walk(lambda dice: names["rule_played"](names[name], Row(dice)))
        off, first = distance(texts, right)[1], distance(of_the_first(texts), of_the_first(right))[1]
        found[name] = "wrong" if off > 1e-9 else "exact", round(off, 3), round(first, 3)
    return found


def of_the_first(texts: dict) -> dict:
    first: dict = {}
    for (x, _), weight in texts.items():
        first[x] = first.get(x, 0.0) + weight
    return first


def distances(f) -> list[Seen]:
    """Of those that are wrong: what somebody says of an exact rule is in its verdict already."""
    return verdict_distances(f, {name: off for name, (verdict, off, _) in shown().items() if verdict == "wrong"})


def relabelled(change, *names: str) -> dict:
    """Right verdicts, but for the rules of those letters; all, if there are none."""
    return {"verdicts": lambda: {name: change(*found) if not names or name[-1] in names else found[:2]
                                 for name, found in shown().items()}}


def called(verdict: str, *names: str) -> dict:
    return relabelled(lambda *found: (verdict, 0.0), *names)


EXERCISE = Exercise(
    "ex16_when_to_stop.py", ("verdicts",), partial(contract, rules=RULES, verdicts=VERDICTS),
    {"verdicts": partial(verdict_values, shown=shown, verdicts=VERDICTS), "distances": distances},
    [wrong("every-rule-called-exact", "you call all of them exact: to guess less does no harm, but a guess thrown away "
           "for what it is will be missed, and what the rule likes comes too often", **called("exact")),
     wrong("keep-then-stop-called-wrong", "you call rules wrong that keep the guess they look at: it stays or is "
           "replaced as ever, and whether the next place has one may depend on it", **called("wrong", "b", "d")),
     wrong("dislike-called-wrong", "you call rule_b wrong, but the guess that it dislikes is kept: what is missing?",
           **called("wrong", "b")),
     wrong("coin-before-called-wrong", "you call rule_d wrong, but the coin that it looks at is that of the guess "
           "before, and that guess is kept", **called("wrong", "d")),
     wrong("asking-the-target-called-wrong", "you call rule_a wrong, but it decides before the guess is drawn, and "
           "then it may look at p_target, at q_draft and at whatever else there is", **called("wrong", "a")),
     wrong("every-drop-called-wrong", "you call rule_f wrong: it does drop a guess that was drawn, but never asks what "
           "that guess is or how its coin fell", **called("wrong", "f")),
     wrong("unlikely-dropped-called-harmless", "you call rule_c exact: an unlikely guess is part of what the draft "
           "draws, and only together do its guesses have the law q_draft", **called("exact", "c")),
     wrong("own-coin-called-harmless", "you call rule_e exact: where a coin fell, the token must come from what the "
           "draft left uncovered, and without the guess it comes from all of p_target", **called("exact", "e")),
     wrong("product-called-harmless", "you call rule_g exact: it asks how likely both guesses are together, and so it "
           "asks what the second one is", **called("exact", "g")),
     wrong("end-of-text-called-harmless", "you call rule_h exact: an end of text is a token like any other, and where "
           "it was guessed it may no longer stand", **called("exact", "h")),
     wrong("first-token-only", "you look at the first token alone, and some rules spoil only the second",
           **relabelled(lambda _, off, first: ("wrong" if first else "exact", first))),
     wrong("not-halved", "your distances are twice too large: total variation is half the sum of the differences",
           **relabelled(lambda verdict, off, _: (verdict, 2 * off)))],
    ("For each place that a rule leaves without a guess: what settled that? Was it known before the guess was drawn?",
     "Five of them draw a guess and may not hand it on. With one of these the reason is not the guess that is missing.",
     "law, paths = walk(lambda dice: rule_played(rule_a, OneRow(dice))); the target's law gives (x, y) the probability "
     "float(P_TARGET[()][x] * P_TARGET[(x,)][y]); then distance(law, that)"),
    [("nanospec.drafters.dynamic", "DynamicDrafter.propose", "", "")])
