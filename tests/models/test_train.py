"""train_tiny.py and training/pair.py at their smallest: seeds, resuming, stopping, files, what is refused.

All in this process; one test runs the script as a user would.
"""

import argparse
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress

import training.pair as pair
from training import jobs
import train_tiny
from nanospec.errors import PairError, TextError
from nanospec.files.checkpoint import load_pair
from nanospec.files.corpus import held_out, read_texts, to_ids
from nanospec.files.tokenizer import Tokenizer, train
from nanospec.model import GPT, Config
from nanospec.theory import acceptance
from training.batches import HeldOut, Sampled, batch_at, sample
from training.mixed import bfloat16_is_faster
from training.pair import FILES, Training, held_out_loss
from training.step import learning_rate
from training.watch import Watch

ROOT = Path(__file__).parents[2]
TEXT = Path(argparse.__file__)
DUST = train_tiny.SIZES["dust"]
FULL = replace(DUST, short=0.5, sampled=8)              # with all that the shipped pair is given to do
QUIET = Console(file=StringIO())


@pytest.fixture(scope="module")
def text():
    training, held = read_texts(TEXT)
    tokenizer = Tokenizer(train(training[0], 319))
    return to_ids(training, tokenizer), HeldOut.of("argparse", held, tokenizer, "cpu"), tokenizer


def training_in(folder, text, seed=0, size=FULL):
    folder.mkdir(exist_ok=True)
    return Training(size, seed, text[0], text[2], folder)


def run(training, text, steps=math.inf, console=QUIET):
    """Until it has taken `steps` steps, or to its end."""
    watch, taken = Watch(training, text[1], Progress(console=console, disable=True)), []
    seen = watch.step
    watch.step = lambda loss: taken.append(loss) or seen(loss)
    return train_tiny.run(training, watch, lambda: len(taken) >= steps)


def weights(folder):
    return [weight for model in load_pair(folder)[:2] for weight in model.state_dict().values()]


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory):
    torch.set_num_threads(1)
    training = training_in(tmp_path_factory.mktemp("whole"), text)
    assert run(training, text)
    return training


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- the training itself

def test_it_learns(whole):
    losses = {phase: [row for row in whole.history if row[0] == phase] for phase in range(3)}
    for rows in losses.values():
        assert rows[-1][3] < 5.7        # below ln(320) = 5.77, for the distillation's KL far below
    assert losses[0][-1][3] < losses[0][0][3] - 0.3


def test_stopped_anywhere_and_resumed_it_is_the_same_model(whole, text, tmp_path):
    finished, stops = run(training_in(tmp_path, text), text, steps=0), 0
    while not finished:
        again = training_in(tmp_path, text)
        again.load()
        finished, stops = run(again, text, steps=10), stops + 1
    assert stops > 1
    assert all(torch.equal(a, b) for a, b in zip(weights(tmp_path), weights(whole.out), strict=True))
    assert again.history == whole.history


def test_stopped_while_its_target_writes_and_resumed_it_is_the_same_model(whole, text, tmp_path):
    """It is asked before every step and before every token that is written before the last phase's first one."""
    training, asked = training_in(tmp_path, text), []
    steps = sum(FULL.steps[:2])

    def stopped():
        asked.append((training.phase, training.step))
        return len(asked) == steps + 12

    watch = Watch(training, text[1], Progress(console=QUIET, disable=True))
    assert not train_tiny.run(training, watch, stopped)
    assert asked[steps:] == [(2, 0)] * 12 and not (tmp_path / "sampled.pt").exists()
    resumed = training_in(tmp_path, text)
    resumed.load()
    assert (resumed.phase, resumed.step) == (2, 0) and run(resumed, text)
    assert all(torch.equal(a, b) for a, b in zip(weights(tmp_path), weights(whole.out), strict=True))
    assert resumed.history == whole.history


def test_a_training_whose_words_nobody_reads_any_longer_is_saved(text, tmp_path, monkeypatch):
    training = training_in(tmp_path, text)

    def gone(*_):
        raise SystemExit(141)

    monkeypatch.setattr(Watch, "step", gone)
    with pytest.raises(SystemExit):
        run(training, text)
    resumed = training_in(tmp_path, text)
    resumed.load()
    assert (resumed.phase, resumed.step) == (0, 1)


