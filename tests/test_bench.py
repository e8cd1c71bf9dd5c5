"""What the bench counts and writes. How fast anything is decides no test."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nanospec.files.checkpoint import save_model
from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.bench.limits import simulated, weight_bytes
from nanospec.bench.measure import Costs, alpha_of, measure, measure_accepted, timed
from nanospec.methods import DRAFTERS, method_of
from nanospec.model import GPT, Config
from nanospec.proof.tables import TableModel
from nanospec.proof.tables import small_gpt
from nanospec.bench.race import EVERY
from nanospec.show.figures import draw_simulated
from nanospec.speculate import tokens_of
from nanospec.theory import expected_tokens
from nanospec.files.tokenizer import Tokenizer

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def pair():
    return small_gpt(11, 3, 1), small_gpt(11, 1, 2)


def test_a_rows_numbers_agree(pair):
    (row, rounds), = measure(*pair, [[1, 2], [3]], [method_of(*pair, gamma=3)], repeats=2, max_new_tokens=30,
                             temperature=0.9)
    assert row["rounds"] == len(rounds) and row["drafted"] == 3 * row["rounds"]
    assert row["accepted"] == sum(one.kept for one in rounds)
    assert row["tokens_per_target_call"] == pytest.approx(1 + row["accepted"] / row["rounds"])
    assert row["speedup"] == row["tokens_per_s"] / row["baseline_tokens_per_s"]
    assert row["alpha"] == alpha_of(rounds) and row["temperature"] == 0.9
    assert row["overhead"] > 0 and row["c"] > 0 and row["v"] > 0 and row["steps"] == 3


def test_methods_take_turns_and_a_repeat_is_the_same_work(pair):
    """Whoever is measured beside it, and however often, a method writes what it writes alone."""
    methods = [method_of(*pair, gamma=2), method_of(*pair, "tree", "traversal", topology=[-1, 0, 0])]
    once, thrice = (measure(*pair, [[1, 2]], methods, repeats=n, max_new_tokens=20) for n in (1, 3))
    for method, (row, rounds), (_, again) in zip(methods, once, thrice):
        alone = tokens_of(method.run([1, 2], max_new_tokens=20))
        assert tokens_of(rounds) == tokens_of(again) == alone
        assert row["gamma"] == method.gamma == 2 and row["drafter"] == method.drafter
    assert once[1][0]["steps"] == 1 and once[1][0]["drafted"] == 2 * once[1][0]["rounds"]


def test_alpha_of_a_tree_is_that_of_first_children(pair):
    """Along a chain drafted as a tree it is what the chain's own rounds say."""
    target, draft = pair
    chain = measure(target, draft, [[1, 2]], [method_of(target, draft, "tree", topology=[-1, 0, 1])], repeats=1,
                    max_new_tokens=30)[0]
    betas = [sum(min(p, q) for p, q in zip(one.p_target[i].tolist(), one.q_draft[i].tolist()))
             for one in chain[1] for i in range(min(one.kept + 1, 2))]
    assert chain[0]["alpha"] == pytest.approx(sum(betas) / len(betas))


def test_costs_of_rounds_by_hand(pair):
    """tokens / (steps c + v(rows)), summed over rounds: with free drafts and free checking, tokens per call."""
    rounds = measure(*pair, [[1, 2]], [method_of(*pair, "tree", topology=[-1, 0, 0, 1])], repeats=1,
                     max_new_tokens=30)[0][1]
    calls, tokens = len(rounds), sum(one.kept + 1 for one in rounds)
    assert Costs(0, {4: 1}, 1).speedup(rounds) == pytest.approx(tokens / calls)
    assert Costs(.25, {4: 1.5}, 1).speedup(rounds) == pytest.approx(tokens / (2 * calls))


