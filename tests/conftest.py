import runpy
from pathlib import Path

import pytest
import torch

LESSONS = Path(__file__).parent.parent / "lessons"


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors gain nothing from threads, and two test runs at once lose much."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def lesson(tmp_path, monkeypatch, capsys):
    """lesson("03"): that script, run as it is -> (what it has defined, what it has printed), with its picture."""
    def run(number: str) -> tuple[dict, str]:
        monkeypatch.chdir(tmp_path)
        path, = LESSONS.glob(f"{number}_*.py")
        names = runpy.run_path(str(path))
        assert (tmp_path / "out" / f"{path.stem}.png").read_bytes().startswith(b"\x89PNG")
        return names, capsys.readouterr().out
    return run
