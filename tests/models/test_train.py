"""train_tiny.py at its smallest: seeds, phases, resuming, stopping, files, what is refused.

All in this process; one test runs the script as a user would.
"""

import argparse
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

import train_tiny
from nanospec.errors import PairError, TextError
from nanospec.fast import mixed as mixing
from nanospec.fast.mixed import bfloat16_is_faster
from nanospec.files.checkpoint import load_pair
from nanospec.files import packages
from nanospec.files.corpus import HeldOut, held_out, read_texts, to_ids
from nanospec.files.tokenizer import Tokenizer, train
from nanospec.model import GPT, Config
from nanospec.proof.tables import small_gpt
from nanospec.theory import acceptance
from tests.device.pretend import NAME as PRETEND, plugged
from tests.invented import Clock
from train_tiny import FILES, SIZES, Stopped, Training, batch_at, grown, learning_rate, written_by

ROOT = Path(__file__).parents[2]
TEXT = Path(argparse.__file__)
DUST = replace(SIZES["dust"], steps=(6, 12, 8, 8))
QUIET = Console(file=StringIO())


@cache
def learned(text, vocab_size):
    return train(text, vocab_size)


@pytest.fixture(autouse=True)
def no_twice(monkeypatch):
    """Ranks are learned once for each text, and pictures are left as they were, or blank. The folders that tests share
    are made before, with all of it.
    """
    monkeypatch.setattr(train_tiny, "learn_ranks", lambda text, vocab_size, step: learned(text, vocab_size))
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, path, **_: Path(path).touch())


@pytest.fixture(scope="module")
def text():
    training, held = read_texts(TEXT)
    tokenizer = Tokenizer(train(training[0], 319))
    return to_ids(training, tokenizer).int(), HeldOut.of(held, tokenizer), tokenizer


def training_in(folder, text, seed=0, size=DUST):
    folder.mkdir(exist_ok=True)
    return Training(size, seed, text[0], text[2], folder)


def run(training, text, steps=math.inf, console=QUIET):
    """Until it has taken `steps` steps, or to its end."""
    taken, take_step = [], training.take_step

    def step():
        if len(taken) >= steps:
            raise Stopped
        taken.append(take_step())
        return taken[-1]

    training.take_step = step
    return train_tiny.run(training, text[1], console)


def weights(folder):
    return [weight for model in load_pair(folder)[:2] for weight in model.state_dict().values()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


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
    """Every phase; the target goes on from where the shallow one ended."""
    last = [[row[3] for row in whole.history if row[0] == phase][-1] for phase in range(4)]
    assert max(last[:3]) < math.log(320) and last[1] < last[0] - 0.1 and last[3] < 0.3
    assert (len(whole.models["target"].blocks), whole.target.config) == (2, DUST.target)


def test_twice_it_is_the_same_to_the_last_bit_and_another_seed_is_another_model(whole, text, tmp_path):
    size = replace(DUST, steps=(3, 2, 1, 1))
    for name, seed in ("a", 0), ("b", 0), ("c", 1):
        run(training_in(tmp_path / name, text, seed, size), text)
    assert (tmp_path / "a" / "target.pt").read_bytes() == (tmp_path / "b" / "target.pt").read_bytes()
    assert (tmp_path / "a" / "draft.pt").read_bytes() == (tmp_path / "b" / "draft.pt").read_bytes()
    assert not torch.equal(weights(tmp_path / "a")[0], weights(tmp_path / "c")[0])


def test_stopped_anywhere_and_resumed_it_is_the_same_model(whole, text, tmp_path):
    finished, stops = run(training_in(tmp_path, text), text, steps=0), 0
    while not finished:
        again = training_in(tmp_path, text)
        again.load()
        finished, stops = run(again, text, steps=9), stops + 1
    assert stops > 3 and same(tmp_path, whole.out) and again.history == whole.history


def test_stopped_while_its_target_writes_and_resumed_it_is_the_same_model(whole, text, tmp_path, monkeypatch):
    """It is asked before every step and before every token that is written before the last phase's first one."""
    training, asked = training_in(tmp_path, text), []
    steps = sum(DUST.steps[:3])

    class Clock:
        began = False

        def monotonic(self):
            now, self.began = 0.0 if not self.began else 59.0 if len(asked) < steps + 12 else 61.0, True
            return now

    def written(*of):
        *of, between = of
        return written_by(*of, lambda share: (asked.append("token"), between(share)))

    take_step = training.take_step
    monkeypatch.setattr(train_tiny, "time", Clock())
    monkeypatch.setattr(train_tiny, "written_by", written)
    training.take_step = lambda: (asked.append("step"), take_step())[1]
    assert not train_tiny.run(training, text[1], QUIET, minutes=1)
    assert asked[steps:] == ["step"] + ["token"] * 11 and len(training.written) == 0
    monkeypatch.undo()
    resumed = training_in(tmp_path, text)
    resumed.load()
    assert (resumed.phase, resumed.step) == (3, 0) and run(resumed, text)
    assert same(tmp_path, whole.out) and resumed.history == whole.history


def test_resumed_in_its_last_phase_the_target_writes_nothing_again(text, tmp_path, monkeypatch):
    training = training_in(tmp_path, text)
    run(training, text, steps=sum(DUST.steps[:3]) + 2)
    assert len(training.written)
    resumed = training_in(tmp_path, text)
    resumed.load()
    monkeypatch.delattr(train_tiny, "written_by")
    assert (resumed.phase, resumed.step) == (3, 2) and run(resumed, text)


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


def test_matrices_alone_decay():
    model = small_gpt(5, 1, 1).requires_grad_(True)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = train_tiny.new_optimizer(model)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name]) == (weight.dim() != 2), name


