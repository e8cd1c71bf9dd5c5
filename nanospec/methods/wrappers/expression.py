"""Regular expressions as automata: what `re.fullmatch` matches, one character after the other.

Python's own parser reads the pattern, and `re` says which characters each class has. So the syntax
is Python's. (No library's is: in interegular 0.3.3 \\d has the digits of ASCII alone, and
outlines-core 0.2.14 takes a|ab for a.) What is added is what is left of a pattern once a character
is read: other patterns, one of which the rest of the text must match (Antimirov 1996, Partial
derivatives of regular expressions). The same ones are left again and again. They are the
automaton's states:

    read      nothing         a              ab             abd
    left      a(b|c)*d        (b|c)*d        (b|c)*d        the empty pattern: the text may end

Refused by name are those parts of the syntax that ask for a memory or a look ahead, as \\1, \\b and
(?=...) do; those that forbid a way because another one was tried first, as a*+ does; and two that
are rarely needed, ^ and $ in the middle and flags for a part of the pattern.
"""

import math
import re
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any
from warnings import catch_warnings, simplefilter

from nanospec.errors import RequestError, one_line, quoted

NEW = sys.version_info >= (3, 11)
PARSER: Any = import_module("re._parser" if NEW else "sre_parse")
COMPILER: Any = import_module("re._compiler" if NEW else "sre_compile")

MOST = 10_000           # states, and patterns in one: counts may ask for any number of both
MOST_PARTS = 200_000    # characters and classes that are written out
ONE = {"LITERAL", "NOT_LITERAL", "ANY", "IN"}       # the parser's names of what is one character
FIRST, LAST = {"AT_BEGINNING", "AT_BEGINNING_STRING"}, {"AT_END", "AT_END_STRING"}
CALLED = {"GROUPREF": "a group that is matched again, as \\1",
          "GROUPREF_EXISTS": "a choice by a group, (?(1)...)",
          "ASSERT": "a look ahead or behind, (?=...) or (?<=...)", "FAILURE": "a look ahead, (?!)",
          "ASSERT_NOT": "a look ahead or behind, (?!...) or (?<!...)",
          "ATOMIC_GROUP": "an atomic group, (?>...)",
          "POSSESSIVE_REPEAT": "a possessive repeat, as a*+",
          "AT_BOUNDARY": "a border of a word, \\b", "AT_NON_BOUNDARY": "\\B",
          "SUBPATTERN": "flags for a part of it, as (?i:...)",
          **dict.fromkeys(FIRST, "a ^ or \\A that is not its first part"),
          **dict.fromkeys(LAST, "a $ or \\Z that is not its last part")}


class Expression:
    """A pattern as an automaton. begin: its first state. after(state, character): the next one.

    A state is the set of the patterns that are left, and if () is one of them, the text may end.
    A pattern is a tuple of parts, one after the other: a character or class, by its name in `ones`;
    a set of patterns, one of which is there; or a repeated pattern, (least, most, pattern).
    RequestError for what is no expression, for one with a part that is refused, and for one that
    is too large.
    """

    def __init__(self, pattern: str):
        if not isinstance(pattern, str):
            raise RequestError(f"a pattern is a text, got {quoted(pattern)}")
        self.called = f"the pattern {one_line(pattern)!r}"
        self.ones: dict[str, re.Pattern] = {}
        self.after, self.written = cache(self._after), 0
        try:
            with catch_warnings():              # of what a later Python may read otherwise
                simplefilter("ignore")
                parsed = PARSER.parse(pattern)
            self.begin = self._state([self._read(parsed, True, True)])
        except RequestError:
            raise
        except (re.error, ValueError, OverflowError, RecursionError) as error:
            raise RequestError(f"{self.called} is no expression: {one_line(error)}") from error

    def _read(self, parsed: Any, begins: bool, ends: bool) -> tuple:
        """The parser's parts as ours. begins, ends: whether the text begins, or ends, with them."""
        parts: list[Any] = []
        for i, (op, argument) in enumerate(parsed):
            name = argument.name if op.name == "AT" else op.name
            edges = begins and i == 0, ends and i == len(parsed) - 1
            if name in ONE:
                parts.append(f"{op} {argument}")
                self.written += 1
                if self.written > MOST_PARTS:
                    raise RequestError(f"{self.called} is too large: it has more than "
                                       f"{MOST_PARTS:,} characters and classes")
                if parts[-1] not in self.ones:
                    one = PARSER.SubPattern(parsed.state, [(op, argument)])     # with its flags
                    self.ones[parts[-1]] = COMPILER.compile(one)
            elif name == "BRANCH":
                parts.append(frozenset(self._read(way, *edges) for way in argument[1]))
            elif name == "SUBPATTERN" and not (argument[1] or argument[2]):
                parts += self._read(argument[3], *edges)
            elif name in ("MAX_REPEAT", "MIN_REPEAT"):      # both match the same whole texts
                least, most, body = argument
                most = math.inf if most == PARSER.MAXREPEAT else most
                self.check_size(max(least, 0 if most == math.inf else most))    # a state for each
                parts.append((least, most, self._read(body, False, False)))
            elif not (name in FIRST and edges[0] or name in LAST and edges[1]):     # always true
                raise RequestError(f"{self.called} has {CALLED.get(name, name)}: no automaton is "
                                   "made of that")
            self.check_size(len(parts))                                         # a state for each
        return tuple(parts)

    def _after(self, state: frozenset[tuple], character: str) -> frozenset[tuple]:
        """What is left after one more character: no pattern, where it does not fit."""
        return self._state(parts[1:] for parts in state
                           if parts and self.ones[parts[0]].fullmatch(character))

    def _state(self, left: Iterable[tuple]) -> frozenset[tuple]:
        """These patterns, written as such that are empty or begin with a character."""
        open_, seen = [*left], set[tuple]()
        while open_:
            parts = open_.pop()
            if parts in seen:
                continue
            seen.add(parts)
            self.check_size(len(seen))
            if parts and isinstance(parts[0], frozenset):           # (a|b)c is ac or bc
                open_ += [(*way, *parts[1:]) for way in parts[0]]
            elif parts and isinstance(parts[0], tuple):             # a{0,3}c is c or a a{0,2}c
                least, most, body = parts[0]
                if least == 0:
                    open_.append(parts[1:])
                if most > 0:
                    open_.append((*body, (max(least - 1, 0), most - 1, body), *parts[1:]))
        return frozenset(parts for parts in seen if not parts or isinstance(parts[0], str))

    def check_size(self, count: int) -> None:
        """RequestError if these are too many states, or too many patterns in one."""
        if count > MOST:
            raise RequestError(f"{self.called} is too large: an automaton for it has more than "
                               f"{MOST:,} states, or as many ways to go on from one")
