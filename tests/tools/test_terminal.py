"""What the scripts print: through a pipe, without colour, in narrow and wide windows, whatever the model writes."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from io import StringIO

import pytest
import torch
from rich.console import Console, Group

from nanospec.cli.launch import command
from nanospec.cli.show.steps import WatchedDice, chart, judged, step_text
from nanospec.cli.show.terminal import (BONUS, REJECTED, REPLACEMENT, ShownRound, View, legend, note, printable,
                                        round_text, save_picture, show_table, visible)
from nanospec.methods.index import DRAFTERS, method_of
from nanospec.proof.tables import small_gpt
from nanospec.speculate import Round

COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-7]|38;|9[0-7])[0-9;]*m")
HOSTILE = "".join(map(chr, [*range(9), *range(11, 32), *range(127, 160), 0x202e, 0x2066, 0xd800, 0xdfff, 0xfffe,
                            0xffff]))


def decode(ids):
    return "".join(chr(i) for i in ids)


def a_round(drafted: str, path: list[int], token: str, parents: list[int] | None = None) -> Round:
    n = len(drafted) + 1
    even = torch.tensor(2.0 ** -16).expand(n, 2 ** 16)
    accepted = [ord(drafted[node - 1]) for node in path]
    return Round([0, *map(ord, drafted)], parents or list(range(-1, n - 1)), path, ord(token), accepted + [ord(token)],
                 even, even, n - 1)


def played(prompt: str, letters: str, *rounds: Round) -> View:
    """Plain decoding writes a letter in 3 ms. A round drafts for 1 ms, and 3 ms is the rest."""
    view = View(prompt, decode)
    view.plain, view.plain_seconds = [*map(ord, letters)], [.003] * len(letters)
    view.rounds = [ShownRound(done, (), .001, .003) for done in rounds]
    return view


def a_view() -> View:
    both = a_round("abcd", [1, 2], "x"), a_round("efgh", [1, 2, 3, 4], "y")
    return played("prompt = ", "abcdefghij" * 8, *both * 10)


def printed(thing, width: int, **options) -> str:
    console = Console(file=StringIO(), width=width, **options)
    console.print(thing(console))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [24, 40, 47, 48, 80, 109, 110, 240])
def test_nothing_is_wider_than_the_window(width):
    view = a_view()
    text = printed(lambda console: Group(view.panels(console), legend(), view.lanes(console)), width)
    assert max(map(len, text.splitlines())) <= width
    assert ("▬" in text) == (width >= 48)
    both = next(line for line in text.splitlines() if "the target alone" in line)
    assert ("speculative" in both) == (width >= 110)


def test_without_colour_every_mark_is_still_told_apart():
    """NO_COLOR: rejected tokens are struck through (9), replacements underlined (4), the bonus bold (1), no colour."""
    view = a_view()
    text = printed(lambda console: view.panels(console), 60, force_terminal=True, no_color=True)
    assert not COLOUR.search(text)
    assert all(f"\x1b[{mark}m" in text for mark in (9, 4, 1))
    coloured = printed(lambda console: view.panels(console), 60, force_terminal=True, color_system="standard")
    assert COLOUR.search(coloured)


def test_of_a_long_text_the_last_lines_are_shown():
    """Each window's own, without its frame."""
    view = played("", "a\nb\nc\nd\n", *(a_round("", [], letter) for letter in "A\nB\nC\nD\n"))
    shown = [re.sub("[│ ]", "", line) for line in printed(lambda console: view.panels(console, 3), 40).splitlines()]
    assert [line for line in shown if re.fullmatch("[a-dA-D]?", line)] == ["c", "d", "", "C", "D", ""]


def test_a_legend_names_what_can_be_seen():
    assert [legend(*shown).plain.split() for shown in ([], [False])] == [
        ["accepted", "rejected", "replacement", "bonus"], ["accepted", "replacement", "bonus"]]


def test_a_pipe_gets_the_text_alone():
    view = a_view()
    text = printed(lambda console: view.panels(console), 200)
    assert "\x1b" not in text and "abxefghyabx" in text.replace("\n", "")


def test_a_note_may_hold_words_of_a_stranger(capsys):
    note("a\x1b[2Jb" + " more" * 40)
    err = capsys.readouterr().err
    assert "a␛[2Jb more" in err and err.count("\n") == 1         # one line, where no terminal would break it


