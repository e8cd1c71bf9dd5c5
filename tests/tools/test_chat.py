"""nanospec chat as a user meets it: small random models, that have a chat template, write bytes."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from nanospec.cli import chat, prepared
from nanospec.cli.bench.measure import CallCosts
from nanospec.cli.show import keyboard
from nanospec.errors import SEEDS, RequestError
from nanospec.fast.announce import announced
from nanospec.fast.autotune import Tuning
from nanospec.files.gguf import load_gguf
from nanospec.files.model_file import save_learned
from nanospec.generate import generate
from nanospec.methods.draft_models.mlp import MLPSpeculator
from nanospec.methods.index import DRAFTERS, RULES
from nanospec.proof.tables import small_learned
from nanospec.speculate import Round
from tests.small_gguf import TEMPLATE, write

pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
pytestmark = pytest.mark.xdist_group("transformers")        # one process imports it
ROOT = Path(__file__).parents[2]
TOLD = re.compile(r"(cut at \d+ tokens; )?(\d+\.\d\d) tokens per target call, [\d.]+ tokens/s; "
                  r"plain decoding writes [\d.]+ here: [\d.]+ times as fast \([\d.]+ to [\d.]+ by its single steps\)"
                  r"(; the answer repeats itself: (\d+)% of its runs of 8 tokens stood in it before)?")
COPIES = "--drafter suffix, which copies from the text"


@pytest.fixture(autouse=True)
def no_tuning(monkeypatch):
    """float64, as loaded: at temperature 0 texts are compared token for token."""
    monkeypatch.setattr(prepared, "fastest", lambda model, dtypes, *_, **__: Tuning(dtypes[0], 1, 0))


@pytest.fixture
def model(tmp_path):
    write(tmp_path / "a.gguf")
    return tmp_path / "a.gguf"


@pytest.fixture
def run(model, capsys, monkeypatch):
    """run(lines, *options) -> (exit status, output, errors), of a pipe with these lines."""
    def of(lines: str | bytes, *options: str, weights: Path = model) -> tuple[int, str, str]:
        data = lines.encode() if isinstance(lines, str) else lines
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        status = chat.main(["--weights", str(weights), "--device", "cpu", "--dtype", "float64", *options])
        return status, *capsys.readouterr()
    return of


class Written:
    """What the model writes, by plain decoding of the whole conversation, question by question.

    What it has written stays as it is, also where the tokenizer would write the same text with other tokens.
    """

    def __init__(self, path: Path, most: int, system: str = ""):
        self.target, self.tokenizer = load_gguf(path)
        self.target.double()
        self.most, self.ids, self.before = most, [], [{"role": "system", "content": system}] * bool(system)

    def answer(self, question: str) -> str:
        ids = self.tokenizer.chat([*self.before, {"role": "user", "content": question}])
        if self.ids:                                    # what the template writes after an answer
            ids = self.ids + [2] * (self.ids[-1] != 2) + self.tokenizer.encode("\n") + ids
        tokens = list(generate(self.target, ids, self.most, temperature=0, stop=[2]))
        self.ids, self.before = ids + tokens, []
        return self.tokenizer.decode([token for token in tokens if token != 2])


def told_of(err: str) -> list[re.Match]:
    return [found for found in map(TOLD.fullmatch, err.splitlines()) if found]


def same(text: str) -> str:
    """However many replacement characters stand for bytes that are no character."""
    return re.sub("\ufffd+", "\ufffd", text)


def test_a_conversation_in_a_pipe(run, model):
    """The answer is that of plain decoding, to the template's ids; all else is on the error stream."""
    status, out, err = run("Hello the\n\n", "--temperature", "0", "--max-new-tokens", "12")
    assert status == 0 and same(out) == same(Written(model, 12).answer("Hello the") + "\n")
    assert err.splitlines()[0] == f"a.gguf comes without a draft model: {COPIES}" and len(told_of(err)) == 1
    assert "\x1b" not in err and ">" not in err


def after(plain: Written, *questions: str) -> str:
    return same("".join(plain.answer(question) + "\n" for question in questions))


@pytest.mark.parametrize("drafter", [name for name, entry in DRAFTERS.items() if not entry.needs_draft_model])
def test_earlier_turns_are_remembered(run, model, drafter):
    gamma = ["--gamma", "3"] if DRAFTERS[drafter].takes == "gamma" else []
    status, out, err = run("the the\nHe\n  t t t  \n", "--temperature", "0", "--max-new-tokens", "8",
                           "--drafter", drafter, *gamma)
    assert status == 0 and same(out) == after(Written(model, 8), "the the", "He", "t t t") and len(told_of(err)) == 3
    assert COPIES not in err


