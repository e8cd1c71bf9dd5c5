"""A pair on the disk: whole or not there, and read only if it is one."""

import multiprocessing
import pickle
import random
import resource
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from nanospec.files.checkpoint import WEIGHTS, load_model, load_pair, save_atomically, save_model
from nanospec.errors import DeviceError, NanospecError, PairError
from nanospec.model import GPT, Config
from nanospec.files.tokenizer import Tokenizer

BYTES = Tokenizer({bytes([b]): b for b in range(256)})


def small(vocab_size: int = 257) -> GPT:
    return GPT(Config(vocab_size, 32, layers=1, channels=8, heads=2, kv_heads=1, hidden=8))


@pytest.fixture
def folder(tmp_path):
    """A pair of small models."""
    BYTES.save(tmp_path / "ranks.tiktoken")
    for name in ("target.pt", "draft.pt"):
        save_model(small(), tmp_path / name, BYTES)
    return tmp_path


def test_saved_and_loaded(tmp_path):
    gpt = small()
    save_model(gpt, tmp_path / "a.pt", BYTES)
    again = load_model(tmp_path / "a.pt", dtype=torch.float64)
    assert again.config == gpt.config and again.dtype == torch.float64 and not again.training
    for name, weight in gpt.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight.bfloat16().double())


def test_a_pair_is_loaded(folder):
    pair = load_pair(folder)
    assert pair.target.config == pair.draft.config and pair.tokenizer.vocab_size == 257


@pytest.mark.parametrize("name", ["target.pt", "draft.pt", "ranks.tiktoken"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        load_pair(folder)


@pytest.mark.parametrize("part", [0, 0.01, 0.5, 0.99])
def test_a_truncated_checkpoint(folder, part):
    whole = (folder / "target.pt").read_bytes()
    (folder / "target.pt").write_bytes(whole[:int(part * len(whole))])
    with pytest.raises(PairError, match="target.pt is cut short, or is no checkpoint") as raised:
        load_pair(folder)
    assert "\n" not in str(raised.value)


class Exploit:
    """What a stranger's pickle might hold: a call to be made while it is read."""

    def __reduce__(self):
        return exec, ("raise SystemExit('code ran')",)


@pytest.mark.parametrize("foreign", [b"hello", b"\x00" * 1000, pickle.dumps({"config": 1}), pickle.dumps(Exploit())],
                         ids=["text", "zeros", "pickle", "code"])
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_file_that_is_no_checkpoint(folder, foreign):
    (folder / "draft.pt").write_bytes(foreign)
    with pytest.raises(PairError, match="draft.pt is cut short, or is no checkpoint"):
        load_pair(folder)


@pytest.mark.parametrize("saved", [
    {"model": {}}, [1, 2], {"config": {"n_embd": 3}, "state": {}}, {"config": 5, "state": {}},
    {"config": dict(vocab_size=257, context=8, layers=1, channels=8, heads=2, kv_heads=1, hidden=8), "state": {}}])
def test_a_checkpoint_of_something_else(folder, saved):
    torch.save(saved, folder / "target.pt")
    with pytest.raises(PairError, match="target.pt is a checkpoint, but not of this GPT") as raised:
        load_pair(folder)
    assert "\n" not in str(raised.value)


def test_models_of_different_tokenizers_are_no_pair(folder):
    other = Tokenizer(BYTES.ranks | {b"th": 256})
    save_model(small(258), folder / "draft.pt", other)
    with pytest.raises(PairError, match="draft.pt was trained with another tokenizer"):
        load_pair(folder)


@pytest.mark.parametrize("ranks, words", [
    ("hello", "no tokenizer's file"), ("!!! 3", "no tokenizer's file"), ("", "cut short"), ("AA== 0\n", "cut short")])
def test_a_tokenizer_that_is_none(folder, ranks, words):
    (folder / "ranks.tiktoken").write_text(ranks)
    with pytest.raises(PairError, match=words):
        load_pair(folder)


def test_a_truncated_tokenizer(folder):
    shutil.copy(WEIGHTS / "ranks.tiktoken", folder)
    lines = (folder / "ranks.tiktoken").read_text().splitlines()
    (folder / "ranks.tiktoken").write_text("\n".join(lines[:600]))          # whole lines: only the models can tell
    with pytest.raises(PairError, match="another tokenizer"):
        load_pair(folder)


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_here(folder, device):
    with pytest.raises(DeviceError, match=device) as raised:
        load_pair(folder, device)
    assert isinstance(raised.value, NanospecError) and "\n" not in str(raised.value)


def test_a_full_disk_leaves_the_old_file(folder):
    """A limit on the size of files stands in for the disk: writes fail half-way through."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, before[1]))
        with pytest.raises(OSError, match="could not be written, what was there before still is"):
            save_model(small(), folder / "target.pt", BYTES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    load_pair(folder)
    assert not list(folder.glob("*.partial"))


def save_for_ever(folder: Path, started) -> None:
    number = 0
    while True:
        save_atomically({"number": number, "twice": torch.full((50_000,), number)}, folder / "x.pt")
        number += 1
        started.set()


def test_fifty_kills_while_saving_and_never_an_unreadable_file(tmp_path):
    fork, chance, seen = multiprocessing.get_context("fork"), random.Random(0), set()
    for _ in range(50):
        started = fork.Event()
        saving = fork.Process(target=save_for_ever, args=(tmp_path, started))
        saving.start()
        assert started.wait(60)
        time.sleep(chance.random() * 0.02)
        saving.kill()
        saving.join()
        found = torch.load(tmp_path / "x.pt", weights_only=True)
        assert (found["twice"] == found["number"]).all()
        seen.add(found["number"])
    assert len(seen) > 2                                        # killed at different moments