def test_of_a_table_those_lines_are_bold_that_are_meant(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    show_table(["", "number"], [["a", "1"], ["b", "2"], ["c", "3"]], "", [False, True, False])
    assert re.findall(r"\x1b\[1m(\w)", capsys.readouterr().out) == ["b"]


def test_a_round_has_its_own_coins():
    """One for each draft token, whether it was judged or not."""
    dice, target = WatchedDice([3]), small_gpt(11, 1, 1)
    rounds = method_of(target, small_gpt(11, 1, 2), gamma=3).run([3, 4, 5], max_new_tokens=24, dice=dice)
    coins = [len(dice.coins) for _ in rounds]
    assert {*coins} == {3} and len(coins) > 3


def test_printable_leaves_what_is_harmless():
    assert printable("a\x1b[2Jb\rc\x7f\n\t") == "a␛[2Jb␍c\ufffd\n\t"
    fine = "aé中🙂\u200d\n\t ␣"
    assert printable(fine) == fine and not set(printable(HOSTILE)) & set(HOSTILE)
    assert [visible(text) for text in ("\n", "  ", " a", "\t")] == ["⏎", "␣␣", " a", "⇥"]
    done = a_round("\n ab", [], "z")
    assert round_text(done, decode).plain == "⏎z" and round_text(done, decode, marked=False).plain == "z"


@pytest.mark.parametrize("written, shown", [(1, "a"), (2, "ab"), (3, "abdx")])
def test_what_a_limit_cuts_off_is_not_shown(written, shown):
    """Two draft tokens accepted, d rejected, x in its place."""
    done = a_round("abd", [1, 2], "x")
    assert round_text(replace(done, emitted=done.emitted[:written]), decode).plain == shown


def test_nothing_hostile_reaches_the_terminal_or_breaks_the_picture(tmp_path, capsys):
    """In the prompt, in the target's text, in draft tokens accepted and rejected, in the last token, in an error."""
    view = played(HOSTILE, HOSTILE, *(a_round(drafted, [1], letter) for letter in HOSTILE
                                      for drafted in (letter + letter + "a", letter)))

    def shown(console):
        steps = [step_text(1, done, [(.4, .5)] * 3, decode) for done, *_ in view.rounds]
        return Group(view.panels(console), view.lanes(console), *steps)

    for options in ({}, {"force_terminal": True}):
        text = re.sub(r"\x1b\[[0-9;]*m", "", printed(shown, 120, **options))        # rich's own colours
        assert not set(text) & set(HOSTILE)
    save_picture(shown, 120, "title", tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text()
    assert ElementTree.fromstring(svg).tag.endswith("svg") and not set(svg) & set(HOSTILE)

    @command("demo")
    def refuse(argv=None):
        raise OSError(HOSTILE + "\n[red]:smile:[/red]" + " x" * 300)

    assert refuse() == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "[red]:smile:[/red] x x" in err and not set(err) & set(HOSTILE)


def test_the_picture_loads_nothing_and_has_its_title_and_marks(tmp_path):
    save_picture(lambda console: a_view().panels(console), 80, "typed", tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text()
    assert "font-face" not in svg and "import" not in svg and not re.search(r"(url\(|href=)['\"]?(?!['\"]?#)", svg)
    assert ">typed</text>" in svg and "line-through" in svg


def test_a_terminal_that_calls_itself_dumb_is_as_wide_as_was_asked_for(tmp_path, monkeypatch, capsys):
    """As Emacs' is, whose width rich takes for 80 columns."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")              # what is written to is a terminal
    monkeypatch.delenv("LINES")                         # else there is a height
    save_picture(lambda console: "a", 124, "typed", tmp_path / "a.svg")
    assert 'viewBox="0 0 1531 ' in (tmp_path / "a.svg").read_text()                 # 124 of 12.2, and the frame
    show_table(["", "number"], [["a" * 88, "12345"]], "")
    assert f"{'a' * 88}  12345" in capsys.readouterr().out


def a_tree_round() -> Round:
    """After the text a, b and c; after b d and e. a was rejected, b accepted, d and e rejected."""
    return a_round("abcde", [2], "x", [-1, 0, 0, 0, 2, 2])


def test_a_tree_shows_what_was_tried_and_what_was_rejected():
    done = a_tree_round()
    bonus = a_round("ab", [1, 2], "c")
    assert [round_text(one, decode).spans[-1].style for one in (done, bonus)] == [REPLACEMENT, BONUS]
    assert round_text(done, decode).plain == "bd|ex" and [chr(x) for x in done.rejected] == ["d", "e"]
    coins = [(.9, .5), (.1, .5), (0., 0.), (.9, .5), (.8, .5)]
    text = printed(lambda console: step_text(1, done, coins, decode), 100)
    lines = text.splitlines()
    assert lines[1] == "after the text" and max(map(len, lines)) <= 100
    for line, words in zip(lines[2:], ["'a' p_target 0.90 ≥ 0.50 rejected", "'b' residual 0.10 < 0.50 accepted",
                                       "'d' p_target 0.90 ≥ rejected", "'e' residual 0.80 ≥ rejected",
                                       "'x' replacement residual", "'c' never judged"]):
        assert all(word in line for word in words.split()), line
    assert lines[4].startswith("│   ├──") and lines[2].startswith("├──")
    after = ("p_target", "residual", "p_target", "residual", "replacement", "never")
    assert {line.index(word) for line, word in zip(lines[2:], after)} == {23}                   # one column


def test_a_row_that_a_text_lacks_is_not_shown():
    done = a_round("abc", [1], "x", [-1, 0, 0, -1])
    text = printed(lambda console: step_text(1, done, [(.1, .5)] * 3, decode), 100)
    assert "never judged" in text and "'b'" in text and "'c'" not in text and "'x'" in text and "bonus" in text


def test_what_a_sibling_is_judged_by():
    """p_target [.2, .8], two children drawn from [.5, .5]: when the first, token 0, is rejected, [0, 1] is left."""
    p_target = torch.tensor([[.2, .8], [.3, .7], [.4, .6]])
    q_draft = torch.tensor([[0, 0], [.5, .5], [.5, .5]])
    by = judged(Round([0, 0, 1], [-1, 0, 0], [2], 0, [1, 0], p_target, q_draft, 1))
    assert torch.equal(by[1], p_target[0]) and torch.equal(by[2], torch.tensor([0., 1.]))
    assert list(judged(Round([0, 0, 1], [-1, 0, 1], [], 0, [0], p_target, q_draft, 2))) == [1]


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_coin_says_what_the_round_did(name):
    """u < probability where a draft token was accepted, and nowhere else; of every drafter by its name."""
    target, draft_model, dice, seen = small_gpt(11, 2, 1), small_gpt(11, 1, 2), WatchedDice([3]), 0
    for done in method_of(target, draft_model, name, gamma=4).run([3, 4, 5, 3, 4, 5, 3], max_new_tokens=12, dice=dice):
        text = printed(lambda console: step_text(1, done, dice.coins, decode), 200)
        assert ("bonus, drawn" in text) != ("residual distribution" in text)
        for node, p_target in judged(done).items():
            u, probability = dice.coins[node - len(done.tokens)]    # the last ones: a stack has thrown some before
            ratio = (p_target[done.tokens[node]] / done.q_draft[node, done.tokens[node]]).item()
            assert (u < probability) == (node in done.path) and probability == pytest.approx(min(1, ratio))
            seen += 1
        assert text.count(" accepted") == len(done.path) and len(judged(done)) == text.count(" u = ")
    assert seen


def test_a_rejection_shows_the_residual():
    """p_target [.5, .5], q_draft [.8, .2]: the residual is [0, 1], where max(0, p_target - q_draft) is [0, .3]."""
    p_target, q_draft = torch.tensor([[.5, .5], [.5, .5]]), torch.tensor([[0, 0], [.8, .2]])
    done = Round([65, 0], [-1, 0], [], 1, [1], p_target, q_draft, 1)
    text = printed(lambda console: step_text(1, done, [(.9, .625)], lambda ids: "ab"[ids[0]]), 100)
    bar = {.2: "█" * 3, .5: "█" * 7, .8: "█" * 11}                                      # of 14
    assert [line.rstrip() for line in text.splitlines()] == [
        "round 1", "  'a'              p_target 0.500  q_draft 0.800  u = 0.90 ≥ 0.62  rejected",
        "  'b'              replacement, drawn from the residual distribution",
        f"  token   p_target   {'':14}   q_draft   {'':14}   residual",
        f"  'a'     0.500      {bar[.5]:14}   0.800     {bar[.8]:14}   0.000",
        f"  'b'     0.500      {bar[.5]:14}   0.200     {bar[.2]:14}   1.000", ""]
    tokens = chart(done, lambda ids: "ab"[ids[0]]).columns[0].cells
    assert [cell.style for cell in tokens] == [REJECTED, REPLACEMENT]


def test_a_rejection_at_temperature_zero_shows_two_tokens():
    """No other one is possible."""
    p_target, q_draft = torch.tensor([[0, 0, 1., 0]] * 2), torch.tensor([[0, 0, 0, 0], [0, 1., 0, 0]])
    done = Round([65, 1], [-1, 0], [], 2, [2], p_target, q_draft, 1)
    assert [cell.plain for cell in chart(done, lambda ids: "abcd"[ids[0]]).columns[0].cells] == ["'b'", "'c'"]
