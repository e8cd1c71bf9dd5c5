"""The sentences of a module: what it can say, for tests that each is said somewhere of what it is true of."""

import ast
import re
from pathlib import Path


def sentences(path: Path) -> list[str]:
    """The texts of four words or more, without docstrings, as patterns: what is put in is `.*`."""
    tree, found = ast.parse(path.read_text()), []
    inside = {id(part) for node in ast.walk(tree) for part in (
        node.values if isinstance(node, ast.JoinedStr) else
        [node.value] if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else [])}
    for node in ast.walk(tree):
        if id(node) not in inside and isinstance(node, (ast.Constant, ast.JoinedStr)):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in getattr(node, "values", [node])]
            text = "".join(part for part in parts if isinstance(part, str))
            found += [re.escape(text).replace(r"\{\}", ".*")] * (len(text.split()) > 3)
    return found