def test_the_learning_rate_rises_stays_and_falls_to_almost_nothing():
    rates = [learning_rate(step, 1000, 2.0) for step in range(1000)]
    assert rates[0] == 0.02 and rates[99] == rates[499] == 2.0 and 0 < rates[-1] < 0.01
    assert learning_rate(999, 1000, 2.0, falls=False) == 2.0            # the shallow target's: it is not the end


def test_every_phase_has_a_top_rate_of_its_own_and_falls_but_the_shallow_one(text, tmp_path, monkeypatch):
    """At the last of four steps half of it is left."""
    monkeypatch.setattr(train_tiny, "WARM_UP", 1)
    training, found = training_in(tmp_path, text, size=replace(DUST, steps=(4,) * 4, rate=(.005, .004, .003, .002))), []
    for phase in range(3):
        training.begin_phase(phase)
        training.step = 3
        training.take_step()
        found.append(training.optimizer.param_groups[1]["lr"])
    assert found == pytest.approx([.005, .002, .0015])


def test_a_text_that_is_odd_moves_a_model_no_further_than_others(text, tmp_path):
    """The gradients of all weights together have the length 1 at most."""
    training, lengths = training_in(tmp_path, text), []
    loss = training.loss
    for factor in 1e4, 1e-4:
        training.loss = lambda: factor * loss()
        training.take_step()
        lengths.append(sum(weight.grad.norm().item() ** 2 for weight in training.model.parameters()) ** .5)
    assert lengths[0] == pytest.approx(1, abs=1e-3) and 0 < lengths[1] < 0.01


def test_every_phase_reads_the_text_in_an_order_of_its_own(text, tmp_path, monkeypatch):
    """In windows half as long while the target is shallow, and for the first half of the deep one's steps."""
    seen = []
    monkeypatch.setattr(train_tiny, "batch_at", lambda ids, *of: seen.append(of) or batch_at(ids, *of))
    training = training_in(tmp_path, text, 7, replace(DUST, steps=(1, 2, 1, 1)))
    seen.clear()
    run(training, text)
    assert seen == [(0, 16, 32, 7), (0, 16, 32, 8), (1, 8, 64, 8), (0, 8, 64, 9), (0, 8, 64, 10)]


def test_a_deep_target_begins_as_the_shallow_one_again_and_again():
    torch.manual_seed(0)
    config = Config(31, 24, layers=2, channels=16, heads=4, kv_heads=2, hidden=21, tied=False)
    shallow = GPT(config)
    deep = grown(shallow, replace(config, layers=6))
    for name, weight in deep.state_dict().items():
        layer = re.match(r"blocks\.(\d)", name)
        its = name.replace(f"blocks.{layer[1]}", f"blocks.{int(layer[1]) % 2}") if layer else name
        assert torch.equal(weight, shallow.state_dict()[its]), name


