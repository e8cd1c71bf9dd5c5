"""The mutants that mutate.py plants: one operator, index, name or constant changed, one call or keyword argument left
out, the first two arguments of one call exchanged.

Left out: what stands outside of functions (constants, defaults, fields of dataclasses), messages of exceptions.
"""

import ast
from pathlib import Path
from typing import NamedTuple

from nanospec.proof.zoo.plant import Bug

ROOT = Path(__file__).parents[2]
# Of the files in lessons/, those that the tests hold as they hold a method.
BESIDE_LESSONS = {"cascade.py", "kseq.py", "lossy_rules.py", "recurrent.py"}
NOT_CORE = {"methods/index.py", "theory.py", "__init__.py", "__main__.py"}        # of the files at the top
COMPARISONS = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
               ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
               ast.In: ("in", "not in"), ast.NotIn: ("not in", "in")}
OPERATORS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
             ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"), ast.Pow: ("**", "*"), ast.BitAnd: ("&", "|"),
             ast.BitOr: ("|", "&"), ast.And: ("and", "or"), ast.Or: ("or", "and")}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "argmax": "argmin", "cumsum": "cumprod",
         "cumprod": "cumsum", "minimum": "maximum", "maximum": "minimum"}
# Functions whose first two arguments may stand in any order.
SYMMETRIC = {"transpose", "logaddexp", "promote_types", "min", "max", "minimum", "maximum", "acceptance"}

# Arguments of looks and of helps, and devices: without a GPU all is on one.
UNSEEN = {"help", "metavar", "style", "header_style", "border_style", "color", "label", "fontsize", "markup", "device"}


class OfAMutant(Bug):
    """Its file is any module."""

    @property
    def module(self) -> str:
        return self.file


def module_of(file: str) -> str:
    return file[:-3].replace("/", ".").removesuffix(".__init__")                # with it, a second module is made


class Mutant(NamedTuple):
    """A change of the source `file`."""

    file: str
    of_lambda: bool
    line: int
    start: int              # in bytes
    end: int
    old: str
    new: str

    def bug(self) -> Bug:
        source = (ROOT / self.file).read_bytes()
        changed = source[:self.start] + self.new.encode() + source[self.end:]
        return OfAMutant("mutant", "", "", "", module_of(self.file), ((source.decode(), changed.decode()),))

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {' '.join(self.old.split())!r} -> {' '.join(self.new.split())!r}"


class Finder(ast.NodeVisitor):
    """All mutants of one file."""

    def __init__(self, file: str):
        self.file, self.source = file, (ROOT / file).read_bytes()
        self.lines = [0]
        for line in self.source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.found: list[Mutant] = []
        self.inside = ""                                    # the kind of function that is looked at, if any
        self.visit(ast.parse(self.source))

    def span(self, node: ast.AST) -> tuple[int, int]:
        at = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
        return self.lines[at[0] - 1] + at[1], self.lines[at[2] - 1] + at[3]

    def change(self, node: ast.AST, start: int, end: int, new: str) -> None:
        if self.inside:
            old = self.source[start:end].decode()
            self.found.append(Mutant(self.file, self.inside == "lambda", node.lineno, start, end, old, new))

    def between(self, node: ast.AST, left: ast.AST, right: ast.AST, old: str, new: str) -> None:
        """The operator between two nodes."""
        start, end = self.span(left)[1], self.span(right)[0]
        at = self.source.find(old.encode(), start, end)
        if at >= 0:
            self.change(node, at, at + len(old), new)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer, self.inside = self.inside, "def"
        documented = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
        for part in node.body[documented:]:
            self.visit(part)
        self.inside = outer

    def visit_Lambda(self, node: ast.Lambda) -> None:
        outer, self.inside = self.inside, "lambda"
        self.visit(node.body)
        self.inside = outer

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an exception says is not looked at."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Nor what is printed."""

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators):
            self.between(node, left, right, *COMPARISONS[type(op)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.operator(node, node.left, node.right)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.operator(node, *node.values)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.operator(node, node.target, node.value)

    def operator(self, node: ast.BinOp | ast.BoolOp | ast.AugAssign, *sides: ast.expr) -> None:
        """Change it between each two of its sides, and look into them."""
        if type(node.op) in OPERATORS:
            for left, right in zip(sides, sides[1:]):
                self.between(node, left, right, *OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if not isinstance(node.operand, ast.Constant):          # -1 and 1 are the same dimension of a matrix
            self.change(node, *self.span(node), self.source[slice(*self.span(node.operand))].decode())
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) in (bool, int, float):
            new = not node.value if type(node.value) is bool else node.value + 1 if type(node.value) is int \
                else 2 * node.value or 1.0
            self.change(node, *self.span(node), repr(new))

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        test = node.test
        if not isinstance(test, ast.Compare | ast.UnaryOp):
            self.change(test, *self.span(test), f"(not ({self.source[slice(*self.span(test))].decode()}))")
        self.generic_visit(node)

    visit_While = visit_IfExp = visit_If

    def visit_Call(self, node: ast.Call) -> None:
        same = getattr(node.func, "attr", getattr(node.func, "id", "")) in SYMMETRIC
        if not same and len(node.args) > 1 and not any(isinstance(arg, ast.Starred) for arg in node.args[:2]):
            (a, b), (c, d) = map(self.span, node.args[:2])
            if self.source[a:b] != self.source[c:d]:
                swapped = self.source[c:d] + self.source[b:c] + self.source[a:b]
                self.change(node, a, d, swapped.decode())
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        """It is left out, and a comma beside it."""
        if node.arg and node.arg not in UNSEEN:
            start, end = self.span(node)
            before, after = self.source[:start].rstrip(), self.source[end:].lstrip()
            if after.startswith(b","):
                end = len(self.source) - len(after) + 1
            elif before.endswith(b","):
                start = len(before) - 1
            self.change(node, start, end, "")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in NAMES:
            self.change(node, *self.span(node), NAMES[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in NAMES:
            end = self.span(node)[1]
            self.change(node, end - len(node.attr), end, NAMES[node.attr])
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        begins = isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute) \
            and isinstance(node.value.func.value, ast.Call) and ast.unparse(node.value.func.value.func) == "super"
        if isinstance(node.value, ast.Call) and not begins:         # without super() there is no such function to plant
            self.change(node, *self.span(node), "None")             # a call that is left out
        self.generic_visit(node)


def mutants_of(what: str) -> list[Mutant]:
    """Of the "core", or of one room."""
    if what == "core":
        files = [path for path in (ROOT / "nanospec").glob("*.py") if path.name not in NOT_CORE]
    elif what == "lessons":
        files = [ROOT / "lessons" / name for name in BESIDE_LESSONS]
    else:
        beside = what in ("training", "lessons/check")
        files = [*((ROOT if beside else ROOT / "nanospec") / what).glob("*.py")]
    return sum([Finder(str(path.relative_to(ROOT))).found for path in sorted(files)], [])
