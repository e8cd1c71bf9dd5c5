"""Words of a stranger's file in tables, and answers that were damaged."""

import json

import pytest

from nanospec.cli.bench import prompts, serve
from nanospec.cli.bench.question_file import read_questions
from nanospec.cli.bench.questions import Answers
from nanospec.cli.quantities import waits_of
from nanospec.cli.show.terminal import save_picture, show_table
from nanospec.errors import RequestError
from nanospec.fast.announce import announced, printable
from nanospec.files.checkpoint import Pair
from nanospec.files.corpus import opening
from nanospec.proof.tables import small_gpt

GOOD = {"turns": ["a"], "new_tokens": [2], "wall_time": [0.5], "accept_lengths": [2], "decoding_steps": [1]}


def test_words_are_no_markup_and_move_no_cursor(capsys):
    show_table(["", "n"], [["[/b]", "1"], ["[bold]x\x1b[2J", "2"]], "caption [/i]\x1b]0;x\x07")
    out = capsys.readouterr().out
    assert printable("over\rit\x0c\n\t\x7f") == "over\u240dit\u240c\n\t\ufffd"
    assert "[/b]" in out and "[bold]x\u241b[2J" in out and "[/i]" in out and not {"\x1b", "\x07"} & {*out}


def test_all_that_moves_colours_turns_or_is_forbidden_is_pictured_and_nothing_else():
    """The first and the last of each range, and their neighbours."""
    unsafe = "\0\x08\x0b\x1f\x7f\x9f\u202a\u202e\u2066\u2069\ud800\udfff\ufffe\uffff"
    assert printable(unsafe) == "\u2400\u2408\u240b\u241f" + "\ufffd" * 10
    safe = "\t\n ~\xa0\u2029\u202f\u2065\u206a\ud7ff\ue000\ufffd\U00010000"
    assert printable(safe) == safe


def test_what_is_announced_moves_no_cursor(capsys, monkeypatch):
    monkeypatch.setattr("nanospec.fast.announce.STILL", 100)            # no second line, however slow the machine is
    with announced("reading \x1b[2Jx"):
        assert capsys.readouterr().err == "reading \u241b[2Jx ...\n"


def test_a_picture_of_a_command_with_an_escape_is_well_formed(tmp_path):
    from xml.etree import ElementTree
    save_picture(lambda console: "text", 80, "demo.py --prompt '\x1b[2J<&>\x00'", tmp_path / "a.svg")
    ElementTree.parse(tmp_path / "a.svg")


@pytest.mark.parametrize("line", [
    {"choices": []}, {"choices": 5}, {"choices": [5]}, {"choices": [{}]}, {"question_id": [1], "choices": [GOOD]},
    {"question_id": None, "choices": [GOOD]}, {"choices": [GOOD | {"turns": []}]},
    {"choices": [GOOD | {"wall_time": [0.0]}]}, {"choices": [GOOD | {"wall_time": ["1"]}]},
    {"choices": [GOOD | {"new_tokens": [1, 2]}]}, {"choices": [GOOD | {"accept_lengths": [0]}]},
    {"choices": [GOOD | {"wall_time": [float("inf")]}]}, {"choices": [GOOD | {"wall_time": [1e308]}]},
    {"choices": [GOOD | {"new_tokens": [10 ** 400]}]}, {"choices": [GOOD | {"accept_lengths": [10 ** 9]}]}])
def test_damaged_answers_are_refused(tmp_path, line):
    whole = {"question_id": 1, "choices": [GOOD], "settings": {"method": "chain 2"}}
    (tmp_path / "a.jsonl").write_text(json.dumps(whole) + "\n")
    assert Answers("chain 2", {}, tmp_path / "a.jsonl").found.keys() == {1}
    (tmp_path / "a.jsonl").write_text(json.dumps(whole | line) + "\n")
    with pytest.raises(RequestError, match="line 1 is no answer of this bench"):
        Answers("chain 2", {}, tmp_path / "a.jsonl")


def test_many_questions_are_read_in_seconds(tmp_path):
    (tmp_path / "q.jsonl").write_text("".join(json.dumps({"question_id": i, "prompt": "x"}) + "\n"
                                              for i in range(40_000)))
    assert len(read_questions(tmp_path / "q.jsonl").each) == 40_000


def test_where_there_is_no_later_token_there_is_no_time_for_it(capsys):
    found = waits_of([0, 0], [1, 1], [1, 1], [1, 1])
    assert found["each_p50"] is None and found["first_p50"] == 1
    serve.show([{"rows": 1, "method": "plain", "tokens_per_s": 5.0} | found], "")
    assert capsys.readouterr().out.split("\n")[2].split()[-2:] == ["-", "-"]


def test_the_benchs_own_texts_begin_as_the_model_wants():
    class Begins:
        end_of_text, begin = 1, [0]

        def encode(self, text):
            return [2] * len(text.split())

    pair = Pair(small_gpt(4, 1, 1), None, Begins())
    texts = prompts.held_out_prompts(pair, 3, 8)
    assert all(ids[0] == 0 and len(ids) == 8 for ids in texts)
    Begins.begin = [1]                                  # an end of text: it begins no piece of a text
    assert opening(pair.tokenizer) == [] and len(prompts.held_out_prompts(pair, 3, 8)[1]) == 8