def test_another_seed_is_another_model(whole, text, tmp_path):
    other = training_in(tmp_path, text, seed=1, size=replace(FULL, steps=(2, 1, 1)))
    assert run(other, text)
    assert not torch.equal(weights(tmp_path)[0], weights(whole.out)[0])


def test_every_pass_deals_out_each_window_once():
    ids = torch.arange(1001)
    passes = [torch.cat([batch_at(ids, step, 3, 10, 0)[0][:, 0] for step in range(first, first + 33)])
              for first in (0, 33)]
    for starts in passes:
        assert len(set(starts.tolist())) == 99 and len(set((starts % 10).tolist())) == 1
    assert not torch.equal(*passes)
    x, y = batch_at(ids, 5, 3, 10, 0)
    assert torch.equal(x + 1, y)
    assert torch.equal(x, batch_at(ids, 5, 3, 10, 0)[0])


def test_the_learning_rate_rises_stays_and_falls_to_almost_nothing():
    rates = [learning_rate(step, 1000, 2.0) for step in range(1000)]
    assert rates[0] == 0.02 and rates[99] == rates[599] == 2.0 and 0 < rates[-1] < 0.01


def test_a_byte_of_text_has_eight_bits():
    """A model that knows nothing, one token a byte: ln 256 nats a token are 8 bits a byte, whatever the length."""
    held = HeldOut("bytes", torch.arange(100), 100)
    assert held.bits(math.log(256)) == pytest.approx(8)
    assert HeldOut("pairs", torch.arange(50), 100).bits(math.log(256 ** 2)) == pytest.approx(8)
    bytes_alone = Tokenizer({bytes([b]): b for b in range(256)})
    files = HeldOut.of("files", ["aé", "中"], bytes_alone, "cpu")                 # 3 and 3 bytes, and both have an end
    assert files.bytes == 6 and files.bits(1.5) == pytest.approx(1.5 * len(files.ids) / 6 / math.log(2))


def test_held_out_windows_follow_one_another():
    x, y = HeldOut("text", torch.arange(35), 35).windows(10)
    assert torch.equal(x.flatten(), torch.arange(30)) and torch.equal(y, x + 1)
    assert len(HeldOut("text", torch.arange(35), 35).windows(10, most=2)[0]) == 2
    assert len(HeldOut("text", torch.arange(31), 31).windows(10)[0]) == 3           # to the very last token
    with pytest.raises(TextError, match="30 tokens do not fill one window of 30"):
        HeldOut("text", torch.arange(30), 30).windows(30)


def test_the_targets_last_steps_see_the_last_text_alone(text, tmp_path, monkeypatch):
    """While its learning rate falls; the draft sees all of the text again. Every phase has an order of its own."""
    seen, deal = [], pair.batch_at
    monkeypatch.setattr(pair, "batch_at", lambda ids, *of: seen.append((len(ids), of[-1])) or deal(ids, *of))
    ids, small = text[0], text[0][:3000]
    training = Training(replace(DUST, steps=(5, 1, 1)), 7, ids, text[2], tmp_path, last=small)
    seen.clear()
    run(training, text)
    assert seen == [(len(ids), 7)] * 3 + [(len(small), 7)] * 2 + [(len(ids), 8), (len(ids), 9)]
    assert training.made_of["text"] != training_in(tmp_path, text).made_of["text"]


