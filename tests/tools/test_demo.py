"""`nanospec demo` as a user runs it: what it writes, what it refuses, and its picture. And the script demo.py."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from argparse import ArgumentTypeError
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console, Group

from nanospec.cli import demo, method_options, prepared
from nanospec.cli.bench import measure as measuring
from nanospec.cli.bench.command import HOW_MANY
from nanospec.cli.options import DRAFT_MODEL, MIN_P, TEMPERATURE, TOP_P, default_in_words, file, whole_number
from nanospec.cli.show.terminal import View, legend
from nanospec.fast.autotune import Setup
from nanospec.files.model_file import save_learned, save_model
from nanospec.files.checkpoint import WEIGHTS, load_pair
from nanospec.files.tokenizer import Tokenizer
from nanospec.generate import generate
from nanospec.methods.draft_models.medusa import Medusa
from nanospec.methods.index import DRAFTERS, RULES
from nanospec.proof.tables import small_gpt
from nanospec.speculate import ModelDrafter, Round, speculate, tokens_of
from tests.invented import Clock, chain, letters

ROOT = Path(__file__).parents[2]
PROMPT = "abcabcab"
KEYS = {"device", "dtype", "drafter", "rule", "steps", "gamma", "temperature", "baseline_tokens_per_s", "tokens_per_s",
        "speedup", "predicted_speedup", "alpha", "alpha_by_position", "c", "v", "acceptance_length", "rounds",
        "accepted", "accepted_lengths", "acceptance_rate", "drafted", "emitted", "overhead", "busy", "text"}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A pair of small models that write bytes."""
    folder, tokenizer = tmp_path_factory.mktemp("pair"), Tokenizer({bytes([b]): b for b in range(256)})
    tokenizer.save(folder / "ranks.tiktoken")
    for name, layers in (("target.pt", 2), ("draft.pt", 1)):
        save_model(small_gpt(257, layers, layers, context=128), folder / name, tokenizer)
    return folder


@pytest.fixture
def run(weights, capsys, untuned, monkeypatch):
    """run(*options) -> (exit status, what was printed, errors), of the small pair. What a call costs is made up."""
    monkeypatch.setattr(measuring, "step_seconds", lambda model, tokens=1, *_, **__: 1e-3 + 1e-4 * tokens)
    monkeypatch.setattr(measuring, "draft_seconds", lambda *_, **__: 2e-4)

    def of(*options: str) -> tuple[int, str, str]:
        status = demo.main(["--weights", str(weights), "--prompt", PROMPT, "--device", "cpu", "--dtype", "float64",
                            "--max-new-tokens", "8", *options])
        return status, *capsys.readouterr()
    return of


def test_what_it_writes(run, tmp_path, weights):
    status, out, err = run("--temperature", "0.8", "--gamma", "3", "--seed", "5", "--save", str(tmp_path / "a.svg"),
                           "--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html"),
                           "--max-new-tokens", "24")
    assert status == 0 and [line.rpartition("/")[2] for line in err.splitlines()] == [
        "measuring both again ... [....................]", "a.html is written: open it in a browser"]
    row, svg = json.loads((tmp_path / "a.json").read_text()), (tmp_path / "a.svg").read_text()
    assert 'viewBox="0 0 1531 ' in svg              # 124 columns of 12.2, and the frame, whatever this console has
    assert set(row) == KEYS
    assert row["device"] == "cpu" and row["dtype"] == "float64" and row["gamma"] == 3 and row["temperature"] == 0.8
    assert row["drafted"] == 3 * row["rounds"] and 0 < row["accepted"] <= row["drafted"]
    assert row["speedup"] == pytest.approx(row["tokens_per_s"] / row["baseline_tokens_per_s"])
    assert 0 < row["alpha"] < 1 and row["c"] > 0
    for word in ("alpha", "tokens per target call", "speed-up", "predicted", f"{row['speedup']:.2f}", "chain 3"):
        assert word in out
    assert out.count("replacement") == 1                        # no terminal: what was to be seen is shown at the end
    assert ("wins" in out) == (row["speedup"] > 1) and ("loses" in out) == (row["speedup"] <= 1)
    assert "The two texts differ because each was drawn with random numbers of its own." in " ".join(out.split())
    assert ElementTree.fromstring(svg) is not None and "line-through" in svg and "speculative" in svg
    assert all(any(word in line for line in lines_of(svg)) for word in ("speed-up", "tokens/s, speculative", "differ"))
    target, draft_model, tokenizer = load_pair(weights, dtype=torch.float64)
    rounds = speculate(target, ModelDrafter(draft_model, 3), [256, *PROMPT.encode()], 24, temperature=0.8, seed=5,
                       stop={256})
    tokens = tokens_of(rounds)
    assert tokenizer.decode(tokens) == row["text"] and len(tokens) == row["emitted"]
    assert row["acceptance_length"] == pytest.approx(row["emitted"] / row["rounds"])
    page = re.search('id="run">(.*?)</script>', (tmp_path / "a.html").read_text())
    played = json.loads(page[1])
    assert len(played["rounds"]) == row["rounds"] and played["prompt"] == PROMPT
    assert sum(shown["written"] for shown in played["rounds"]) == row["emitted"] and 0 < len(played["plain"]) <= 24
    assert all(min(shown["ms"]) > 0 for shown in played["rounds"])
    assert {name: played["numbers"][name] for name in played["numbers"] if name in row}.items() <= row.items()
    assert played["numbers"]["method"] == "chain 3" and "target in float64" in played["numbers"]["setting"]
    assert shlex.split(played["numbers"]["command"])[:4] == ["nanospec", "demo", "--weights", str(weights)]


