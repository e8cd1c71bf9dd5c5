"""Exercise 23: eight rounds of public programs, which are bugs of the zoo, and the round without them."""

import re

import pytest

from lessons.check import ex23_eight_public_bugs as ex23
from lessons.check.ex23_eight_public_bugs import BUGS, RULES, at_one, names_of_the_answer, shown
from lessons.round_by_round import off_by
from tests.classroom.answers_told import changed, of_verdicts
from tests.proof.zoo import ALL_BUGS


def test_each_is_a_bug_of_the_zoo_and_says_where_it_was():
    sources = {bug.name: bug.source.lower() for bug in ALL_BUGS}
    for name, _, _, source in BUGS.values():
        assert any(re.search(r"/([\w-]+)", one)[1].lower() in sources[name] for one in source.split(", ")), name


def test_in_a_variant_a_mistake_is_the_round_under_its_new_letter(monkeypatch):
    monkeypatch.setattr(ex23, "LETTERS", dict(zip("abcdefgh", "hgfedcba")))
    monkeypatch.setattr(ex23, "names_of_the_answer",
                        lambda: {f"round_{letter}": lambda letter=letter: letter for letter in "abcdefgh"})
    assert [ex23.round_with(letter)() for letter in "abc"] == ["h", "g", "f"]
    assert re.findall(r"round_(.)", ex23.where_they_were(None)) == [*"abcdefgh"]


def test_the_right_round_is_not_off_and_the_others_are():
    names = names_of_the_answer()
    assert off_by(names["right_round"], names["SEEDS"], 0.5, 3) < 1e-12
    assert shown() == names["verdicts"]() and len({*shown().values()}) == len(RULES)


def test_a_round_that_changes_its_logits_changes_nobody_elses():
    """As cold /= T does."""
    def spoiling(model):
        def read(text):
            logits = model(text)
            kept = logits.clone()
            logits.zero_()
            return kept
        return read

    right_round = names_of_the_answer()["right_round"]
    assert off_by(lambda target, draft_model, *its: right_round(spoiling(target), spoiling(draft_model), *its),
                  [3, 4], 0.5, 2) < 1e-12


IDEA = """
from nanospec.idea import speculative_round


def right_round(target, draft_model, text, gamma, T, dice):
    cold = [lambda ids, model=model: (model(ids) / T).softmax(-1) for model in (target, draft_model)]
    return speculative_round(*cold, text, gamma, dice)
"""
BY_HAND = """
import math


def cold(logits, T):
    weights = [math.exp((x - max(logits)) / T) for x in logits]
    return [weight / sum(weights) for weight in weights]


def right_round(target, draft_model, text, gamma, T, dice):
    new, q = [], []
    while len(new) < gamma:
        q.append(cold(draft_model([*text, *new])[-1].tolist(), T))
        new.append(dice.pick(q[-1]))
    after = target([*text, *new])
    for i in range(gamma):
        p = cold(after[len(text) + i - 1].tolist(), T)
        if not dice.flip(min(1, p[new[i]] / q[i][new[i]])):
            left = [max(0, a - b) for a, b in zip(p, q[i])]
            return (*text, *new[:i], dice.pick([x / sum(left) for x in left]))
    return (*text, *new, dice.pick(cold(after[-1].tolist(), T)))
"""


@pytest.mark.parametrize("source", [IDEA, BY_HAND], ids=["the idea's", "by hand"])
def test_other_right_rounds_pass(told, source):
    found = told(23, changed(23) + source)
    assert found.failure is None, found.failure[1]


SHIPPED = changed(23)
HEAD, TAIL = SHIPPED.split("def right_round")[0], "def right_round" + SHIPPED.split("def right_round")[1]


def with_change(*changes: tuple[str, str]) -> str:
    tail = TAIL
    for old, new in changes:
        assert old in tail
        tail = tail.replace(old, new, 1)
    return HEAD + tail


LAST, LEFT, FLIP = "dice.pick(p[gamma])", "(p[i] - q[i]).clamp(min=0)", "dice.flip(p[i, x] / q[i][x])"


@pytest.mark.parametrize("source, name", [
    (with_change((LEFT, f"({LEFT}.log() / T).softmax(-1)")), "warp-residual-again"),
    (with_change(("dice.pick(q[-1])", "int(q[-1].argmax())")), "greedy-draft-soft-q"),
    (with_change((LEFT, f"{LEFT}.softmax(-1)")), "residual-softmaxed"),
    (with_change(("(target(text + drafted)[-gamma - 1:] / T)", "target(text + drafted)[-gamma - 1:]")),
     "target-unwarped"),
    (with_change((LAST, "dice.pick(target(text + drafted)[-1].softmax(-1))")), "bonus-unwarped"),
    (with_change((LEFT, "p[i]")), ""), (with_change((LEFT, "(p[i] - q[i]).abs()")), ""),
    (with_change((LAST, "dice.pick(p[gamma - 1])")), ""), (with_change((LAST, "int(p[gamma].argmax())")), ""),
    (with_change((FLIP, "dice.flip(p[i, x])")), ""), (with_change((FLIP, "dice.flip(q[i][x] / p[i, x])")), ""),
    (with_change((FLIP, "dice.flip(p[i - 1, x] / q[i][x])")), ""),
    (with_change(("[-gamma - 1:]", "[-gamma - 2:]")), ""), (with_change(("text + drafted[:i] + [", "text + [")), ""),
    (with_change(("draft_model(text + drafted)[-1]", "draft_model(text)[-1]")), ""),
    (with_change(("[-1] / T)", "[-1] * T)")), ""), (with_change(("draft_model(text + drafted)[-1] / T",
                                                                "draft_model(text + drafted)[-1]")), ""),
    (with_change(("    return text + drafted + [" + LAST + "]", "    return text + drafted")), ""),
    (with_change((FLIP, "False")), ""), (with_change((FLIP, "(dice.pick(p[i]) == x)"), (LEFT, "p[i]")), ""),
    (with_change(("    for i, x", "    return text + [dice.pick(p[0])]\n    for i, x")), ""),
    (with_change(("text + drafted[:i] + [", "drafted[:i] + [")), ""),
    (of_verdicts(23, "right() | {'round_a': ('later', 0.055)}"), ""),
    (of_verdicts(23, "right() | {'round_a': ('temperature', 0.056)}"), ""),
    (of_verdicts(23, "{name: (word, 2 * off) for name, (word, off) in right().items()}"), "not-halved"),
    (of_verdicts(23, "{name: ('temperature' if word == 'later' else word, off) for name, (word, off) in "
                     "right().items()}"), "first-token-alone"),
    ("at one", "judged-at-one")])
def test_wrong_answers_never_pass(told, source, name):
    found = told(23, of_verdicts(23, repr(at_one())) if source == "at one" else source)     # which takes seconds
    assert found.failure is not None
    assert not name or found.named == [name] and name in found.failure[1], found
