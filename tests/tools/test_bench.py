"""What the bench counts and writes. How fast anything is decides no test."""

import json
import re
import sys
from copy import deepcopy
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from docs import pictures
from lessons.machine import weight_bytes
from nanospec.cli import method_options
from nanospec.cli.bench import acceptance, serve, speed
from nanospec.cli.bench import command as bench
from nanospec.cli.bench import measure as measuring
from nanospec.cli.bench import transformers as beside
from nanospec.cli.bench.measure import measure
from nanospec.cli.bench.prompts import CHAT, held_out_prompts, repetitive_prompts
from nanospec.cli.bench.question_file import read_questions
from nanospec.cli.method_options import best_topology, measure_accepted, options_of, topology_of
from nanospec.cli.quantities import BUSY, CallCosts, alpha_of, numbers_of
from nanospec.cli.show.terminal import ShownTable
from nanospec.errors import RequestError
from nanospec.fast.clock import ClockedDrafter, clocked, median_seconds, timed
from nanospec.files.model_file import save_learned, save_model
from nanospec.files.checkpoint import Pair, load_pair
from nanospec.files.sources import Source
from nanospec.files.tokenizer import Tokenizer
from nanospec.generate import generate
from nanospec.methods.draft_models.medusa import Medusa
from nanospec.methods.index import DRAFTERS, WITHOUT_DRAFT_MODEL, Method, Options, method_of
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.model import GPT, Config
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.serving.server import Server
from nanospec.speculate import ModelDrafter, Round, speculate, tokens_of
from nanospec.theory import expected_tokens
from tests import small_gguf
from tests.release import large

ROOT = Path(__file__).parents[2]
BYTES = Tokenizer({bytes([b]): b for b in range(256)})


@pytest.fixture(scope="module")
def pair():
    return small_gpt(11, 3, 1), small_gpt(11, 1, 2)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A pair of small models that write bytes, with room for the repetitive prompts."""
    folder = tmp_path_factory.mktemp("pair")
    BYTES.save(folder / "ranks.tiktoken")
    for name, layers in (("target.pt", 2), ("draft.pt", 1)):
        save_model(small_gpt(257, layers, layers, context=1024), folder / name, BYTES)
    return folder


@pytest.fixture
def held_out(monkeypatch):
    """A text that is there, instead of the standard library's."""
    monkeypatch.setattr("nanospec.cli.bench.prompts.read_texts", lambda: ([], [Path(__file__).read_text()]))


SERVED = {"tokens_per_s": 1.0, "first_p50": 1.0, "first_p99": 1.0, "each_p50": 1.0, "each_p99": 1.0}
AUTOTUNED = "cpu, 1 thread; target in float64, draft model in float64"
TUNERS = [f"nanospec.{name}.autotune" for name in ("fast.autotune", "cli.bench.serve")]


@pytest.fixture
def quick(monkeypatch, held_out):
    """Nothing is measured longer than needed: what a call costs does not matter here."""
    for name in TUNERS:
        monkeypatch.setattr(name, lambda *_, **__: AUTOTUNED)
    monkeypatch.setattr(measuring, "step_seconds", lambda model, tokens=1, *_, **__: 1e-3 * tokens)
    monkeypatch.setattr(measuring, "draft_seconds", lambda *_, **__: 1e-3)
    monkeypatch.setattr(measuring, "measure", partial(measure, repeats=1))


@pytest.fixture
def rows_of(weights, capsys, tmp_path):
    """rows_of(subcommand, *options) -> (the rows it wrote, what it printed), of the small pair."""
    def of(*argv: str) -> tuple[list[dict], str]:
        status = bench.main([*argv, "--weights", str(weights), "--device", "cpu", "--threads", "1",
                             "--json", str(tmp_path / "a.json")])
        out, err = capsys.readouterr()
        assert status == 0 and err and all(re.fullmatch(r"(measuring|serving|warming) .* \.\.\.( \[\.*\])?", line)
                                           for line in err.splitlines()), err
        return json.loads((tmp_path / "a.json").read_text()), out
    return of