def test_what_was_measured_is_measured_once(run, model, tmp_path, monkeypatch):
    """For this model, these settings and what is asked for; --measure measures again, with care."""
    write(tmp_path / "target.gguf")
    write(tmp_path / "draft.gguf")
    measured, turns = [], []
    monkeypatch.setattr(prepared, "fastest", lambda model, dtypes, *_, **__: measured.append("tuning") or Tuning(
        dtypes[0], 1, 0))
    monkeypatch.setattr(prepared, "autotune", lambda *_, **__: measured.append("careful"))
    monkeypatch.setattr("nanospec.files.kept.cache_folder", lambda: tmp_path / "cache")

    def costs(target, draft_model, sizes, context, times, **_):
        turns.append(times)
        measured.append("costs")
        return CallCosts(.1, {m: 1 + m / 10 for m in range(1, 10)}, .01)

    monkeypatch.setattr("nanospec.cli.method_options.measure_costs", costs)

    def start(*options: str) -> tuple[list[str], str]:
        measured.clear()
        status, out, err = run("the the\n", "--max-new-tokens", "8", "--temperature", "0", *options, weights=tmp_path)
        assert status == 0, err
        return [*measured], out

    model.unlink()                                      # a folder with target.gguf and draft.gguf alone
    (first, text), again, anew = start(), start(), start("--measure")
    assert first == ["tuning", "costs"] and again == ([], text) and anew == (["careful", "costs"], text)
    assert turns == [2, 10]                             # a look, and a careful measurement
    assert start("--temperature", "0.5")[0] == start("--gamma", "3")[0] == ["costs"] and start()[0] == []
    assert start("--dtype", "float32")[0] == ["tuning", "costs"]
    tree = "nanospec.cli.method_options.best_topology"
    monkeypatch.setattr(tree, lambda *_, **__: measured.append("tree") or [-1, 0, 0])
    assert [start("--drafter", "tree")[0] for _ in range(2)] == [["tree"], []]
    for file in (tmp_path / "cache").iterdir():
        file.write_text("{")
    assert start()[0] == ["tuning", "costs"]
    write(tmp_path / "target.gguf", "qwen3")
    assert start()[0] == ["tuning", "costs"]


@pytest.mark.parametrize("options, method", [([], "hybrid 8"), (["--drafter", "chain"], "chain 4"),
                                             (["--drafter", "chain", "--gamma", "5"], "chain 5")])
def test_how_many_tokens_a_round_drafts_unasked(tmp_path, options, method):
    for name in "target", "draft":
        write(tmp_path / f"{name}.gguf")
    asked = chat.parsed(["--weights", str(tmp_path), "--device", "cpu", "--dtype", "float64", *options])
    made = chat.Chat(asked, Console(file=io.StringIO()))
    made.prepare()
    assert made.method == method


@pytest.mark.parametrize("context, most", [(400, 50), (100, 25), (3, 1)])
def test_how_long_an_answer_may_be_unasked(model, monkeypatch, context, most):
    """A quarter of the conversation, but no more than usual, and a token at least."""
    monkeypatch.setattr(chat, "ANSWER", 50)
    asked = chat.parsed(["--weights", str(model), "--device", "cpu", "--dtype", "float64", "--context", str(context)])
    made = chat.Chat(asked, Console(file=io.StringIO()))
    made.prepare()
    assert made.most == most


def test_a_question_may_begin_with_a_path():
    asked = []
    for line in "/usr/bin is what?", "/etc":
        chat.Chat.take(SimpleNamespace(ask=asked.append), line)
    assert asked == ["/usr/bin is what?"]


def test_what_the_model_is_told_before(run, model):
    plain = Written(model, 8, "Be the.")
    _, out, _ = run("Hello\n", "--temperature", "0", "--max-new-tokens", "8", "--system", "Be the.")
    assert same(out) == after(plain, "Hello") != after(Written(model, 8), "Hello")


def test_new_begins_anew(run, model):
    status, out, err = run("the\n/new\nthe\n/nonsense\n/quit\nthe\n", "--temperature", "0", "--max-new-tokens", "8")
    one = after(Written(model, 8), "the")
    assert status == 0 and same(out) == 2 * one and "no command /nonsense here: there is /new, /quit" in err