def test_what_is_shown_is_measured_again_with_all_that_was_asked_for(run, monkeypatch):
    """After a few tokens of it, unseen."""
    asked = []

    def heard(work):
        return lambda *its, **more: asked.append((its, more)) or work(*its, **more)

    monkeypatch.setattr(demo, "generate", heard(generate))
    monkeypatch.setattr(demo, "speculate", heard(speculate))
    monkeypatch.setattr(demo, "measure_setups", heard(lambda *_, **__: sys.exit(3)))
    monkeypatch.setattr(demo.Demo, "method", lambda *its, method=demo.Demo.method: replace(
        found := method(*its), run=heard(found.run)))
    with pytest.raises(SystemExit):
        run(*"--temperature 1.75 --top-k 3 --top-p 0.9 --min-p 0.1".split(),
            *"--seed 11 --max-new-tokens 29 --gamma 2 --rule block".split())
    given = {"temperature": 1.75, "top_k": 3, "top_p": .9, "min_p": .1, "seed": 11, "max_new_tokens": 29,
             "stop": {256}}
    warm_up, *asked = asked
    assert [{name: more[name] for name in given} for _, more in asked] == 3 * [given]
    assert warm_up[1] == asked[0][1] | {"max_new_tokens": 16}
    assert asked[1][0][1].most == 2 and asked[1][1]["rule"] is RULES["block"]
    (setup,), _, _, methods = asked[2][0]
    assert [method.name for method in methods(*setup[:2])] == ["chain 2, block"]


def test_files_are_written_though_nobody_reads_the_rest(run, tmp_path, monkeypatch):
    class Gone(Console):
        def print(self, *_, **__):
            raise SystemExit(141)

    monkeypatch.setattr(demo, "Console", Gone)
    with pytest.raises(SystemExit):
        run("--gamma", "3", "--save", str(tmp_path / "a.svg"), "--json", str(tmp_path / "a.json"),
            "--html", str(tmp_path / "a.html"))
    assert json.loads((tmp_path / "a.json").read_text())["gamma"] == 3
    assert "</svg>" in (tmp_path / "a.svg").read_text() and "</html>" in (tmp_path / "a.html").read_text()


def test_eagerly_and_compiled(run, stand_in, tmp_path):
    status, out, err = run("--compile", "--gamma", "3", "--json", str(tmp_path / "a.json"))
    row = json.loads((tmp_path / "a.json").read_text())
    assert status == 0 and set(row) == KEYS | {
        f"{key}_{way}" for key in ("baseline_tokens_per_s", "tokens_per_s") for way in ("eager", "compiled")}
    assert " ".join(out.split()).count("; compiled, and") == 2


def test_temperature_zero_says_whether_the_texts_agree(run):
    """It is the default."""
    status, out, _ = run("--gamma", "4")
    assert status == 0 and "token for token" in " ".join(out.split())