@pytest.mark.parametrize("half, faster", [(3, True), (7, False)])
def test_the_type_that_takes_less_time_is_found_after_a_warm_up(half, faster, monkeypatch):
    """A product in float32 takes 5 seconds, and the first of either type a hundred more."""
    clock, seen = Clock(), []

    def product(x, weight):
        clock.wind((half if x.dtype == weight.dtype == torch.bfloat16 else 5) + 100 * (x.dtype not in seen))
        seen.append(x.dtype)

    monkeypatch.setattr(mixing, "linear", product)
    monkeypatch.setattr(mixing, "time", SimpleNamespace(perf_counter=clock))
    assert bfloat16_is_faster.__wrapped__("cpu") is faster and len(seen) == 12


def test_written_texts_have_the_targets_distribution():
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
        texts = written_by(target, ids, 1000, seed=0)
        drawn_in = torch.bfloat16 if bfloat16_is_faster("cpu") else torch.float32
        law = target.to(drawn_in)(texts)[:, 15:-1].float().log_softmax(-1)
    drawn = texts[:, 16:]
    surprise = -law.gather(-1, drawn[..., None])[..., 0]
    gap = (surprise + (law.exp() * law).sum(-1)).flatten()
    assert abs(gap.mean()) < 6 * gap.std() / len(gap) ** 0.5
    windows = {tuple(window) for window in ids.unfold(0, 16, 1).tolist()}
    assert {tuple(prompt) for prompt in texts[:, :16].tolist()} <= windows          # the prompts are real text
    assert torch.equal(texts[:9], written_by(target, ids, 1000, seed=0)[:9])


def test_of_a_long_context_64_tokens_are_a_prompt():
    target, told = small_gpt(11, 1, 1, context=140), []
    assert written_by(target, torch.arange(100) % 11, 2, 0, told.append).shape == (2, 140)
    assert told == [length / 140 for length in range(64, 140)]


def test_half_of_a_distillation_batch_is_written_by_the_target_when_it_is_needed(text, tmp_path, monkeypatch):
    """Dealt out in turn, part by part, each with a seed of its own; after the last text comes the first again."""
    drawn = []

    def written(target, ids, rows, seed, between):
        drawn.append((rows, seed))
        return torch.arange(rows)[:, None].expand(rows, 64) + 100 * len(drawn)

    monkeypatch.setattr(train_tiny, "AT_ONCE", {"cpu": 3, "cuda": 4})
    monkeypatch.setattr(train_tiny, "written_by", written)
    training = training_in(tmp_path, text, 3, replace(DUST, batch=4, written=5))
    training.begin_phase(3)
    x, firsts = torch.arange(4)[:, None].expand(4, 64), []
    for training.step in range(4):
        mixed = training.half_written(x)
        firsts += mixed[2:, 0].tolist()
        assert mixed[:2, 0].tolist() == [2, 3] and len(drawn) == min(2, 1 + (training.step > 0))
    assert firsts == [100, 101, 102, 200, 201, 100, 101, 102]
    assert drawn == [(3, 3 * 1_000_003), (2, 3 * 1_000_003 + 3)]
    short = training_in(tmp_path, text, 3, replace(DUST, batch=4, written=5, steps=(1, 1, 1, 1)))
    short.begin_phase(3)
    assert short.half_written(x)[2:, 0].tolist() == [300, 301] and drawn[2:] == [(2, 3 * 1_000_003)]    # all it needs


def test_while_its_target_writes_one_sees_how_far_it_is(text, tmp_path, monkeypatch):
    """Half of the context is a prompt, and every token more is told."""
    training, told = training_in(tmp_path, text, size=replace(DUST, steps=(1, 1, 1, 2))), []
    update = train_tiny.Progress.update
    monkeypatch.setattr(train_tiny.Progress, "update", lambda self, bar, **its: told.append(its["loss"]) or
                        update(self, bar, **its))
    assert train_tiny.run(training, text[1], QUIET)
    writes = [line for line in told if "writes" in line]
    assert writes == [f"to come, the target writes texts: {token / 64:.0%}" for token in range(32, 64)]