@pytest.mark.parametrize("drafter", [[], ["--drafter", "suffix-tree"]])
def test_what_was_said_before_new_is_copied(run, model, drafter):
    """The same words as without, in fewer calls of the target."""
    found = [run("the\n/new\nthe\n", "--temperature", "0", "--max-new-tokens", "8", "--seed", "0", *drafter, *more)
             for more in ([], ["--remember", "500"])]
    calls = [[float(one[2]) for one in told_of(err)] for _, _, err in found]
    assert found[0][1] == found[1][1] == 2 * after(Written(model, 8), "the")
    assert calls[0][1] == calls[0][0] == calls[1][0] < calls[1][1]


def test_seeds(run):
    """The same seed says the same again, and another one something else."""
    texts = [run("the\nthe\n", "--max-new-tokens", "8", *seed)[1] for seed in ((), (), ("--seed", "5"))]
    assert texts[0] == texts[1] != texts[2]


def test_a_chat_of_the_likeliest_tokens_alone(run):
    """top-k and top-p reach every turn: the text of temperature 0, at a high one."""
    texts = [run("the\nthe\n", "--max-new-tokens", "8", "--temperature", *more)[1]
             for more in ("0", ("3", "--top-k", "1"), ("3", "--top-p", "0.001"), "3")]
    assert texts[0] == texts[1] == texts[2] != texts[3]


def test_a_draft_model_of_ones_own(run, model, tmp_path, monkeypatch):
    """A file is what drafts, and no other of that kind."""
    target, _ = load_gguf(model)
    save_learned("mlp", small_learned("mlp", target), tmp_path / "own.pt", target)
    found, method_of = [], chat.method_of
    monkeypatch.setattr(chat, "method_of", lambda *its, **more: found.append(its[1]) or method_of(*its, **more))
    asked = "--drafter", "chain", "--draft-model", str(tmp_path / "own.pt"), "--gamma", "2"
    status, out, _ = run("the\n", "--temperature", "0", "--max-new-tokens", "8", *asked)
    assert status == 0 and same(out) == after(Written(model, 8), "the")
    assert {type(draft_model) for draft_model in found} == {MLPSpeculator}


def test_every_turn_goes_by_the_rule_that_is_asked_for(run, model, monkeypatch):
    """And ends where the model ends it."""
    asked = []

    class Kept(Scripted):
        def reply(self, *its, rule, stop, **more):
            asked.append((rule, stop))
            return super().reply(*its, **more)

    monkeypatch.setattr(Scripted, "tokenizer", load_gguf(model)[1], raising=False)
    monkeypatch.setattr(Scripted, "answers", ["the<|im_end|>", " he<|im_end|>"])
    monkeypatch.setattr(chat, "Conversation", Kept)
    assert run("He\nthe\n", "--rule", "block")[0] == 0 and asked == [(RULES["block"], [0, 2])] * 2


def test_how_it_is_to_run_reaches_what_finds_the_fastest(run, monkeypatch):
    """What becomes of it there is seen through the demo, which has the same."""
    asked = []
    monkeypatch.setattr(chat, "tuned", lambda pair, args, keep, **more: asked.append(
        (args.threads, args.dtype, args.device, args.measure, more)) or "")
    assert run("", "--threads", "3", "--measure")[0] == 0
    assert asked == [(3, "float64", "cpu", True, {"rounding": True})]


class Scripted(chat.Conversation):
    """Writes what the test says, a token a round. asked: of each turn the whole text before the answer, and the seed.
    """

    answers: list[str] = []
    asked: list[tuple[list[int], int]] = []

    def reply(self, ids, max_new_tokens, *, seed, **_):
        self.ids = [*self.ids, *ids]
        self.asked.append((self.ids, seed))
        for token in self.tokenizer.encode_special(self.answers.pop(0)):
            self.ids = [*self.ids, token]
            yield Round([0], [-1], [], token, [token], torch.zeros(1, 2), torch.zeros(1, 2), 0)