@pytest.fixture
def drawn(capsys, tmp_path):
    """drawn(picture) -> the bytes of the picture that docs/pictures.py draws of what rows_of wrote last."""
    def of(picture: str) -> int:
        assert pictures.main([picture, str(tmp_path / "a.json"), str(tmp_path / "a.png")]) == 0
        assert capsys.readouterr() == ("", "") and (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
        return (tmp_path / "a.png").stat().st_size
    return of


# Numbers, by hand

P, Q = [.5, .5, 0], [.8, .2, 0]         # sum min(P, Q) = .7


def a_round(accepted: int, drafted: int, emitted: int, p_target=P, q_draft=Q) -> Round:
    """A chain of that many draft tokens, of which some were accepted, cut at `emitted` tokens."""
    after = torch.tensor([p_target] * (drafted + 1))
    drawn_from = torch.tensor([[0.0] * 3] + [q_draft] * drafted)
    return Round([0] * (drafted + 1), list(range(-1, drafted)), list(range(1, accepted + 1)), 1,
                 ([0] * accepted + [1])[:emitted], after, drawn_from, drafted)


def test_alpha_of_exactly_zero():
    """A draft model that the target never agrees with: alpha 0, one token a call, and formulas that bear it."""
    rounds = [a_round(0, 2, 1, [1., 0, 0], [0., 1, 0])]
    assert alpha_of(rounds) == 0
    method, costs = Method("chain", "token", 2, None, None), [CallCosts(.25, {3: 1.5}, 1.0)]
    row = numbers_of(method, [rounds], [[[1.0]]], costs, plain=1.0)
    assert row["alpha"] == 0 and row["accepted"] == 0 and row["acceptance_length"] == 1
    assert row["predicted_speedup"] == 1 / 2 and row["overhead"] == 1
    assert alpha_of([]) == 0 and alpha_of([a_round(0, 0, 1)]) == 0


def test_alpha_is_that_of_judged_places_and_first_children():
    """Nodes 1 and 2 hang from the root, 3 from node 1, 4 from node 2. Node 2 was accepted, after node 1: the root's
    first child is node 1, with .7; node 2's is node 4, with .5. Node 4 was rejected, so nothing was judged after it.
    """
    p_target = torch.tensor([P, P, [0, .5, .5], P, P])
    q_draft = torch.tensor([[0.0] * 3, Q, [1., 0, 0], [1., 0, 0], [.5, 0, .5]])
    done = Round([0, 0, 1, 0, 2], [-1, 0, 0, 1, 2], [2], 1, [1, 1], p_target, q_draft, 2)
    assert alpha_of([done]) == pytest.approx((.7 + .5) / 2)
    assert alpha_of([replace(done, path=[])]) == pytest.approx(.7)
    assert alpha_of([replace(done, path=[2, 4])]) == pytest.approx((.7 + .5) / 2)               # node 4 has no child
    assert alpha_of([replace(done, parents=[-1, 0, -1, -1, -1], path=[1])]) == pytest.approx(.7)    # nodes it lacks


# What is measured

def test_each_setup_is_measured_with_its_compiler(monkeypatch):
    asked = []
    monkeypatch.setattr(measuring, "measure", lambda *its, **more: asked.append((*its, more)) or [])
    measuring.measure_setups([("a", "b", None), ("c", "d", "e")], None, [[1]], lambda *pair: pair, seed=3)
    assert asked == [(target, draft_model, [[1]], (target, draft_model), {"compiler": compiler, "seed": 3})
                     for target, draft_model, compiler in (("a", "b", None), ("c", "d", "e"))]


def test_a_rows_numbers_agree_with_its_rounds(pair, quick):
    (row, rounds), = measure(*pair, [[1, 2], [3]], [method_of(*pair, gamma=3)], repeats=2, max_new_tokens=30,
                             temperature=0.9)
    assert row["rounds"] == len(rounds) and row["drafted"] == 3 * row["rounds"] and row["emitted"] == 60
    assert row["accepted"] == sum(len(done.path) for done in rounds) and row["alpha"] == alpha_of(rounds)
    assert row["speedup"] == row["tokens_per_s"] / row["baseline_tokens_per_s"] and row["temperature"] == 0.9


def test_methods_take_turns_and_a_repeat_is_the_same_work(pair, quick):
    """Whatever is measured beside it, and however often, a method writes what it writes alone."""
    methods = [method_of(*pair, gamma=2), method_of(*pair, "tree", "traversal", topology=[-1, 0, 0])]
    once, twice = (measure(*pair, [[1, 2]], methods, repeats=n, max_new_tokens=20) for n in (1, 2))
    for method, (row, rounds), (_, again) in zip(methods, once, twice):
        alone = tokens_of(method.run([1, 2], max_new_tokens=20))
        assert tokens_of(rounds) == tokens_of(again) == alone
        assert row["gamma"] == method.gamma == 2 and row["drafter"] == method.drafter
    assert once[1][0]["steps"] == 1 and once[1][0]["drafted"] == 2 * once[1][0]["rounds"]


@pytest.mark.parametrize("slow, busy", [(1.0, False), (BUSY, False), (BUSY * 1.1, True)])
def test_a_busy_machine_is_told(pair, quick, monkeypatch, slow, busy):
    """Plain decoding at 2^-7 s a token, and in the last repeat slower."""
    repeats = []

    def timed_as_told(steps):
        items = list(steps)
        if isinstance(items[0], int):
            repeats.append(1)
        return items, [2 ** -7 * (slow if len(repeats) == 3 else 1)] * len(items)

    monkeypatch.setattr(measuring, "timed", timed_as_told)
    (row, _), = measure(*pair, [[1, 2]], [method_of(*pair, gamma=2)], max_new_tokens=5)
    assert row["busy"] == busy and row["baseline_tokens_per_s"] == pytest.approx(2 ** 7)


def test_the_acceptance_vector_counts_which_child_was_accepted():
    """A draft model that is the target has its first child accepted, always; the best tree is then a chain."""
    target = TableModel(4, 3)
    assert measure_accepted(target, target, [[1, 2]], max_new_tokens=20) == [1, 0, 0, 0]
    accepted = measure_accepted(target, TableModel(4, 4), [[1, 2], [0]], max_new_tokens=30, temperature=1.5)
    assert 0 < accepted[1] < accepted[0] < 1 and sum(accepted) <= 1


def test_each_prompt_of_the_acceptance_vector_has_a_seed_of_its_own(monkeypatch):
    asked, stepped = [], []
    monkeypatch.setattr(method_options, "speculate", lambda target, drafter, ids, **settings: asked.append(
        (ids, settings)) or [SimpleNamespace(path=[0, 2]), SimpleNamespace(path=[0])])
    found = measure_accepted(small_gpt(4, 1, 1), small_gpt(4, 1, 2), [[1], [3], [2]],
                             lambda: stepped.append(len(asked)), top_k=2)
    assert asked == [([1], {"seed": 0, "top_k": 2}), ([3], {"seed": 1, "top_k": 2}), ([2], {"seed": 2, "top_k": 2})]
    assert found == [0, .5, 0, 0] and stepped == [1, 2, 3]


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_drafter_by_name_writes_the_targets_text(pair, drafter):
    """In float64, at temperature 0; and with no more draft tokens a round than it says."""
    for ids in [[1, 2], [3, 4, 5, 3, 4, 5, 3]]:
        method = method_of(*pair, drafter, gamma=4)
        rounds = list(method.run(ids, max_new_tokens=16, temperature=0))
        assert tokens_of(rounds) == list(generate(pair[0], ids, 16, temperature=0))
        assert max(len(done.tokens) - 1 for done in rounds) <= method.gamma


def test_shapes_are_counted_before_they_are_built():
    assert topology_of([2, 1]) == {"topology": [-1, 0, 0, 1, 2]} and topology_of(None) == {}
    assert len(topology_of([63, 64])["topology"]) == 4096
    for branches in ([5000], [9] * 3000, [64, 63], [[-1] + [0] * 4096], [{"count": 4096}]):
        with pytest.raises(RequestError, match="--shape"):
            topology_of(branches)


def test_what_a_drafter_needs_is_measured_when_it_is_needed(pair, monkeypatch):
    """A tree before it is made, costs when a drafter asks for them, once; nothing for a chain."""
    asked = []
    monkeypatch.setattr("nanospec.cli.method_options.best_topology",
                        lambda *_, **__: asked.append("tree") or [-1, 0])
    monkeypatch.setattr("nanospec.cli.method_options.measure_costs",
                        lambda *_, **__: asked.append("costs") or CallCosts(.1, dict.fromkeys(range(1, 6), 1.0), 1.0))
    method_of(*pair, gamma=4, **options_of(*pair, [[1, 2]], ["chain", "lookup"], {}, 4))
    assert asked == []
    options = options_of(*pair, [[1, 2]], ["chain", "tree"], {}, 4)
    assert asked == ["tree"] and method_of(*pair, "tree", **options).gamma == 1
    assert options_of(*pair, [[1, 2]], ["tree"], {"topology": [-1, 0, 0]}, 4)["topology"] == [-1, 0, 0]
    for _ in range(2):
        method_of(*pair, "goodput", gamma=4, **options)
    assert asked == ["tree", "costs"]


def test_costs_are_of_calls_after_the_longest_prompt(pair, monkeypatch):
    """On one token, and on up to four draft tokens more."""
    asked = []
    monkeypatch.setattr(method_options, "measure_costs", lambda *its, **more: asked.append((its, more)) or CallCosts(
        .25, {m: 1 + m / 8 for m in its[2]}, 1.0))
    costs = options_of(*pair, [[1], [1, 2, 3], [1, 2]], ["chain"], {}, 4, temperature=.7)["costs"]
    assert costs() == (.25, {m: 1 + m / 8 for m in (1, 2, 3, 4, 5)})
    assert asked == [((*pair, range(1, 6), 3, method_options.TURNS), {"temperature": .7})]


def test_what_the_best_tree_is_chosen_by(pair, monkeypatch):
    """Seconds of calls on 2 to 12 tokens, .5 a step; of a draft step, .125; depths of up to six draft steps. Texts of
    96 tokens, or what the context of 40 leaves.
    """
    asked = []
    monkeypatch.setattr(method_options, "measure_costs", lambda *its, **more: asked.append((its, more)) or CallCosts(
        .25, {m: 1 + m / 8 for m in its[2]}, .5))
    monkeypatch.setattr(method_options, "measure_accepted", lambda *its, **more: asked.append((its[:3], more)) or [.5])
    monkeypatch.setattr(method_options, "best_size", lambda *its: asked.append(its) or ("tree", 1.0))
    for context, new in (200, 96), (40, 37):
        target = small_gpt(11, 3, 1, context=context)
        assert best_topology(target, pair[1], [[1], [1, 2, 3]], temperature=.7) == "tree"
        assert asked[-3:-1] == [((target, pair[1], range(2, 13), 1), {"temperature": .7}),
                                ((target, pair[1], [[1], [1, 2, 3]]), {"temperature": .7, "max_new_tokens": new})]
        assert asked[-1] == ([.5], {m: .5 * (1 + m / 8) for m in range(2, 13)}, .125, range(2, 8))


def test_as_many_prompts_as_asked_for_or_none(monkeypatch):
    """And from as many places, 640 / 7 tokens apart."""
    text = "".join(map(chr, range(100))) * 7
    monkeypatch.setattr("nanospec.cli.bench.prompts.read_texts", lambda: ([], [text[:638]]))    # 640 with both ends
    pair = Pair(None, None, BYTES)
    for count in (1, 3, 7, 10):
        assert [len(ids) for ids in held_out_prompts(pair, count)] == [64] * count
    assert [ids[1] for ids in held_out_prompts(pair, 7)] == [91 * i % 100 for i in range(7)]
    with pytest.raises(RequestError, match="too few for 11 prompts"):
        held_out_prompts(pair, 11)
    assert [ids[:2] for ids in repetitive_prompts(pair)] == [[256, ord(" ")], [256, ord("H")]]


# Clocks

@pytest.fixture
def pass_time(monkeypatch):
    """pass_time(seconds): the clock is wound by so much, and stands still otherwise."""
    now = [0.0]
    monkeypatch.setattr("nanospec.fast.clock.perf_counter", lambda: now[0])

    def wind(seconds):
        now[0] += seconds
    return wind


def test_clocks(pass_time):
    took = {"a": 1.0, "b": 4.0, "c": 2.0}
    assert timed(item for item in took if not pass_time(took[item])) == (["a", "b", "c"], [1.0, 4.0, 2.0])
    assert list(clocked("ab")) == [("a", 0.0), ("b", 0.0)]
    works = iter([8.0, 4.0, 1.0, 2.0])                                  # the first warms up
    assert median_seconds(lambda: pass_time(next(works)), torch.device("cpu"), repeats=3, warm_up=1) == 2.0


def test_the_best_tree_goes_deep_where_the_first_child_is_accepted(monkeypatch):
    """And wide where the others are, too. A deeper one takes more draft steps."""
    target, draft_model = small_gpt(11, 2, 5), small_gpt(11, 1, 2)
    costs = CallCosts(0.01, dict.fromkeys(range(2, 13), 1.0), 1.0)
    monkeypatch.setattr("nanospec.cli.method_options.measure_costs", lambda *_, **__: costs)
    for accepted, tree in ([1, 0, 0, 0], [-1, 0, 1, 2, 3, 4, 5]), ([.25, .25, .25, .25], [-1, 0, 0, 0, 0]):
        monkeypatch.setattr("nanospec.cli.method_options.measure_accepted", lambda *_, **__: accepted)
        found = best_topology(target, draft_model, [[1, 2], [3]], temperature=0)
        assert found[:len(tree)] == tree, found


def test_a_clock_around_a_drafter_changes_nothing_but_knows_its_time(pair, pass_time):
    target, draft_model = pair

    class Slow:
        def propose(self, *request):
            pass_time(3.0)
            return super().propose(*request)

    class SlowChain(Slow, ModelDrafter):
        pass

    class SlowTree(Slow, TreeDrafter):
        pass

    for drafter in SlowChain(draft_model, 2), SlowTree(draft_model, [-1, 0, 0]), ClockedDrafter(SlowChain(draft_model,
                                                                                                          2)):
        drafter, rounds = ClockedDrafter(drafter), []
        for done, seconds in clocked(speculate(target, drafter, [1, 2], 12, seed=3)):
            assert drafter.seconds == seconds == 3.0
            rounds.append(done)
        assert (drafter.most, drafter.uniforms) == (drafter.drafter.most, drafter.drafter.uniforms)
        assert tokens_of(rounds) == tokens_of(speculate(target, drafter.drafter, [1, 2], 12, seed=3))


def test_rounds_under_a_clock_of_every_drafter(pair):
    """The wrapper stands where the drafter stood, whatever it asks for."""
    for name, entry in DRAFTERS.items():
        drafter = ClockedDrafter(entry.make(pair[1], Options(4)))
        assert len(tokens_of(speculate(pair[0], drafter, [3, 4, 3], 10))) == 10 and drafter.seconds > 0, name
        assert deepcopy(drafter).most == drafter.most


def test_a_clock_in_a_server_changes_nothing(pair):
    """Rows come and go, and the clock knows none of them."""
    def served(wrap):
        server = Server(pair[0], wrap(ModelDrafter(pair[1], 3)), rows=2)
        asked = [server.submit([1, number], max_new_tokens=3 + 4 * number, seed=number) for number in range(4)]
        while not all(request.done for request in asked):
            server.step()
        return [request.tokens for request in asked]

    assert served(ClockedDrafter) == served(lambda drafter: drafter)


# Subcommands

def test_each_measures_on_the_gpu_where_there_is_one(monkeypatch):
    asked = []
    monkeypatch.setattr(bench, "HERE", "a gpu")
    monkeypatch.setattr(bench, "add_options", lambda one, defaults, *_: asked.append(defaults["device"]))
    bench.parser()
    assert asked == ["a gpu"] * len(bench.SUBCOMMANDS)


def test_speed_with_all_it_writes(rows_of, quick, drawn):
    rows, out = rows_of("--prompts", "2", "--max-new-tokens", "4", "--gammas", "1", "2", "--rules", "token", "block",
                        "--temperatures", "0", "1")
    assert [(row["temperature"], row["gamma"], row["rule"], row["drafter"]) for row in rows] == [
        (t, g, rule, "chain") for t in (0, 1) for g in (1, 2) for rule in ("token", "block")]
    assert drawn("field") > 20_000 and all(row["text"] for row in rows)
    for row in rows:
        assert f"{row['speedup']:.2f}" in out and (row["speedup"] >= 1 or f"{row['speedup']:.2f} lost" in out)
    assert ("busy" in out) == any(row["busy"] for row in rows)


def test_speed_is_measured_as_it_was_asked_for(rows_of, quick, monkeypatch):
    """Costs are there for calls on the longest draft, whatever the order of --gammas."""
    asked, made, options = [], [], speed.options_of
    measured = speed.measure_setups
    monkeypatch.setattr(speed, "options_of", lambda *its, **more: made.append((its[5], more)) or options(*its, **more))
    monkeypatch.setattr(speed, "measure_setups",
                        lambda *its, what, **more: asked.append(more) or measured(*its, what=what, **more))
    rows_of("--gammas", "3", "1", "--temperatures", "0.5", "--seed", "77", "--prompts", "1", "--max-new-tokens", "5")
    assert asked == [{"seed": 77, "temperature": .5, "max_new_tokens": 5}] and made == [(3, {"temperature": .5})]


def test_a_table_as_markdown_says_how_it_was_made(rows_of, quick, tmp_path):
    """The numbers of the rows, the best of each temperature bold, and a command that asks for the same again."""
    page = tmp_path / "a.md"
    rows, _ = rows_of("--prompts", "1", "--max-new-tokens", "4", "--gammas", "1", "2", "--temperatures", "0", "1",
                      "--markdown", str(page))
    first, blank, names, _, *lines, _, caption, end = page.read_text().split("\n")
    again = bench.parser().parse_args(re.match("`nanospec bench (.*?)`", first)[1].split())
    assert again.gammas == [1, 2] and again.temperatures == [0, 1] and again.markdown == page and again.threads == 1
    assert str(date.today()) in first and torch.__version__.split("+")[0] in first and blank == end == ""
    assert "| acceptance length |" in names and "| overhead |" in names and AUTOTUNED in caption
    assert len(lines) == len(rows) == 4 and {line.count("|") for line in [names, *lines]} == {names.count("|")}
    for row, line in zip(rows, lines):
        best = row["speedup"] == max(other["speedup"] for other in rows if other["temperature"] == row["temperature"])
        stars = "**" * best
        assert f"| {stars}{row['gamma']}{stars} |" in line and f"| {stars}{row['c']:.3f}{stars} |" in line


def test_speed_eagerly_and_compiled(rows_of, quick, stand_in):
    rows, out = rows_of("speed", "--compile", "--temperatures", "0.8", "--gammas", "3", "--prompts", "1",
                        "--max-new-tokens", "12")
    both = [rows[0][f"{key}_{way}"] for key in ("baseline_tokens_per_s", "tokens_per_s")
            for way in ("eager", "compiled")]
    assert rows[0]["baseline_tokens_per_s"] == max(both[:2]) and rows[0]["tokens_per_s"] == max(both[2:])
    assert all(f"{speed:,.0f}" in out for speed in both) and out.count("compiled") == 3     # two columns, the caption


def test_speed_of_several_drafters_on_repetitive_texts(rows_of, quick):
    rows, out = rows_of("speed", "--prompts", "repetitive", "--drafters", "lookup", "tree", "lookahead",
                        "--gammas", "4", "6", "--shape", "2", "1", "--temperatures", "0", "--max-new-tokens", "10")
    assert [(row["drafter"], row["gamma"]) for row in rows] == [("lookup", 4), ("lookup", 6), ("tree", 4),
                                                                ("lookahead", 15)]
    assert "2 repetitive prompts" in out


def test_speed_of_a_tree_that_is_grown_as_it_is_asked_for(rows_of, quick):
    """Once, whatever the gammas are. Drafters of other kinds have their own sizes."""
    rows, _ = rows_of("speed", "--drafters", "dynamic-tree", "chain", "--gammas", "2", "3", "--temperatures", "0",
                      "--shape", '{"size": 9, "width": 3, "depth": 2}', "--prompts", "1", "--max-new-tokens", "6")
    assert [(row["drafter"], row["gamma"], row["steps"]) for row in rows] == [
        ("dynamic-tree", 9, 2), ("chain", 2, 2), ("chain", 3, 3)]


def test_speed_of_requests_to_a_chat_model(tmp_path, quick, monkeypatch, capsys):
    """Questions of ours, a row for each kind and one for all. An answer ends where the model ends it."""
    pytest.importorskip("gguf", reason="gguf is not installed (the extra 'hf')")
    small_gguf.write(tmp_path / "a.gguf")
    asked = [{"category": kind, "prompt": text} for kind, text in (("talk", "aa"), ("talk", "b"), ("code", "ccc"))]
    (tmp_path / "chat.jsonl").write_text("\n".join(map(json.dumps, asked)))
    monkeypatch.setattr(bench, "CHAT", tmp_path / "chat.jsonl")
    assert bench.main(["--prompts", "chat", "--weights", str(tmp_path / "a.gguf"), "--drafters", "lookup", "--gammas",
                       "2", "3", "--temperatures", "1", "--max-new-tokens", "15", "--device", "cpu", "--threads", "1",
                       "--answers", str(tmp_path / "b.jsonl"), "--json", str(tmp_path / "a.json")]) == 2
    assert "one method, of one gamma, at one temperature" in capsys.readouterr().err
    assert bench.main(["--prompts", "chat", "--weights", str(tmp_path / "a.gguf"), "--drafters", "lookup", "--gammas",
                       "2", "3", "--temperatures", "1", "--max-new-tokens", "15", "--device", "cpu", "--threads", "1",
                       "--json", str(tmp_path / "a.json")]) == 0
    rows, out = json.loads((tmp_path / "a.json").read_text()), capsys.readouterr().out
    assert [(row["method"], row["task"], row["questions"]) for row in rows] == [
        (f"lookup {gamma}", task, count) for gamma in (2, 3) for task, count in (("talk", 2), ("code", 1), ("all", 3))]
    assert "3 questions of chat.jsonl" in " ".join(out.split())


def test_the_twenty_requests_to_a_chat_model():
    kinds = [one.task for one in read_questions(CHAT).each]
    assert kinds == [kind for kind in ("chat", "code", "rewriting", "summary", "question") for _ in range(4)]


def test_every_method_in_one_table(rows_of, quick):
    rows, out = rows_of("speed", "--drafters", "all", "--rules", "token", "block", "--gammas", "4", "--shape", "2", "1",
                        "--prompts", "1", "--max-new-tokens", "3", "--temperatures", "0", "1")
    assert [(row["temperature"], row["drafter"], row["rule"]) for row in rows] == [
        (temperature, drafter, rule) for temperature in (0, 1) for drafter in DRAFTERS for rule in ("token", "block")]
    assert all((row["draft_model"] == "none") == (row["drafter"] in WITHOUT_DRAFT_MODEL) for row in rows)
    for row in rows:
        line = next(line for line in out.splitlines()
                    if line.split()[:4] == [f"{row['temperature']:g}", row["drafter"], str(row["gamma"]), row["rule"]])
        assert f" {row['acceptance_length']:.2f} " in line and f"{row['speedup']:.2f}" in line


@pytest.fixture
def learned(weights):
    """learned("mlp"): that draft model stands beside the pair, until the test is over; other tests list what is there.
    """
    made, target = [], load_pair(weights).target

    def of(name: str, model=None) -> None:
        made.append(weights / f"{name}.pt")
        save_learned(name, model or small_learned(name, target), made[-1], target)
    yield of
    for path in made:
        path.unlink()


def test_all_drafters_are_those_that_go_with_the_draft_model(rows_of, quick, learned):
    """In a stack the middle model is a GPT."""
    learned("prefix")
    rows, _ = rows_of("--draft-models", "prefix", "--drafters", "all", "--gammas", "2", "--shape", "2", "--prompts",
                      "1",
                      "--max-new-tokens", "4", "--temperatures", "0")
    assert [row["drafter"] for row in rows] == [name for name in DRAFTERS if name != "stack"]


def test_a_drafter_that_does_not_go_with_the_draft_model_is_refused_by_its_name(weights, held_out, learned, capsys):
    learned("prefix")
    refused(["--weights", str(weights), "--draft-models", "prefix", "--drafters", "stack"], "middle model is a GPT",
            capsys)


def test_a_draft_model_of_a_few_draft_tokens(rows_of, quick, learned):
    """Chains are no longer than it can draft, and none is measured twice. A tree's draft tokens are siblings, too."""
    learned("medusa", Medusa(257, 16, [1], heads=3).attach(small_gpt(257, 2, 2, context=1024)))
    rows, _ = rows_of("--draft-models", "medusa", "--drafters", "chain", "entropy", "dynamic-tree", "--gammas", "2",
                      "4", "8",
                      "--prompts", "1", "--max-new-tokens", "6", "--temperatures", "0")
    assert [(row["drafter"], row["gamma"]) for row in rows] == [
        ("chain", 2), ("chain", 3), ("entropy", 2), ("entropy", 3), *(("dynamic-tree", gamma) for gamma in (2, 4, 8))]


def test_draft_models_side_by_side(rows_of, quick, learned, drawn):
    """Drafters that copy run once, beside the first draft model."""
    learned("mlp")
    learned("eagle3")
    rows, out = rows_of("--draft-models", "all", "--drafters", "chain", "dynamic-tree", "lookup", "--prompts", "1",
                        "--gammas", "2", "--max-new-tokens", "4", "--temperatures", "1")
    assert [(row["draft_model"], row["drafter"]) for row in rows] == [
        ("gpt", "chain"), ("gpt", "dynamic-tree"), ("none", "lookup"), ("mlp", "chain"), ("mlp", "dynamic-tree"),
        ("eagle3", "chain"), ("eagle3", "dynamic-tree")]
    assert drawn("field") > 20_000 and "draft" in "".join(out.splitlines()[:3])
    for row in rows:
        assert f"{row['alpha']:.2f}" in out and f"{row['acceptance_length']:.2f}" in out
    rows, _ = rows_of("--draft-models", "gpt", "mlp", "--drafters", "lookup", "--prompts", "1", "--gammas", "2",
                      "--max-new-tokens", "4", "--temperatures", "1")
    assert [row["drafter"] for row in rows] == ["lookup"]


@pytest.mark.parametrize("options", [["--drafters", "tree", "--shape", "2"],
                                     ["--rules", "block", "--drafters", "lookup"]])
def test_a_picture_of_whatever_was_measured(rows_of, quick, drawn, options):
    rows_of("--prompts", "1", "--max-new-tokens", "6", "--gammas", "2", "--temperatures", "0", *options)
    assert drawn("field") > 20_000


def test_a_draft_model_that_is_not_there(weights, capsys):
    refused(["speed", "--weights", str(weights), "--draft-models", "gpt", "hydra"], "training hydra --out", capsys)
    refused(["serve", "--weights", str(weights), "--draft-model", "hydra"], "training hydra --out", capsys)


@pytest.mark.parametrize("rate, counts", [("0", [1, 2]), ("200", [2])])
def test_many_requests_at_once(rows_of, quick, monkeypatch, drawn, rate, counts):
    monkeypatch.setattr("nanospec.cli.bench.serve.step_of_server",
                        lambda _, drafter, *__: 1e-3 * (1 + 0.1 * (drafter.most + 1)))
    rows, out = rows_of("serve", "--rows", *map(str, counts), "--max-new-tokens", "3", "--gamma", "9", "--rate", rate)
    assert [(row["rows"], row["method"]) for row in rows] == [(count, way) for count in counts
                                                           for way in ("plain", "chain 9", "by-load")]
    assert all(f"{row['tokens_per_s']:.0f}" in out and row["first_p50"] <= row["first_p99"] for row in rows)
    assert drawn("batches") > 5_000


def test_every_bar_is_full_in_the_end(weights, pair, quick, monkeypatch, capsys):
    """Of what rounds cost, and of three turns, each with one request and with two at once; of a measurement, and
    of what the best tree is chosen by.
    """
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("nanospec.fast.announce.STILL", 100)
    monkeypatch.setattr(serve, "step_of_server", lambda *_: 1.0)
    monkeypatch.setattr(serve, "served", lambda *_: SERVED)
    serve.run([1, 2], weights=weights)
    measure(*pair, [[1, 2], [3]], [method_of(*pair, gamma=2)], max_new_tokens=4)
    best_topology(*pair, [[1, 2], [3]])
    err = capsys.readouterr().err
    assert err.count(f"[{'.' * 20}]") == err.count(f"[{'#' * 20}]") == 10


def test_other_drafters_are_served_without_timing_rounds_first(rows_of, quick, monkeypatch, drawn):
    monkeypatch.setattr("nanospec.cli.bench.serve.step_of_server", None)
    rows, out = rows_of("serve", "--rows", "2", "--max-new-tokens", "3", "--gamma", "9", "--drafters", "lookup",
                        "by-survival")
    assert [row["method"] for row in rows] == ["plain", "lookup 9", "by-survival 9"]
    assert "by-survival 9" in out and drawn("batches") > 5_000


def test_what_a_server_remembers_is_told_to_its_drafters(rows_of, quick, monkeypatch):
    most = []
    monkeypatch.setattr("nanospec.cli.bench.serve.served", lambda _, drafter, *more: most.append(
        drafter.memory.most if drafter.most else None) or SERVED)
    rows_of("serve", "--rows", "1", "--gamma", "3", "--drafters", "suffix", "hybrid", "--remember", "77")
    assert most == 3 * [None, 77, 77]


def test_requests_come_at_the_rate_that_is_asked_for():
    came = serve.draw_arrivals(4000, 2.5, 3)
    assert came == sorted(came) and came[-1] == pytest.approx(4000 / 2.5, rel=.05)
    assert came != serve.draw_arrivals(4000, 2.5, 4) and serve.draw_arrivals(2, 0.0, 3) == [0, 0]


@pytest.mark.parametrize("options, words", [(["--max-new-tokens", "100000"], "exceed the context"),
                                            (["--rows", "100000"], "too few for 200000 prompts")])
def test_what_cannot_be_served_is_refused_before_anything_is_timed(weights, monkeypatch, capsys, options, words):
    monkeypatch.setattr("nanospec.cli.bench.serve.autotune", None)
    refused(["serve", "--weights", str(weights), *options], words, capsys)


@pytest.mark.parametrize("rows, prompts", [([16, 1], 32), ([1, 3], 8)])
def test_there_are_prompts_for_the_most_requests_that_run_at_once(weights, monkeypatch, rows, prompts):
    asked = []
    monkeypatch.setattr(serve, "held_out_prompts", lambda pair, count: asked.append(count) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        serve.run(rows, weights=weights)
    assert asked == [prompts]


def test_large_prints_the_gain_at_every_alpha_beside_the_floor(monkeypatch, tmp_path, capsys):
    config = Config(11, 32, layers=1, channels=8, heads=2, kv_heads=1, hidden=8)
    monkeypatch.setattr(large, "large_pair", lambda device: (GPT(config), GPT(config)))
    monkeypatch.setattr("lessons.machine.median_seconds", lambda *_: 1e-3)
    monkeypatch.setattr(large, "simulated", partial(large.simulated, context=8, repeats=1))
    argv = ["--gammas", "1", "--rows", "1", "2", "--device", "cpu", "--json", str(tmp_path / "a.json")]
    assert large.main(argv) == 0
    (near, *rows), out = json.loads((tmp_path / "a.json").read_text()), capsys.readouterr().out
    assert [row["alpha"] for row in rows[:5]] == [.5, .6, .7, .8, .9] and "alpha 0.9" in out
    assert all(f"{row['speedup']:.2f}" in out for row in rows)
    took, floors = near["seconds"], near["floor_seconds"]
    assert took["round"] == pytest.approx(4 * took["draft step"] + took["verification"])
    assert floors["target step"] == near["bytes"] / near["bandwidth"]
    assert large.main(["--gammas", "1000"]) == 2 and "--gammas: at most 64" in capsys.readouterr().err


def test_simulated_acceptance_accepts_what_it_says():
    """Tokens per round against Eq. 1, over enough rows that chance has no say; and the gain is theirs over the cost."""
    config = Config(11, 32, layers=1, channels=8, heads=2, kv_heads=1, hidden=8)
    found = large.simulated(GPT(config), GPT(config), alphas=(0.0, 0.6, 1.0), gammas=(1, 3), rows=(1000,), context=8,
                            repeats=7)
    assert [(row["alpha"], row["gamma"]) for row in found] == [(a, g) for g in (1, 3) for a in (0.0, 0.6, 1.0)]
    for row in found:
        assert row["acceptance_length"] == pytest.approx(expected_tokens(row["alpha"], row["gamma"]), rel=0.02)
    gains = [row["speedup"] / expected_tokens(row["alpha"], row["gamma"]) for row in found]
    assert gains[0] == pytest.approx(gains[1]) == pytest.approx(gains[2])


def test_the_bytes_of_a_token():
    """Two bytes a weight in bfloat16; an embedding that is not the head is looked up, not read."""
    config = Config(11, 32, layers=1, channels=8, heads=2, kv_heads=1, hidden=8)
    one_layer = 8 * 16 + 8 * 8 + 3 * 8 * 8 + 2 * 8
    assert weight_bytes(GPT(config).bfloat16()) == 2 * (one_layer + 8 + 11 * 8)
    assert weight_bytes(GPT(replace(config, tied=False))) == 4 * (one_layer + 8 + 11 * 8)


def test_without_a_subcommand_it_is_speed_and_says_what_it_measures(weights, held_out, untuned, capsys):
    assert bench.main(["--weights", str(weights), "--device", "cpu", "--prompts", "1", "--max-new-tokens", "4",
                       "--gammas", "1", "--temperatures", "0", "--threads", "1", "--dtype", "float32"]) == 0
    out, err = capsys.readouterr()
    assert "speed-up" in out and "1 held-out prompt," in " ".join(out.split())
    assert [line.split(" ...")[0] for line in err.splitlines()] == [
        "warming up", "measuring gpt and plain decoding at T = 0, in turns"]


# What a subcommand is told, each value unlike the defaults and all others

@pytest.fixture
def told(weights, learned, held_out, monkeypatch, tmp_path):
    """told(module, {function: what it returns}, options) -> (a pair, the calls of these functions of the module, with
    their names). The pair is as it was read, from where it was told to. Rows and table are written.
    """
    learned("mlp")
    pair = load_pair(weights, draft_model="mlp")
    monkeypatch.setattr("nanospec.cli.options.available", lambda device: None)      # whether it is here
    monkeypatch.setattr("nanospec.cli.bench.transformers.extra", lambda library: None)

    def of(module: ModuleType, returned: dict, options: str) -> tuple[Pair, list[tuple]]:
        calls: list[tuple] = []
        for name, result in (returned | {"read_pair": pair}).items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, lambda *its, name=name, result=result, **more: calls.append(
                    (name, *its, more)) or result)
        name, page, rows = module.__name__.split(".")[-1], tmp_path / "a.md", tmp_path / "a.json"
        assert bench.main([name, *options.split(), *"--device cuda:3 --dtype float16 --threads 5 --weights".split(),
                           str(weights), "--markdown", str(page), "--json", str(rows)]) == 0
        assert page.read_text().startswith(f"`nanospec bench {name} ") and json.loads(rows.read_text())
        return pair, calls
    return of


TABLE = ShownTable(["a"], [["1"]], "", [False])


def test_requests_are_served_as_told(told, weights):
    pair, calls = told(serve, {"autotune": "here", "served": SERVED}, "--draft-model mlp --drafters lookup --gamma 7 "
                       "--rows 6 --rate 2.5 --max-new-tokens 9 --temperature 0.7 --seed 8")
    assert calls[:2] == [("read_pair", Source(weights), "cuda:3", "mlp", {}),
                         ("autotune", *pair[:2], "float16", 5, {"rows": 6})]
    assert [(drafter.most, *more) for _, _, drafter, *more in calls[2:]] == 3 * [
        (most, 6, held_out_prompts(pair, 12), serve.draw_arrivals(12, 2.5, 8), 8,
         {"max_new_tokens": 9, "temperature": .7}, {}) for most in (0, 7)]


def test_a_text_is_judged_as_told(told, weights, tmp_path):
    """600 tokens of it, which are two windows."""
    (tmp_path / "text.txt").write_text("def of(text):\n    return text + 1\n" * 99)
    half, costs = torch.full((2, 3, 253), .5), CallCosts(.25, dict.fromkeys(range(9), 1.0), 1.0)
    pair, calls = told(acceptance, {"setups_of": ([load_pair(weights, draft_model="mlp")], "here"),
                                    "judged": (half, half), "measure_costs": costs}, "--draft-model mlp --gamma 3 "
                       f"--temperature 0.7 --tokens 600 --text {tmp_path / 'text.txt'}")
    assert calls[:2] == [("read_pair", Source(weights), "cuda:3", "mlp", {}),
                         ("setups_of", *pair[:2], "float16", 5, {})]
    _, _, _, texts, sampling, most, *_ = calls[2]
    assert texts.shape == (2, 256) and "def of(text):" in BYTES.decode(texts[1].tolist())
    assert (sampling.temperature, most) == (.7, 3) and calls[3][3:] == (range(2, 5), 128, {"temperature": .7})


def test_speed_is_measured_as_told(told, weights):
    rows = [{"drafter": "chain"}]
    pair, calls = told(speed, {"setups_of": ("setups", "here"), "measure": None, "measure_setups": rows, "show": TABLE},
                       "--draft-models mlp --gammas 2 --rules block --temperatures 0.7 --prompts 6 --max-new-tokens 9 "
                       "--seed 8 --compile")
    assert calls[:2] == [("read_pair", Source(weights), "cuda:3", "mlp", {}),
                         ("setups_of", *pair[:2], "float16", 5, True, {})]
    _, setups, tokenizer, texts, made, more = calls[3]
    assert (setups, tokenizer, texts) == ("setups", pair.tokenizer, held_out_prompts(pair, 6))
    assert [method.name for method in made(*pair[:2])] == ["chain 2, block"]
    assert more == {"seed": 8, "max_new_tokens": 9, "temperature": .7, "what": more["what"]}
    assert calls[2][3] == texts[:1] and calls[2][5] == {"repeats": 1, "max_new_tokens": 9, "what": "warming up"}


def test_transformers_is_asked_as_told(told, weights, tmp_path, monkeypatch):
    (tmp_path / "q.jsonl").write_text('{"prompt": "a"}')
    heard = []
    monkeypatch.setattr(beside, "speed", SimpleNamespace(run=lambda *its, others, **more: (
        heard.append((*its, more)) or ([more["gammas"]], TABLE) if others(pair, {"temperature": 1})
        == ({}, {"transformers": "bfloat16"}) else None)))
    pair = load_pair(weights)
    pair = pair._replace(tokenizer=SimpleNamespace(ends={256, 8}))
    _, calls = told(beside, {"write_folders": ["a", "b"], "their_dtype": torch.bfloat16, "their_writers": {}},
                    f"--drafters lookup --gamma 7 --temperature 0.7 --prompts {tmp_path / 'q.jsonl'} --answers "
                    f"{tmp_path / 'b.jsonl'} --max-new-tokens 9 --seed 8")
    assert heard == [([.7], ["lookup"], {
        "gammas": [7], "prompts": tmp_path / "q.jsonl", "answers": tmp_path / "b.jsonl", "max_new_tokens": 9, "seed": 8,
        "weights": str(weights), "device": "cuda:3", "dtype": "float16", "threads": 5})]
    here = torch.device("cpu")
    assert calls[0][1:3] == pair[:2] and calls[0][4] == 8
    assert calls[1:] == [("their_dtype", "a", here, "float16", {}), (
        "their_writers", ["a", "b"], torch.bfloat16, here, 7, {"temperature": 1, "eos_token_id": [8, 256]}, {})]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_transformers_reads_weights_in_the_data_type_that_it_is_told(transformers, tmp_path, dtype):
    target = small_gpt(257, 1, 1)               # and no draft model that it cannot read
    folder, = beside.write_folders(target, small_learned("mlp", target), tmp_path, 256)
    assert beside.hf_model(folder, dtype, torch.device("cpu")).dtype == dtype


# What is refused. Nothing is loaded for the first list, and nothing measured for the second.

BEFORE_LOADING = [
    (["speed", "--gammas", "0"], "--gammas"), (["--gammas", "2", "x"], "--gammas"), (["--gammas", "5000"], "--gammas"),
    (["--prompts", "x.json"], "1 or more, repetitive, chat, or a file FILE.jsonl, got 'x.json'"),
    (["--prompts", "0"], "--prompts"), (["--prompts", "-1"], "--prompts"), (["--threads", "0"], "--threads"),
    (["--threads", "999999"], "--threads"), (["--max-new-tokens", "0"], "--max-new-tokens"),
    (["speed", "--temperatures", "nan"], "--temperatures"), (["--temperatures", "0", "inf"], "--temperatures"),
    (["--temperatures=-inf"], "--temperatures"), (["serve", "--temperature", "-1"], "--temperature"),
    (["serve", "--remember", "-1"], "--remember"), (["speed", "--remember", "9"], "--remember"),
    (["serve", "--remember", "9"], "hybrid; not for chain"),
    (["--temperatures"], "--temperatures"), (["--seed", str(2 ** 64)], "--seed"),
    (["serve", "--device", "meta"], "meta"), (["--device", "cuda:99"], "cuda:99"),
    (["serve", "--device", "nonsense"], "nonsense"), (["--drafters", "chain", "nobody"], "nobody"),
    (["--rules", "nothing"], "nothing"), (["--dtype", "int4"], "int4"), (["--weights", "nowhere"], "nowhere"),
    (["serve", "--weights", "README.md"], "README.md"), (["--json", "nowhere/a"], "nowhere/a"),
    (["--json", "tests"], "--json"), (["--markdown", "a.txt"], ".md"), (["--figure", "a.png"], "--figure"),
    (["--draft", "gpt"], "--draft is called --draft-model now"), (["--drafts", "gpt"], "--draft-models now"),
    (["--draft-models", "nobody"], "nobody"),
    (["serve", "--draft-model", "all"], "all"),
    (["--compile", "--drafters", "all"], "--compile"), (["--compile", "--drafters", "lookup"], "--compile"),
    (["--compile", "--rules", "traversal"], "--compile"),
    (["--shape", "2"], "--shape"), (["--drafters", "lookup", "chain", "--shape", "2"], "--shape"),
    (["--drafters", "tree", "--shape", "0"], "--shape"), (["--drafters", "tree", "--shape", "99", "99"], "--shape"),
    (["--drafters", "all", "--shape", *["9"] * 3000], "--shape"),
    (["transformers", "--weights", "nowhere"], "--weights"), (["transformers", "--gamma", "0"], "--gamma"),
    (["nonsense"], "nonsense"), (["--nonsense"], "--nonsense"), (["speed", "speed"], "speed"),
    (["--methods"], "--methods"), (["methods"], "methods"), 
    (["a\x1b[2J\x9b\n"], "\\x1b[2J"), (["speed", "a\x1b[2J\x9b\n\udcff"], "a\ufffd[2J"),
    ([""], "''")]
BEFORE_MEASURING = [
    (["--max-new-tokens", "9999"], "context"), (["--gammas", "1024"], "context"),
    (["--prompts", "999999999"], "prompts"), (["--drafters", "all", "--max-new-tokens", "961"], "context"),
    (["--drafters", "tree", "--shape", "32", "32"], "context"),
    (["--prompts", "repetitive", "--max-new-tokens", "900"], "context"), (["serve", "--weights", "tests"], "tests")]


def refused(argv, words, capsys) -> None:
    status = bench.main(argv)
    out, err = capsys.readouterr()
    assert status == 2 and out == "" and err.count("\n") == 1 and words in err and len(err) < 400, (status, out, err)
    assert "Traceback" not in err and not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", err)


@pytest.mark.parametrize("argv, words", BEFORE_LOADING)
def test_a_bad_request_is_one_line_before_anything_is_loaded(argv, words, capsys, monkeypatch):
    monkeypatch.setattr("nanospec.cli.method_options.load_pair", None)
    refused(argv, words, capsys)


@pytest.mark.parametrize("argv, words", BEFORE_MEASURING)
def test_what_this_pair_cannot_do_is_one_line_before_anything_is_measured(argv, words, weights, capsys, monkeypatch,
                                                                          held_out):
    for name in TUNERS:
        monkeypatch.setattr(name, None)
    monkeypatch.setattr(measuring, "step_seconds", None)
    options = 0 if argv[0].startswith("-") else 1                       # where they begin
    refused([*argv[:options], "--weights", str(weights), *argv[options:]], words, capsys)


def test_the_longest_prompt_is_looked_at_before_anything_is_measured(weights, capsys, monkeypatch):
    monkeypatch.setattr(speed, "prompts_of", lambda *_: ([[2], [1] * 1000, [1]], "three"))
    monkeypatch.setattr(speed, "setups_of", None)
    refused(["--weights", str(weights), "--max-new-tokens", "90", "--drafters", "suffix"], "context", capsys)


def test_transformers_or_a_pair_that_are_not_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    refused(["transformers", "--weights", str(tmp_path)], "pip install -e '.[hf]'", capsys)
    monkeypatch.setitem(sys.modules, "transformers", ModuleType("transformers"))
    refused(["transformers", "--weights", str(tmp_path)], "there is no model in", capsys)
    refused(["transformers", "--prompts", "8"], "asked questions, chat or FILE.jsonl", capsys)


def test_an_interrupt_is_no_traceback(weights, capsys, monkeypatch, held_out):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("nanospec.cli.bench.speed.measure", interrupted)
    monkeypatch.setattr("nanospec.fast.autotune.autotune", lambda *_, **__: AUTOTUNED)
    assert bench.main(["--weights", str(weights), "--prompts", "1"]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], *[[module.__name__.split(".")[-1]] for module in bench.SUBCOMMANDS]])
