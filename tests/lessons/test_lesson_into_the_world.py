"""Both programs, call by call; and what it says where transformers is missing."""

import runpy
from pathlib import Path

import pytest

from printed import table_under
from shorter import shorter

pytestmark = pytest.mark.xdist_group("transformers")        # one process imports it
LESSON, = (Path(__file__).parents[2] / "lessons").glob("*_into_the_world.py")


@shorter(("NEW = 96", "NEW = 20"))
def test_into_the_world(transformers, lesson, exchanged):
    pytest.importorskip("transformers", "5.23", reason="older versions make one call more at the end")
    names, out = lesson("into_the_world", *exchanged)
    assert "6 tensors here, 9 there" in out and not names["folder"].exists()
    assert names["off"] < 1e-4 and names["written"] == names["plain"]
    found, printed = names["found"], table_under(out, "way")
    for name, (grown, steps) in found.items():
        assert grown[-1] == names["NEW"] and grown == sorted(set(grown))
        assert printed[name] == [str(len(grown)), f"{names['NEW'] / len(grown):.2f}", str(steps)]
    assert found["ours, gamma = 4"][0] == found["transformers, gamma = 4"][0]           # call by call
    assert len(found["plain"][0]) > len(found["transformers, its defaults"][0])
    assert found["transformers, its defaults"][1] < found["ours, gamma = 4"][1] == 4 * len(found["ours, gamma = 4"][0])
    assert f"our speculation needs {len(found['ours, gamma = 4'][0])} calls" in out


def test_without_transformers_it_is_one_line(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"^This lesson needs .* pip install -e '\.\[hf\]'$"):
        runpy.run_path(str(LESSON))