@pytest.mark.parametrize("system", ["", "Be the he."])
def test_every_turn_is_the_template_of_the_whole_conversation(run, model, monkeypatch, system):
    """Whether an answer ended by itself or was cut: no token is there twice, and none is missing. Each turn has a seed
    of its own. After /new nothing is left but what the model was told before.
    """
    _, tokenizer = load_gguf(model)
    monkeypatch.setattr(Scripted, "tokenizer", tokenizer, raising=False)
    monkeypatch.setattr(Scripted, "answers", ["the he<|im_end|>", " the", "t 1<|im_end|>", "he<|im_end|>", "t"])
    monkeypatch.setattr(Scripted, "asked", [])
    monkeypatch.setattr(chat, "Conversation", Scripted)
    status, _, _ = run("He\nthe the\n1 2\n/new\nt\nhe he\n", "--seed", "40", "--temperature", "0.7",
                       *["--system", system] * bool(system))
    assert status == 0 and [seed for _, seed in Scripted.asked] == [40, 41, 42, 43, 44]
    told = [{"role": "system", "content": system}] * bool(system)
    conversations = [("He", "the he", "the the", " the", "1 2"), ("t", "he", "he he")]
    turns = iter(Scripted.asked)
    for said in conversations:
        for until in range(1, len(said) + 1, 2):
            messages = told + [{"role": ("user", "assistant")[i % 2], "content": text}
                               for i, text in enumerate(said[:until])]
            ids, _ = next(turns)
            assert ids == tokenizer.chat(messages) and ids.count(2) == len(messages)
    assert next(turns, None) is None


def test_an_answer_that_repeats_itself_says_so(run, model, monkeypatch):
    """The same word again and again, or other ones."""
    _, tokenizer = load_gguf(model)
    for answer, loops in ("the " * 24, True), ("the he 1 2", False):
        monkeypatch.setattr(Scripted, "tokenizer", tokenizer, raising=False)
        monkeypatch.setattr(Scripted, "answers", [answer + "<|im_end|>"])
        monkeypatch.setattr(Scripted, "asked", [])
        monkeypatch.setattr(chat, "Conversation", Scripted)
        found, = told_of(run("He\n")[2])
        assert bool(found[3]) == loops and (not loops or int(found[4]) > 50)


def test_an_answer_that_is_cut_says_so(run, model, monkeypatch):
    """One that ends with the last token that it may have is not."""
    _, _, err = run("the\n", "--temperature", "0", "--max-new-tokens", "3")
    assert told_of(err)[0][1] == "cut at 3 tokens; "
    monkeypatch.setattr(Scripted, "tokenizer", load_gguf(model)[1], raising=False)
    monkeypatch.setattr(Scripted, "answers", ["tt<|im_end|>"])
    monkeypatch.setattr(Scripted, "asked", [])
    monkeypatch.setattr(chat, "Conversation", Scripted)
    assert told_of(run("the\n", "--max-new-tokens", "3")[2])[0][1] is None


@pytest.mark.parametrize("asked, seeds", [([], [0, 1, 2]), (["--seed", str(SEEDS - 2)], [SEEDS - 2, SEEDS - 1, 0])])
def test_seeds_count_on_from_turn_to_turn(run, model, monkeypatch, asked, seeds):
    """From 0, or the one asked for, and over the end of all seeds."""
    monkeypatch.setattr(Scripted, "tokenizer", load_gguf(model)[1], raising=False)
    monkeypatch.setattr(Scripted, "answers", ["t<|im_end|>"] * 3)
    monkeypatch.setattr(Scripted, "asked", [])
    monkeypatch.setattr(chat, "Conversation", Scripted)
    assert run("he\nhe\nhe\n", *asked)[0] == 0 and [seed for _, seed in Scripted.asked] == seeds


def test_a_full_context_is_announced(run, model):
    """With less than a fifth left it says how much; a question that leaves no room for an answer is not taken up."""
    questions = [f"{i} the" for i in range(9)]
    status, out, err = run("\n".join([*questions, "/new", "the"]), "--temperature", "0", "--max-new-tokens", "8",
                           "--context", "160")
    assert status == 0
    room, full, lines = "tokens are left in this conversation; /new begins", "there is no room for it", err.splitlines()
    left = [int(line.split()[0]) for line in lines if room in line]
    turned_away = [line for line in lines if full in line]
    assert left and max(left) < 32 and left == sorted(left, reverse=True)
    assert turned_away and "an answer may take 8 tokens, and of 160" in turned_away[0]
    assert int(re.search(r"of 160 (\d+) are left", turned_away[0])[1]) < left[-1]          # after what was said before
    first = next(i for i, line in enumerate(lines) if full in line)
    assert any(room in line for line in lines[:first]) and len(told_of("\n".join(lines[first:]))) == 1    # after /new
    answered = len(questions) - len(turned_away)
    plain = after(Written(model, 8), *questions[:answered])
    assert same(out) == plain + after(Written(model, 8), "the")