def test_sampled_texts_have_the_targets_distribution():
    """E[-log p(token)] is the entropy of p, if the token was drawn from p. The mean of their difference over 16,000
    tokens lies within 6 standard errors of 0 (false alarm: 2e-9; the seed is fixed). Drawn with a cache that is not
    moved on, at T = 0.9, or from the token before, it lies far outside.
    """
    torch.manual_seed(0)
    target = GPT(Config(64, 32, layers=2, channels=64, heads=2, kv_heads=1, hidden=64))
    with torch.no_grad():
        for weight in target.parameters():
            if weight.dim() == 2:
                weight.mul_(8)                              # sharp distributions that depend on all that came before
        ids = torch.randint(64, (1000,))
        texts = sample(target, ids, 1000, seed=0)
        drawn_in = torch.bfloat16 if bfloat16_is_faster("cpu") else torch.float32
        law = target.to(drawn_in)(texts)[:, 15:-1].float().log_softmax(-1)
    drawn = texts[:, 16:]
    surprise = -law.gather(-1, drawn[..., None])[..., 0]
    gap = (surprise + (law.exp() * law).sum(-1)).flatten()
    assert abs(gap.mean()) < 6 * gap.std() / len(gap) ** 0.5
    windows = {tuple(window) for window in ids.unfold(0, 16, 1).tolist()}
    assert {tuple(prompt) for prompt in texts[:, :16].tolist()} <= windows          # the prompts are real text
    assert torch.equal(texts[:9], sample(target, ids, 1000, seed=0)[:9])


def test_half_of_a_distillation_batch_is_sampled_text(text, tmp_path, monkeypatch):
    training = training_in(tmp_path, text)
    training.begin_phase(2)
    training.step, half = 1, FULL.batch // 2
    monkeypatch.setattr("training.batches.sample", lambda target, ids, rows, seed, between:
                        torch.arange(rows)[:, None].expand(rows, 64))
    seen = []
    monkeypatch.setattr(pair, "loss_of", lambda phase, model, target, x, y, loss="":
                        seen.append(x) or model(x).mean())
    train_tiny.train_step(training)
    assert len(seen[0]) == FULL.batch and seen[0][half:, -1].tolist() == list(range(half, 2 * half))
    assert torch.equal(seen[0][:half], batch_at(text[0], 1, FULL.batch, 64, seed=2)[0][half:])


def test_the_targets_own_texts_are_dealt_out_in_turn_and_kept_for_this_target_and_seed_alone(tmp_path, monkeypatch):
    drawn = []

    def sample(target, ids, rows, seed, between):
        drawn.append((rows, seed))
        return torch.arange(rows)[:, None] + 100 * len(drawn)

    monkeypatch.setattr("training.batches.AT_ONCE", 4)
    monkeypatch.setattr("training.batches.sample", sample)
    one, other = (GPT(DUST.draft) for _ in range(2))
    for _ in range(2):                                              # the second reads the file
        texts = Sampled(one, torch.zeros(9), 6, 3, tmp_path / "sampled.pt").texts(2, 6)
        assert texts[:, 0].tolist() == [102, 103, 200, 201, 100, 101]
        assert drawn == [(4, 3 * 1_000_003), (2, 3 * 1_000_003 + 1)]
    for target, rows, seed in (one, 6, 4), (one, 7, 3), (other, 6, 3):
        drawn.clear()
        Sampled(target, torch.zeros(9), rows, seed, tmp_path / "sampled.pt").texts(0, 1)
        assert drawn == [(4, seed * 1_000_003)]


def test_the_draft_is_distilled_by_the_loss_that_was_asked_for(text, tmp_path, monkeypatch):
    """And looked at by forward KL, so that losses can be compared."""
    training = Training(DUST, 0, text[0], text[2], tmp_path, loss="total-variation")
    training.begin_phase(2)
    x, y = batch_at(text[0], 0, 2, 64, 0)
    models = training.models["draft"], training.models["target"]
    p_target, q_draft = (model(x).softmax(-1) for model in reversed(models))
    found = pair.loss_of("distil", *models, x, y, "total-variation")
    assert found.item() == pytest.approx(1 - acceptance(p_target, q_draft).mean().item(), abs=2e-3)     # bfloat16
    for weight in models[0].parameters():
        weight.data *= 6                                            # so that no two windows are alike
    q_draft = models[0](x).softmax(-1)
    kl = (p_target * (p_target / q_draft).log()).sum(-1).mean().item()
    assert pair.loss_of("distil", *models, x, y).item() == pytest.approx(kl, rel=0.02)                      # bfloat16
    assert pair.loss_of("distil", *models, x, y, "reverse-kl").item() != pytest.approx(kl, rel=0.1)
    every = [pair.loss_of("distil", *models, *(part[None] for part in window)).item()
             for window in zip(*text[1].windows(64, 3))]
    in_parts = held_out_loss("distil", *models, text[1], batch=2, most=3)      # the last part is a short one
    of_parts = sum(every[:2]) / 2, every[2]
    assert in_parts == pytest.approx(sum(every) / 3, rel=1e-5) != pytest.approx(sum(of_parts) / 2, rel=1e-4)
    asked = []
    monkeypatch.setattr(pair, "loss_of", lambda *of: asked.append(of[5:]) or found)
    held_out_loss("distil", *models, text[1], 2, 2)
    train_tiny.train_step(training)
    assert asked == [("forward-kl",), ("total-variation",)]


