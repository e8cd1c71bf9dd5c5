"""Patterns mean what they mean to Python's `re`: what it matches, and what it refuses. It is the oracle of all here."""

import random
import re
import warnings
from itertools import product

import pytest

from nanospec.errors import RequestError
from nanospec.methods.wrappers.expression import Expression

LETTERS = "aB1 \n{,-"
TEXTS = ["".join(text) for n in range(4) for text in product(LETTERS, repeat=n)]
TEXTS += ["".join(text) for text in product("aB\n", repeat=5)]


def matched(pattern: str, texts=TEXTS) -> set[str]:
    """By the automaton. Texts that begin alike go there together."""
    expression = Expression(pattern)
    states = {"": expression.begin}

    def after(text):
        if text not in states:
            states[text] = expression.after(after(text[:-1]), text[-1])
        return states[text]

    return {text for text in texts if () in after(text)}


def by_python(pattern: str, texts=TEXTS) -> set[str]:
    compiled = re.compile(pattern)
    return {text for text in texts if compiled.fullmatch(text)}


def test_each_step_is_taken_once(monkeypatch):
    """However many texts pass there."""
    after, taken = Expression._after, []
    monkeypatch.setattr(Expression, "_after", lambda its, *step: taken.append(step) or after(its, *step))
    assert len(matched("[aB1]*a")) > 20 and len(taken) == len({*taken})


@pytest.mark.parametrize("pattern", [
    "a{2}", "a{1,3}", "a{2,}", "a{,2}", "a{0}", "(aB){2}", "(?:a|B1){2}", "a{,}", "a{", "a{1,-}", "a{ 1}",
    "(?:a{1}){2}", r"\x61", r"\u0061", r"\U00000061", r"\141", r"\07", r"[\x61-\x62]", r"\n", r"[\n]", r"\{", r"\-",
    "^a$", r"\Aa\Z", "(^a|B)1", "1(a|B$)", "^a|^B$", "$", "^$", "\n$", "(?m)^a$", "(?m)^\n$", "(?:)^a", "((^a)$)",
    "a+?", "a*?B", "a??B?", "a{1,2}?", "a|aB", ".", ".*", "(?s).", "(?s).a", "(?i)b", "(?i)aB", "(?is)b.",
    "(?i)[^b]", "(?x) a  # b", "(?a)[^\\W1]", "(?P<of>a)B", "(?#no)a", "[^a]", "[]a]", "[^]a]", "[a-]", r"[\d\s]",
    r"\D", r"\W\w", r"\S", "[^\\d\n]", "", "|a", "a|", "(|a)+", "(a*)*", "(a?|B)+1", "(?:)", "(?:){3}",
    "a(?:B|1|)*-", "(?:(?:a{2}){2})?", "(?m)a", "(?m)\\Aa\\Z"])
def test_what_python_matches(pattern):
    assert matched(pattern) == by_python(pattern)


@pytest.mark.parametrize("pattern, part", [
    (r"(a)\1", r"as \\1"), (r"(?P<x>a)(?P=x)", "a group that is matched again"), ("(?=a).", r"\(\?=...\)"),
    ("(a)?(?(1)B|1)", "choice by a group"), ("(?!a).", r"\(\?!...\)"), ("(?<=a)B", "behind"), ("(?<!a)B", "behind"),
    ("(?!)", "ahead"), (r"\ba", "border of a word"), (r"a\B", r"\\B"), ("(?i:a)B", r"flags for a part"),
    ("(?s:.)a", r"flags for a part"), ("(?-s:.)", r"\(\?i:...\)"), ("(?a:.)", "flags"), ("a^B", r"a \^ or \\A that"),
    (r"(a|)\Aa", "not its first part"), ("^^a", "not its first"), ("(?:^a)?B", "not its first"),
    ("(a$|B)1?", "a \\$ or \\\\Z that is not its last"), ("a$\n", "last part"), ("a$\n?", "last part"),
    ("a$$\n", "last part"), (r"a\Z\n?", "last part"), ("$\n\n", "last part"), ("(a|$)+", "last part"),
    ("(?m)a$\n^B", "last part"), ("(?:(?:(?:a{0,999}){0,999}){0,999}){0,999}", "too large: .* 10,000 states"),
    ("a" * 10_001, "too large: .* 10,000 states"), ("(a)" * 10_001, "too large: .* 10,000 states"),
    ("|".join(first + "-" * 9_000 for first in "abcdefghijklmnopqrstuvwxyz"), "too large: .* 200,000 characters"),
    ("a{0,65535}", "too large: .* 10,000 states"), ("b|a{70000,}", "too large: .* 10,000 states")])