def test_temperature_zero_says_whether_it_was_rounding():
    """By the judge of texts: a token that the target would not write is a bug."""
    target, tokenizer = small_gpt(257, 2, 2).bfloat16(), Tokenizer({bytes([b]): b for b in range(256)})
    plain = [*generate(target, [5, 6], 40, 0)]
    this = SimpleNamespace(args=SimpleNamespace(temperature=0), ids=[5, 6], tokenizer=tokenizer,
                           setups=[Setup(None, None, None), Setup(target, None, None)])     # the last one wrote them
    text = demo.Demo.difference(this, plain, [*plain[:30], (plain[30] + 1) % 257, *plain[31:]]).plain
    assert "they part at new token 30" in text and "A BUG in B" in text and "target in bfloat16" in text
    for texts in (plain, plain[:20]), (plain[:20], plain):
        assert "token for token" in demo.Demo.difference(this, *texts).plain


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_steps_of_every_drafter(run, drafter):
    shape = ["--shape", "2", "1"] if DRAFTERS[drafter].takes == "shape" else []
    status, out, _ = run("--step", "--drafter", drafter, "--temperature", "0.8", "--max-new-tokens", "12", *shape)
    assert status == 0 and out.startswith("round 1\n")
    coins = re.findall(r"u = (\d\.\d\d) ([<≥]) (\d\.\d\d)  (\w+)", out)
    assert all((float(u) <= float(prob)) if sign == "<" else (float(u) >= float(prob)) for u, sign, prob, _ in coins)
    assert {(sign, word) for _, sign, _, word in coins} <= {("<", "accepted"), ("≥", "rejected")}
    # Of 257 bytes that are alike the one draws none, and for the other, by the clock, drafting may not pay.
    assert coins or drafter in ("entropy", "by-load")
    rounds = len(re.findall("^round", out, re.M))
    assert out.count("bonus, drawn") + out.count("replacement, drawn") == rounds > 1        # no key is waited for


def test_at_a_keyboard_every_round_waits_for_the_enter_key(run, monkeypatch):
    """Until it is Ctrl-D, which ends them."""
    keys = iter(["", "", EOFError()])

    def wait(console, prompt):
        if key := next(keys):
            raise key

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(Console, "input", wait)
    status, out, _ = run("--step", "--temperature", "0.8", "--max-new-tokens", "24")
    assert status == 0 and re.findall(r"^round (\d+)", out, re.M) == ["1", "2", "3"]


def test_the_steps_are_drawn_by_the_seed(run):
    first, again, other = (run("--step", "--temperature", "1", "--max-new-tokens", "12", "--seed", seed)[1]
                           for seed in ("5", "5", "6"))
    assert first == again != other


@pytest.mark.parametrize("drafter", ["chain", "confidence"])
def test_a_draft_model_of_a_few_draft_tokens(run, weights, drafter, tmp_path):
    """Without a --gamma no more are tried than it can draft; who asks for more is refused."""
    target = load_pair(weights).target
    save_learned("medusa", Medusa(257, 16, [1], heads=3).attach(target), weights / "medusa.pt", target)
    status, out, err = run("--draft-model", "medusa", "--drafter", drafter, "--json", str(tmp_path / "a.json"))
    assert status == 0 and "Traceback" not in err and json.loads((tmp_path / "a.json").read_text())["gamma"] <= 3
    status, _, err = run("--draft-model", "medusa", "--drafter", drafter, "--gamma", "4")
    assert status == 2 and "at most 3 tokens" in err


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_by_its_name(run, tmp_path, rule):
    status, out, _ = run("--rule", rule, "--drafter", "tree", "--shape", "2", "1", "--json", str(tmp_path / "a.json"))
    row = json.loads((tmp_path / "a.json").read_text())
    assert status == 0 and row["rule"] == rule and row["gamma"] == 4 and "tree 4" in out


@pytest.mark.parametrize("given", ["[-1, 0, 1, 0]", "[[0], [0, 0], [1]]", "tree.json"])
def test_a_whole_tree(run, tmp_path, given):
    (tmp_path / "tree.json").write_text("[[1], [0], [0, 0]]")
    given = str(tmp_path / given) if given.endswith(".json") else given
    status, out, _ = run("--drafter", "tree", "--shape", given, "--json", str(tmp_path / "a.json"))
    assert status == 0 and json.loads((tmp_path / "a.json").read_text())["gamma"] == 3 and "tree 3" in out


def test_a_tree_that_is_grown_as_it_is_asked_for(run, tmp_path):
    status, out, _ = run("--drafter", "dynamic-tree", "--shape", GROWN, "--json", str(tmp_path / "a.json"))
    row = json.loads((tmp_path / "a.json").read_text())
    assert status == 0 and row["gamma"] == 9 and row["steps"] == 2 and "dynamic-tree 9" in out