# --- files: killed, full, resumed

class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", range(4))
def test_killed_while_it_saves_nothing_is_lost(text, tmp_path, monkeypatch, moment):
    """Killed before the file number `moment` is in place: in the first save, and in one over a good pair."""
    replaced = []

    def until_killed(source, to, move=os.replace):
        replaced.append(to)
        if len(replaced) > moment:
            raise Killed
        move(source, to)

    training = training_in(tmp_path, text)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", until_killed)
        with pytest.raises(Killed):
            training.save()
    assert [path.name for path in sorted(map(Path, replaced[:moment]))] == sorted(FILES[:moment])

    training.save()
    with torch.no_grad():
        training.models["target"].embedding.weight.zero_()
    with monkeypatch.context() as patched:
        replaced[:] = ["ranks"]                             # these are in place already, and are left alone
        patched.setattr(os, "replace", until_killed)
        if moment:
            with pytest.raises(Killed):
                training.save()
    assert load_pair(tmp_path).tokenizer.vocab_size == 320
    training_in(tmp_path, text).load()


def test_a_full_disk_stops_no_training_and_the_end_says_so(tmp_path, text, monkeypatch):
    """Saves fail while it trains: it goes on. The last one fails too: an error, and the old files are whole."""
    monkeypatch.setattr("training.watch.SAVE_EVERY", 0)
    training = training_in(tmp_path, text, size=replace(FULL, steps=(2, 1, 1)))
    training.save()
    before = contents(tmp_path)

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(pair, "save_model", full)
    console = Console(record=True, file=StringIO(), width=200)
    with pytest.raises(OSError, match="no space left"):
        run(training, text, console=console)
    assert "no space left; training goes on" in console.export_text()
    (tmp_path / "sampled.pt").unlink()                      # drawn for the last phase, and kept
    assert training.phase == 2 and contents(tmp_path) == before


def test_another_text_seed_size_or_loss_cannot_be_resumed(whole, text):
    for changed, word in ((training_in(whole.out, (text[0] + 1, *text[1:])), "text"),
                          (training_in(whole.out, text, seed=3), "seed"),
                          (training_in(whole.out, text, size=replace(FULL, steps=(1, 2, 3))), "size"),
                          (Training(FULL, 0, text[0], text[2], whole.out, loss="reverse-kl"), "loss")):
        with pytest.raises(TextError, match=word):
            changed.load()


def cut(saved, *keys):
    for key in keys[:-1]:
        saved = saved[key]
    del saved[keys[-1]]


@pytest.mark.parametrize("damage", [
    *(lambda saved, key=key: cut(saved, key)
      for key in ("target", "draft", "phase", "step", "history", "optimizer", "made_of")),
    lambda saved: cut(saved, "made_of", "text"), lambda saved: cut(saved, "made_of", "loss"),
    lambda saved: cut(saved, "target", "embedding.weight"),
    lambda saved: cut(saved, "optimizer", "state"),
    lambda saved: cut(saved, "optimizer", "param_groups", 1), lambda saved: saved.update(phase=3),
    lambda saved: saved.update(step=-1), lambda saved: saved.update(step="7"), lambda saved: saved.update(history=[1]),
    lambda saved: saved.update(optimizer=None), lambda saved: saved.clear()])