def test_the_acceptance_vector_counts_which_child_was_kept():
    """A draft that is the target has its first child kept, always; the best tree is then a chain."""
    target = TableModel(4, 3)
    assert measure_accepted(target, target, [[1, 2]], max_new_tokens=20) == [1, 0, 0, 0]
    accepted = measure_accepted(target, TableModel(4, 4), [[1, 2], [0]], max_new_tokens=30, temperature=1.5)
    assert 0 < accepted[1] < accepted[0] < 1 and sum(accepted) <= 1


@pytest.mark.parametrize("drafter, rule", [("chain", "traversal"), ("tree", "block")])
def test_a_rule_that_cannot_judge_a_drafter_is_refused(pair, drafter, rule):
    with pytest.raises(RequestError, match="does not judge"):
        method_of(*pair, drafter, rule)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_drafter_by_name_writes_the_targets_text(pair, drafter):
    """In float64, at temperature 0, whoever guesses; and with as many guesses a round as it says."""
    for ids in [[1, 2], [3, 4, 5, 3, 4, 5, 3]]:
        method = method_of(*pair, drafter, gamma=4)
        rounds = list(method.run(ids, max_new_tokens=30, temperature=0))
        assert tokens_of(rounds) == list(generate(pair[0], ids, 30, temperature=0))
        assert max(len(one.drafted) for one in rounds) <= method.gamma


def test_timed():
    items, seconds = timed(iter("abc"))
    assert items == ["a", "b", "c"] and len(seconds) == 3 and all(s >= 0 for s in seconds)


def test_the_command(tmp_path):
    command = [sys.executable, "-m", "nanospec.bench", "--device", "cpu", "--prompts", "2", "--max-new-tokens", "8",
               "--gammas", "1", "2", "--rules", "token", "block", "--temperatures", "0", "1", "--json",
               str(tmp_path / "b.json"), "--figure", str(tmp_path / "b.png")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "b.json").read_text())
    assert [(row["temperature"], row["gamma"], row["rule"], row["drafter"]) for row in rows] == [
        (t, g, rule, "chain") for t in (0, 1) for g in (1, 2) for rule in ("token", "block")]
    assert (tmp_path / "b.png").exists() and all(isinstance(row["text"], str) and row["text"] for row in rows)
    for row in rows:
        assert f"{row['speedup']:.2f}" in done.stdout
        assert row["speedup"] >= 1 or f"{row['speedup']:.2f} lost" in done.stdout