@pytest.mark.parametrize("options", [["--max-new-tokens", "1", "--gamma", "2"], ["--drafter", "goodput"],
                                     ["--drafter", "lookup", "--gamma", "100"], ["--temperature", "1e-30"]])
def test_the_edges_of_what_can_be_asked(run, options):
    assert run(*options)[0] == 0


def test_the_default_length_fits_a_small_context(weights, capsys):
    long = "x = 1\n" * 20                                           # 121 tokens with end of text, of 128
    assert demo.main(["--weights", str(weights), "--dtype", "float64", "--device", "cpu", "--prompt", long]) == 0


def test_a_tree_is_measured_within_what_the_context_leaves(run):
    """123 tokens of 128."""
    assert run("--drafter", "tree", "--prompt", "a" * 122, "--max-new-tokens", "3")[0] == 0


def test_through_a_pipe(weights, tmp_path):
    """As a user starts it, with a reader who goes away, no keyboard, and a narrow window without colour."""
    options = f"--weights {weights} --device cpu --dtype float32 --max-new-tokens 8 --gamma 3 --json {tmp_path}/a.json"
    command = f"{sys.executable} -m nanospec demo --prompt 'class Stack:' {options} | tee /dev/stderr | head -5"
    environment = os.environ | {"NO_COLOR": "1", "FORCE_COLOR": "1", "COLUMNS": "30", "TERM": "dumb",
                                "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    assert "Traceback" not in done.stderr and not re.search(r"\x1b\[[0-9;]*3[0-7]", done.stderr)
    assert "class Stack" in done.stderr and "measuring what is fastest here ..." in done.stderr
    assert json.loads((tmp_path / "a.json").read_text())["gamma"] == 3 and [*tmp_path.glob("nanospec/*.json")]


# What is measured, and when

@pytest.fixture
def events(monkeypatch):
    """What happens at a start, in order: a look at what is fastest, or a careful one; the first token that is shown;
    the measurement of what was shown, with how many turns.
    """
    found = []

    def generate(*its, **more):
        for number, token in enumerate(written(*its, **more)):
            if not number:
                found.append("token")
            yield token

    def measure_setups(*its, repeats, seen, **more):
        found.append(f"{repeats} turns" + ", one seen" * bool(seen))
        return measured(*its, repeats=repeats, seen=seen, **more)

    written, measured, looked = demo.generate, demo.measure_setups, prepared.fastest
    monkeypatch.setattr(prepared, "fastest", lambda *its, **more: found.append("look") or looked(*its, **more))
    monkeypatch.setattr(prepared, "autotune", lambda *_, **__: found.append("careful look"))
    monkeypatch.setattr(demo, "generate", generate)
    monkeypatch.setattr(demo, "measure_setups", measure_setups)
    return found


def test_the_first_token_comes_before_any_measurement_but_a_look_which_is_kept(run, events):
    """With --measure it is careful, and anew; and what it finds is kept, too."""
    after = ["token", "3 turns, one seen"]
    for options, expected in ([], ["look", *after]), ([], after), (["--temperature", "0.8"], after), (
            ["--measure"], ["careful look", "token", "5 turns, one seen"]), ([], after), (
            ["--measure"], ["careful look", "token", "5 turns, one seen"]), (
            ["--threads", "1"], ["look", *after]), (["--threads", "1"], after):
        events.clear()
        assert run("--max-new-tokens", "2", *options)[0] == 0 and events == expected, options


def test_step_by_step_nothing_is_measured_but_the_look(run, events):
    for expected in ["look"], []:
        events.clear()
        assert run("--step", "--max-new-tokens", "4")[0] == 0 and events == expected


def test_compiled_what_was_seen_is_the_compiled_one_and_both_are_measured(run, events, stand_in):
    assert run("--compile", "--gamma", "3")[0] == 0 and events == ["token", "3 turns"]


def test_compiled_it_is_tuned_as_it_is_asked_for(run, monkeypatch):
    asked = []
    monkeypatch.setattr(prepared, "setups_of", lambda *its: asked.append(its[2:]) or sys.exit(3))
    with pytest.raises(SystemExit):
        run("--compile", "--threads", "3")
    assert asked == [("float64", 3, True)]


def test_a_method_is_of_the_models_and_the_length_that_are_named(monkeypatch):
    """Or of those that run eagerly, and the length that is asked for."""
    monkeypatch.setattr(prepared, "method_of", lambda *its, gamma, **more: (*its, gamma, more))
    this = SimpleNamespace(target="a", draft_model="b", gamma=4, options={"remember": 9},
                           args=SimpleNamespace(drafter="chain", rule="block"))
    assert prepared.Prepared.method(this) == ("a", "b", "chain", "block", 4, {"remember": 9})
    assert prepared.Prepared.method(this, "c", "d", 7) == ("c", "d", "chain", "block", 7, {"remember": 9})


def test_what_calls_cost_is_measured_once(run, monkeypatch):
    measured, measure = [], method_options.measure_costs
    monkeypatch.setattr(method_options, "measure_costs", lambda *its, **more: measured.append("costs") or measure(
        *its, **more))
    for _ in range(2):
        assert run("--drafter", "goodput")[0] == 0
    assert measured == ["costs"]


def test_where_nothing_can_be_kept_it_is_looked_for_again(run, events, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("nanospec.files.kept.cache_folder", lambda: tmp_path / "file" / "folder")
    for _ in range(2):
        events.clear()
        status, _, err = run()
        assert status == 0 and err.count("\n") == 1 and events[0] == "look"


def test_how_many_tokens_are_drafted_where_no_number_is_asked_for(run, tmp_path):
    for drafter, gamma in ("chain", 4), ("lookup", 8):
        assert run("--drafter", drafter, "--json", str(tmp_path / "a.json"))[0] == 0
        assert json.loads((tmp_path / "a.json").read_text())["gamma"] == gamma


def test_a_default_in_words():
    """None of what no terminal could show, nor of what is none; and a pair by what it is."""
    assert [*map(default_in_words, (4, .5, "block", (1, 2), WEIGHTS, None, False, "a\nb"))] == [
        "4", "0.5", "block", "1 2", "the pair that ships", "", "", ""]


def test_the_ends_of_what_options_take(tmp_path):
    (tmp_path / "a.txt").touch()
    for name in str(tmp_path / "a.txt"), str(tmp_path / "a.pt"):            # no weights, and not there
        with pytest.raises(ArgumentTypeError):
            DRAFT_MODEL(name)
    assert [MIN_P("0"), MIN_P("1"), TOP_P("1"), TEMPERATURE("0")] == [0, 1, 1, 0]
    assert [HOW_MANY("1"), HOW_MANY("1000000000")] == [1, 10 ** 9]
    for many in "0", "1000000001":
        with pytest.raises(ArgumentTypeError):
            HOW_MANY(many)


@pytest.mark.parametrize("odd", range(3))
def test_the_script_says_so_where_a_text_is_another(odd, tmp_path, monkeypatch, capsys):
    """Of three texts of one token, whichever is another one."""
    source = (ROOT / "demo.py").read_text().replace("NEW, TURNS = 64, 3", "NEW, TURNS = 1, 1")
    (tmp_path / "demo.py").write_text(source)
    tokens = iter([7 + (i == odd) for i in range(3)])
    monkeypatch.setattr("nanospec.generate.generate", lambda *_: iter([next(tokens, 7)]))
    monkeypatch.setattr("nanospec.speculate.speculate",
                        lambda *_: iter([Round([4], [-1], [], 7, [next(tokens, 7)], *torch.zeros(2, 1, 9), 4)]))
    runpy.run_path(str(tmp_path / "demo.py"))
    assert "The three texts are NOT the same." in capsys.readouterr().out


def test_the_script(tmp_path, capsys, monkeypatch):
    """Through a pipe, of fewer tokens: three times the text that the target alone writes, and two lines of speeds, each
    of texts at its own temperature.
    """
    temperatures = []
    for name, function in ("generate", generate), ("speculate", speculate):
        monkeypatch.setattr(f"nanospec.{name}.{name}", lambda *its, function=function: temperatures.append(its[-1]) or
                            function(*its))
    source = (ROOT / "demo.py").read_text()
    assert source.count("NEW, TURNS = 64, 3") == 1
    (tmp_path / "demo.py").write_text(source.replace("NEW, TURNS = 64, 3", "NEW, TURNS = 12, 1"))
    names = runpy.run_path(str(tmp_path / "demo.py"))
    out = capsys.readouterr().out
    target, _, tokenizer = load_pair()
    ids = tokenizer.begin + tokenizer.encode(names["PROMPT"])
    text = tokenizer.decode(list(generate(target, ids, 12, temperature=0)))
    assert out.count(names["PROMPT"] + text) == 3 and "The three texts are the same, token for token." in out
    calls = [int(count) for count in re.findall(r"12 tokens in (\d+) calls", out)]
    assert calls[0] == 12 > max(calls[1:]) and len(calls) == 3
    assert temperatures == 3 * [0] + 3 * [.8]
    assert len(re.findall(r"Times as fast at temperature (0|0\.8): \d+\.\d\d \(.*?\), \d+\.\d\d", out)) == 2


def test_what_the_script_shows_and_times(monkeypatch, capsys):
    """Each way with a pair of its own. Its seconds are made up, turn by turn: those of the first are shown, and of the
    ratios of all three the median: 1.5, 3 and 4; .5, 2.5 and 1.6; then 3.5, 1.25 and .5; 7, 2.5 and .25.
    """
    clock, asked = Clock(), []
    seconds = iter([6, 4, 12, 9, 3, 3.6, 4, 1, 2.5, 7, 2, 1, 5, 4, 2, 3, 6, 12])

    def during(found, *its):
        asked.append(its)
        clock.wind(next(seconds))
        return iter(found)

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("time.perf_counter", clock)
    monkeypatch.setattr("nanospec.files.load_pair", lambda device, draft_model: (
        f"target of {draft_model}", draft_model,
        SimpleNamespace(begin=[0], encode=lambda text: [1], decode=letters)))
    monkeypatch.setattr("nanospec.generate.generate", lambda target, ids, *its: during([1, 7, 1, 2, 7], target, *its))
    monkeypatch.setattr("nanospec.speculate.ModelDrafter", lambda draft_model, gamma: (draft_model, gamma))
    monkeypatch.setattr("nanospec.speculate.speculate", lambda target, drafter, ids, *its: during(
        [chain([.5, .25], 1), chain([.75, .625], 2)], target, drafter, *its))
    runpy.run_path(str(ROOT / "demo.py"))
    assert asked[:3] == [("target of gpt", 64, 0), ("target of gpt", ("gpt", 4), 64, 0),
                         ("target of prefix", ("prefix", 4), 64, 0)] and len(asked) == 18
    out = capsys.readouterr().out
    assert "\x1b[32ma\x1b[0m\x1b[9;31mb\x1b[0m\x1b[4;33mz\x1b[0m\x1b[32mab\x1b[0m\x1b[1;34mz\x1b[0m" in out
    out = " ".join(re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", out).split())
    assert re.findall(r"64 tokens in (\d+) calls of the target, (\S+) seconds", out) == [
        ("64", "6.0"), ("2", "4.0"), ("2", "12.0")] and "the same, token for token" in out
    assert re.findall(r"Times as fast .*?\), .*?\)", out) == [
        "Times as fast at temperature 0: 3.00 (a small GPT drafts), 1.60 (prefix drafts)",
        "Times as fast at temperature 0.8: 1.25 (a small GPT drafts), 2.50 (prefix drafts)"]


@pytest.mark.slow
def test_the_script_as_it_is():
    done = subprocess.run([sys.executable, "demo.py"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr and "are the same, token for token" in done.stdout


# What is refused. Nothing is loaded for the first list, and nothing measured for the second.

GROWN = '{"size": 9, "width": 3, "depth": 2}'
BEFORE_LOADING = [
    (["--max-new-tokens", "0"], "--max-new-tokens"), (["--max-new-tokens", "x"], "--max-new-tokens"),
    (["--max-new-tokens", "9" * 5000], "--max-new-tokens"), (["--gamma", "0"], "--gamma"),
    (["--gamma", "-1"], "--gamma"), (["--gamma", "5000"], "--gamma"), (["--temperature", "-1"], "--temperature"),
    (["--temperature=-inf"], "--temperature"), (["--temperature", "nan"], "--temperature"),
    (["--temperature", "inf"], "--temperature"), (["--temperature", ""], "--temperature"),
    (["--top-p", "2"], "--top-p"), (["--top-p", "nan"], "--top-p"), (["--top-p", "0"], "--top-p"),
    (["--min-p", "-0.1"], "--min-p"), (["--min-p", "1.1"], "--min-p"), (["--min-p", "nan"], "--min-p"),
    (["--logit-bias=3"], "--logit-bias is left out"),
    (["--repetition-penalty", "1.1"], "alone (for code, docs/METHODS.md has Penalised)"),
    (["--minp", "1"], "unrecognized"),
    (["--top-k", "0"], "--top-k"), (["--top-k", "1.5"], "--top-k"), (["--seed", str(2 ** 64)], "--seed"),
    (["--seed", "one"], "--seed"), (["--drafter", "nobody"], "nobody"), (["--rule", "nothing"], "nothing"),
    (["--dtype", "int4"], "int4"), (["--device", "meta"], "meta"), (["--device", "cuda:99"], "cuda:99"),
    (["--device", "nonsense"], "nonsense"), (["--device", ""], "--device"), (["--device", "xla"], "xla"),
    (["--device", "hpu"], "hpu"), (["--device", "cpu:-1"], "cpu:-1"), (["--weights", "nowhere"], "nowhere"),
    (["--weights", "demo.py"], "demo.py"), (["--prompt", "\udcff\udcfe"], "--prompt"), (["--shape", "2"], "--shape"),
    (["--drafter", "tree", "--shape", "0"], "--shape"), (["--drafter", "tree", "--shape", "5000"], "--shape"),
    (["--drafter", "tree", "--shape", "[-1, 1]"], "--shape: must be children at every depth, or a whole tree"),
    (["--drafter", "dynamic-tree", "--shape", "2"], "takes --gamma, not --shape"),
    (["--drafter", "tree", "--shape", GROWN], "takes --shape, not --gamma"),
    (["--drafter", "dynamic-tree", "--shape", GROWN, "--gamma", "3"], "--gamma"),
    (["--drafter", "dynamic-tree", "--shape", GROWN.replace("9", "0")], "--shape"),
    (["--drafter", "dynamic-tree", "--shape", GROWN.replace("9", "99999")], "--shape"),
    (["--drafter", "dynamic-tree", "--shape", GROWN, "2"], "a whole tree stands alone"),
    (["--drafter", "tree", "--shape", "[-1, 0, 7]"], "got '[-1, 0, 7]': node 2 has the parent 7"),
    (["--drafter", "tree", "--shape", "{}"], "--shape"),
    (["--drafter", "tree", "--shape", "no.json"], "got 'no.json': No such file"),
    (["--drafter", "tree", "--shape", "[[0]]", "2"], "a whole tree stands alone"),
    (["--drafter", "tree", "--shape", "[[0]]", "[[0]]"], "a whole tree stands alone"),
    (["--drafter", "tree", "--shape", "[[[0]]]"], "--shape: must be"),
    (["--drafter", "tree", "--shape", "[" * 9999], "--shape"), (["--drafter", "tree", "--shape", "-1"], "--shape"),
    (["--drafter", "tree", "--shape", *["9"] * 3000], "--shape"), (["--drafter", "tree", "--gamma", "3"], "--shape"),
    (["--drafter", "lookahead", "--gamma", "3"], "neither"),
    (["--step", "--rule", "block"], "--rule token"), (["--step", "--json", "a"], "--step"),
    (["--step", "--save", "a.svg"], "--step"),
    (["--compile", "--drafter", "lookup"], "--compile"), (["--compile", "--step"], "--step"),
    (["--step", "--html", "a.html"], "--html"), (["--html", "a.html", "--rule", "block"], "--html shows"),
    (["--html", "a.html", "--compile"], "in a compiled round"), (["--html", "a.svg"], ".html"),
    (["--html", "nowhere/a.html"], "nowhere/a.html"), (["--html", "tests"], "--html"),
    (["--compile", "--rule", "traversal"], "--compile"), (["--save", "a.png"], ".svg"),
    (["--save", "svg"], ".svg"), (["--figure", "a.png"], "--figure"),
    (["--json", "nowhere/a.json"], "nowhere/a.json"), (["--json", "tests"], "--json"), (["--json", ""], "--json"),
    (["--json", "demo.py/a"], "--json"), (["--json", "/proc/version/a"], "--json"),
    (["--save", "nowhere/a.svg"], "nowhere/a.svg"),
    (["--json", "x" * 5000], "--json"), (["--nonsense"], "--nonsense"), (["a\x1b[2Jb\x9b\n"], "a\ufffd[2Jb"),
    (["--gamma"], "--gamma")]
BEFORE_MEASURING = [
    (["--max-new-tokens", "9999"], "context"), (["--prompt", "x = 1\n" * 200], "context"),
    (["--gamma", "200"], "context"), (["--drafter", "tree", "--shape", "20", "20"], "context"),
    (["--weights", "tests"], "tests"), (["--max-new-tokens", "999999999"], "context")]


def test_what_a_number_or_a_file_must_be(tmp_path):
    assert [whole_number(2, 9)(text) for text in ("2", "9", " 3 ")] == [2, 9, 3]
    for text in "1", "10", "2.0", "":
        words = f"must be a whole number from 2 to 9, got {text!r}"
        with pytest.raises(ArgumentTypeError, match=f"^{re.escape(words)}$"):
            whole_number(2, 9)(text)
    assert file(".svg")(str(tmp_path / "a.svg")) == tmp_path / "a.svg" and file()(str(tmp_path / "a")).name == "a"
    for kind, name, words in ("", "none/a", "a file"), (".svg", "a.png", "a .svg file"), ("", "", "a file"):
        with pytest.raises(ArgumentTypeError, match=f"^must be {words} in a folder that can be written to, got "):
            file(kind)(str(tmp_path / name))


def refused(status: int, out: str, err: str, words: str) -> None:
    assert status == 2 and out == "" and err.count("\n") == 1 and words in err and len(err) < 400, (status, out, err)
    assert "Traceback" not in err and not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", err)


@pytest.mark.parametrize("options, words", BEFORE_LOADING)
def test_a_bad_request_is_one_line_before_anything_is_loaded(run, monkeypatch, options, words):
    monkeypatch.setattr("nanospec.cli.prepared.read_pair", None)
    refused(*run(*options), words)


def test_what_does_not_go_together_is_refused_before_anything_is_downloaded(run, monkeypatch):
    monkeypatch.setattr("nanospec.cli.prepared.find_source", None)
    refused(*run("--drafter", "lookahead", "--gamma", "3"), "takes neither --gamma nor --shape")


@pytest.mark.parametrize("options, words", BEFORE_MEASURING)
def test_a_request_that_this_pair_cannot_answer_is_one_line_before_anything_is_measured(run, monkeypatch, options,
                                                                                        words):
    for name in "autotune", "fastest", "options_of":
        monkeypatch.setattr(prepared, name, None)
    refused(*run(*options), words)


def test_a_folder_that_cannot_be_written_to(run, tmp_path, monkeypatch):
    """A superuser may write anywhere, so the system's answer is made up here."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    refused(*run("--json", str(tmp_path / "a.json")), "--json")


def test_an_interrupt_is_no_traceback(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "measure_setups", interrupted)
    status, _, err = run("--gamma", "2")
    assert status == 130 and "Traceback" not in err


# The picture

def lines_of(svg: str) -> list[str]:
    """The text of a picture that rich drew, line by line."""
    lines: dict[float, list[tuple[float, str]]] = {}
    for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        lines.setdefault(float(text.get("y")), []).append((float(text.get("x")), text.text or ""))
    return [" ".join(part for _, part in sorted(lines[y])).replace("\xa0", " ") for y in sorted(lines)]


def words_of(lines: list[str]) -> set[str]:
    return set(re.findall(r"[^\W\d]{2,}", " ".join(lines)))


def test_the_readmes_picture_says_what_the_program_says():
    """All words but those of the two texts, and of the machine that it was made on."""
    lines = lines_of((ROOT / "docs" / "demo.svg").read_text())
    below = next(i for i, line in enumerate(lines) if "replacement" in line and "bonus" in line)
    row = dict.fromkeys(KEYS - {"text", "drafter"}, 2.0) | {"drafter": "chain", "gamma": 3, "alpha": 0.5, "busy": False}
    row["speedup"] = 2.0 if "wins" in " ".join(lines) else 0.5
    view = View("", lambda ids: "")
    view.plain, view.plain_seconds = [1] * 9, [0.1] * 9
    console = Console(file=StringIO(), width=demo.PICTURE_WIDTH)
    temperature = 0.0 if "token for token" in " ".join(lines) else 0.8
    last = demo.Demo.difference(SimpleNamespace(args=SimpleNamespace(temperature=temperature)), [1],
                                [1 + (temperature > 0)])
    console.print(Group(view.panels(console), legend(), view.lanes(console), demo.describe(row, "chain 3", ""), last))
    said = words_of(console.file.getvalue().splitlines()) - {"waiting"}
    machine = words_of(["cpu cuda float32 bfloat16 float64 packed from 4 tokens on draft model in threads thread"])
    assert said - words_of(lines) == set()
    assert words_of(lines[below:]) - said - machine == set()
