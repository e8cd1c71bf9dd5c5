"""On the real model where it is installed; and what it says where it is not."""

import runpy
from pathlib import Path

import pytest

from nanospec.errors import RequestError
from nanospec.files.sources import located
from printed import table_under

LESSON, = (Path(__file__).parents[2] / "lessons").glob("*_a_model_that_people_know.py")


@pytest.mark.smollm2
def test_a_model_that_people_know(lesson):
    pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
    try:
        located("smollm2")
    except RequestError as error:
        pytest.skip(str(error))
    names, out = lesson("a_model_that_people_know", ("NEW = 64", "NEW = 4"),
                        ("TableModel(5, 1), Without(TableModel(5, 2), 3)",
                         "TableModel(3, 1), Without(TableModel(3, 2, zeros=0), 2)"))
    found = table_under(out, "request")
    assert list(found) == ["story", "question", "rewriting"]
    for kind, cells in found.items():
        for name, cell in zip(("draft model", "copies"), cells):
            rounds = names["rounds_of"][kind, name]
            assert cell == f"{sum(len(done.emitted) for done in rounds) / len(rounds):.2f}"
    assert names["off"] < 1e-12 and 0.5 < names["known"] <= 1 and len(names["draft_model"].ids) == 8192


def test_without_the_model_it_is_one_line(monkeypatch):
    monkeypatch.setattr("nanospec.files.sources.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"^This lesson needs a model of others\. smollm2 is not here: pip install "):
        runpy.run_path(str(LESSON))