def test_the_last_loss_is_how_often_a_draft_token_is_rejected(text, tmp_path):
    """And a mean over windows, whose last batch is a short one."""
    training = training_in(tmp_path, text, size=replace(DUST, batch=2))
    training.begin_phase(3)
    for weight in training.models["draft"].parameters():
        weight.data *= 6                                            # so that no two windows are alike
    windows = text[1].windows(64, 3)
    every = [1 - acceptance(training.target(x[None]).softmax(-1), training.models["draft"](x[None]).softmax(-1)).mean()
             for x in windows[0]]
    assert training.held_out_loss("distil", text[1], 3) == pytest.approx(sum(every).item() / 3, abs=1e-3)     # bfloat16
    (rejected,), words = training.look(text[1], 3)
    assert rejected == training.held_out_loss("distil", text[1], 3) and words == f"accepted {1 - rejected:.3f}"
    training.begin_phase(2)
    (loss,), words = training.look(text[1], 3)
    assert loss == training.held_out_loss("draft", text[1], 3) != training.held_out_loss("target", text[1], 3)
    assert words == f"held out {loss:.3f}, {text[1].bits(loss):.3f} bits a byte"
    of_parts = sum(every[:2]) / 2, every[2]
    assert abs(sum(of_parts) / 2 - sum(every) / 3) > 2e-3


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
    assert [path.name for path in map(Path, replaced[:moment])] == list(FILES[:moment])

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
    monkeypatch.setattr(train_tiny, "SAVE_EVERY", 0)
    training = training_in(tmp_path, text, size=replace(DUST, steps=(2, 1, 1, 1)))
    training.save()
    before = contents(tmp_path)

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(train_tiny, "save_model", full)
    console = Console(record=True, file=StringIO(), width=200)
    with pytest.raises(OSError, match="no space left"):
        run(training, text, console=console)
    assert "no space left; training goes on" in console.export_text()
    assert training.phase == 3 and contents(tmp_path) == before


def test_a_training_whose_words_nobody_reads_any_longer_is_saved(text, tmp_path):
    def gone(*_):
        raise SystemExit(141)

    training = training_in(tmp_path, text)
    training.look = gone
    with pytest.raises(SystemExit):
        run(training, text)
    resumed = training_in(tmp_path, text)
    resumed.load()
    assert (resumed.phase, resumed.step) == (0, 6)


def test_another_text_seed_or_size_cannot_be_resumed(whole, text):
    for changed, word in ((training_in(whole.out, (text[0] + 1, *text[1:])), "text"),
                          (training_in(whole.out, text, seed=3), "seed"),
                          (training_in(whole.out, text, size=replace(DUST, batch=7)), "size")):
        with pytest.raises(TextError, match=word):
            changed.load()


def test_a_training_that_has_ended_goes_on_with_more_steps(text, tmp_path):
    """One that has not ended keeps its number of steps."""
    few, more = replace(DUST, steps=(2, 2, 2, 3)), replace(DUST, steps=(2, 2, 2, 8))
    training = training_in(tmp_path, text, size=few)
    assert not run(training, text, steps=4)
    with pytest.raises(TextError, match="begun with another number of steps"):
        training_in(tmp_path, text, size=more).load()
    again = training_in(tmp_path, text, size=few)
    again.load()
    assert run(again, text)
    with pytest.raises(TextError, match="begun with another number of steps"):
        training_in(tmp_path, text, size=replace(DUST, steps=(2, 2, 3, 8))).load()
    longer = training_in(tmp_path, text, size=more)
    longer.load()
    assert (longer.phase, longer.step, longer.steps) == (3, 3, 8)
    longer.take_step()
    assert longer.optimizer.param_groups[0]["lr"] == learning_rate(3, 8, DUST.rate[3])
    assert run(longer, text) and longer.step == 8
    with pytest.raises(TextError, match="--steps: 8 of distil are done"):
        training_in(tmp_path, text, size=few).load()


def cut(saved, *keys):
    for key in keys[:-1]:
        saved = saved[key]
    del saved[keys[-1]]