@pytest.mark.parametrize("left, fits", [(8, True), (7, False)])
def test_an_answer_may_take_all_that_is_left(run, model, left, fits):
    prompt = len(Written(model, 8).tokenizer.chat([{"role": "user", "content": "the"}]))
    _, out, err = run("the", "--temperature", "0", "--max-new-tokens", "8", "--context", str(prompt + left))
    assert ("there is no room for it" not in err) == fits and (same(out) == after(Written(model, 8), "the")) == fits
    assert fits or f"of {prompt + left} {left} are left after the question" in err
    assert "of 30 0 are left after the question" in run("the " * 99, "--max-new-tokens", "8", "--context", "30")[2]


def test_a_template_that_writes_earlier_messages_differently(run, tmp_path):
    """It counts them. What differs from what was read is read again."""
    path = tmp_path / "b.gguf"
    write(path, template="{{ messages | length }}" + TEMPLATE)
    status, out, _ = run("the\nHe\n", "--temperature", "0", "--max-new-tokens", "8", weights=path)
    first, plain = Written(path, 8), Written(path, 8)
    answer = {"role": "assistant", "content": first.answer("the")}
    plain.before = [{"role": "user", "content": "the"}, answer]
    assert status == 0 and same(out) == after(Written(path, 8), "the") + after(plain, "He")


def test_a_pipe_as_some_systems_write_it(run, model):
    """With a mark at its beginning, which is no part of the question, and with carriage returns."""
    status, out, _ = run(b"\xef\xbb\xbfHello the\r\nHe\r\n", "--temperature", "0", "--max-new-tokens", "8")
    assert status == 0 and same(out) == after(Written(model, 8), "Hello the", "He")


def test_bytes_that_are_no_text(run, model):
    status, out, _ = run(b"\xff\xfe the\n", "--temperature", "0", "--max-new-tokens", "8")
    assert status == 0 and same(out) == after(Written(model, 8), "\ufffd\ufffd the")


# What is refused

def refused(run, words: str, *options: str, **more) -> None:
    status, out, err = run("the\n", *options, **more)
    assert status == 2 and out == "" and err.count("\n") == 1 and words in err and len(err) < 400, (status, out, err)


@pytest.mark.parametrize("options, words", [
    (["--drafter", "chain"], "--drafter chain needs a draft model"), (["--drafter", "nobody"], "nobody"),
    (["--gamma", "0"], "--gamma"), (["--remember", "-1"], "--remember"),
    (["--drafter", "lookup", "--remember", "9"], "--remember is for drafters that copy from earlier requests: suffix,"),
    (["--drafter", "lookahead", "--gamma", "3"], "takes no --gamma"),
    (["--temperature", "-1"], "--temperature"), (["--context", "0"], "--context"), (["--max-new-tokens", "0"], "--max"),
    (["--weights", "nowhere"], "nowhere"), (["--draft-model", "nobody"], "nobody"),
    (["--system", "\udcff"], "--system")])
def test_a_bad_request_is_one_line_before_a_weight_is_read(run, monkeypatch, options, words):
    monkeypatch.setattr(chat, "read_pair", None)
    refused(run, words, *options)


def test_a_model_without_a_chat_template(run, tmp_path, monkeypatch):
    monkeypatch.setattr(chat, "read_pair", None)
    write(tmp_path / "b.gguf", template=None)
    refused(run, "b.gguf has no chat template", weights=tmp_path / "b.gguf")
    refused(run, "has no chat template", weights=ROOT / "nanospec" / "weights")         # the pair that ships


def test_a_template_that_does_not_take_it(run, tmp_path):
    write(tmp_path / "b.gguf", template="{{ 'x' if messages | length < 2 else raise_exception('only one') }}")
    status, _, err = run("a\nb\n", "--max-new-tokens", "2", weights=tmp_path / "b.gguf")
    assert status == 2 and err.splitlines()[-1].endswith("does not take this: only one")


