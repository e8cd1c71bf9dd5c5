"""demo.py as a user runs it, on the pair that ships."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from demo import PROMPT
from nanospec.files.checkpoint import load_pair, save_model
from nanospec.model import GPT, Config
from nanospec.rules.block import verify_block
from nanospec.speculate import ModelDrafter, speculate, tokens_of

ROOT = Path(__file__).parent.parent
KEYS = {"device", "dtype", "drafter", "rule", "steps", "gamma", "temperature", "baseline_tokens_per_s",
        "tokens_per_s", "speedup", "predicted_speedup", "alpha", "c", "v", "tokens_per_target_call", "rounds",
        "accepted", "drafted", "text"}


def demo(*options, **more):
    return subprocess.run([sys.executable, "demo.py", "--device", "cpu", *options], cwd=ROOT, capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, **more)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """One run with everything it can write."""
    folder = tmp_path_factory.mktemp("demo")
    done = demo("--max-new-tokens", "48", "--gamma", "3", "--dtype", "float64", "--save", str(folder / "demo.svg"),
                "--json", str(folder / "demo.json"))
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "demo.json").read_text()), (folder / "demo.svg").read_text()


def test_the_json_has_its_keys_and_they_agree(written):
    _, row, _ = written
    assert set(row) == KEYS
    assert row["device"] == "cpu" and row["dtype"] == "float64" and row["gamma"] == 3 and row["temperature"] == 0.8
    assert row["drafted"] == 3 * row["rounds"] and 0 < row["accepted"] <= row["drafted"]
    assert row["tokens_per_target_call"] == pytest.approx(1 + row["accepted"] / row["rounds"])
    assert row["speedup"] == pytest.approx(row["tokens_per_s"] / row["baseline_tokens_per_s"])
    assert 0 < row["alpha"] < 1 and 0 < row["c"] < 1


def test_the_text_is_the_one_that_was_speculated(written):
    """Same seed, same precision: what the demo wrote is what `speculate` writes."""
    pair = load_pair(dtype=torch.float64)
    ids = [pair.tokenizer.end_of_text] + pair.tokenizer.encode(PROMPT)
    rounds = speculate(pair.target, ModelDrafter(pair.draft), ids, 3, 48, temperature=0.8,
                       stop={pair.tokenizer.end_of_text})
    assert pair.tokenizer.decode(tokens_of(rounds)) == written[1]["text"]


def test_the_table_and_the_picture(written):
    out, row, svg = written
    for word in ("alpha", "tokens per target call", "speed-up", "predicted", f"{row['speedup']:.2f}"):
        assert word in out
    assert ("wins" in out) == (row["speedup"] > 1) and ("loses" in out) == (row["speedup"] <= 1)
    assert svg.startswith("<svg") and "line-through" in svg and "speculative" in svg


def test_temperature_zero_says_whether_the_texts_agree():
    done = demo("--temperature", "0", "--dtype", "float64", "--max-new-tokens", "40", "--gamma", "4")
    assert done.returncode == 0 and "token for token" in done.stdout.replace("\n", " ")


def test_the_steps_show_every_coin():
    done = demo("--step", "--max-new-tokens", "30", "--gamma", "3", "--dtype", "float64")
    assert done.returncode == 0, done.stderr
    coins = re.findall(r"u = (\d\.\d\d) ([<≥]) (\d\.\d\d)", done.stdout)
    assert len(coins) > 10
    assert all((float(u) <= float(prob)) if sign == "<" else (float(u) >= float(prob)) for u, sign, prob in coins)
    assert "residual" in done.stdout and "bonus" in done.stdout


def test_the_default_length_fits_a_small_context(tmp_path):
    tokenizer = load_pair().tokenizer
    config = Config(1024, 64, layers=1, channels=8, heads=2, kv_heads=1, hidden=8)
    for name in ("target.pt", "draft.pt"):
        save_model(GPT(config), tmp_path / name, tokenizer)
    tokenizer.save(tmp_path / "ranks.tiktoken")
    done = demo("--weights", str(tmp_path), "--dtype", "float32", "--gamma", "2", "--json", str(tmp_path / "row.json"))
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "row.json").read_text())["rounds"] >= 6


def test_block_verification_by_name(tmp_path):
    done = demo("--max-new-tokens", "24", "--gamma", "4", "--dtype", "float64", "--rule", "block", "--json",
                str(tmp_path / "row.json"))
    assert done.returncode == 0, done.stderr
    pair = load_pair(dtype=torch.float64)
    ids = [pair.tokenizer.end_of_text] + pair.tokenizer.encode(PROMPT)
    rounds = speculate(pair.target, ModelDrafter(pair.draft), ids, 4, 24, temperature=0.8, rule=verify_block,
                       stop={pair.tokenizer.end_of_text})
    assert pair.tokenizer.decode(tokens_of(rounds)) == json.loads((tmp_path / "row.json").read_text())["text"]


def test_a_tree_by_name_and_every_coin_of_it(tmp_path):
    done = demo("--drafter", "tree", "--shape", "2", "1", "--max-new-tokens", "20", "--dtype", "float64",
                "--temperature", "1.2", "--step")
    assert done.returncode == 0, done.stderr
    assert "├──" in done.stdout and "never judged" in done.stdout
    coins = re.findall(r"u = (\d\.\d\d) ([<≥]) (\d\.\d\d)  (\w+)", done.stdout)
    assert coins and {(sign, word) for _, sign, _, word in coins} == {("<", "keep"), ("≥", "refuse")}
    assert done.stdout.count("bonus, drawn") + done.stdout.count("drawn from what is left") == len(
        re.findall("^round", done.stdout, re.M))


def test_a_single_token():
    done = demo("--max-new-tokens", "1", "--gamma", "2", "--dtype", "float32")
    assert done.returncode == 0, done.stderr


def test_the_figure(tmp_path):
    done = demo("--max-new-tokens", "8", "--dtype", "float32", "--gamma", "2", "--figure", str(tmp_path / "f.png"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("options, words", [
    (["--max-new-tokens", "9999"], "context"), (["--max-new-tokens", "0"], "at least 1"), (["--gamma", "0"], "gamma"),
    (["--temperature", "-1"], "temperature"), (["--weights", "nowhere"], "nowhere"), (["--top-p", "2"], "top_p"),
    (["--temperature", "nan"], "temperature"), (["--device", "cuda:99"], "cuda:99"),
    (["--prompt", "x = 1\n" * 2000], "context"), (["--step", "--rule", "block"], "--rule token"),
    (["--drafter", "goodput", "--gamma", "0"], "gamma"), (["--drafter", "lookup", "--gamma", "-1"], "gamma"),
    (["--drafter", "tree", "--gamma", "3"], "--shape"), (["--shape", "2"], "--shape"),
    (["--drafter", "tree", "--shape", "0"], "--shape"), (["--drafter", "tree", "--rule", "block"], "block"),
    (["--drafter", "tree", "--figure", "a.png"], "--figure"),
    (["--max-new-tokens", "8", "--gamma", "2", "--json", "nowhere/a.json"], "nowhere/a.json")])
def test_bad_requests_are_one_clear_line(options, words):
    done = demo(*options, "--dtype", "float32")
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
    assert words in done.stderr.strip().splitlines()[-1]