def test_what_is_read_is_the_same_for_any_number_of_steps(tmp_path, monkeypatch):
    """By default a size reads as much as it was made for. So a run that goes on with more steps reads the same."""
    asked = []
    monkeypatch.setattr(train_tiny, "read_texts", lambda path: (["x = 1\n" * 20_000], ["y = 2\n" * 1_000]))
    monkeypatch.setattr(train_tiny, "read_packages", lambda *_: asked.append("packages") or [])
    monkeypatch.setattr(train_tiny, "Training", lambda size, *_: asked.append(size.steps) or pytest.exit)
    for size, steps in ("dust", []), ("dust", ["10", "20", "20", "9999"]), ("nano", []), ("nano", ["1", "1", "1", "1"]):
        with pytest.raises(AttributeError):                     # there is no training
            train_tiny.main(["--size", size, "--out", str(tmp_path), *["--steps"] * bool(steps), *steps])
    assert asked == [(10, 20, 20, 10), (10, 20, 20, 9999), "packages", (300, 300, 300, 200), "packages", (1, 1, 1, 1)]


@pytest.mark.parametrize("damage", [
    *(lambda saved, key=key: cut(saved, key)
      for key in ("target", "draft", "phase", "step", "history", "optimizer", "made_of", "written")),
    lambda saved: cut(saved, "made_of", "text"), lambda saved: cut(saved, "target", "embedding.weight"),
    lambda saved: cut(saved, "optimizer", "state"),
    lambda saved: cut(saved, "optimizer", "param_groups", 1), lambda saved: saved.update(phase=4),
    lambda saved: saved.update(step=-1), lambda saved: saved.update(step="7"), lambda saved: saved.update(history=[1]),
    lambda saved: saved.update(optimizer=None), lambda saved: saved.update(written=[5]), lambda saved: saved.clear(),
    lambda saved: saved.update(history=[row[:3] for row in saved["history"]]),
    lambda saved: saved.update(written=saved["written"][:, 1:]),
    lambda saved: saved.update(written=saved["written"] + .5),
    lambda saved: saved["written"].fill_(DUST.target.vocab_size), lambda saved: saved["written"].fill_(-1),
    lambda saved: saved["optimizer"]["state"][0].update(exp_avg=torch.zeros(1)),
    lambda saved: saved["optimizer"]["state"][3].update(exp_avg_sq=torch.zeros(2))])
def test_a_training_that_lacks_something_is_refused(whole, text, tmp_path, damage):
    saved = torch.load(whole.out / "training.pt", weights_only=True)
    damage(saved)
    torch.save(saved, tmp_path / "training.pt")
    with pytest.raises(PairError, match="training.pt is not a training that can be resumed"):
        training_in(tmp_path, text).load()


@pytest.mark.parametrize("token", [0, DUST.target.vocab_size - 1])
def test_texts_of_one_token_are_the_targets_too(whole, text, tmp_path, token):
    saved = torch.load(whole.out / "training.pt", weights_only=True)
    saved["written"].fill_(token)
    torch.save(saved, tmp_path / "training.pt")
    training = training_in(tmp_path, text)
    training.load()
    assert training.written.unique().tolist() == [token]


@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.99])
def test_a_training_cut_short_is_refused(whole, text, tmp_path, part):
    data = (whole.out / "training.pt").read_bytes()
    (tmp_path / "training.pt").write_bytes(data[:int(len(data) * part)])
    with pytest.raises(PairError, match="training.pt is cut short"):
        training_in(tmp_path, text).load()


def test_what_is_seen_of_a_training(monkeypatch):
    """Of 2 rows of 128 tokens, 30 s a step. Held-out text is looked at in every fifth step and the last."""
    now = [0.0]
    monkeypatch.setattr(train_tiny, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def step():
        training.step += 1
        now[0] += 30
        return SimpleNamespace(item=lambda: 5 - training.step / 8)

    training = SimpleNamespace(size=SimpleNamespace(look=5, batch=2, target=SimpleNamespace(context=128)), name="draft",
                               phases=["draft"], steps=6, step=0, phase=0, history=[], take_step=step, out="out",
                               look=lambda held, windows: ([2.75], f"{held} {windows}"), save=lambda: None,
                               draw=lambda: None)
    console = Console(file=StringIO(), width=200)
    assert train_tiny.run(training, "held out", console)
    lines = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]
    assert lines[:2] == ["draft step 5/6 loss 4.375 held out 24 2.5 min",
                         "draft step 6/6 loss 4.250 held out 24 3.0 min"]
    assert lines[-1].endswith("6/6 loss 4.250 9 tokens/s 0:00:00")          # 256 in the last 30 seconds
    assert training.history == [(0, 5, 4.375, 2.75), (0, 6, 4.25, 2.75)]