def test_a_training_that_lacks_something_is_refused(whole, text, tmp_path, damage):
    saved = torch.load(whole.out / "training.pt", weights_only=True)
    damage(saved)
    torch.save(saved, tmp_path / "training.pt")
    with pytest.raises(PairError, match="training.pt is not a training that can be resumed"):
        training_in(tmp_path, text).load()


@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.99])
def test_a_training_cut_short_is_refused(whole, text, tmp_path, part):
    data = (whole.out / "training.pt").read_bytes()
    (tmp_path / "training.pt").write_bytes(data[:int(len(data) * part)])
    with pytest.raises(PairError, match="training.pt is cut short"):
        training_in(tmp_path, text).load()


# --- the command

def command(*options):
    return train_tiny.main(["--size", "dust", "--text", str(TEXT), *map(str, options)])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a pair that the command has made, over what a killed run has left there."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("finished")
    (out / "target.partial").write_bytes(b"PK")
    (out / "ranks.partial").write_bytes(b"aa")
    assert command("--out", out, "--steps", 12, 4, 4) == 0
    return out


def test_the_whole_command(finished):
    assert {path.name for path in finished.iterdir()} == {*FILES, "loss.png"}         # no .partial is left
    assert load_pair(finished).tokenizer.vocab_size == 320


def test_what_the_beginning_reports(finished, tmp_path, capsys):
    """Files, tokens and parameters, counted here from the text and from what was written."""
    capsys.readouterr()
    assert command("--out", tmp_path, "--tokenizer", finished / "ranks.tiktoken", "--minutes", 0) == 0
    target, draft, tokenizer = load_pair(tmp_path)
    read, held = read_texts(TEXT)
    # A text begins with end of text, and so does each after it.
    counts = [len(texts) + 1 + sum(len(tokenizer.encode(text)) for text in texts) for texts in (read, held)]
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith(f"{len(read)} files, {counts[0]:,} tokens to train on {len(held)} files, {counts[1]:,} "
                           f"tokens of {TEXT} held out") and counts[0] != counts[1]
    for name, model in ("target", target), ("draft", draft):
        assert f"{name}: {sum(weight.numel() for weight in model.parameters()):,} parameters" in told


def test_a_deep_target_grows_from_a_trained_one_and_a_resumed_run_does_not_grow_again(finished, tmp_path, monkeypatch):
    """Its loss after one step is near the shallow one's; and stopped before the second and resumed, it is the same."""
    shallow = load_pair(finished).target
    monkeypatch.setitem(train_tiny.SIZES, "dust", replace(DUST, target=replace(DUST.target, layers=4)))
    monkeypatch.setattr(pair, "fit_first", partial(pair.fit_first, steps=20))
    grow, reads, load_model = ["--from", finished / "target.pt", "--steps", 2, 1, 1], [], jobs.load_model
    monkeypatch.setattr(jobs, "load_model", lambda path, *of, **more: (
        reads.append(path), load_model(path, *of, **more))[1])
    assert command("--out", tmp_path / "whole", *grow) == 0
    assert command("--out", tmp_path / "cut", *grow, "--minutes", 0) == 0
    grown = [load_pair(tmp_path / name).target for name in ("whole", "cut")]
    assert [model.config.layers for model in grown] == [4, 4]
    assert reads == [finished / "target.pt"] * 2                # once a run
    x = load_pair(finished).tokenizer.encode(TEXT.read_text()[:400])
    told = [F.cross_entropy(model(torch.tensor([x[:-1]]))[0], torch.tensor(x[1:])) for model in (shallow, *grown)]
    assert abs(told[2] - told[0]) < 0.05 < math.log(320) - told[0] - 0.1, told         # random weights: log(320)
    monkeypatch.setattr(Training, "grow", lambda *_: pytest.fail("it grew again"))
    assert command("--out", tmp_path / "cut", "--resume", "--steps", 2, 1, 1) == 0
    assert weights_of(tmp_path / "cut") == weights_of(tmp_path / "whole")


def weights_of(folder):
    return {name: weight.tolist() for name, weight in load_pair(folder).target.named_parameters()}


