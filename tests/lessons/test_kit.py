"""What every lesson uses."""

import re
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

import kit
from kit import OneRow, Quiet, page
from nanospec.dice import Dice


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
