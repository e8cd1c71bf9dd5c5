"""Patterns mean what they mean to Python's `re`: what it matches, and what it refuses. It is the oracle of all here."""

import random
import re
import warnings
from itertools import product

import pytest

from nanospec.errors import RequestError
from nanospec.methods.models.expression import Expression

LETTERS = "aB1 \n{,-"
TEXTS = ["".join(text) for n in range(4) for text in product(LETTERS, repeat=n)]
TEXTS += ["".join(text) for text in product("aB\n", repeat=5)]


def matched(pattern: str, texts=TEXTS) -> set[str]:
    """By the automaton."""
    letters = sorted({*"".join(texts)} or {"a"})
    table, accepting = Expression(pattern).over(letters)
    rows, place, found = table.tolist(), {one: i for i, one in enumerate(letters)}, set()
    for text in texts:
        state = 0
        for one in text:
            state = rows[state][place[one]]
        found |= {text} if state < len(accepting) and accepting[state] else set()
    return found


def by_python(pattern: str, texts=TEXTS) -> set[str]:
    compiled = re.compile(pattern)
    return {text for text in texts if compiled.fullmatch(text)}


@pytest.mark.parametrize("pattern", [
    "a{2}", "a{1,3}", "a{2,}", "a{,2}", "a{0}", "(aB){2}", "(?:a|B1){2}", "a{,}", "a{", "a{1,-}", "a{ 1}",
    "(?:a{1}){2}", r"\x61", r"\u0061", r"\U00000061", r"\141", r"\07", r"[\x61-\x62]", r"\n", r"[\n]", r"\{", r"\-",
    "^a$", r"\Aa\Z", "(^a|B)1", "(a$|B)1?", "a$\n", "a$\n?", "a$$\n", r"a\Z\n?", "$", "^$", "\n$", "$\n\n", "a^B",
    "(a|$)+", "a+?", "a*?B", "a??B?", "a{1,2}?", ".", ".*", "(?s).", "(?s:.)a", "(?-s:.)", "(?i)b", "(?i:a)B",
    "(?i)[^b]", "(?x) a  # b", "(?a)[^\\W1]", "(?P<of>a)B", "(?#no)a", "[^a]", "[]a]", "[^]a]", "[a-]", r"[\d\s]",
    r"\D", r"\W\w", r"\S", "[^\\d\n]", "", "|a", "a|", "(|a)+", "(a*)*", "(a?|B)+1", "(?:)", "(?:){3}",
    "a(?:B|1|)*-", "(?:(?:a{2}){2})?", "(?m)a", "(?m)\\Aa\\Z"])
def test_what_python_matches(pattern):
    assert matched(pattern) == by_python(pattern)


@pytest.mark.parametrize("pattern, part", [
    (r"(a)\1", r"as \\1"), (r"(?P<x>a)(?P=x)", "a group that is matched again"), ("(?=a).", r"\(\?=...\)"),
    ("(a)?(?(1)B|1)", "choice by a group"), ("(?!a).", r"\(\?!...\)"), ("(?<=a)B", "behind"), ("(?<!a)B", "behind"),
    ("(?!)", "ahead"), (r"\ba", "border of a word"), (r"a\B", r"\\B"), ("(?m)^a", "every line"),
    ("(?m:a$)", "every line"), ("(?:a{5000}){3}", "too large: written"), ("(?:a{0,999}){99}", "too large: written"),
    ("(a|B)*a(a|B){20}", "more than 10,000 states")])
def test_what_an_automaton_cannot_follow_is_named(pattern, part):
    re.compile(pattern)                                     # Python can
    with pytest.raises(RequestError, match=f"^the pattern .*{part}"):
        Expression(pattern).over("aB")


@pytest.mark.skipif(not hasattr(re, "NOFLAG"), reason="from Python 3.11 on")
@pytest.mark.parametrize("pattern, part", [("a*+", "possessive"), ("(?>a)", "atomic")])
def test_newer_parts_of_the_syntax(pattern, part):
    with pytest.raises(RequestError, match=part):
        Expression(pattern)


@pytest.mark.parametrize("pattern", [
    "a(", "a)", "*", "{1}", "a**", "a{2}{3}", "[", "[a-B]", r"\q", r"\u12", "(?P<1>a)", "a{3,1}", "(?z)", "(?L)a",
    "a{99999999999}", "(" * 5000 + ")" * 5000, b"a", None, re.compile("a")], ids=lambda pattern: str(pattern)[:9])
def test_what_is_no_expression(pattern):
    with pytest.raises(RequestError, match="no expression|a pattern is a text"):
        Expression(pattern)


PIECES = ["a", "B", "1", " ", "\n", ",", "-", "{", "}", r"\{", r"\x61", r"\u0042", r"\d", r"\D", r"\w", r"\s", ".",
          "[aB]", "[^a]", r"[^\s1]", "[a-z]", "[]{]", "(?i:b)", "(?s:.)", "^", "$", r"\A", r"\Z"]
REPEATS = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,3}", "{,2}", "{1,}", "{0}", "*?", "+?", "??", "{1,2}?"]
COUNTED = ["", "?", "{2}", "{1,2}", "{0,1}?"]
GROUPS = ["({})", "(?:{})", "(?i:{})", "(?s:{})", "({}|{})", "(?:{}|{}|)", "{}{}", "{}{}{}", "{}|{}", "(?i:a(?-i:{}))"]


def a_pattern(chance: random.Random, depth: int = 3) -> str:
    if not depth or chance.random() < 0.3:
        return chance.choice(PIECES) + chance.choice(REPEATS)
    shape = chance.choice(GROUPS)
    inside = shape.format(*(a_pattern(chance, depth - 1) for _ in range(shape.count("{}"))))
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
            assert "an automaton cannot follow that" in str(error) or "too large" in str(error), pattern
            return "left out"
    assert ours == theirs, (pattern, sorted(ours ^ theirs)[:3])
    return "matched"


@pytest.mark.parametrize("make, count", [(a_pattern, 300), (a_line_of_signs, 300)])
def test_random_patterns(make, count):
    chance = random.Random(count)
    found = [agree(make(chance)) for _ in range(count)]
    assert found.count("matched") > count / 10
