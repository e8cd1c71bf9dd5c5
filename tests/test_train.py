"""train_tiny.py at its smallest size: what it promises about seeds, resuming, stopping and files."""

import argparse
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console
from rich.progress import Progress

import train_tiny
from nanospec.files.checkpoint import load_pair
from nanospec.files.corpus import read_texts, to_ids
from nanospec.errors import TextError
from nanospec.files.tokenizer import Tokenizer, train

ROOT = Path(__file__).parent.parent
TEXT = Path(argparse.__file__)


@pytest.fixture(scope="module")
def text():
    training, held = read_texts(TEXT)
    tokenizer = Tokenizer(train(training[0], 319))
    return to_ids(training, tokenizer), to_ids(held, tokenizer), tokenizer


def training_in(folder, text, seed=0, size="dust"):
    folder.mkdir(exist_ok=True)
    text[2].save(folder / "ranks.tiktoken")
    return train_tiny.Training(size, seed, "cpu", *text, folder)


def run(training, seconds=float("inf")):
    return training.run(seconds, Progress(disable=True))


def weights(folder):
    return [weight for model in load_pair(folder)[:2] for weight in model.state_dict().values()]


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory):
    torch.set_num_threads(1)
    training = training_in(tmp_path_factory.mktemp("whole"), text)
    assert run(training)
    return training


def test_it_learns(whole):
    losses = {phase: [row for row in whole.history if row[0] == phase] for phase in range(3)}
    for rows in losses.values():
        assert rows[-1][3] < 5.7        # below ln(320) = 5.77, for the distillation's KL far below
    assert losses[0][-1][3] < losses[0][0][3] - 0.3


def test_stopped_anywhere_and_resumed_it_is_the_same_model(whole, text, tmp_path):
    finished, stops = run(training_in(tmp_path, text), seconds=0.02), 0
    while not finished:
        again = training_in(tmp_path, text)
        again.load()
        finished, stops = run(again, seconds=0.15), stops + 1
    assert stops > 1
    assert all(torch.equal(a, b) for a, b in zip(weights(tmp_path), weights(whole.out), strict=True))
    assert again.history == whole.history


def test_another_seed_is_another_model(whole, text, tmp_path):
    other = training_in(tmp_path, text, seed=1)
    assert run(other)
    assert not torch.equal(weights(tmp_path)[0], weights(whole.out)[0])


def test_another_text_cannot_be_resumed(whole, text):
    for changed, word in ((training_in(whole.out, (text[0] + 1, *text[1:])), "text"),
                          (training_in(whole.out, text, seed=3), "seed")):
        with pytest.raises(TextError, match=word):
            changed.load()


def test_every_pass_deals_out_each_window_once():
    ids = torch.arange(1001)
    passes = [torch.cat([train_tiny.batch_at(ids, step, 3, 10, 0)[0][:, 0] for step in range(first, first + 33)])
              for first in (0, 33)]
    for starts in passes:
        assert len(set(starts.tolist())) == 99 and len(set((starts % 10).tolist())) == 1
    assert not torch.equal(*passes)
    x, y = train_tiny.batch_at(ids, 5, 3, 10, 0)
    assert torch.equal(x + 1, y)
    assert torch.equal(x, train_tiny.batch_at(ids, 5, 3, 10, 0)[0])


def test_too_little_text():
    with pytest.raises(TextError, match="too little text"):
        train_tiny.batch_at(torch.arange(50), 0, 8, 64, 0)


def test_the_learning_rate_rises_stays_and_falls_to_almost_nothing():
    rates = [train_tiny.learning_rate(step, 1000, 2.0) for step in range(1000)]
    assert rates[0] == 0.02 and rates[99] == rates[599] == 2.0 and 0 < rates[-1] < 0.01


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_usable_pair_and_a_run_that_goes_on(tmp_path, number):
    command = [sys.executable, "train_tiny.py", "--size", "nano", "--text", str(TEXT), "--out", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        while "draft:" not in process.stdout.readline():
            pass
        time.sleep(3)
        process.send_signal(number)
        assert "--resume" in process.stdout.read()
    assert process.returncode == 128 + number
    assert load_pair(tmp_path).target.config.layers == 4
    resumed = subprocess.run([*command, "--resume", "--minutes", "0.02"], cwd=ROOT, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    assert (tmp_path / "loss.png").stat().st_size > 5_000 or "stopped" in resumed.stdout


@pytest.mark.parametrize("options, words", [
    (["--text", "none"], "missing"), (["--text", "binary"], "not UTF-8"), (["--text", "short"], "too little text"),
    (["--text", "empty"], "too few text files"), (["--device", "cuda:99"], "cuda:99"),
    (["--resume"], "No such file"), (["--resume", "--out", "torn"], "training.pt is cut short")])
def test_bad_input_is_one_clear_line(tmp_path, options, words):
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "short").write_text("x = 1\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn").mkdir()
    Tokenizer({bytes([b]): b for b in range(256)}).save(tmp_path / "torn" / "ranks.tiktoken")
    (tmp_path / "torn" / "training.pt").write_bytes(b"PK")
    command = [sys.executable, str(ROOT / "train_tiny.py"), "--size", "dust", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert words in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_full_disk_stops_no_training_and_the_end_says_so(tmp_path, text, monkeypatch):
    """Saves fail while it trains: it goes on. The last one fails too: an error, and the old files are whole."""
    monkeypatch.setattr(train_tiny, "SAVE_EVERY", 0)
    training = training_in(tmp_path, text)
    training.optimizer = training.new_optimizer()
    training.save()
    before = (tmp_path / "target.pt").read_bytes()

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(train_tiny, "save_model", full)
    console = Console(record=True, file=StringIO(), width=200)
    with pytest.raises(OSError, match="no space left"), Progress(console=console) as progress:
        training.run(float("inf"), progress)
    assert "no space left; training goes on" in console.export_text()
    assert training.phase == 2 and (tmp_path / "target.pt").read_bytes() == before
    assert load_pair(tmp_path).tokenizer.vocab_size == 320


def test_the_whole_command(tmp_path):
    command = [sys.executable, "train_tiny.py", "--size", "dust", "--text", str(TEXT), "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for temperature in ("1.0", "0.8", "0.0"):
        assert f"alpha at T = {temperature}: 0." in done.stdout
    assert (tmp_path / "loss.png").exists() and load_pair(tmp_path).tokenizer.vocab_size == 320
