"""Exercises whose answers are verdicts and distances, drawn anew: other tables, and the rules in another order.

The answer to every other exercise is a program, in which no number could be copied: there only the tables and cases
are others, by `seeds`.
"""

import ast
from collections.abc import Callable
from functools import cache
from importlib import import_module

from lessons.check import seeds

FAR = 0.02              # total variation of what is wrong: the least that a drawn table may have
TOLD_APART = [(967, 104), (238, 353), (761, 816)]


def four_tokens(draw) -> dict[str, list]:
    """Exercise 11: the target forbids one token, as it does in what ships."""
    p_target, q_draft = parts_of(draw, 20, 3) + [0.0], parts_of(draw, 20, 4)
    order = draw.sample(range(4), 4)
    return {"P_TARGET": [p_target[i] for i in order], "Q_DRAFT": [q_draft[i] for i in order]}


def three_tokens(draw) -> dict[str, list]:
    """Exercise 16: the distribution after no token, and one after each first one."""
    return {name: [parts_of(draw, 10, 3) for _ in range(4)] for name in ("P_TARGET", "Q_DRAFT")}


def two_seeds(draw) -> dict[str, list]:
    """Exercise 23, from those by which every round can be told as what it is. (Few are: one pair in some hundreds.)"""
    return {"SEEDS": list(draw.choice(TOLD_APART))}


def parts_of(draw, whole: int, count: int) -> list[float]:
    """That many positive fractions of `whole`, which add up to 1."""
    cuts = [0, *sorted(draw.sample(range(1, whole), count - 1)), whole]
    return [round((b - a) / whole, 2) for a, b in zip(cuts, cuts[1:])]


DRAWN: dict[int, tuple[str, Callable]] = {      # module, tables
    11: ("ex11_spot_the_bug", four_tokens), 16: ("ex16_when_to_stop", three_tokens),
    23: ("ex23_eight_public_bugs", two_seeds)}


@cache
def drawn(number: int, source: str) -> str:
    """The answer of an exercise as the variant has it. What is exact, slow or wrong stays so, under another letter."""
    if number not in DRAWN or not seeds.NAME:
        return source
    module, tables = import_module(f"lessons.check.{DRAWN[number][0]}"), DRAWN[number][1]
    letters, draw = seeds.letters(len(module.RULES), number), seeds.chance(number)
    before = run(source)["verdicts"]()
    expected = {name[:-1] + letters[name[-1]]: found for name, found in before.items()}
    while True:                                             # mostly one of the first draws will do
        text = with_tables(in_order(source, {name: name[:-1] + letters[name[-1]] for name in module.RULES}),
                           tables(draw))
        found = module.judged(run(text))
        if all(found[name][0] == verdict and (not off or good(found[name][1], off))
               for name, (verdict, off) in expected.items()):
            return with_verdicts(text, {name: (found[name][0], round(found[name][1], 3)) for name in sorted(found)})


def good(off: float, shipped: float) -> bool:
    """Far enough, another number than in what ships, and in no doubt how it is rounded to three decimals."""
    return off >= FAR and round(off, 3) != shipped and abs(off * 1000 % 1 - 0.5) > 0.01


def run(source: str) -> dict:
    names: dict = {}
    exec(source, names)
    return names


def in_order(source: str, names: dict[str, str]) -> str:
    """The rules under their new names, from a on."""
    rules = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name in names]
    lines = source.splitlines()
    old = {new: name for name, new in names.items()}
    text = {node.name: lines[node.lineno - 1:node.end_lineno] for node in rules}
    for node in reversed(rules):
        taken = text[old[node.name]]
        lines[node.lineno - 1:node.end_lineno] = [
            taken[0].replace(f"def {old[node.name]}(", f"def {node.name}("), *taken[1:]]
    return "\n".join(lines) + "\n"


def with_tables(source: str, tables: dict[str, list]) -> str:
    """With other numbers in the lists that those names are made of."""
    for name, numbers in tables.items():
        made = next(node for node in ast.parse(source).body
                    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name)
        source = replaced(source, next(node for node in ast.walk(made) if isinstance(node, ast.List)), repr(numbers))
    return source


def with_verdicts(source: str, found: dict) -> str:
    asked = next(node for node in ast.parse(source).body if getattr(node, "name", "") == "verdicts")
    pairs = ",\n            ".join(f'"{name}": {pair!r}' for name, pair in found.items())
    return replaced(source, asked.body[-1].value, f"{{{pairs}}}")


def replaced(source: str, node: ast.expr, text: str) -> str:
    """With that text in the place of an expression. Columns are bytes."""
    lines = source.encode().splitlines(keepends=True)
    begin = sum(map(len, lines[:node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[:node.end_lineno - 1])) + node.end_col_offset
    return (source.encode()[:begin] + text.encode() + source.encode()[end:]).decode()
