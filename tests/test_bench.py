"""What the bench counts and writes. How fast anything is decides no test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nanospec import bench
from nanospec.proof.layers import small_gpt

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def pair():
    return small_gpt(11, 3, 1), small_gpt(11, 1, 2)


def test_a_rows_numbers_agree(pair):
    row, rounds = bench.measure(*pair, [[1, 2], [3]], 3, repeats=2, max_new_tokens=30, temperature=0.9)
    assert row["rounds"] == len(rounds) and row["drafted"] == 3 * row["rounds"]
    assert row["accepted"] == sum(one.kept for one in rounds)
    assert row["tokens_per_target_call"] == pytest.approx(1 + row["accepted"] / row["rounds"])
    assert row["speedup"] == row["tokens_per_s"] / row["baseline_tokens_per_s"]
    assert row["alpha"] == bench.alpha_of(rounds) and row["temperature"] == 0.9
    assert row["overhead"] > 0 and row["c"] > 0 and row["v"] > 0


def test_a_repeat_is_the_same_work(pair):
    once, thrice = (bench.measure(*pair, [[1, 2]], 2, repeats=n, max_new_tokens=20)[1] for n in (1, 3))
    assert [one.emitted for one in once] == [one.emitted for one in thrice]


def test_timed():
    items, seconds = bench.timed(iter("abc"))
    assert items == ["a", "b", "c"] and len(seconds) == 3 and all(s >= 0 for s in seconds)


def test_the_command(tmp_path):
    command = [sys.executable, "-m", "nanospec.bench", "--device", "cpu", "--prompts", "2", "--max-new-tokens", "8",
               "--gammas", "1", "2", "--temperatures", "0", "1", "--json", str(tmp_path / "b.json"),
               "--figure", str(tmp_path / "b.png")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "b.json").read_text())
    assert [(row["temperature"], row["gamma"], row["method"]) for row in rows] == [
        (t, g, "speculative") for t in (0, 1) for g in (1, 2)]
    assert (tmp_path / "b.png").exists()
    for row in rows:
        assert f"{row['speedup']:.2f}" in done.stdout
        assert row["speedup"] >= 1 or f"{row['speedup']:.2f} lost" in done.stdout


@pytest.mark.parametrize("options, words", [(["--gammas", "0"], "gamma"), (["--weights", "nowhere"], "nowhere"),
                                            (["--max-new-tokens", "9999"], "context")])
def test_bad_requests_are_one_clear_line(options, words):
    done = subprocess.run([sys.executable, "-m", "nanospec.bench", "--device", "cpu", *options], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
