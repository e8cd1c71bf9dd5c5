"""Regular expressions as automata: what `re.fullmatch` matches, one character after the other.

Python's own parser reads the pattern, and `re` says which characters each class has. So the syntax
is Python's. What is added is to follow all ways through the pattern at once (Thompson 1968, Regular
expression search algorithm):

    a(b|c)*         0 'a' to 1      1 to 2, 3 or 4      2 'b' to 1      3 'c' to 1      4 the end
    after "ab"      {2, 3, 4}: a b or a c may come next, and the text may end

Left out are those parts of the syntax that ask for a memory or for a look ahead, as \\1, \\b and
(?=...) do, and those that forbid a way because another one was tried first, as a*+ does. They are
refused by name.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from nanospec.errors import NanospecError, RequestError, one_line

NEW = sys.version_info >= (3, 11)
PARSER: Any = import_module("re._parser" if NEW else "sre_parse")
COMPILER: Any = import_module("re._compiler" if NEW else "sre_compile")

# nodes, and states: counts may ask for any number of nodes, and they for 2 to the power of that.
MOST = 10_000
ONE = {"LITERAL", "NOT_LITERAL", "ANY", "IN"}       # the parser's names of what is one character
ALPHABETS = re.ASCII | re.LOCALE | re.UNICODE           # one of them replaces another
# What may still come after a node: anything, a last line break, nothing. $ and \Z leave less.
ANYTHING, LINE_BREAK, NOTHING = range(3)
LEFT = {"AT_END": LINE_BREAK, "AT_END_STRING": NOTHING}
BEGINNINGS = {"AT_BEGINNING", "AT_BEGINNING_STRING"}
CALLED = {"GROUPREF": "a group that is matched again, as \\1",
          "GROUPREF_EXISTS": "a choice by a group, (?(1)...)",
          "ASSERT": "a look ahead or behind, (?=...) or (?<=...)", "FAILURE": "a look ahead, (?!)",
          "ASSERT_NOT": "a look ahead or behind, (?!...) or (?<!...)",
          "ATOMIC_GROUP": "an atomic group, (?>...)",
          "POSSESSIVE_REPEAT": "a possessive repeat, as a*+",
          "AT_BOUNDARY": "a border of a word, \\b", "AT_NON_BOUNDARY": "\\B",
          "AT_BEGINNING": "the ^ of every line, (?m)", "AT_END": "the $ of every line, (?m)"}


class Expression:
    """A pattern as a graph. nodes: what each is, and the nodes that come after it.

    A node is a pattern of one character; "END"; a place, as "AT_END"; or "", where ways part.
    RequestError for what is no expression, for one with a part that is left out, and for one that
    is too large.
    """

    def __init__(self, pattern: str):
        if not isinstance(pattern, str):
            raise RequestError(f"a pattern is a text, got {one_line(repr(pattern))}")
        self.called = f"the pattern {one_line(pattern)!r}"
        self.nodes: list[tuple[Any, list[int]]] = []
        self.ones: dict[tuple[str, int], re.Pattern] = {}
        try:
            parsed = PARSER.parse(pattern)
            self.begin = self._sequence(parsed, parsed.state.flags, self._node("END"))
        except NanospecError:
            raise
        except (re.error, ValueError, OverflowError, RecursionError) as error:
            raise RequestError(f"{self.called} is no expression: {one_line(error)}") from error

    def _node(self, what: Any, *after: int) -> int:
        if len(self.nodes) == MOST:
            raise RequestError(f"{self.called} is too large: written out, it has more than "
                               f"{MOST:,} parts")
        self.nodes.append((what, [*after]))
        return len(self.nodes) - 1

    def _sequence(self, parts: Any, flags: int, after: int) -> int:
        """The node that these parts of the parser's begin with; `after` follows them."""
        for op, of in reversed(parts):
            after = self._part(op, of, flags, after)
        return after

    def _part(self, op: Any, of: Any, flags: int, after: int) -> int:
        name = of.name if op.name == "AT" else op.name
        if name in ONE:
            return self._node(self._one(op, of, flags), after)
        if name == "BRANCH":
            return self._node("", *(self._sequence(way, flags, after) for way in of[1]))
        if name == "SUBPATTERN":
            _, on, off, inside = of
            kept = flags & ~ALPHABETS if on & ALPHABETS else flags
            return self._sequence(inside, (kept | on) & ~off, after)
        # The greedy and the lazy one match the same whole texts.
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, body = of
            return self._repeat(least, most, body, flags, after)
        of_lines = flags & re.MULTILINE and name in ("AT_BEGINNING", "AT_END")
        if name in BEGINNINGS | LEFT.keys() and not of_lines:
            return self._node(name, after)
        raise RequestError(f"{self.called} has {CALLED.get(name, name)}: an automaton cannot "
                           "follow that")

    def _one(self, op: Any, of: Any, flags: int) -> re.Pattern:
        """What `re` makes of this single character or class."""
        key = repr((op, of)), flags
        if key not in self.ones:
            state = PARSER.State()
            state.flags = flags
            self.ones[key] = COMPILER.compile(PARSER.SubPattern(state, [(op, of)]))
        return self.ones[key]

    def _repeat(self, least: int, most: int, body: Any, flags: int, after: int) -> int:
        end = after
        if most == PARSER.MAXREPEAT:
            after = self._node("", end)
            self.nodes[after][1].append(self._sequence(body, flags, after))
        else:
            for _ in range(most - least):
                after = self._node("", self._sequence(body, flags, after), end)
        for _ in range(least):
            before, after = after, self._sequence(body, flags, after)
            if before == after:                             # nothing is repeated
                break
        return after

    def _closed(self, ways: Iterable[tuple[int, int]],
                begins: bool = False) -> frozenset[tuple[int, int]]:
        """What can be reached from here without a character: characters, the end; what is left."""
        open_, seen, found = [*ways], set[tuple[int, int]](), set[tuple[int, int]]()
        while open_:
            way = node, left = open_.pop()
            what, after = self.nodes[node]
            if way in seen or what in BEGINNINGS and not begins:
                continue
            seen.add(way)
            if isinstance(what, re.Pattern) or what == "END":
                found.add(way)
            else:
                open_ += [(to, max(left, LEFT.get(what, ANYTHING))) for to in after]
        return frozenset(found)

    def over(self, characters: Sequence[str]) -> tuple[Tensor, list[bool]]:
        """The automaton over these characters: (states + 1, characters), and which states may be
        the last.

        It begins in state 0. The last state is that of a text for which there is no way left.
        """
        kinds = [(frozenset(one for one in self.ones.values() if one.fullmatch(character)),
                  character == "\n")
                 for character in characters]
        # few: most characters are alike.
        number = {kind: i for i, kind in enumerate(dict.fromkeys(kinds))}
        states, rows = {self._closed([(self.begin, ANYTHING)], begins=True): 0}, list[list[int]]()
        order = list(states)
        for state in order:                                 # it grows meanwhile
            rows.append([])
            for fits, breaks in number:
                most = LINE_BREAK if breaks else ANYTHING   # $ stands before a last line break, too
                after = self._closed((to, left and NOTHING) for node, left in state
                                     for to in self.nodes[node][1]
                                     if left <= most and self.nodes[node][0] in fits)
                if after and after not in states:
                    states[after] = len(order)
                    order.append(after)
                rows[-1].append(states.get(after, -1))
            if len(order) > MOST:
                raise RequestError(f"{self.called} is too large: an automaton for it has more than "
                                   f"{MOST:,} states")
        table = torch.tensor([*rows, [-1] * len(number)])
        table = torch.where(table < 0, len(order), table)[:, [number[kind] for kind in kinds]]
        return table, [any(self.nodes[node][0] == "END" for node, _ in state) for state in order]