def test_it_is_saved_every_few_minutes_and_at_its_end(monkeypatch):
    """Steps of 100 s: after the first one that ends more than 180 s after it was saved last."""
    now, saved = [0.0], []
    monkeypatch.setattr(train_tiny, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def step():
        training.step += 1
        now[0] += 100
        return SimpleNamespace(item=lambda: 1.0)

    size = SimpleNamespace(look=50, batch=2, target=SimpleNamespace(context=128))
    training = SimpleNamespace(size=size, name="draft", phases=["draft"], steps=7, step=0, phase=0, history=[],
                               out="out", take_step=step, look=lambda held, windows: ([2.75], ""), draw=lambda: None,
                               save=lambda: saved.append(training.step))
    assert train_tiny.run(training, "held out", QUIET) and saved == [2, 4, 6, 7]


# --- the command

def command(*options):
    text = [] if "--texts" in options else ["--text", str(TEXT)]
    return train_tiny.main(["--size", "dust", *text, *map(str, options)])


STEPS = ("--steps", 5, 8, 4, 4)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a pair that the command has made, over what a killed run has left there."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("finished")
    (out / "target.pt.partial").write_bytes(b"PK")
    (out / "ranks.tiktoken.partial").write_bytes(b"aa")
    assert command("--out", out, *STEPS) == 0
    return out


def test_the_whole_command(finished):
    assert {path.name for path in finished.iterdir()} == {*FILES, "loss.png"}         # no .partial is left
    assert (finished / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert load_pair(finished).tokenizer.vocab_size == 320


def test_what_the_beginning_reports(tmp_path, capsys):
    """Files and tokens, counted here from the text and from what was written."""
    capsys.readouterr()
    assert command("--out", tmp_path, "--minutes", 0) == 0
    read, held = read_texts(TEXT)
    counts = [len(to_ids(texts, load_pair(tmp_path).tokenizer)) for texts in (read, held)]
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith(f"{len(read)} files, {counts[0] + 1:,} tokens to train on; {len(held)} files, "
                           f"{counts[1]:,} tokens held out") and counts[0] != counts[1]


def test_the_default_text_is_the_library_and_what_nanospec_needs(tmp_path, monkeypatch, capsys):
    """The library several times, the packages once, in tokens that were learned from the library."""
    read, held = read_texts(TEXT)
    monkeypatch.setattr(train_tiny, "read_texts", lambda path: (read, held))
    monkeypatch.setattr(train_tiny, "read_packages", lambda names, judged, _: [f"# {len(names)}", f"# {len(judged)}"])
    assert train_tiny.main(["--size", "nano", "--out", str(tmp_path / "it"), "--minutes", "0"]) == 0
    tokenizer = load_pair(tmp_path / "it").tokenizer
    assert tokenizer.ranks == train(read[0], 1023)
    tokens = packages.AGAIN * len(to_ids(read, tokenizer)) + len(
        to_ids([f"# {len(train_tiny.DEPENDENCIES)}", f"# {len(held)}"], tokenizer))
    assert f"3 files, {tokens:,} tokens to train on; 1 files" in " ".join(capsys.readouterr().out.split())
    assert train_tiny.main(["--size", "dust", "--out", str(tmp_path / "few"), "--minutes", "0"]) == 0
    tokenizer = load_pair(tmp_path / "few").tokenizer
    assert f" 1 files, {len(to_ids(read, tokenizer)) + 1:,} tokens to train on" in " ".join(
        ["", *capsys.readouterr().out.split()])         # a training that sees less than the library reads no more
    (tmp_path / "list").write_text("rich==0.0.1\n# tokens 5 abc\n")
    assert train_tiny.main(["--size", "dust", "--out", str(tmp_path / "other"), "--minutes", "0", "--texts",
                            str(tmp_path / "list")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "and 0.0.1 in" in told and "is not what" in told and told.count("the weights will be others") == 2


def test_without_a_compiler_it_trains_all_the_same(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("nanospec.fast.compiled.why_not", lambda device: "no g++")
    assert command("--compile", "--steps", 1, 1, 1, 1, "--minutes", 0, "--out", tmp_path / "pair") == 0
    assert "no g++" in capsys.readouterr().err


def test_it_is_trained_as_told(text, tmp_path, monkeypatch):
    """Each option unlike its default and all others."""
    heard = []
    monkeypatch.setattr(train_tiny, "learn_ranks", lambda *_: text[2].ranks)        # a second time
    monkeypatch.setattr(train_tiny, "compiler_for", lambda device: device)
    monkeypatch.setattr(Training, "compile", lambda training: None)
    monkeypatch.setattr(train_tiny, "run", lambda *its: heard.append(its))
    with plugged():
        assert command("--out", tmp_path / "it", "--steps", 5, 6, 7, 8, "--seed", 3, "--minutes", 2.5, "--device",
                       PRETEND, "--compile") == 0
    (training, held, _, minutes), = heard
    assert training.size == replace(SIZES["dust"], steps=(5, 6, 7, 8)) and training.out == tmp_path / "it"
    assert (training.seed, training.compiled, minutes) == (3, True, 2.5)
    assert (tmp_path / "it" / "training.pt").exists()           # if it could not be written, that showed before
    assert {it.device.type for it in (training.ids, held.ids, training.model)} == {PRETEND}


@pytest.mark.parametrize("device, options, name", [("cpu", [], "nano"), ("cuda", [], "tiny"),
                                                   ("cuda", ["--size", "dust"], "dust")])
def test_a_size_that_fits_the_device_and_its_folder(device, options, name, monkeypatch):
    asked = []
    monkeypatch.setattr(train_tiny, "available", lambda device: torch.device(device))
    monkeypatch.setattr(train_tiny, "check", lambda args, phases, out, files: asked.append(out) or sys.exit(3))
    with pytest.raises(SystemExit):
        train_tiny.main(["--device", device, *options])
    assert asked == [Path("out", name)]


def test_what_the_end_reports_of_what_is_held_out(finished, capsys, monkeypatch):
    """Of as many windows as it was trained on: 21 steps of 8."""
    asked, losses = [], {"target": 2.5, "distil": .375}
    monkeypatch.setattr(Training, "held_out_loss",
                        lambda its, name, held, most: asked.append((name, most)) or losses[name])
    assert command("--out", finished, *STEPS, "--resume") == 0
    said = " ".join(capsys.readouterr().out.split())
    bits = HeldOut.of(read_texts(TEXT)[1], load_pair(finished).tokenizer).bits(2.5)
    assert f"held out: 2.5000 nats a token, {bits:.4f} bits a byte; 0.625 of the draft tokens accepted" in said
    assert asked == [("target", 168), ("distil", 168)]


def test_what_the_end_reports_and_what_is_next(finished, capsys):
    """The losses of the file's own models, and a command that works."""
    from nanospec.cli import __main__ as commands
    capsys.readouterr()
    assert command("--out", finished, *STEPS, "--resume") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"held out: [\d.]+ nats a token, [\d.]+ bits a byte; 0\.\d+ of the draft tokens accepted", said)
    name, *rest = said.split("Next: nanospec ")[1].split()
    assert rest == ["--weights", str(finished)]
    assert commands.main([name, *rest, "--prompt", "def", "--max-new-tokens", "8", "--dtype", "float32", "--threads",
                          "1"]) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_usable_pair_and_a_run_that_goes_on(finished, tmp_path, monkeypatch, number):
    step = Training.take_step

    def interrupted(training):
        if training.step == 3:
            signal.raise_signal(number)
        return step(training)

    handler = signal.getsignal(number)
    with monkeypatch.context() as patched:
        patched.setattr(Training, "take_step", interrupted)
        with pytest.raises(SystemExit) as left:
            command("--out", tmp_path, *STEPS)
    assert left.value.code == 128 + number and signal.getsignal(number) is handler
    assert load_pair(tmp_path).target.config == replace(DUST.target, layers=1)          # still shallow
    assert torch.load(tmp_path / "training.pt", weights_only=True)["step"] == 4
    monkeypatch.setattr(train_tiny, "report", lambda *_: None)
    assert command("--out", tmp_path, *STEPS, "--resume") == 0
    assert same(tmp_path, finished)


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
    (["--text", "empty"], "no text file"), (["--text", TEXT, "none"], "missing"),
    (["--text", "no_window"], "too little text is held out"), (["--text", "no_batch"], "too little text"),
    (["--text", "a", "--texts", "b"], "not allowed with"),
    (["--texts", "none"], "none"), (["--texts", "short"], "lists no package"), (["--texts", "list"], "not installed"),
    (["--device", "cuda:99"], "cuda:99"), (["--device", "meta"], "meta"), (["--device", "nonsense"], "nonsense"),
    (["--device", ""], "device"), (["--seed", 2 ** 64], "--seed: must be a whole"), (["--seed", -1], "--seed"),
    (["--minutes", "nan"], "--minutes must be"), (["--minutes", -1], "--minutes"), (["--minutes=-inf"], "--minutes"),
    (["--steps", 1, 2], "--steps: wants 4 of them, each 1 or more, got 1 2"),
    (["--steps", 1, 0, 1, 1], "got 1 0 1 1"), (["--steps", 1, 1, 1, -5], "--steps"),
    (["--out", "short"], "--out"), (["--out", "short/below"], "--out"), (["--seed", "x"], "--seed"),
    (["--size", "vast"], "vast"), (["--steps", "few"], "few"), (["--nonsense"], "--nonsense"),
    (["--resume"], "No such file"), (["--resume", "--out", "torn"], "training.pt is cut short"),
    (["--resume", "--out", "empty"], "No such file")])
def test_bad_input_is_one_clear_line_and_nothing_is_written(tmp_path, monkeypatch, capsys, options, words):
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "short").write_text("x = 1\n")
    (tmp_path / "list").write_text("rich==1\nno-such-package==1\n")
    (tmp_path / "no_window").write_bytes(TEXT.read_bytes()[:1900])
    (tmp_path / "no_batch").mkdir()
    for name in (f"{number}.txt" for number in range(60)):
        (tmp_path / "no_batch" / name).write_text(TEXT.read_text() if held_out(name) else "x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "training.pt").write_bytes(b"PK")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(Training, "take_step", lambda training: pytest.fail("it began to train"))
    assert command(*options) == 2
    said = capsys.readouterr().err
    assert words in said and len(said.strip().splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_what_can_be_refused_is_refused_before_the_text_is_read(tmp_path, monkeypatch, capsys):
    """A superuser may write anywhere, so what the system says of the last folder is made up here."""
    (tmp_path / "short").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train_tiny, "read_texts", lambda *_: pytest.fail("it began to read"))
    for out in "short", "short/below", "it":
        if out == "it":
            monkeypatch.setattr(os, "access", lambda path, mode: False)
        assert command("--out", out) == 2 and capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("when", ["read_texts", "report"])
def test_an_interrupt_before_or_after_the_training_is_no_traceback(tmp_path, monkeypatch, capsys, when):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(train_tiny, when, interrupted)
    assert command("--out", tmp_path / "it", "--steps", 1, 1, 1, 1) == 130 and capsys.readouterr().err == ""
    assert (tmp_path / "it").exists() == (when == "report")


def test_the_script_as_a_user_runs_it(tmp_path):
    """SIGTERM while it trains: it says so, and the shell hears of it."""
    options = ["--size", "dust", "--steps", "100000", "1", "1", "1", "--text", TEXT, "--out", tmp_path / "it"]
    with subprocess.Popen([sys.executable, "train_tiny.py", *options], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        while "shallow step" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
        process.terminate()
        said, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM and "--resume" in said
    assert not re.sub(r"^.* \.\.\. \d+ s\n", "", errors, flags=re.M)          # that something takes long here
    assert load_pair(tmp_path / "it").target.config.layers == 1
