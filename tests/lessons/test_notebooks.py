"""The lessons as notebooks: whole, and run once."""

import json

import pytest

from kit import title_of

from lessons.notebooks import LESSONS, cells_of, main

SCRIPTS = sorted(LESSONS.glob("[0-9]*.py"))


@pytest.fixture
def notebooks(tmp_path, capsys):
    assert main([str(tmp_path / "notebooks")]) == 0
    assert f"{len(SCRIPTS)} notebooks written" in capsys.readouterr().out
    return tmp_path / "notebooks"


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
        assert f'Image("out/{script.stem[3:]}.png")' in "".join(code)
        answers = LESSONS / "answers" / f"{script.stem}.md"
        assert answers.exists() == ("<details>" in "".join(book["cells"][-1]["source"]))


def test_a_notebook_runs_in_its_folder(notebooks, monkeypatch, capsys):
    monkeypatch.chdir(notebooks)
    book = json.loads((notebooks / f"{SCRIPTS[1].stem}.ipynb").read_text(encoding="utf-8"))
    for cell in book["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and "IPython" not in source:
            exec(source, globals())
    assert "total variation" in capsys.readouterr().out
    assert (notebooks / "out" / f"{SCRIPTS[1].stem[3:]}.png").exists()


def test_what_somebody_has_changed_is_kept(notebooks, capsys):
    changed = notebooks / f"{SCRIPTS[1].stem}.ipynb"
    changed.write_text("mine")
    assert main([str(notebooks)]) == 0 and changed.read_text() == "mine"
    assert f"0 notebooks written to {notebooks}, {len(SCRIPTS)} that existed" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
