"""The house rules: files stay small, arrows point downward, chance and pictures stay where they belong."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# A file or room imports from those that stand before it, on its own floor or below.
FLOORS = [["errors", "dice", "probs", "cache", "theory", "topology"],
          ["model", "text", "generate", "draft", "draft_models", "rules", "speculate", "serve"],
          ["files", "drafters", "methods", "training"],
          ["fast", "proof", "show", "bench", "commands"]]
FILES = sorted((ROOT / "nanospec").rglob("*.py"))
SCRIPTS = [ROOT / "train_tiny.py", ROOT / "demo.py"]
LESSONS = sorted((ROOT / "lessons").glob("[0-9]*.py"))
CLASSROOM = sorted((ROOT / "lessons").rglob("*.py"))
TESTS = sorted((ROOT / "tests").glob("*.py"))
names = [str(path.relative_to(ROOT)) for path in FILES]


def imports(path):
    """Dotted names, `from a import b` as a.b, so that a module is told from a name in one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def module_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def place(module):
    """(floor, place on it) of the part of nanospec that a dotted name belongs to."""
    part = module.split(".")[1]
    return next((floor, row.index(part)) for floor, row in enumerate(FLOORS) if part in row)


@pytest.mark.parametrize("path", FILES, ids=names)
def test_arrows_point_downward(path):
    module = module_of(path)
    if module == "nanospec":
        return
    for name in imports(path):
        if name.startswith("nanospec.") and name.split(".")[1] != module.split(".")[1]:
            assert place(name) < place(module), f"{module} imports {name}"


def test_there_is_no_circle():
    modules = {module_of(path) for path in FILES}
    graph = {}
    for path in FILES:
        found = (name if name in modules else name.rpartition(".")[0] for name in imports(path))
        graph[module_of(path)] = {name for name in found if name in modules} - {"nanospec"}
    TopologicalSorter(graph).prepare()                      # raises CycleError


def test_at_most_fourteen_files_at_the_top():
    assert len(list((ROOT / "nanospec").glob("*.py"))) <= 14


@pytest.mark.parametrize("path", FILES + SCRIPTS, ids=names + ["train_tiny.py", "demo.py"])
def test_no_file_is_too_long(path):
    lines = len(path.read_text().splitlines())
    assert lines < (200 if path.name == "speculate.py" else 300), "which second idea is in it?"


def test_checks_stay_small():
    assert all(len(path.read_text().splitlines()) <= 220 for path in CLASSROOM
               if path not in LESSONS and path.name != "figures.py")      # one function for each picture


@pytest.mark.parametrize("path", LESSONS, ids=[path.name for path in LESSONS])
def test_a_lessons_cells_are_one_claim_each_and_its_questions_have_answers(path):
    text = path.read_text()
    assert all(len(line) <= 100 for line in text.splitlines())
    cells = text.split("# %%")[1:]
    assert cells[0].startswith(" [markdown]") and "[markdown]" in cells[-1]
    for cell in cells:
        if not cell.startswith(" [markdown]"):
            assert sum(bool(line.strip()) for line in cell.splitlines()) <= 25, cell
    if "Change this" in text:
        assert (ROOT / "lessons" / "answers" / f"{path.stem}.md").exists()


def test_lessons_are_numbered():
    assert [int(path.name[:2]) for path in LESSONS] == list(range(len(LESSONS)))


def test_no_line_is_too_long():
    for path in FILES + SCRIPTS + CLASSROOM + TESTS:
        long = [number for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 120]
        assert not long, f"{path.relative_to(ROOT)}, lines {long}"


def test_the_idea_alone_is_an_evenings_reading():
    idea = ["dice", "probs", "text", "generate", "draft", "speculate"]
    assert sum(len((ROOT / "nanospec" / f"{name}.py").read_text().splitlines()) for name in idea) < 710


@pytest.mark.parametrize("path", FILES, ids=names)
def test_pictures_and_colours_stay_upstairs(path):
    if not {"show", "bench", "commands"} & set(path.parts):
        assert not {name.split(".")[0] for name in imports(path)} & {"rich", "matplotlib"}


@pytest.mark.parametrize("path", FILES + SCRIPTS, ids=names + ["train_tiny.py", "demo.py"])
def test_chance_stays_in_the_dice(path):
    """Random weights, tables and training come from elsewhere; no decision about the text does."""
    allowed = {"dice.py", "tables.py", "compare.py", "contract.py", "learning.py", "batches.py", "serving.py"}
    drawing = {"rand", "randn", "randint", "randperm", "multinomial", "bernoulli", "Categorical", "Generator"}
    used = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    assert path.name in allowed or not used & drawing
    assert not {name.split(".")[0] for name in imports(path)} & {"random", "secrets"}


@pytest.mark.parametrize("path", FILES, ids=names)
def test_one_word_one_meaning(path):
    """A distribution is no law, and what is rejected is not refused."""
    tree = ast.parse(path.read_text())
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    defined |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    defined |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    words = {word for name in defined for word in name.lower().split("_")}
    assert not words & {"law", "laws", "refused"}


def test_a_function_that_bears_its_files_name_is_not_shadowed():
    import nanospec.generate
    import nanospec.speculate
    assert callable(nanospec.speculate.speculate) and callable(nanospec.generate.generate)
