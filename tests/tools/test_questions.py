"""Questions in SPEED-Bench's and Spec-Bench's forms. Numbers are by hand, from invented answers under a clock that the
test winds.
"""

import json
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from nanospec.cli.bench import command as bench
from nanospec.cli.bench import questions as asking
from nanospec.cli.bench import speed
from nanospec.cli.bench.prompts import CHAT
from nanospec.cli.bench.question_file import read_questions
from nanospec.cli.bench.questions import ask, ids_of, prompts_within
from nanospec.errors import RequestError
from nanospec.files.model_file import save_model
from nanospec.files.gguf import load_gguf
from nanospec.files.tokenizer import Tokenizer
from nanospec.generate import generate
from nanospec.methods.index import method_of
from nanospec.proof.tables import small_gpt
from nanospec.speculate import tokens_of
from tests import small_gguf

BYTES = Tokenizer({bytes([b]): b for b in range(256)})
END = BYTES.end_of_text
# Three of MT-Bench's categories, with two turns, and Spec-Bench's other five tasks.
ASKED = [{"question_id": 81 + i, "category": name, "turns": [f"{name}?", "And then?"], "reference": ["", "x"]}
         for i, name in enumerate(("writing", "math", "stem"))]
ASKED += [{"question_id": 200 + i, "category": name, "turns": [f"{name} {i}?"]} for i, name in enumerate(
    ("translation", "summarization", "qa", "math_reasoning", "rag") * 2)]
TASKS = ["mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag", "all"]


def write_lines(path: Path, things: list) -> Path:
    path.write_text("".join(json.dumps(thing) + "\n" for thing in things))
    return path


@pytest.fixture
def asked(tmp_path):
    return read_questions(write_lines(tmp_path / "q.jsonl", ASKED))


@pytest.fixture
def writers(monkeypatch):
    """Plain decoding writes "abc" and the end in 4 s, but to the second qa question in 12. "chain 4" writes the same in
    two calls and 2 s; to the writing question "abc" in one call and 1 s, and to that of qa in 1 s. `seen`: the prompts.
    """
    now = [0.0]
    monkeypatch.setattr(asking, "perf_counter", lambda: now[0])

    def of(seconds, calls):
        def write(ids, seed):
            prompt = bytes(token for token in ids if token < 256).decode()
            write.seen.append((prompt, seed))
            now[0] += seconds(prompt)
            tokens = iter([*b"abc", END])
            return [list(islice(tokens, count)) for count in calls(prompt)]
        write.seen = []
        return write
    plain = of(lambda prompt: 12 if prompt == "qa 7?" else 4, lambda _: [1] * 4)
    chain = of(lambda prompt: 1 if prompt == "qa 7?" or "writing" in prompt else 2,
               lambda prompt: [4] if "writing" in prompt else [3, 1])
    return {"plain": plain, "chain 4": chain}


def test_rows_by_hand(asked, writers):
    """mt_bench: 24 tokens in 2 + 8 calls and 2 + 4 + 4 s, plain in 24 s; 4, 2, 2 a second, and 6 of the plain answers'
    8 tokens are text: 6 / 8 a second, whatever the question. qa: 8 tokens in 4 calls and 3 s, plain in 16 s; 2 and 4 a
    second, and plain 3 / 4 and 3 / 12. All: 64 tokens of 16 turns in 2 + 28 calls and 2 + 28 - 1 s, plain in 72 s.
    """
    rows = ask(asked, writers, BYTES, 0, {"weights": "a", "temperature": 0.0})
    assert [(row["task"], row["questions"], row["method"]) for row in rows] == list(
        zip(TASKS, [3, 2, 2, 2, 2, 2, 13], ["chain 4"] * 7))
    found = {row["task"]: [row[key] for key in ("acceptance_length", "tokens_per_s", "baseline_tokens_per_s", "speedup",
                                                "spec_bench_speedup")] for row in rows}
    assert found["mt_bench"] == pytest.approx([2.4, 2.4, 1.0, 2.4, (8 / 3) / .75])
    assert found["qa"] == pytest.approx([2.0, 8 / 3, .5, 16 / 3, 3 / .5])
    for task in "translation", "summarization", "math_reasoning", "rag":
        assert found[task] == pytest.approx([2.0, 2.0, 1.0, 2.0, 2 / .75])
    assert found["all"] == pytest.approx([64 / 30, 64 / 29, 64 / 72, 72 / 29, (30 / 13) / ((12 * .75 + .25) / 13)])


