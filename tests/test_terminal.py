"""What the scripts print: through a pipe, without colour, in narrow and wide windows."""

import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console, Group

from nanospec.speculate import TreeRound
from nanospec.show.steps import step_text
from nanospec.show.terminal import View, legend, printable, refuse, round_text
from nanospec.speculate import Round

ROOT = Path(__file__).parent.parent
COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-7]|38;|9[0-7])[0-9;]*m")


def decode(ids):
    return "".join(chr(i) for i in ids)


def a_round(drafted: str, kept: int, token: str) -> Round:
    laws = torch.full((len(drafted) + 1, 128), 1 / 128)
    return Round([ord(x) for x in drafted], kept, ord(token), [ord(x) for x in drafted[:kept] + token], laws[:-1], laws,
                 0.001, 0.003, len(drafted))


def a_view() -> View:
    view = View("prompt = ", decode)
    for letter in "abcdefghij" * 8:
        view.take_token(ord(letter), 0.003)
    for _ in range(10):
        view.take_round(a_round("abcd", 2, "x"), 0.004)
        view.take_round(a_round("efgh", 4, "y"), 0.004)
    return view


def printed(thing, width: int, **options) -> str:
    console = Console(file=StringIO(), width=width, **options)
    console.print(thing(console))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [24, 40, 80, 110, 240])
def test_nothing_is_wider_than_the_window(width):
    view = a_view()
    text = printed(lambda console: Group(view.panels(console), legend(), view.lanes(console)), width)
    assert max(map(len, text.splitlines())) <= width
    assert ("▬" in text) == (width >= 48)
    both = next(line for line in text.splitlines() if "the target alone" in line)
    assert ("speculative" in both) == (width >= 110)


def test_without_colour_every_mark_is_still_told_apart():
    """NO_COLOR: the refused are struck through (9), replacements underlined (4), the bonus bold (1), no colour."""
    view = a_view()
    text = printed(lambda console: view.panels(console), 60, force_terminal=True, no_color=True)
    assert not COLOUR.search(text)
    assert all(f"\x1b[{mark}m" in text for mark in (9, 4, 1))
    coloured = printed(lambda console: view.panels(console), 60, force_terminal=True, color_system="standard")
    assert COLOUR.search(coloured)


def test_a_pipe_gets_the_text_alone():
    view = a_view()
    text = printed(lambda console: view.panels(console), 200)
    assert "\x1b" not in text and "abxefghyabx" in text.replace("\n", "")


def test_what_a_model_writes_cannot_move_the_cursor():
    assert printable("a\x1b[2Jb\rc\x7f\n\t") == "a␛[2Jb␍c\ufffd\n\t"
    one = a_round("\n ab", 0, "z")
    assert round_text(one, decode).plain == "⏎z" and round_text(one, decode, marked=False).plain == "z"


def a_tree_round() -> TreeRound:
    """Behind the text a, b and c; behind b d and e. a fell, b stood, d and e fell."""
    laws = torch.full((6, 128), 1 / 128)
    return TreeRound([ord(x) for x in "abcde"], 1, ord("x"), [ord("b"), ord("x")], laws[1:], laws, 0.001, 0.003, 2,
                     [-1, 0, 0, 0, 2, 2], [2])


def test_a_tree_shows_who_was_tried_and_who_fell():
    one = a_tree_round()
    assert round_text(one, decode).plain == "bd|ex" and [chr(x) for x in one.refused] == ["d", "e"]
    text = printed(lambda console: step_text(1, one, [(.9, .5), (.1, .5), (.9, .5), (.8, .5)], decode), 80)
    lines = text.splitlines()
    assert lines[1] == "behind the text" and max(map(len, lines)) <= 80
    for line, words in zip(lines[2:], ["'a' ≥ refuse", "'b' < keep", "'d' ≥ refuse", "'e' ≥ refuse", "'x' left",
                                       "'c' never judged"]):
        assert all(word in line for word in words.split()), line
    assert lines[4].startswith("│   ├──") and lines[2].startswith("├──")


@pytest.mark.parametrize("width", [40, 120])
def test_a_step_fits_too(width):
    one = a_round("abcd", 1, "x")
    text = printed(lambda console: step_text(1, one, [(.2, .5)] + [(.9, .5)] * 3, decode), width)
    assert "keep" in text and "refuse" in text and "never judged" in text


def test_a_refusal_is_one_line_whatever_it_says(capsys):
    assert refuse("demo", ValueError("x" * 300 + " [red]not markup[/red]")) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "[red]not markup[/red]" in err


@pytest.mark.parametrize("settings", [{"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1", "COLUMNS": "30"}])
def test_the_demo_anywhere(settings):
    """No terminal, none on the input either; the status is 0 and the verdict is the last line."""
    done = subprocess.run([sys.executable, "demo.py", "--device", "cpu", "--dtype", "float32", "--max-new-tokens", "20",
                           "--gamma", "2"], cwd=ROOT, env=os.environ | settings, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert not COLOUR.search(done.stdout) and "Speculation" in done.stdout[-300:]
    assert done.stderr == ""


def test_a_reader_that_goes_away_is_no_traceback():
    command = f"{sys.executable} demo.py --device cpu --dtype float32 --max-new-tokens 20 --gamma 2 | head -1"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
