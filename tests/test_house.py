"""The house rules: files stay small, arrows point downward, chance and pictures stay where they belong."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = [["errors", "dice", "probs", "tokenizer", "cache", "theory"],
          ["data", "model", "checkpoint", "generate", "speculate"],
          ["drafters", "rules", "methods", "serve", "graphs", "hf"],
          ["proof", "show", "settle", "measure", "replay", "limits", "against", "race", "bench"]]
FILES = sorted((ROOT / "nanospec").rglob("*.py"))
SCRIPTS = [ROOT / "train_tiny.py", ROOT / "demo.py"]
LESSONS = sorted((ROOT / "lessons").glob("[0-9]*.py"))
CLASSROOM = sorted((ROOT / "lessons").rglob("*.py"))
names = [str(path.relative_to(ROOT)) for path in FILES]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def place(module):
    """(floor, place on it) of the part of nanospec that a dotted name belongs to."""
    part = module.split(".")[1]
    return next((floor, row.index(part)) for floor, row in enumerate(FLOORS) if part in row)


@pytest.mark.parametrize("path", FILES, ids=names)
def test_arrows_point_downward(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    if path == ROOT / "nanospec" / "__init__.py":
        return
    for name in imports(path):
        if name.startswith("nanospec") and name.split(".")[1:2] != module.split(".")[1:2]:
            assert place(name) < place(module), f"{module} imports {name}"


@pytest.mark.parametrize("path", FILES + SCRIPTS, ids=names + ["train_tiny.py", "demo.py"])
def test_no_file_is_too_long(path):
    lines = len(path.read_text().splitlines())
    assert lines <= (200 if path.name == "speculate.py" else 300), "which second idea is in it?"


def test_lessons_and_checks_stay_small():
    assert all(80 <= len(path.read_text().splitlines()) <= 140 for path in LESSONS)
    assert all(len(path.read_text().splitlines()) <= 220 for path in CLASSROOM)
    assert [int(path.name[:2]) for path in LESSONS] == list(range(1, len(LESSONS) + 1))


def test_no_line_is_too_long():
    for path in FILES + SCRIPTS + CLASSROOM + sorted((ROOT / "tests").glob("*.py")):
        long = [number for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 120]
        assert not long, f"{path.relative_to(ROOT)}, lines {long}"


def test_the_idea_alone_is_an_evenings_reading():
    idea = ["dice", "probs", "generate", "speculate"]
    assert sum(len((ROOT / "nanospec" / f"{name}.py").read_text().splitlines()) for name in idea) < 450


@pytest.mark.parametrize("path", FILES, ids=names)
def test_pictures_and_colours_stay_upstairs(path):
    if "show" not in path.parts and path.name != "bench.py":
        assert not {name.split(".")[0] for name in imports(path)} & {"rich", "matplotlib"}


@pytest.mark.parametrize("path", FILES + SCRIPTS, ids=names + ["train_tiny.py", "demo.py"])
def test_chance_stays_in_the_dice(path):
    """Random weights, tables and training shuffles come from elsewhere; no decision about the text does."""
    allowed = {"dice.py", "exact.py", "layers.py", "train_tiny.py"}
    drawing = {"rand", "randn", "randint", "randperm", "multinomial", "bernoulli", "Categorical", "Generator"}
    used = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    assert path.name in allowed or not used & drawing
    assert not {name.split(".")[0] for name in imports(path)} & {"random", "secrets"}


def test_a_function_that_bears_its_files_name_is_not_shadowed():
    import nanospec.generate
    import nanospec.speculate
    assert callable(nanospec.speculate.speculate) and callable(nanospec.generate.generate)