def test_an_answer_without_a_text_counts_as_one_token():
    """As evaluation/speed.py has it: 3 tokens in 2 s, beside one in 4 s."""
    ours, plain = ({"new_tokens": [tokens], "accept_lengths": [tokens], "wall_time": [seconds], "turns": [text]}
                   for tokens, seconds, text in ((3, 2.0, "ab"), (1, 4.0, "")))
    assert asking.numbers_of([ours], [plain], BYTES)["spec_bench_speedup"] == 6


def test_a_writer_draws_from_the_seed_that_it_is_given():
    target, request = small_gpt(257, 2, 2), {"max_new_tokens": 9, "temperature": 1.5}
    method = method_of(target, None, "lookup", gamma=2)
    write = asking.make_writers(target, [method], BYTES, request)
    for seed in 5, 6:
        told = request | {"seed": seed, "stop": [END]}
        assert sum(write["plain"]([3, 4], seed), []) == [*generate(target, [3, 4], **told)]
        assert sum(write["lookup 2"]([3, 4], seed), []) == tokens_of(method.run([3, 4], **told))
    assert write["plain"]([3, 4], 5) != write["plain"]([3, 4], 6)


def test_an_answer_ends_at_any_token_that_ends_one():
    """Of a tokenizer that has two: one that is never written, and the fourth."""
    target, request = small_gpt(257, 2, 2), {"max_new_tokens": 9, "temperature": 1.5}
    tokens = [*generate(target, [3, 4], 9, 1.5, seed=5)]
    never = min({*range(257)} - {*tokens})
    assert never < tokens[3] not in tokens[:3]
    write = asking.make_writers(target, [method_of(target, None, "lookup", gamma=2)],
                                SimpleNamespace(ends={never, tokens[3]}), request)
    assert sum(write["plain"]([3, 4], 5), []) == tokens[:4] and sum(write["lookup 2"]([3, 4], 5), [])[-1] != never


def test_answers_are_fed_back_and_methods_take_turns(asked, writers):
    """The first question warms up. Every turn has its own seed, whatever was answered before."""
    ask(asked, writers, BYTES, 2 ** 32 - 3, {"weights": "a"})
    assert writers["plain"].seen == writers["chain 4"].seen
    warm_up, *seen = writers["plain"].seen
    assert warm_up == ("writing?", 2 ** 32 - 3)
    assert [seed for _, seed in seen] == [2 ** 32 - 3, 2 ** 32 - 2, 2 ** 32 - 1, *range(13)]        # over the end
    assert [prompt for prompt, _ in seen[:4]] == ["writing?", "writing?abc\nAnd then?", "math?", "math?abc\nAnd then?"]


