"""gpu.py: every step at a small size on the CPU, in this process; how one is started, ended, and gone on with."""

import argparse
import json
from pathlib import Path

import pytest
import torch

from nanospec.cli import __main__ as commands
from nanospec.cli.bench import measure, prompts
from nanospec.files.model_file import save_model
from nanospec.files.tokenizer import Tokenizer, train
from nanospec.model import Config
from nanospec.proof.tables import small_gpt
from tests.conftest import once, priced
from tests.release import gpu, large

TEXT = str(Path(argparse.__file__))
TINY = "--max-new-tokens 3 --weights {weights}"
# What is put after a step's own words: the last one of an option counts.
SMALL = {"demo": TINY, "speed": f"--gammas 1 --temperatures 1 --prompts 1 {TINY}",
         "compiled": f"--gammas 1 --prompts 1 {TINY}",
         "large": "--gammas 1 --rows 1", "large-compiled": "--gammas 1",
         "serve": f"--rows 1 --drafters chain {TINY}"}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    tokenizer = Tokenizer(train(Path(TEXT).read_text(), 319))
    tokenizer.save(folder / "ranks.tiktoken")
    for name, layers in (("target.pt", 2), ("draft.pt", 1)):
        save_model(small_gpt(320, layers, layers, context=256), folder / name, tokenizer)
    return folder


@pytest.fixture
def small(weights, monkeypatch, stand_in, untuned, tmp_path):
    """Steps run here instead of in processes, small; no clock, and no text that is long to read."""
    for module in "nanospec.fast.clock", "nanospec.cli.bench.measure":
        monkeypatch.setattr(f"{module}.step_seconds", priced)
    for module in "nanospec.fast.clock", "lessons.machine", "tests.release.large", "nanospec.cli.bench.serve":
        monkeypatch.setattr(f"{module}.median_seconds", once)
    monkeypatch.setattr(prompts, "read_texts", lambda: ([], [Path(TEXT).read_text()[:40_000]] * 20))
    monkeypatch.setattr(measure, "draft_seconds", lambda *_, **__: 1e-4)
    monkeypatch.setattr(large, "LARGE", [Config(64, 512, layers, 32, 2, 1, 48) for layers in (2, 1)])
    monkeypatch.setattr(large, "bandwidth", lambda size, device: 1e9)
    seen = []

    def here(argv, seconds, log):
        name = log.stem
        seen.append((name, seconds))
        words = [*argv, *SMALL.get(name, "").format(weights=weights).split()]
        if name == "tests":
            assert (gpu.ROOT / words[-1]).exists()
            status = 0
        else:
            main = {"nanospec": commands.main, "tests.release.large": large.main}[words[1]]
            status = main(words[2:])
        log.write_text(f"{name} has said this\n")
        return {"argv": list(argv), "how": f"with status {status}" if status else "well", "seconds": 1.0}

    monkeypatch.setattr(gpu, "launched", here)
    return seen


def test_every_step_runs_on_a_cpu_and_the_page_has_it_all(small, tmp_path, capsys):
    assert gpu.main([str(tmp_path), "--device", "cpu"]) == 0
    done = json.loads((tmp_path / "steps.json").read_text())
    assert [(one["step"], one["how"]) for one in done] == [(step.name, "well") for step in gpu.STEPS]
    assert small == [(step.name, step.seconds) for step in gpu.STEPS]
    for step in gpu.STEPS:
        assert not step.writes or json.loads((tmp_path / f"{step.name}.json").read_text())
    page = (tmp_path / "page.md").read_text()
    assert str(tmp_path) not in page and all(f"{step.name} has said this" in page for step in gpu.STEPS)
    assert "| - |" not in page and f"torch {torch.__version__}" in page             # all three figures are there


def test_it_goes_on_where_it_was_cut(small, tmp_path, monkeypatch, capsys):
    """Ctrl-C in the third step: what had ended is not repeated."""
    ran = []

    def interrupted(argv, seconds, log):
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(log.stem)
        return {"argv": list(argv), "how": "well", "seconds": 7.0}

    monkeypatch.setattr(gpu, "launched", interrupted)
    assert gpu.main([str(tmp_path)]) == 130
    assert [one["step"] for one in json.loads((tmp_path / "steps.json").read_text())] == ["tests", "demo"]
    asked = []
    monkeypatch.setattr(gpu, "launched", lambda argv, seconds, log: asked.append(argv) or {
        "argv": argv, "how": "ended after its time", "seconds": seconds})
    assert gpu.main([str(tmp_path), "--minutes", "5"]) == 0
    names = [one["step"] for one in json.loads((tmp_path / "steps.json").read_text())]
    assert names == [step.name for step in gpu.STEPS][:len(names)] and "serve" not in names          # the time is over
    assert sum(one["seconds"] for one in json.loads((tmp_path / "steps.json").read_text())) == pytest.approx(300)
    assert gpu.main([str(tmp_path), "--minutes", "99"]) == 0
    assert len(asked) == len(gpu.STEPS) - 2


def test_all_steps_together_take_ten_minutes_at_most():
    assert sum(step.seconds for step in gpu.STEPS) <= 600
    assert len({step.name for step in gpu.STEPS}) == len(gpu.STEPS)


@pytest.mark.parametrize("code, seconds, how, said", [
    ("print(5)", 30, "well", "5\n"), ("print(6); exit(3)", 30, "with status 3", "6\n"),
    ("import time; time.sleep(60)", 0.1, "ended after its time", "")])
def test_a_step_is_a_process_that_is_ended_after_its_time(tmp_path, code, seconds, how, said):
    found = gpu.launched(["-c", code], seconds, tmp_path / "log")
    assert found["how"] == how and (tmp_path / "log").read_text() == said


def test_a_step_is_asked_to_end_before_it_is_made_to(tmp_path):
    ready, code = tmp_path / "ready", "; ".join([
        "import pathlib, signal, sys, time", "signal.signal(15, lambda *_: sys.exit(print('saved')))",
        "pathlib.Path({!r}).touch()", "time.sleep(60)"]).format(str(tmp_path / "ready"))
    for seconds in 1, 4, 16:                        # until it has had the time to say how it wants to be ended
        ready.unlink(missing_ok=True)
        found = gpu.launched(["-c", code], seconds, tmp_path / "log")
        if ready.exists():
            break
    assert found["how"] == "ended after its time" and (tmp_path / "log").read_text() == "saved\n"


def test_figures_that_are_not_there(tmp_path):
    (tmp_path / "compiled.json").write_text("[{")
    (tmp_path / "large.json").write_text(json.dumps([
        {"bytes": 2e9, "bandwidth": 1e12, "seconds": {"target step": 4e-3}},
        {"rows": 1, "alpha": 0.8, "speedup": 3.2}, {"rows": 8, "alpha": 0.8, "speedup": 9.9}]))
    assert [found for *_, found in gpu.reached(tmp_path)] == ["-", "0.50", "3.20"]
