"""What every lesson uses."""

import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
import torch

import kit
from kit import OneRow, Quiet, page
from nanospec.dice import Dice
from student import trained_student


@pytest.mark.parametrize("seconds, busy", [([1e-3] * 6, False), ([1e-3, 1.4e-3] * 3, False),
                                           ([1e-3] * 5 + [2e-3], True), ([4e-3] + [1e-3] * 5, True),
                                           ([1e-3] * 3 + [3e-3] + [1e-3] * 3, True)])
def test_a_busy_machine_is_told(seconds, busy, capsys):
    times = iter(seconds)
    quiet = Quiet(lambda: next(times))
    if len(seconds) == 7:
        quiet.look()
    quiet.tell("v(2) 1.04")
    out = capsys.readouterr().out
    assert ("This machine is busy" in out) == busy == ("On an idle machine: v(2) 1.04." in out)
    assert not busy or f"{1e3 * min(seconds):.2f} to {1e3 * max(seconds):.2f} ms" in out


@pytest.mark.parametrize("got, busy", [(1.0, False), (0.8, False), (0.3, True), (2.0, False)])
def test_a_machine_that_is_busy_all_the_time_is_told(got, busy, monkeypatch, capsys):
    """Each step takes equally long, and the processor works here for `got` of each second; 2 where two threads do."""
    clock = iter(range(100))
    monkeypatch.setattr("kit.perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr("kit.process_time", lambda work=iter(range(100)): got * next(work))
    quiet = Quiet(lambda: 1e-3)
    quiet.tell("v(2) 1.04")
    out = capsys.readouterr().out
    assert ("This machine is busy: of 2.0 seconds" in out) == busy == ("worked here for 0.6" in out)


def test_a_moment_without_the_processor_tells_nothing(monkeypatch, capsys):
    monkeypatch.setattr("kit.perf_counter", lambda work=iter(range(100)): 0.02 * next(work))
    monkeypatch.setattr("kit.process_time", lambda: 0.0)
    Quiet(lambda: 1e-3).tell("v(2) 1.04")
    assert not capsys.readouterr().out


def test_dice_for_one_text_take_the_librarys_uniforms():
    """One decision, one uniform."""
    one, library = OneRow(seed=3), Dice([3])
    for weights in [.2, .3, .5], [1, 0, 3]:
        library.refill(1)
        u, total = library.u[0, 0].item(), sum(weights)
        assert one.pick(weights) == next(i for i in range(3) if sum(weights[:i + 1]) > u * total)
    library.refill(1)
    assert one.flip(.5) == (library.u[0, 0].item() < .5)


def test_what_is_learned_from_and_what_is_measured_with(monkeypatch):
    """Every seventh text, and every second one that is held out."""
    texts = [f"text {n}" for n in range(9)], [f"held out {n}" for n in range(5)]
    monkeypatch.setattr(kit, "read_texts", lambda: texts)
    monkeypatch.setattr(kit, "pieces_of", lambda tokenizer, texts, count: (*texts, count))
    monkeypatch.setattr(kit, "read", lambda target, pieces: [f"{target} has read {len(pieces)}"])
    assert kit.learn_and_test("target", None, 8) == (
        (("text 0", "text 7", 8), "target has read 3"),
        (("held out 0", "held out 2", "held out 4", 6), "target has read 4"))


def test_a_piece_begins_with_a_method_beyond_the_first_third():
    """What is shorter, or has none there, is left out; there are no more of them than were asked for."""
    tokenizer = SimpleNamespace(encode=lambda text: [*map(ord, text)])
    good, other = ("\n    def one" + "a" * 300 + "\n    def two" + letter * 400 for letter in "bc")
    for count, texts in (1, [good]), (9, [good, other]):
        found = kit.pieces_of(tokenizer, ["d" * 900, "e" * 9 + "\n    def three", good, other], count)
        assert ["".join(map(chr, ids)) for ids in found.tolist()] == [text[312:568] for text in texts]


def test_a_window_comes_from_the_middle_of_a_long_file():
    """Spread over all of them; what is short is left out."""
    tokenizer = SimpleNamespace(encode=lambda text: [*map(ord, text)])
    texts = ["x" * 3000, *("y" * 2000 + letter * 4050 for letter in "abcde"), "z" * 6000]
    found = kit.windows(tokenizer, texts, 2, 4)
    assert ["".join(map(chr, ids)) for ids in found.tolist()] == ["aaaa", "cccc"]
    assert kit.windows(tokenizer, texts, 9).shape == (5, 128)


def test_a_lesson_s_question_may_take_two_lines(tmp_path):
    (tmp_path / "07_a_title.py").write_text("# # 7. A title\n#\n# **What is\n# it?** Not **this**\n")
    (tmp_path / "12_another.py").write_text("# **Which one?**\n")
    (tmp_path / "kit.py").write_text("# **No lesson**\n")
    assert kit.contents(tmp_path) == [("7", "A title", "What is it?"), ("12", "Another", "Which one?")]


def test_no_number_of_a_table_is_cut_short(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "30")
    kit.table(["what", "number"], [["a" * 60, "12345.678"]], "a note")
    assert "a" * 60 + "   12345.678" in capsys.readouterr().out


def test_the_first_step_of_a_short_training(monkeypatch):
    """A tenth of the greatest one of .01, and another tenth for what is slow: so AdamW moves every weight. Upwards for
    the token that comes after, one further for each draft token.
    """
    model = torch.nn.ParameterDict({name: torch.zeros(2, 2) for name in ("start", "head")})
    labels = torch.zeros(3, 256, 2)
    labels[:, ::2, 0] = labels[:, 1::2, 1] = 1              # tokens 0 and 1 in turns
    monkeypatch.setattr(kit, "whole_texts", lambda model, tokens, before, ahead: (
        (model["start"] + model["head"])[tokens[:, :63]].expand(ahead, 8, 63, 2)))
    tokens = (torch.arange(256) % 2).expand(3, 256)
    for ahead, sign in (1, 1.0), (2, 0.0):
        for weight in model.values():
            weight.requires_grad_(True).data.zero_()
        kit.train(model, (tokens, torch.zeros(3, 256), labels), 1, ahead, slow="start")
        signs = torch.tensor([[sign, -sign], [-sign, sign]])
        assert torch.allclose(model["head"].data, 1e-3 * signs, atol=1e-6)
        assert torch.allclose(model["start"].data, 1e-4 * signs, atol=1e-7) and not model["head"].requires_grad


def test_a_student_reads_the_last_two_tokens_and_is_the_same_each_time():
    """Of windows 0 to 3, then 4, 0, 1 and 2."""
    tokens = torch.arange(20).view(5, 4)
    log_p = torch.rand(5, 4, 20, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    model, again = (trained_student(tokens, log_p, "forward-kl", 2, 0.01) for _ in range(2))
    assert torch.equal(model(tokens), again(tokens))
    log_p[4] = log_p[4].flip(-1)
    assert not torch.equal(trained_student(tokens, log_p, "forward-kl", 2, 0.01)(tokens), model(tokens))
    other = tokens[:1].clone()
    other[0, 1] = 19
    assert (model(other) != model(tokens[:1])).any(-1).tolist() == [[False, True, True, False]]


def test_a_student_is_trained_with_the_loss_it_is_told_and_slower_at_the_end(monkeypatch):
    class Noted(torch.optim.AdamW):
        def step(self):
            rates.append(self.param_groups[0]["lr"])
            super().step()

    rates, tokens = [], torch.arange(20).view(5, 4)
    monkeypatch.setattr(torch.optim, "AdamW", Noted)
    log_p = torch.rand(5, 4, 20, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    one, other = (trained_student(tokens, log_p, loss, 4, 0.01)(tokens) for loss in ("forward-kl", "reverse-kl"))
    assert rates == pytest.approx(2 * [0.01, 0.01, 0.01, 0.005]) and not torch.equal(one, other)


def test_links_to_the_page_lead_to_its_views():
    """Each lesson that links it prints a view that the page has; two of them each."""
    lessons = sorted((Path(__file__).parents[2] / "lessons").glob("[0-9]*.py"))
    linked = {path.stem[3:]: re.findall(r'page\("(.+?)"\)', path.read_text()) for path in lessons}
    assert {name: views for name, views in linked.items() if views} == {
        "overview": ["replay"], "a_draft_and_a_bonus": ["replay"], "accept_or_replace": ["exact"],
        "why_it_is_lossless": ["exact"], "how_fast": ["formulas"], "where_it_loses": ["formulas"]}
    for view in "exact", "formulas", "replay":
        link = urlsplit(page(view))
        text = Path(url2pathname(link.path)).read_text(encoding="utf-8")
        assert f'<section id="{link.fragment}"' in text and link.fragment == view


def test_a_module_of_the_lessons_is_one_by_either_name():
    """A patch of one reaches the other, too."""
    for name in "kit", "machine", "figures", "figures.picture":
        assert import_module(name) is import_module(f"lessons.{name}")
    assert import_module("kit").__spec__.name == "lessons.kit"
