"""The house rules: the core is sealed, files stay small, arrows point downward, chance and pictures stay where they
belong.
"""

import ast
import re
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The core is every file at the top of nanospec/ but these.
NOT_CORE = {"__init__", "__main__", "theory"}
CORE = {path.stem for path in (ROOT / "nanospec").glob("*.py")} - NOT_CORE
# What stands around it. Each imports from the core and from those that stand before it here.
ROOMS = ["theory", "methods", "proof", "serving", "files", "fast", "judge", "cli", "__main__"]
FILES = sorted((ROOT / "nanospec").rglob("*.py"))
# What only the first uses stands in training/.
SCRIPTS = [ROOT / "train_tiny.py", ROOT / "demo.py", ROOT / "docs" / "pictures.py",
           *sorted((ROOT / "training").glob("*.py"))]
LESSONS = sorted((ROOT / "lessons").glob("[0-9]*.py"))
CLASSROOM = sorted((ROOT / "lessons").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


@cache
def nodes(path):
    """Of its syntax tree. A rule goes through all files in one test, and says which of them breaks it."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path):
    """Dotted names, `from a import b` as a.b, so that a module is told from a name in one."""
    found = []
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


def module_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def part(module):
    """Of nanospec: "nanospec.methods.trees.tree_draft.Tree" is of "trees"."""
    return module.split(".")[1]


def tops(path):
    return {name.split(".")[0] for name in imports(path)}


def test_arrows_point_downward():
    for path in FILES:
        module = module_of(path)
        if module == "nanospec" or part(module) in CORE:
            continue                                        # see below
        for name in imports(path):
            if name.startswith("nanospec.") and part(name) not in CORE | {part(module)}:
                assert ROOMS.index(part(name)) < ROOMS.index(part(module)), f"{module} imports {name}"


def test_what_all_commands_begin_with_is_for_what_can_be_started():
    found = imports(ROOT / "nanospec" / "cli" / "launch.py")
    assert all(one.split(".")[0] in sys.stdlib_module_names or one.startswith("nanospec.errors.") for one in found)


def test_every_room_has_a_place():
    rooms = {path.name for path in (ROOT / "nanospec").iterdir() if list(path.rglob("*.py"))}
    assert {*ROOMS} == rooms | NOT_CORE - {"__init__"}


def test_the_core_imports_torch_and_itself():
    for name in CORE | {"__init__"}:
        for imported in imports(ROOT / "nanospec" / f"{name}.py"):
            top, _, of_ours = imported.partition(".")
            assert top in {"torch", "nanospec"} | sys.stdlib_module_names, f"{name} imports {imported}"
            assert top != "nanospec" or of_ours and part(imported) in CORE, f"{name} imports {imported}"


def closure(name):
    """A file of nanospec, all that it imports of nanospec, and what these import."""
    found, left = set(), [name]
    while left:
        module = left.pop()
        found.add(module)
        path = ROOT / "nanospec" / f"{module}.py"
        left += {part(name) for name in imports(path) if name.startswith("nanospec.")} - found
    return found


def lines_of(*modules):
    return sum(len((ROOT / "nanospec" / f"{name}.py").read_text().splitlines()) for name in modules)


def test_speculative_decoding_whole_is_a_small_core():
    """All that `import nanospec.speculate` needs."""
    found = closure("speculate")
    assert found >= {"speculate", "draft", "dice", "probs", "cache", "text"} and found <= CORE
    assert lines_of(*found) < 900


def test_an_installation_is_whole():
    """The folders beside the package are not installed."""
    for path in FILES:
        assert not tops(path) & {"training", "lessons", "tests", "docs", "train_tiny"}, path


def test_there_is_no_circle():
    modules = {module_of(path) for path in FILES}
    graph = {}
    for path in FILES:
        found = (name if name in modules else name.rpartition(".")[0] for name in imports(path))
        graph[module_of(path)] = {name for name in found if name in modules} - {"nanospec"}
    TopologicalSorter(graph).prepare()                      # raises CycleError


def test_at_most_fifteen_files_and_eight_folders_at_the_top():
    assert len(list((ROOT / "nanospec").glob("*.py"))) <= 15
    assert len({path.relative_to(ROOT / "nanospec").parts[0] for path in FILES if path.parent.name != "nanospec"}) <= 8


def test_a_files_name_is_used_once():
    names = [path.name for path in FILES if path.stem not in ("__init__", "__main__")]
    assert not {name for name in names if names.count(name) > 1}


def test_no_file_is_too_long():
    for path in FILES + SCRIPTS:
        lines = len(path.read_text().splitlines())
        most = {"speculate.py": 200, "train_tiny.py": 550}.get(path.name, 300)     # a training, whole by itself
        assert lines < most, f"{path}: which second idea is in it?"


def test_checks_stay_small():
    assert all(len(path.read_text().splitlines()) <= 220 for path in CLASSROOM if path not in LESSONS)


def test_a_lessons_cells_are_one_claim_each_and_its_questions_have_answers():
    for path in LESSONS:
        text = path.read_text()
        assert all(len(line) <= 100 for line in text.splitlines()), path
        cells = text.split("# %%")[1:]
        assert cells[0].startswith(" [markdown]") and "[markdown]" in cells[-1], path
        for cell in cells:
            if not cell.startswith(" [markdown]"):
                assert sum(bool(line.strip()) for line in cell.splitlines()) <= 25, (path, cell)
        assert "Change this" not in text or (ROOT / "lessons" / "answers" / f"{path.stem}.md").exists()


def test_lessons_are_numbered():
    assert [int(path.name[:2]) for path in LESSONS] == list(range(len(LESSONS)))


def test_no_line_is_too_long():
    for path in FILES + SCRIPTS + CLASSROOM + TESTS:
        long = [number for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 120]
        assert not long, f"{path.relative_to(ROOT)}, lines {long}"


def test_no_line_is_wider_than_a_page():
    """Of 100 columns."""
    for path in FILES + SCRIPTS:
        long = [number for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 100]
        assert not long, f"{path.relative_to(ROOT)}, lines {long}"


def test_the_idea_alone_is_an_evenings_reading():
    assert lines_of("dice", "probs", "text", "generate", "draft", "reader", "speculate") < 710


def test_pictures_and_colours_stay_upstairs():
    for path in FILES:
        if "cli" not in path.parts:
            assert not tops(path) & {"rich", "matplotlib"}, path


def test_chance_stays_in_the_dice():
    """Random weights, tables and training come from elsewhere; no decision about the text does."""
    allowed = {"dice.py", "rows.py", "tables.py", "train_tiny.py", "own_texts.py", "kept.py", "stats.py"}
    drawing = {"rand", "randn", "randint", "randperm", "multinomial", "binomial", "bernoulli", "Categorical",
               "Generator"}
    for path in FILES + SCRIPTS:
        used = {node.attr for node in nodes(path) if isinstance(node, ast.Attribute)}
        assert path.name in allowed or not used & drawing, path
        assert not tops(path) & {"random", "secrets"}, path


def test_one_word_one_meaning():
    """A distribution is no law, and what is rejected is not refused. Hidden states, an attention mask, a KV length and
    a lag have no other names.
    """
    forbidden = {"law", "laws", "refused", "feature", "features", "sees", "upto", "unread"}
    for path in FILES:
        defined = {node.name for node in nodes(path) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        defined |= {node.arg for node in nodes(path) if isinstance(node, ast.arg)}
        defined |= {node.id for node in nodes(path) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        words = {word for name in defined for word in name.lower().split("_")}
        assert not words & forbidden, (path, words & forbidden)


def draft_is_a_model(node):
    """Whether a piece of code takes something named `draft` for a model: calls it, runs it, asks for it."""
    match node:
        case (ast.Call(ast.Name("draft")) | ast.Attribute(ast.Name("draft"), "config" | "new_cache" | "reader")
              | ast.arg("draft", ast.Name("GPT" | "Learned" | "LanguageModel"))
              | ast.Call(args=[ast.Constant("--draft" | "--drafts"), *_])):
            return True
        case ast.Call(ast.Name("ModelDrafter" | "reader_of" | "tree_reader_of" | "load_pair"), given, keywords):
            return "draft" in {getattr(one, "id", "") for one in given} | {one.arg for one in keywords}
    return False


def test_a_draft_is_tokens_and_its_places_are_nodes():
    """The model is the draft model. Rows are the texts of a batch."""
    for path in FILES + SCRIPTS + CLASSROOM + TESTS:
        if re.search(r"""\bdraft\s*[(.:,)=]|["']--drafts?["']""", path.read_text()):       # else no node is one
            for node in nodes(path):
                assert not draft_is_a_model(node), (path, node.lineno)
    for path in FILES:
        names = " ".join(str(getattr(node, "id", "")) for node in nodes(path))
        assert not re.search("row_?0|MOST_ROWS", names), path


def test_a_function_that_bears_its_files_name_is_not_shadowed():
    import nanospec.generate
    import nanospec.speculate
    assert callable(nanospec.speculate.speculate) and callable(nanospec.generate.generate)