def test_at_a_terminal_it_goes_on_after_a_question_that_the_template_does_not_take(tmp_path, monkeypatch, capsys):
    write(tmp_path / "b.gguf", template="{{ 'x' if 'bad' not in messages[-1].content else raise_exception('no!') }}")
    monkeypatch.setattr(sys, "stdin", Keyboard("bad\nthe\n"))
    status = chat.main(["--weights", str(tmp_path / "b.gguf"), "--device", "cpu", "--max-new-tokens", "2"])
    out, err = capsys.readouterr()
    assert status == 0 and "does not take this: no!" in out + err and TOLD.search(out + err)


def test_what_cannot_be_is_refused_before_anything_is_measured(run, model, tmp_path, monkeypatch):
    """An answer longer than any conversation, and a drafter that does not go with the draft model."""
    monkeypatch.setattr(chat, "tuned", None)
    target = load_gguf(model)[0]
    save_learned("mlp", small_learned("mlp", target), tmp_path / "own.pt", target)
    refused(run, "middle model is a GPT", "--draft-model", str(tmp_path / "own.pt"), "--drafter", "stack")
    refused(run, "an answer of up to 30 tokens exceeds a conversation of 30", "--max-new-tokens", "30", "--context",
            "30", "--drafter", "suffix")


def test_a_folder_without_a_model(run, tmp_path):
    (tmp_path / "empty").mkdir()
    refused(run, "there is no model in", weights=tmp_path / "empty")


# At a terminal

class Keyboard(io.StringIO):
    """Somebody types these lines, at a terminal."""

    def isatty(self):
        return True


def test_lines_that_are_typed(monkeypatch, capsys):
    typed = iter(["  one ", "", KeyboardInterrupt(), "two", EOFError(), "three"])

    def type_line(prompt):
        line = next(typed)
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr(sys, "stdin", Keyboard())
    monkeypatch.setattr("builtins.input", type_line)
    assert list(keyboard.lines("> ")) == ["one", "two"] and capsys.readouterr().out == "\n\n"


@pytest.fixture
def at_keyboard(model, monkeypatch, capsys):
    """at_keyboard(type_line, prepare) -> (status, output, errors), where a line is typed and what takes long is
    prepared by these functions; `prepare` gets the Chat's own.
    """
    def of(type_line, prepare):
        own = chat.Chat.prepare
        monkeypatch.setattr(chat.Chat, "prepare", lambda self: prepare(lambda: own(self)))
        monkeypatch.setattr(sys, "stdin", Keyboard())
        monkeypatch.setattr("builtins.input", type_line)
        status = chat.main(["--weights", str(model), "--device", "cpu", "--dtype", "float64", "--max-new-tokens", "4"])
        return status, *capsys.readouterr()
    return of


def test_a_question_may_be_typed_before_it_is_known_what_is_fastest(at_keyboard, monkeypatch):
    """It is answered with as many threads as were found to be fastest."""
    asked, before, counts = Event(), torch.get_num_threads(), []
    take = chat.Chat.take
    monkeypatch.setattr(chat.Chat, "take",
                        lambda self, line: counts.append((line, torch.get_num_threads())) or take(self, line))

    def type_line(prompt):
        if asked.is_set():
            raise EOFError
        asked.set()
        return "the"

    def prepare(own):
        assert asked.wait(30)
        with announced("measuring"):
            own()
        torch.set_num_threads(before + 1)
        return torch.get_num_threads()

    try:
        status, _, err = at_keyboard(type_line, prepare)
        assert counts == [("the", before + 1)] and torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)
    assert status == 0 and "a.gguf: cpu" in err and len(told_of(err)) == 1


@pytest.mark.parametrize("status, line", [(0, EOFError()), (0, "/quit"), (2, "the")])
def test_what_is_prepared_is_waited_for(at_keyboard, status, line):
    """Whoever leaves at once leaves what was measured for the next start. What fails is told in one line."""
    done, typed = [], Event()

    def type_line(prompt):
        typed.set()
        if isinstance(line, Exception):
            raise line
        return line

    def prepare(own):
        assert typed.wait(30)
        done.append(own())
        if status:
            raise RequestError("it does not fit")
        return done[0]

    found, out, err = at_keyboard(type_line, prepare)
    assert found == status and len(done) == 1 and not told_of(err)
    assert ("chat: it does not fit" in err.splitlines()[-1]) == bool(status)


