"""What the README says is held to the files."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nanospec.speculate
from nanospec.proof.tables import TableModel
from nanospec.proof.judge import sampler_with
from nanospec.proof.zoo import ALL_BUGS, ALL_CONTROLS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(python)?\n(.*?)```", README, re.S)


def test_the_lines_that_are_the_algorithm_are_those_of_the_file():
    source = inspect.getsource(nanospec.speculate)
    shown = next(block for kind, block in BLOCKS if kind and "def verify" in block)
    assert shown.strip() in source


def test_the_examples_run():
    first, second = (next(block for kind, block in BLOCKS if kind and words in block)
                     for words in ("load_pair()", "SuffixDrafter("))
    done = subprocess.run([sys.executable, "-c", first + second], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "of 4 accepted" in done.stdout and "\n" in done.stdout


def test_both_commands_are_on_the_first_screen():
    first = README.split("## ")[0]
    assert "pip install -e . && python demo.py" in first and "pip install -e '.[test]' && pytest" in first


def test_ci_runs_the_readmes_test_command():
    line, = re.findall(r"^pip install -e .* && pytest.*$", README, re.M)
    assert line == "pip install -e '.[test]' && pytest"
    found = subprocess.run(["bash", "-c", re.search(r"\$\((grep .*)\)", (ROOT / ".ci" / "run").read_text())[1]],
                           cwd=ROOT, capture_output=True, text=True)
    assert found.stdout.strip() == line


def test_every_picture_is_there_and_every_file_is_on_the_map():
    for path in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (ROOT / path).stat().st_size > 5_000
    on_map = set(re.findall(r"`(nanospec/[\w.]+/?)`", README))
    for path in (ROOT / "nanospec").iterdir():
        if path.name not in ("__init__.py", "__pycache__"):
            assert f"nanospec/{path.name}" + "/" * path.is_dir() in on_map


def test_every_option_named_exists():
    for script in ("demo.py", "train_tiny.py"):
        source = (ROOT / script).read_text()
        for option in re.findall(rf"{script}`? (--[\w-]+)", README):
            assert f'"{option}"' in source


def test_nothing_is_left_to_fill_in():
    assert not re.search(r"@@|@[A-Z]+@", README)


def test_the_zoo_is_as_large_as_said():
    shipped = sum(not bug.source.startswith(("generic", "ours")) for bug in ALL_BUGS)
    assert f"{len(ALL_BUGS)} bugs, {shipped} of them from public implementations" in README
    assert f"{len(ALL_CONTROLS)} controls" in README


@pytest.mark.slow
def test_the_judges_example_prints_what_is_shown(capsys):
    """With a sampler that forgets the residual."""
    shown = next(block for kind, block in BLOCKS if kind and "my_sampler" in block)
    printed = next(block for kind, block in BLOCKS if not kind and block.startswith("WRONG"))
    bug = next(bug for bug in ALL_BUGS if bug.name == "residual-is-target")
    tables = {"target": TableModel(3, 8, 0.4), "draft": TableModel(3, 58, 0.4)}
    exec(shown, {"my_sampler": sampler_with(bug, **tables, ids=[1], new=3, gamma=2)})
    assert capsys.readouterr().out == printed