def test_help(argv, capsys):
    with pytest.raises(SystemExit) as left:
        bench.main([*argv, "--help"])
    said = capsys.readouterr().out
    assert left.value.code == 0 and "usage" in said and not re.search(r"default:\s*(;|$|--)", said)
    assert ("Without a subcommand: speed." in said) == (not argv)
    assert ("default: chain, or suffix where there is no draft model" in " ".join(said.split())) == (
        argv in (["speed"], ["transformers"]))
    assert ("\n    alpha               how often" in said) == (argv == ["speed"])           # lines stay lines
    assert ("880 questions in eleven categories" in said) == (argv in (["speed"], ["transformers"]))


def test_a_subcommand_is_said_in_one_line_which_ends():
    """It is all that `--help` shows of it, beside the others."""
    assert all(str(module.__doc__).splitlines()[0].endswith(".") for module in bench.SUBCOMMANDS)


def test_each_column_of_the_table_is_explained():
    for name in "alpha", "acceptance length", "plain, fast", "speed-up", "theory", "overhead", *"cv":
        assert f"\n    {name} " in speed.__doc__


def test_a_user_is_told_that_it_takes_a_while(weights, capsys, monkeypatch):
    """Where somebody looks: not through a pipe."""
    for watched in True, False:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: watched)
        assert bench.main(["--weights", str(weights), "--max-new-tokens", "9999", "--prompts", "repetitive"]) == 2
        assert ("minutes" in capsys.readouterr().err) == watched