def test_a_line_of_a_pipe_has_an_end(monkeypatch):
    monkeypatch.setattr(keyboard, "LONGEST", 8)
    for text, found in ("\ufeffone\n\n 1234567", ["one", "1234567"]), ("one\n123456789", ["one"]):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        typed = keyboard.lines("> ")
        assert [next(typed) for _ in found] == found
        with pytest.raises(StopIteration if len(found) == 2 else RequestError):
            next(typed)
    asked: list[int] = []           # characters that are read: one more than a line may have tells that it is longer
    monkeypatch.setattr(sys.stdin, "readline", lambda most=-1: asked.append(most) or "12345678")
    assert next(keyboard.lines("> ")) == "12345678" and asked == [9]


def test_ctrl_c_ends_an_answer_and_not_the_conversation(model, monkeypatch, capsys):
    """It is pressed in the first round. That round stands, and the conversation goes on after it."""
    taken = []

    def interrupted(self, done):
        taken.append(done)
        if len(taken) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(chat.Stream, "take", interrupted)
    monkeypatch.setattr(sys, "stdin", Keyboard())
    typed = iter(["the", "He"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed, None) or (_ for _ in ()).throw(EOFError))
    before = signal.getsignal(signal.SIGINT)
    assert chat.main(["--weights", str(model), "--device", "cpu", "--dtype", "float64", "--temperature", "0",
                      "--max-new-tokens", "8"]) == 0
    assert signal.getsignal(signal.SIGINT) == before
    plain = Written(model, len(taken[0].emitted))
    assert plain.tokenizer.decode(taken[0].emitted) == plain.answer("the")
    plain.most = 8
    rest = plain.tokenizer.decode([token for done in taken[1:] for token in done.emitted if token != 2])
    assert rest == plain.answer("He")
    assert len(told_of(capsys.readouterr().err)) == 2


def test_ctrl_c_twice_ends_it(monkeypatch):
    monkeypatch.setattr(sys, "stdin", Keyboard())
    with pytest.raises(KeyboardInterrupt), keyboard.interrupts() as pressed:
        os.kill(os.getpid(), signal.SIGINT)
        assert len(pressed) == 1
        os.kill(os.getpid(), signal.SIGINT)


def test_an_answer_that_ends_in_an_error_leaves_ctrl_c_as_it_was(monkeypatch):
    monkeypatch.setattr(sys, "stdin", Keyboard())
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), keyboard.interrupts():
        assert signal.getsignal(signal.SIGINT) != before
        1 / 0
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals")
def test_a_real_terminal(model):
    """The command itself: prompt, coloured answer, and its end by Ctrl-D."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "nanospec", "chat", "--weights", str(model), "--device", "cpu",
               "--dtype", "float32", "--temperature", "0", "--max-new-tokens", "20"]
    started = subprocess.Popen(command, cwd=ROOT, stdin=slave, stdout=slave, stderr=slave, close_fds=True,
                               env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40",
                                    "XDG_CACHE_HOME": str(model.parent)})
    os.close(slave)
    seen, end = b"", time.monotonic() + 120
    sent = 0
    while started.poll() is None and time.monotonic() < end:
        try:
            seen += os.read(master, 4096)
        except OSError:                                 # its other side is closed
            break
        if seen.count(b"> ") > sent:
            os.write(master, [b"the the the\n", b"\x04"][min(sent, 1)])
            sent += 1
    os.close(master)
    assert started.wait(60) == 0
    text = seen.decode(errors="replace")
    assert "Ctrl-C ends an answer, /new begins anew" in text and "\x1b[" in text and [*model.parent.glob("nanospec/*")]
    assert "tokens per target call" in text and "Traceback" not in text
    assert "replacement" in text and "rejected" not in text         # which is never shown


@pytest.mark.smollm2
def test_smollm2(capsys, monkeypatch):
    """The model that the command takes by itself; the second answer repeats the first, and costs few calls."""
    try:
        chat.find_source("smollm2")
    except chat.RequestError as error:
        pytest.skip(str(error))
    # What calls cost decides where copies are taken. To measure it on this model takes longer than both answers.
    monkeypatch.setattr("nanospec.cli.bench.measure.step_seconds",
                        lambda model, tokens=1, **_: 0.1 * (1 + 0.02 * tokens))
    monkeypatch.setattr("nanospec.cli.bench.measure.draft_seconds", lambda draft_model, **_: 0.01)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Name three colours.\nSay that again.\n"))
    assert chat.main(["--temperature", "0", "--max-new-tokens", "16", "--dtype", "float32", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    first, second = told_of(err)
    assert float(first[2]) >= 1 and float(second[2]) > 1.5 and "red" in out.lower()