def test_what_no_automaton_is_made_of_is_named(pattern, part):
    re.compile(pattern)                                     # Python can
    with pytest.raises(RequestError, match=f"^the pattern .*{part}"):
        Expression(pattern)


# What engines differ in: digits, letters and blanks beyond ASCII, and characters with more than two cases.
BEYOND = ("a1_ \n\x1c\x85\xa0\u2028\u200d\xe9\xdf\u1e9e\u0663\xb2\u2167\u0301\u4e2dikKsS\u212a\u017f\u0130\u0131"
          "\u01c4\u01c5\u01c6\u0345\u03b9\u1fbe")


@pytest.mark.parametrize("flags", ["", "(?i)", "(?a)", "(?ia)", "(?s)"])
def test_classes_and_cases_beyond_ascii(flags):
    for one in [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"[^\W\d]", r"[\Ds]", ".", "[i-k]", "[^s]", *BEYOND]:
        assert matched(flags + one, BEYOND) == by_python(flags + one, BEYOND), one


@pytest.mark.skipif(not hasattr(re, "NOFLAG"), reason="from Python 3.11 on")
@pytest.mark.parametrize("pattern, part", [("a*+", "possessive"), ("(?>a)", "atomic")])
def test_newer_parts_of_the_syntax(pattern, part):
    with pytest.raises(RequestError, match=part):
        Expression(pattern)


@pytest.mark.parametrize("pattern", [
    "a(", "a)", "*", "{1}", "a**", "a{2}{3}", "[", "[a-B]", r"\q", r"\u12", "(?P<1>a)", "a{3,1}", "(?z)", "(?L)a",
    "a{99999999999}", "(" * 5000 + ")" * 5000, "(?a)(?u)a", b"a", None, re.compile("a")],
    ids=lambda pattern: str(pattern)[:9])
def test_what_is_no_expression(pattern):
    with pytest.raises(RequestError, match="no expression|a pattern is a text"):
        Expression(pattern)


PIECES = ["a", "B", "1", " ", "\n", ",", "-", "{", "}", r"\{", r"\x61", r"\u0042", r"\d", r"\D", r"\w", r"\s", ".",
          "[aB]", "[^a]", r"[^\s1]", "[a-z]", "[]{]"]
RARE = ["^", "$", r"\A", r"\Z", "(?i:b)", "(?s:.)", r"\b", "(?=a)"]
REPEATS = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,3}", "{,2}", "{1,}", "{0}", "*?", "+?", "??", "{1,2}?"]
COUNTED = ["", "?", "{2}", "{1,2}", "{0,1}?"]
GROUPS = ["({})", "(?:{})", "({}|{})", "(?:{}|{}|)", "{}{}", "{}{}{}", "{}|{}"]
FRAMES = ["{}", "{}", "^{}$", r"\A{}\Z", "^{}", "{}$", "(?i){}", "(?s){}", "(?im)^{}$", "(?a){}", "^(?:{})$", "(?i:{})"]


def a_pattern(chance: random.Random) -> str:
    return chance.choice(FRAMES).format(a_part(chance, 3))


def a_part(chance: random.Random, depth: int) -> str:
    if not depth or chance.random() < 0.3:
        return chance.choice(RARE if chance.random() < 0.03 else PIECES) + chance.choice(REPEATS)
    shape = chance.choice(GROUPS)
    inside = shape.format(*(a_part(chance, depth - 1) for _ in range(shape.count("{}"))))
    few = re.search(r"[*+]|,\}", inside)                    # Python tries all ways: two such repeats can take it years
    return inside + (chance.choice(COUNTED if few else REPEATS) if inside.endswith(")") else "")


def a_line_of_signs(chance: random.Random) -> str:
    """Mostly no expression, or one with a part that is read as something else than it looks like."""
    return "".join(chance.choice(r"aB1{},()[]|*+?^$\.-:=!<>P#imsxdwbZAx6u0 ") for _ in range(chance.randint(1, 9)))


def agree(pattern: str) -> str:
    """What became of it: "matched", "left out", "no expression"."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                     # of nested sets, which mean nothing yet
        try:
            theirs = by_python(pattern)
        except (re.error, ValueError, OverflowError):
            with pytest.raises(RequestError, match="no expression"):
                Expression(pattern)
            return "no expression"
        try:
            ours = matched(pattern)
        except RequestError as error:
            assert "no automaton is made of that" in str(error), pattern
            return "left out"
    assert ours == theirs, (pattern, sorted(ours ^ theirs)[:3])
    return "matched"


@pytest.mark.parametrize("make, count", [(a_pattern, 300), (a_line_of_signs, 300)])
def test_random_patterns(make, count):
    chance = random.Random(count)
    found = [agree(make(chance)) for _ in range(count)]
    assert found.count("matched") > count / 10
