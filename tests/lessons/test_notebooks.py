"""The lessons as notebooks: whole, and run once."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kit import title_of

from lessons.notebooks import LESSONS, SETUP, address, cells_of, main, notebook

SCRIPTS = sorted(LESSONS.glob("[0-9]*.py"))


@pytest.fixture
def notebooks(tmp_path, capsys):
    folder = tmp_path / "new" / "notebooks"
    assert main([str(folder)]) == 0
    assert f"{len(SCRIPTS)} notebooks written" in capsys.readouterr().out
    return folder


def test_cells():
    assert cells_of("# %% [markdown]\n# # 1. A\n#\n# text\n\n# %%\nx = 1\n\n\n# %%\ny = '# %%'\n") == [
        ("markdown", "# 1. A\n\ntext"), ("code", "x = 1"), ("code", "y = '# %%'")]


def test_every_lesson_is_a_notebook(notebooks):
    for script in SCRIPTS:
        book = json.loads((notebooks / f"{script.stem}.ipynb").read_text(encoding="utf-8"))
        assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
        assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
        for cell in book["cells"]:
            assert set(cell) == {"cell_type", "id", "metadata", "source"} | (
                {"execution_count", "outputs"} if cell["cell_type"] == "code" else set())
        code = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
        compile("\n".join(code), script.name, "exec")
        title = "".join(book["cells"][0]["source"]).splitlines()[0]
        assert title == f"# {title_of(script)}"
        shown = next(i for i, text in enumerate(code) if f'Image("out/{script.stem[3:]}.png")' in text)
        assert shown - 1 == max(i for i, text in enumerate(code) if "figures." in text)     # below what draws it last
        answers, last = LESSONS / "answers" / f"{script.stem}.md", "".join(book["cells"][-1]["source"])
        assert answers.exists() == ("<details>" in last)
        assert not answers.exists() or answers.read_text().splitlines()[0] not in last.splitlines()     # the title


def test_a_notebook_runs_in_its_folder(notebooks, monkeypatch, capsys):
    monkeypatch.chdir(notebooks)
    book = json.loads((notebooks / f"{SCRIPTS[1].stem}.ipynb").read_text(encoding="utf-8"))
    for cell in book["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and "IPython" not in source:
            exec(source, globals())
    assert "total variation" in capsys.readouterr().out
    assert (notebooks / "out" / f"{SCRIPTS[1].stem[3:]}.png").exists()


def test_without_a_clone_one_is_made_and_installed(tmp_path, monkeypatch):
    """On a hosted machine; and where the notebook has no address, one line says what is missing."""
    def ran(words, check):
        asked.append(words[:-1])
        if words[0] == "git":
            (Path(words[-1]) / "lessons").mkdir(parents=True)
            (Path(words[-1]) / "lessons" / "kit.py").write_text("")
    asked, before = [], list(sys.path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("subprocess.run", ran)
    monkeypatch.setattr("sys.path", before)
    with pytest.raises(SystemExit, match="no clone of nanospec here"):
        exec(SETUP.format(address=""), {})
    for _ in range(2):                                      # run again, it is there
        exec(SETUP.format(address="https://example.org/it.git"), {})
        assert sys.path[:2] == [str(tmp_path / "nanospec-clone" / "lessons"), str(tmp_path / "nanospec-clone")]
    assert asked == [["git", "clone", "--depth", "1", "https://example.org/it.git"],
                     [sys.executable, "-m", "pip", "install", "--quiet"]]


@pytest.mark.parametrize("origin, kept", [("https://example.org/it.git\n", True),
                                          ("/somebody/home/it\n", False), ("file:///somebody/it\n", False),
                                          ("", False)])
def test_no_path_of_this_machine_is_written(origin, kept, monkeypatch):
    monkeypatch.setattr("subprocess.run", lambda words, **how: SimpleNamespace(stdout=origin))
    assert address() == (origin.strip() if kept else "")
    source = "".join(notebook(SCRIPTS[1], address())["cells"][1]["source"])
    assert ".." not in source and str(LESSONS.parent) not in source and repr(address()) in source


def test_without_git_there_is_no_address(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert address() == ""


def test_what_somebody_has_changed_is_kept(notebooks, capsys):
    changed = notebooks / f"{SCRIPTS[1].stem}.ipynb"
    changed.write_text("mine")
    assert main([str(notebooks)]) == 0 and changed.read_text() == "mine"
    assert f"0 notebooks written to {notebooks}, {len(SCRIPTS)} that existed" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