def test_a_draft_distilled_once_more_is_accepted_more_often(finished, tmp_path, text):
    out = Path(shutil.copytree(finished, tmp_path / "pair"))
    before, options = load_pair(out), ("--what", "distil", "--loss", "total-variation", "--steps", 40, "--out", out)
    assert command(*options, "--minutes", 0) == 0 and command(*options) == 2            # its state is there by now
    assert command(*options, "--resume") == 0
    after, held = load_pair(out), text[1]
    assert (out / "target.pt").read_bytes() == (finished / "target.pt").read_bytes()
    old, new = (held_out_loss("distil", pair.draft, before.target, held, 8, 8, "total-variation")
                for pair in (before, after))
    assert new < old - 0.003, (old, new)
    assert command("--what", "distil", "medusa", "--out", tmp_path / "another") == 2


def test_without_a_compiler_it_trains_all_the_same(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("nanospec.fast.compiled.why_not", lambda device: "no g++")
    assert command("--compile", "--steps", 1, 1, 1, "--minutes", 0, "--out", tmp_path / "pair") == 0
    assert "no g++" in capsys.readouterr().err


def test_what_the_end_reports(finished, capsys):
    assert command("--out", finished, "--steps", 12, 4, 4, "--resume") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "nats a token" in said and "bits a byte" in said
    for temperature in ("1.0", "0.8", "0.0"):
        assert f"alpha of pair at T = {temperature}: " in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_usable_pair_and_a_run_that_goes_on(finished, tmp_path, monkeypatch, number):
    step = train_tiny.train_step

    def interrupted(training):
        if training.step == 3:
            signal.raise_signal(number)
        return step(training)

    handler = signal.getsignal(number)
    with monkeypatch.context() as patched:
        patched.setattr(train_tiny, "train_step", interrupted)
        assert command("--out", tmp_path, "--steps", 12, 4, 4) == 128 + number
    assert signal.getsignal(number) is handler
    assert load_pair(tmp_path).target.config == DUST.target
    assert torch.load(tmp_path / "training.pt", weights_only=True)["step"] == 4
    monkeypatch.setattr(train_tiny, "report", lambda *_: None)
    assert command("--out", tmp_path, "--steps", 12, 4, 4, "--resume") == 0
    assert all(torch.equal(a, b) for a, b in zip(weights(tmp_path), weights(finished), strict=True))


def test_a_tokenizer_can_be_kept(finished, tmp_path, monkeypatch):
    other = ROOT / "train_tiny.py"
    options = ("--text", other, "--out", tmp_path, "--steps", 1, 1, 1, "--minutes", 0)
    assert command(*options, "--tokenizer", finished / "ranks.tiktoken") == 0
    assert (tmp_path / "ranks.tiktoken").read_bytes() == (finished / "ranks.tiktoken").read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_a_new_run_touches_no_folder_that_holds_a_pair_or_a_part_of_one(finished, tmp_path, capsys, name):
    """Every file alone is reason enough, for all together are."""
    (tmp_path / name).write_bytes((finished / name).read_bytes())
    before = contents(tmp_path)
    assert command("--out", tmp_path, "--seed", 1) == 2
    said = capsys.readouterr().err
    assert f"already holds {name}" in said and ("--resume" in said) == (name == "training.pt")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("options, words", [
    (["--text", "none"], "missing"), (["--text", "binary"], "not UTF-8"), (["--text", "short"], "too little text"),
    (["--text", "empty"], "too few text files"), (["--text", TEXT, "none"], "missing"),
    (["--text", "no_window"], "too little text is held out"), (["--text", "no_batch"], "too little text"),
    (["--device", "cuda:99"], "cuda:99"), (["--device", "meta"], "meta"), (["--device", "nonsense"], "nonsense"),
    (["--device", ""], "device"),
    (["--seed", 2 ** 64], "--seed: must be a whole"), (["--seed", -1], "--seed"), (["--seed", 2 ** 32], "--seed"),
    (["--minutes", "nan"], "--minutes must be"), (["--minutes", -1], "--minutes"), (["--minutes=-inf"], "--minutes"),
    (["--steps", 1, 2], "--steps: wants 3 of them, got 2"),
    (["--what", "mlp", "--steps", 1, 2], "wants 1 of them"),
    (["--what", "pair", "mtp"], "unrecognized arguments: mtp"),
    (["--what", "mlp", "--tokenizer", TEXT], "the tokenizer of its pair"),
    (["--what", "mlp", "--from", "short"], "--from is for a pair, whose target grows"),
    (["--from", "none"], "'none'"), (["--from", "short"], "ranks.tiktoken"),
    (["--from", "short", "--tokenizer", ROOT / "nanospec" / "weights" / "ranks.tiktoken"], "short is cut short"),
    (["--resume", "--from", "short"], "has grown its target already"),
    (["--from", ROOT / "nanospec" / "weights" / "draft.pt"], "2 layers cannot grow from one of 1: other vocab_size"),
    (["--packages", "no-such-package"], "no-such-package is not installed"),
    (["--steps", 1, 0, 1], "--steps must be"), (["--steps", 1, 1, -5], "--steps must be"),
    (["--tokenizer", "none"], "none"), (["--tokenizer", "binary"], "no tokenizer's file"),
    (["--tokenizer", ROOT / "nanospec" / "weights" / "ranks.tiktoken"], "1024 tokens, these models 320"),
    (["--out", "short"], "--out"), (["--out", "short/below"], "--out"), (["--seed", "x"], "--seed"),
    (["--size", "vast"], "vast"), (["--steps", "few"], "few"), (["--what"], "--what"), (["--nonsense"], "--nonsense"),
    (["--resume"], "No such file"), (["--resume", "--out", "torn"], "training.pt is cut short"),
    (["--resume", "--out", "empty"], "No such file")])
def test_bad_input_is_one_clear_line_and_nothing_is_written(tmp_path, monkeypatch, capsys, options, words):
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "short").write_text("x = 1\n")
    (tmp_path / "no_window").write_bytes(TEXT.read_bytes()[:1900])
    (tmp_path / "no_batch").mkdir()
    for name in (f"{number}.txt" for number in range(60)):
        (tmp_path / "no_batch" / name).write_text(TEXT.read_text() if held_out(name) else "x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "training.pt").write_bytes(b"PK")
    Tokenizer({bytes([b]): b for b in range(256)}).save(tmp_path / "torn" / "ranks.tiktoken")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(train_tiny, "train_step", lambda training: pytest.fail("it began to train"))
    assert command(*options) == 2
    said = capsys.readouterr().err
    assert words in said and len(said.strip().splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("options", [["--out", "short"], ["--out", "short/below"], ["--tokenizer", "none"]])
def test_what_can_be_refused_is_refused_before_the_text_is_read(tmp_path, monkeypatch, capsys, options):
    (tmp_path / "short").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "read_texts", lambda *_: pytest.fail("it began to read"))
    assert command(*options) == 2 and capsys.readouterr().err.count("\n") == 1


def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch, capsys):
    """A superuser may write anywhere, so the system's answer is made up here."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(jobs, "read_texts", lambda *_: pytest.fail("it began to read"))
    assert command("--out", tmp_path / "it") == 2 and "--out" in capsys.readouterr().err


@pytest.mark.parametrize("where, when", [(jobs, "prepared"), (train_tiny, "report")])
def test_an_interrupt_before_or_after_the_training_is_no_traceback(tmp_path, monkeypatch, capsys, where, when):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(where, when, interrupted)
    assert command("--out", tmp_path / "it", "--steps", 1, 1, 1) == 130 and capsys.readouterr().err == ""
    assert (tmp_path / "it").exists() == (when == "report")


def test_the_script_as_a_user_runs_it(tmp_path):
    """SIGTERM while it trains: it says so, and the shell hears of it."""
    options = ["--size", "dust", "--steps", "100000", "1", "1", "--text", TEXT, "--out", tmp_path / "it"]
    with subprocess.Popen([sys.executable, "train_tiny.py", *options], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        while "target step" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
        process.terminate()
        said, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM and "--resume" in said
    assert not re.sub(r"^.* \.\.\. \d+ s\n", "", errors, flags=re.M)          # that something takes long here
    assert load_pair(tmp_path / "it").target.config == DUST.target