def bench(*options, json_file):
    done = subprocess.run([sys.executable, "-m", "nanospec.bench", "--device", "cpu", "--dtype", "float32", "--threads",
                           "1", "--json", str(json_file), *options], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(json_file.read_text()), done.stdout


def test_every_method_in_one_table(tmp_path):
    rows, out = bench("--methods", "--prompts", "1", "--max-new-tokens", "6", "--shape", "2", "1",
                      "--temperatures", "0", "1", json_file=tmp_path / "rows.json")
    assert [(row["drafter"], row["rule"]) for row in rows] == 2 * [(drafter, rule) for drafter, rule, _ in EVERY]
    assert {drafter for drafter, *_ in EVERY} == set(DRAFTERS)
    assert len({row["text"] for row in rows if row["temperature"] == 0}) == 1
    for one, other in zip(rows, rows[len(EVERY):]):
        name = f"{one['drafter']} {one['gamma']}" + f", {one['rule']}" * (one["rule"] != "token")
        line, = (line for line in out.splitlines() if re.match(rf"{name} +\d", line))
        assert line.split()[-4:] == [f"{row[key]:.2f}" for row in (one, other)
                                     for key in ("tokens_per_target_call", "speedup")]


def test_the_table_of_stopping_rules(tmp_path):
    rows, out = bench("--stopping", "--prompts", "1", "--max-new-tokens", "12", "--temperatures", "0",
                      json_file=tmp_path / "rows.json")
    assert [row["prompt"] for row in rows] == ["1", "assertions", "dispatch", "all"]
    for row in rows:
        fixed = [row["pace"][f"chain {gamma}"] for gamma in range(1, 9)]
        assert fixed[row["best_gamma"] - 1] == max(fixed)
        assert f"{row['pace']['goodput 8'] / max(fixed) - 1:+.1%}" in out


def test_the_repetitive_texts(tmp_path):
    rows, out = bench("--repetitive", "--drafters", "lookup", "suffix", "--gammas", "4", "--temperatures", "0",
                      "--max-new-tokens", "40", json_file=tmp_path / "rows.json")
    assert "2 repetitive prompts" in out and all(row["tokens_per_target_call"] > 2 for row in rows)


@pytest.mark.parametrize("options, words", [(["--gammas", "0"], "gamma"), (["--weights", "nowhere"], "nowhere"),
                                            (["--max-new-tokens", "9999"], "context"),
                                            (["--prompts", "0"], "--prompts"), (["--threads", "-1"], "--threads"),
                                            (["--drafters", "tree", "--rules", "block", "--shape", "2"], "block"),
                                            (["--drafters", "tree", "--figure", "f.png"], "--figure"),
                                            (["--shape", "0"], "--shape")])
def test_bad_requests_are_one_clear_line(options, words):
    done = subprocess.run([sys.executable, "-m", "nanospec.bench", "--device", "cpu", *options], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


def test_growth_and_roofline_print_what_they_measured(tmp_path):
    """On a pair so small that only their arithmetic is at stake."""
    tokenizer = Tokenizer({bytes([b]): b for b in range(256)})
    config = Config(257, 64, layers=1, channels=8, heads=2, kv_heads=1, hidden=8)
    for name in ("target.pt", "draft.pt"):
        save_model(GPT(config), tmp_path / name, tokenizer)
    tokenizer.save(tmp_path / "ranks.tiktoken")
    for option, words in (("--growth", ["4,096", "64", "round / plain"]), ("--roofline", ["times the floor", "GB/s"])):
        command = [sys.executable, "-m", "nanospec.bench", "--device", "cpu", "--weights", str(tmp_path), "--dtype",
                   "float32", "--prompts", "1", option, "--json", str(tmp_path / "rows.json")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0 and all(word in done.stdout for word in words), done.stderr
        rows = json.loads((tmp_path / "rows.json").read_text())
    took, floors = rows[0]["seconds"], rows[0]["floor_seconds"]
    assert took["round"] == pytest.approx(4 * took["draft step"] + took["verification"])
    assert floors["target step"] == rows[0]["bytes"] / rows[0]["bandwidth"]


def test_simulated_acceptance_keeps_what_it_says(tmp_path):
    """Tokens per round against Eq. 1, over enough rows that chance has no say; and the gain is theirs over the cost."""
    config = Config(11, 32, layers=1, channels=8, heads=2, kv_heads=1, hidden=8)
    found = simulated(GPT(config), GPT(config), alphas=(0.0, 0.6, 1.0), gammas=(1, 3), rows=(1000,), context=8,
                      repeats=7)
    assert [(row["alpha"], row["gamma"]) for row in found] == [(a, g) for g in (1, 3) for a in (0.0, 0.6, 1.0)]
    for row in found:
        assert row["tokens_per_target_call"] == pytest.approx(expected_tokens(row["alpha"], row["gamma"]), rel=0.02)
    gains = [row["speedup"] / expected_tokens(row["alpha"], row["gamma"]) for row in found]
    assert gains[0] == pytest.approx(gains[1]) == pytest.approx(gains[2])
    draw_simulated(found, "title", tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_the_bytes_of_a_token():
    """Two bytes a weight in bfloat16; an embedding that is not the head is looked up, not read."""
    config = Config(11, 32, layers=1, channels=8, heads=2, kv_heads=1, hidden=8)
    one_layer = 8 * 16 + 8 * 8 + 3 * 8 * 8 + 2 * 8
    assert weight_bytes(GPT(config).bfloat16()) == 2 * (one_layer + 8 + 11 * 8)
    assert weight_bytes(GPT(replace(config, tied=False))) == 4 * (one_layer + 8 + 11 * 8)