def test_answers_in_spec_benchs_format(asked, writers, tmp_path):
    """The keys that its evaluation/speed.py and FastChat's scripts read."""
    ask(asked, writers, BYTES, 0, {"weights": "a", "temperature": 0.0}, tmp_path / "a.jsonl")
    ours, plain = ([json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
                   for name in ("a.jsonl", "a.plain.jsonl"))
    assert [line["question_id"] for line in ours] == [line["question_id"] for line in ASKED]
    first, = ours[0]["choices"]
    assert first == {"index": 0, "turns": ["abc", "abc"], "decoding_steps": [1, 1], "new_tokens": [4, 4],
                     "wall_time": [1.0, 1.0], "accept_lengths": [4, 4]}
    assert ours[1]["choices"][0]["accept_lengths"] == [3, 1, 3, 1] and ours[0]["category"] == "writing"
    assert plain[0]["choices"][0]["accept_lengths"] == [1] * 8 and plain[0]["model_id"] == "a plain"
    assert ours[0]["model_id"] == "a chain 4" and isinstance(ours[0]["tstamp"], float)
    assert len({line["answer_id"] for line in ours + plain}) == 26


def test_a_run_that_was_cut_goes_on(asked, writers, tmp_path):
    """Cut in the method's answer to the sixth question: plain decoding's has been kept, and is not asked for again."""
    settings, path = {"weights": "a", "temperature": 0.0}, tmp_path / "a.jsonl"
    whole = ask(asked, writers, BYTES, 0, settings)
    all_asked, cut = list(writers["plain"].seen), writers["chain 4"]

    def interrupted(ids, seed):
        if seed == 8:
            raise KeyboardInterrupt
        return cut(ids, seed)

    with pytest.raises(KeyboardInterrupt):
        ask(asked, writers | {"chain 4": interrupted}, BYTES, 0, settings, path)
    kept = (tmp_path / "a.plain.jsonl").read_text()
    assert len(kept.splitlines()) == 6 and len(path.read_text().splitlines()) == 5
    for write in writers.values():
        write.seen.clear()
    assert ask(asked, writers, BYTES, 0, settings, path) == whole
    warm_up = ("qa 2?", 0)
    assert writers["plain"].seen == [warm_up, *all_asked[10:]] and cut.seen == [warm_up, *all_asked[9:]]
    assert (tmp_path / "a.plain.jsonl").read_text().startswith(kept)
    for write in writers.values():
        write.seen.clear()
    assert ask(asked, writers, BYTES, 0, settings, path) == whole and not cut.seen      # nothing is left


def test_answers_of_other_settings_are_refused(asked, writers, tmp_path):
    settings, path = {"weights": "a", "temperature": 0.0}, tmp_path / "a.jsonl"
    ask(asked, writers, BYTES, 0, settings, path)
    others = read_questions(write_lines(tmp_path / "other.jsonl", ASKED[:2]))
    for request, words in [((asked, writers, BYTES, 1, settings), "seed 0, here 1"),
                           ((asked, writers, BYTES, 0, settings | {"temperature": .5}), "temperature 0.0, here 0.5"),
                           ((others, writers, BYTES, 0, settings), f"questions {asked.digest}, here {others.digest}")]:
        with pytest.raises(RequestError, match=f"of other settings: {words}"):
            ask(*request, path)
    ask(asked, writers, BYTES, 0, {"weights": "a"}, tmp_path / "older.jsonl")           # which knew of no temperature
    with pytest.raises(RequestError, match="of other settings: temperature None, here 0.0"):
        ask(asked, writers, BYTES, 0, settings, tmp_path / "older.jsonl")
    for text, words in ("{}\n", "line 1 is no answer of this bench"), ("\n{", "line 2 is no JSON"):
        path.write_text(text)
        with pytest.raises(RequestError, match=words):
            ask(asked, writers, BYTES, 0, settings, path)


@pytest.mark.parametrize("name", ["a.jsonl", "a.plain.jsonl"])
def test_damaged_answers_are_refused_before_a_model_is_read(name, tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "read_pair", None)
    (tmp_path / name).write_text("{}\n")
    with pytest.raises(RequestError, match=f"{name}, line 1 is no answer of this bench"):
        speed.run([0.0], ["chain"], gammas=[2], prompts=CHAT, answers=tmp_path / "a.jsonl")


@pytest.mark.parametrize("damage, right", [
    ({}, True), ({"wall_time": [0.0]}, False), ({"wall_time": [1e9 - 1]}, True), ({"wall_time": [1e9]}, False),
    ({"new_tokens": [0]}, False), ({"new_tokens": [1]}, True), ({"new_tokens": [10 ** 9 - 1]}, True),
    ({"new_tokens": [10 ** 9]}, False), ({"accept_lengths": [2, 0]}, False), ({"turns": ["ab", "c"]}, False),
    ({"accept_lengths": []}, False), ({"new_tokens": [True]}, False)])
def test_how_many_tokens_and_seconds_an_answer_has(damage, right):
    one = {"turns": ["ab"], "new_tokens": [3], "wall_time": [2.5], "accept_lengths": [2, 1]}
    assert asking.is_answer({"question_id": 81, "choices": [one | damage]}) == right


SPEED_BENCH = ("coding", "humanities", "math", "multilingual", "qa", "rag", "reasoning", "roleplay", "stem",
               "summarization", "writing")
NOT_FETCHED = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
GOOD = b'{"prompt": "a"}\n'
BAD = [
    (GOOD + b"\n{oops\n", "line 3 is no JSON in UTF-8"), (GOOD + b'{"prompt": "\xe9"}', "line 2 is no JSON in UTF-8"),
    ('{"prompt": "a"}'.encode("utf-16"), "line 1 is no JSON in UTF-8"), (b"[1]", "line 1 is no JSON object"),
    (b"[" * 100_000, "line 1 is no JSON"), (b'{"prompt": "\x00"}', "line 1 is no JSON"),
    (GOOD + b"{}", 'line 2: a question has "turns"'), (b'{"prompt": ""}', "line 1: a question"),
    (b'{"prompt": ["a"]}', "line 1: a question"), (b'{"turns": "ab"}', "line 1: a question"),
    (b'{"turns": [], "prompt": "a"}', "line 1: a question"), (b'{"turns": ["a", null]}', "line 1: a question"),
    (b'{"question_id": 1.5, "prompt": "a"}', "line 1: question_id"), (b'{"category": 1, "prompt": "a"}', "line 1: "),
    (b'{"question_id": true, "prompt": "a"}', "line 1: question_id"),
    (b'{"question_id": 7, "prompt": "a"}\n' * 2, "line 2: the question_id 7 stands there twice"),
    (b"".join(b'{"question_id": %d, "prompt": "a"}\n' % i for i in (7, 8, 7)), "line 3: the question_id 7 stands"),
    (b'{"messages": [{"role": "system", "content": "a"}]}', "line 1: a question"), (b'{"messages": []}', "line 1: a q"),
    (b'{"messages": ["a"]}', "line 1: a question"),
    (GOOD + json.dumps({"turns": [f"{NOT_FETCHED}\n\nSum up: {{article}}"]}).encode(), "line 2 has no question, but"),
    (json.dumps({"turns": ["a", NOT_FETCHED]}).encode(), "line 1 has no question, but"),
    (b"", "has no question"), (b"\xef\xbb\xbf \r\n\r\n", "has no question")]


@pytest.mark.parametrize("data, words", BAD)
def test_a_bad_line_is_named_before_any_work(data, words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("nanospec.cli.bench.speed.find_source", None)
    (tmp_path / "q.jsonl").write_bytes(data)
    refused(["--prompts", str(tmp_path / "q.jsonl")], words, capsys)


def refused(argv: list[str], words: str, capsys) -> None:
    assert bench.main(argv) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and words in err and len(err) < 600, err


def test_speed_bench_has_eleven_rows(tmp_path, writers):
    """As its data set has lines, "turns", and as NeMo Skills prepares them, "messages"; its throughput sets have three
    categories. None is merged, and one of a user's own neither.
    """
    common = {"sub_category": "a", "source": "b", "src_id": "c", "difficulty": None, "multiturn": False}
    lines = [{"question_id": f"id{i}", "category": name, "turns": [f"{name}?", "And then?"]} | common
             for i, name in enumerate(SPEED_BENCH)]
    lines += [{"question_id": f"more{i}", "category": name, "messages": [
        {"role": "user", "content": turn} for turn in (f"{name}!", "b")]} | common
        for i, name in enumerate(SPEED_BENCH)]
    asked = read_questions(write_lines(tmp_path / "q.jsonl", lines))
    assert asked.each[11].turns == ["coding!", "b"] and asked.each[-1].before == 42
    rows = ask(asked, writers, BYTES, 0, {"weights": "a"})
    assert [(row["task"], row["questions"]) for row in rows] == [*((name, 2) for name in SPEED_BENCH), ("all", 22)]
    write_lines(tmp_path / "t.jsonl", [{"question_id": f"{i}", "category": name, "turns": ["a"]} | common
                                       for i, name in enumerate(("low_entropy", "mixed", "high_entropy"))])
    assert [one.task for one in read_questions(tmp_path / "t.jsonl").each] == ["low_entropy", "mixed", "high_entropy"]
    own = [{"category": "math", "prompt": "a"}, *({"question_id": number, "category": "math", "prompt": "b"}
                                                  for number in (80, 81, 90, 160, 161))]
    assert [one.task for one in read_questions(write_lines(tmp_path / "o.jsonl", own)).each] == [
        "math", "math", "mt_bench", "mt_bench", "mt_bench", "math"]
    mixed = [{"prompt": "a"}, {"question_id": 1, "prompt": "b"}]
    assert [one.id for one in read_questions(write_lines(tmp_path / "m.jsonl", mixed)).each] == ["line 1", 1]
    other = [{"question_id": 100, "category": "my own", "prompt": "a"}]
    asked = read_questions(write_lines(tmp_path / "c.jsonl", other))
    assert [row["task"] for row in ask(asked, writers, BYTES, 0, {"weights": "a"})] == ["my own"]       # which is all
    ends = [{"question_id": number, "category": "stem", "prompt": "a"} for number in (80, 81, 160, 161)]
    assert [one.task for one in read_questions(write_lines(tmp_path / "e.jsonl", ends)).each] == [
        "stem", "mt_bench", "mt_bench", "stem"]


def test_other_ways_to_write_the_file(tmp_path):
    """Windows': a mark at the beginning, and carriage returns. No line's end at the end; a line's end of Unicode's own
    within a text; a category that no benchmark has.
    """
    (tmp_path / "q.jsonl").write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n\r\n{"category": "my own", "question_id": "x",'
                                       b' "turns": ["b\xe2\x80\xa8c"]}')
    one, two = read_questions(tmp_path / "q.jsonl").each
    assert (one.line, one.id, one.task, one.turns) == (1, "line 1", "prompts", ["a"])
    assert (two.line, two.id, two.task, two.turns, two.before) == (3, "x", "my own", ["b\u2028c"], 1)


def test_files_that_differ_in_their_last_question_are_told_apart(tmp_path):
    long = [{"prompt": "a" * 999}] * 99
    assert len({read_questions(write_lines(tmp_path / "q.jsonl", [*long, {"prompt": text}])).digest
                for text in "bcb"}) == 2


def test_what_leaves_no_room_is_refused_by_its_line(asked):
    """The longest one: begin of text, 8 + 1 + 1 + 9 bytes with a dot for an answer, and two answers of up to 20.
    """
    assert len(prompts_within(asked, BYTES, 60, 20)) == 13
    with pytest.raises(RequestError, match="line 1: .* of up to 20 tokens this takes 60, and the context is 59"):
        prompts_within(asked, BYTES, 59, 20)


def test_a_category_called_all(tmp_path, writers):
    """It has a row of its own, beside that of all questions."""
    things = [{"category": "all", "prompt": "qa 7?"}, {"category": "other", "prompt": "b"}]
    rows = ask(read_questions(write_lines(tmp_path / "q.jsonl", things)), writers, BYTES, 0, {"weights": "a"})
    assert [(row["task"], row["questions"], row["baseline_tokens_per_s"]) for row in rows] == [
        ("all", 1, 4 / 12), ("other", 1, 1.0), ("all", 2, 8 / 16)]


def test_a_template_that_refuses_empty_answers(tmp_path):
    pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
    small_gguf.write(tmp_path / "a.gguf", template="{% for one in messages %}{% if not one.content %}{{ "
                     "raise_exception('empty') }}{% endif %}[{{ one.content }}]{% endfor %}")
    tokenizer = load_gguf(tmp_path / "a.gguf")[1]
    asked = read_questions(write_lines(tmp_path / "q.jsonl", [{"turns": ["a", "b"]}]))
    assert prompts_within(asked, tokenizer, 9 + 40, 20) == [tokenizer.encode("[a]")]
    assert ids_of(tokenizer, ["a", "b"], ["xy"]) == tokenizer.encode("[a][xy][b]")
    assert ids_of(tokenizer, ["a", "b", "c"], ["x", "y"]) == tokenizer.encode("[a][x][b][y][c]")


# The commands

@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("nanospec.fast.autotune.autotune", lambda *_, **__: "cpu, as it is")


def test_the_bench_asks_and_goes_on(tmp_path, quick, capsys, monkeypatch):
    """The pair writes bytes and has no template. Texts at temperature 0 are plain decoding's, answers fed back."""
    BYTES.save(tmp_path / "ranks.tiktoken")
    for name, layers in (("target.pt", 2), ("draft.pt", 1)):
        save_model(small_gpt(257, layers, layers, context=1024), tmp_path / name, BYTES)
    path = write_lines(tmp_path / "q.jsonl", [ASKED[0], *ASKED[3:8]])        # one of each task
    argv = ["speed", "--weights", str(tmp_path), "--device", "cpu", "--threads", "1", "--prompts", str(path),
            "--max-new-tokens", "6"]
    assert bench.main([*argv, "--temperatures", "0", "1", "--gammas", "2", "3", "--drafters", "chain", "lookup",
                       "--json", str(tmp_path / "rows.json"), "--markdown", str(tmp_path / "t.md")]) == 0
    rows, (out, err) = json.loads((tmp_path / "rows.json").read_text()), capsys.readouterr()
    assert [(row["temperature"], row["method"], row["task"]) for row in rows] == [
        (t, f"{name} {gamma}", task) for t in (0, 1) for name in ("chain", "lookup") for gamma in (2, 3)
        for task in TASKS]
    assert "6 questions of q.jsonl, 6 tokens each at most" in " ".join(out.split()) and "answers" in err
    for row in rows:
        assert f"{row['acceptance_length']:.2f}" in out and f"{row['spec_bench_speedup']:.2f}" in out
        assert row["acceptance_length"] >= 1
    assert (tmp_path / "t.md").read_text().count("mt_bench") == 8
    rows, _ = speed.run((0,), ("lookup",), gammas=(2,), prompts=path, max_new_tokens=2, weights=tmp_path)
    assert {(row["dtype"], row["threads"]) for row in rows} == {("float32", torch.get_num_threads())}   # as it ran
    once = [*argv, "--temperatures", "0", "--gammas", "2", "--answers", str(tmp_path / "a.jsonl")]
    assert bench.main(once) == 0
    ours, plain = ([json.loads(line)["choices"][0] for line in (tmp_path / name).read_text().splitlines()]
                   for name in ("a.jsonl", "a.plain.jsonl"))
    for one, other in zip(ours, plain):
        assert one["turns"] == other["turns"] and sum(one["new_tokens"]) == sum(one["accept_lengths"])
    capsys.readouterr()
    with monkeypatch.context() as none:
        none.setattr("nanospec.cli.bench.questions.answered", None)                     # nothing is asked again
        assert bench.main(once) == 0
        out, err = capsys.readouterr()
        assert "mt_bench" in out and "12 of 12 answers were kept" in err
        # Whatever the pair is converted to, this time, the answers are those of what was read.
        none.setattr("nanospec.fast.autotune.autotune",
                     lambda target, *_, **__: str(target.embedding.weight.data.zero_().shape))
        assert bench.main(once) == 0 and capsys.readouterr().out
        refused([*once, "--seed", "1"], "seed 0, here 1", capsys)
    monkeypatch.setattr("nanospec.fast.autotune.autotune", lambda *_, **__: "cpu, as it is")
    tree = [*once[:-1], str(tmp_path / "tree.jsonl"), "--drafters", "tree", "--shape"]
    assert bench.main([*tree, "[-1, 0, 0]"]) == bench.main([*tree, "2"]) == 0           # the same tree
    capsys.readouterr()
    refused([*tree, "[-1, 0, 1]"], "shape [-1, 0, 0], here [-1, 0, 1]", capsys)
    grown = [*once[:-1], str(tmp_path / "grown.jsonl"), "--drafters", "dynamic-tree", "--shape"]
    assert bench.main([*grown, '{"size": 3, "width": 2, "depth": 2}']) == 0
    capsys.readouterr()
    refused([*grown, '{"size": 4, "width": 2, "depth": 2}'], "of other settings: shape", capsys)
    save_model(small_gpt(257, 1, 8, context=1024), tmp_path / "draft.pt", BYTES)        # of the same name and sizes
    refused(once, "of other settings: digests", capsys)


@pytest.mark.parametrize("options, words", [
    (["--answers", "a.jsonl"], "--prompts FILE.jsonl"), (["--answers", "a.txt"], "--answers"),
    (["--prompts", "nowhere.jsonl"], "--prompts"), (["--prompts", "q.json"], "--prompts"),
    (["--prompts", "q.jsonl", "--answers", "a.jsonl"], "one method, of one gamma, at one temperature"),
    (["--prompts", "q.jsonl", "--answers", "a.jsonl", "--gammas", "2", "--temperatures", "0", "--draft-models", "gpt",
      "mlp"], "one method, of one gamma, at one temperature"),
    (["--prompts", "q.jsonl", "--compile"], "without --compile"),
    (["--prompts", "q.jsonl", "--max-new-tokens", "99999"], "q.jsonl, line 1: with answers of up to 99999")])
def test_what_cannot_be_asked(options, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if "99999" not in options:                                  # the context is the model's
        monkeypatch.setattr("nanospec.cli.bench.speed.read_pair", None)
    if words in ("--prompts FILE.jsonl", "without --compile"):  # before anything is looked for, or downloaded
        monkeypatch.setattr("nanospec.cli.bench.speed.find_source", None)
    write_lines(tmp_path / "q.jsonl", ASKED)
    refused(options, words, capsys)                             # before any weight is read


def test_questions_beside_transformers(tmp_path, quick, capsys):
    """Through the chat template, and with answers that end. At temperature 0 both write the same. Every method's
    answers are kept, and of each call what it brought.
    """
    pytest.importorskip("transformers", reason="transformers is not installed (the extra 'hf')")
    pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
    small_gguf.write(tmp_path / "a.gguf")
    path = write_lines(tmp_path / "q.jsonl", [{"category": "math", "turns": ["aa", "b"]}, {"prompt": "ccc"}])
    argv = ["transformers", "--weights", str(tmp_path / "a.gguf"), "--max-new-tokens", "20", "--threads", "1",
            "--dtype", "float32", "--prompts", str(path), "--answers", str(tmp_path / "a.jsonl")]
    assert bench.main([*argv, "--drafters", "lookup"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("math", "prompts", "all", "lookup 4", "transformers, prompt lookup"))
    ours, *others = ([json.loads(line)["choices"][0] for line in (tmp_path / f"a{name}.jsonl").read_text().splitlines()]
                     for name in ("", ".plain", ".transformers", ".transformers-prompt-lookup"))
    assert all([its["turns"] for its in answers] == [its["turns"] for its in ours] for answers in others)
    assert all(sum(its["accept_lengths"]) == sum(its["new_tokens"]) and len(its["accept_lengths"]) == sum(
        its["decoding_steps"]) for answers in (ours, *others) for its in answers)
    refused([*argv, "--drafters", "lookup", "suffix"], "--answers is for one method, of one gamma", capsys)
    for several in (["--rules", "token", "block"], ["--gammas", "2", "3"], ["--temperatures", "0", "1"]):
        refused(["speed", *argv[1:], "--drafters", "lookup", "--gammas", "2", "--temperatures", "0", *several],
                "--answers is for one method", capsys)
    _, shown = speed.run((0, 1), ("lookup",), prompts=path, max_new_tokens=4, weights=tmp_path / "a.gguf", threads=1,
                         others=lambda pair, request: ({}, {"somebody": "bfloat16"}))
    assert shown.caption.count("; somebody in bfloat16") == 1           # not once for each temperature
