"""Every number in the tables of `nanospec bench`, and every clock behind one, asserted by hand: rounds that nobody
played, whose numbers all differ, and a clock that moves only when a test winds it.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from nanospec.cli.bench import acceptance, against, beside, large, roofline, serve, speed
from nanospec.cli.bench import measure as measuring
from nanospec.cli.bench.measure import CallCosts, measure, measure_costs
from nanospec.cli.show import terminal
from nanospec.fast import clock as clocks
from nanospec.fast.autotune import Setup
from nanospec.methods.index import Method
from nanospec.methods.lengths.by_load import ByLoad
from nanospec.methods.lengths.costs import Costs
from nanospec.model import Config
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.text import Text
from nanospec.theory import expected_tokens
from tests.invented import LAST, ROUNDS, Clock


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("nanospec.fast.clock.perf_counter", clock)
    return clock


def shown(number: int = -1) -> tuple[list[str], list[list[str]], str]:
    """The table that was shown last: names of columns, cells, caption."""
    columns, cells, caption, _ = terminal.SHOWN[number]
    return [name.replace("-\n", "").replace("\n", " ").strip() for name in columns], [*map(list, cells)], caption


# Clocks

def test_the_clock_around_a_target_counts_its_calls_alone(clock):
    class Model:
        device = torch.device("cpu")

        def __call__(self, seconds):
            clock.wind(seconds)

    target = clocks.ClockedTarget(Model())
    for seconds in 2.0, 3.0:
        target(seconds)
        clock.wind(10)
    assert target.taken() == 5 and target.taken() == 0
    target(4.0)
    assert target.taken() == 4


class Timed(TableModel):
    """A call takes a second for each token and text, and another; the first calls take longer."""

    def __init__(self, clock: Clock, warm_up: int):
        super().__init__(5, 8)
        self.clock, self.calls, self.warm_up = clock, 0, warm_up

    def __call__(self, tokens, cache, kv_length, **more):
        self.calls += 1
        self.kv_length = kv_length
        self.clock.wind(1 + tokens.numel() + 100 * (self.calls <= self.warm_up))
        return super().__call__(tokens, cache, kv_length, **more)


def test_a_step_is_timed_after_its_warm_up(clock):
    model = Timed(clock, warm_up=3)
    assert clocks.step_seconds(model, tokens=3, context=8, rows=2, repeats=2, warm_up=3) == 7
    assert model.calls == 5 and model.kv_length == 11
    model = Timed(clock, warm_up=2)
    assert clocks.draft_seconds(model, context=8, repeats=1, warm_up=2) == 2 and model.kv_length == 9
    assert clocks.draft_seconds(None) == 0


def test_a_learned_draft_models_step_is_its_part_of_a_chain(monkeypatch):
    asked = []
    monkeypatch.setattr(clocks, "median_seconds",
                        lambda work, device, repeats, warm_up: asked.append((repeats, warm_up)) or work() or 6.0)
    draft = small_learned("mlp", small_gpt(5, 2, 1))
    assert clocks.draft_seconds(draft, context=8, repeats=4, warm_up=3) == 1.5 and asked == [(4, 3)]


def test_a_texts_first_two_rounds_are_the_warm_up(clock, monkeypatch):
    monkeypatch.setattr(clocks, "ModelDrafter", lambda draft, gamma: None)
    monkeypatch.setattr(clocks, "longest_chain", lambda draft, most: most)
    monkeypatch.setattr(clocks, "target_for", lambda target, drafter: target)
    target = SimpleNamespace(config=SimpleNamespace(context=64))
    for took, found in ([9, 8, 1, 2, 4, 5, 7, 77], 4), ([9, 5], 7):         # of two rounds both count
        monkeypatch.setattr(clocks, "speculate", lambda *_, took=took: clock.during([None] * len(took), took))
        assert clocks.round_seconds(target, "draft") == found


def test_costs_are_compared_within_a_turn(monkeypatch):
    """Three turns, on a machine that gets slower. v of 3 tokens is the median of 1.5, 2.5 and 1.75; of medians 2.5."""
    took = {1: [1.0, 2.0, 4.0], 3: [1.5, 5.0, 7.0], 4: [3.0, 4.5, 8.0], "draft": [.1, .6, .8]}
    asked, queues = [], {}

    def next_of(size, more):
        asked.append(more)
        queues.setdefault(size, iter(took[size]))
        return next(queues[size])

    monkeypatch.setattr(measuring, "step_seconds", lambda model, tokens, **more: next_of(tokens, more))
    monkeypatch.setattr(measuring, "draft_seconds", lambda draft, **more: next_of("draft", more))
    found = measure_costs("target", "draft", [3, 4], 99, turns=3, temperature=.7)
    assert found == CallCosts(pytest.approx(.2), {3: 1.75, 4: 2.25}, 2.0)
    assert asked == [{"temperature": .7, "context": 99, "repeats": 1, "warm_up": 1}] * 12
    queues.clear()
    assert measure_costs("target", "draft", [3], turns=3, compiler="it") == CallCosts(.1, {3: 1.5}, 1.0)
    assert asked[12:] == [{"compiler": "it", "context": 256}] * 3           # one turn, with all its repeats


# speed

@pytest.mark.parametrize("compiler", [None, "it"])
def test_what_is_measured_of_a_method(clock, monkeypatch, compiler):
    """Three repeats of two prompts. Plain decoding: 5 + 3 tokens in 4 + 12, 2 + 2 and 1 + 2 seconds. The method: 8 + 2
    tokens in 3 + 2, 9 + 11 and 4 + 4 seconds. With a compiler there is a turn before, in which it compiles.
    """
    more = [(ROUNDS[:3], [90, 1, 1]), (ROUNDS[3:], [80])] if compiler else []
    plain = iter([(5, 70), (3, 60)] * bool(compiler) + [(5, 4), (3, 12), (5, 2), (3, 2), (5, 1), (3, 2)])
    rounds = iter([*more, (ROUNDS[:3], [1, 1, 1]), (ROUNDS[3:], [2]), (ROUNDS[:3], [2, 3, 4]), (ROUNDS[3:], [11]),
                   (ROUNDS[:3], [1, 2, 1]), (ROUNDS[3:], [4])])
    seeds, contexts = [], []

    def generate(target, ids, seed, **_):
        seeds.append((ids, seed))
        count, seconds = next(plain)
        return clock.during([LAST] * count, [seconds / count] * count)

    def run(ids, seed, **_):
        seeds.append((ids, seed))
        return clock.during(*next(rounds))

    def costs(target, draft, sizes, context, **_):
        contexts.append((sizes, context))
        return CallCosts(.2, {3: 1.5, 4: 1.75}, 1.0)

    monkeypatch.setattr(measuring, "generate", generate)
    monkeypatch.setattr(measuring, "measure_costs", costs)
    monkeypatch.setattr(measuring, "weights_of", lambda target: "float32")
    target = SimpleNamespace(device="cpu")
    (row, done), = measure(target, "draft", [[1, 2], [3, 4, 5]], [Method("chain", "token", 3, None, run)], seed=7,
                           max_new_tokens=21, temperature=.7, compiler=compiler)
    assert seeds[:4] == [([1, 2], 7), ([1, 2], 7), ([3, 4, 5], 8), ([3, 4, 5], 8)]
    assert seeds == seeds[:4] * (4 if compiler else 3) and next(plain, None) is next(rounds, None) is None
    assert contexts == [([3, 4], 3 + 10)] * 3 and done == ROUNDS
    assert row["baseline_tokens_per_s"] == pytest.approx(8 / 4)             # the median of 8 / 16, 8 / 4 and 8 / 3
    assert row["tokens_per_s"] == pytest.approx(10 / 8) and row["speedup"] == pytest.approx(.625)
    assert row["busy"] and row["temperature"] == .7 and row["dtype"] == "float32"
    # A round's parts are 1.9, 2.35 and, in the other text, 1.9 s; the first of each text does not count.
    assert row["overhead"] == pytest.approx((2 / 1.9 + 1 / 2.35) / 2)


KINDS = {"talk": {"rounds": 4, "drafted": 9, "accepted": 7, "emitted": 10, "tokens_per_s": 5.0, "speedup": .5,
                  "baseline_tokens_per_s": 10.0, "predicted_speedup": 2.5, "alpha": .5, "c": .1, "v": 1.1, "steps": 2.0,
                  "overhead": 1.25, "text": "a", "busy": False, "alpha_by_position": [.5], "drafter": "chain"},
         "code": {"rounds": 12, "drafted": 50, "accepted": 40, "emitted": 60, "tokens_per_s": 20.0, "speedup": 2.5,
                  "baseline_tokens_per_s": 8.0, "predicted_speedup": 5.0, "alpha": .9, "c": .3, "v": 1.5, "steps": 4.0,
                  "overhead": 1.05, "text": "b", "busy": True, "alpha_by_position": [.9], "drafter": "chain"}}


def test_all_kinds_of_texts_together_are_total_over_total():
    """10 and 60 tokens, in 2 + 3 seconds; plain decoding takes 1 + 7.5. Means are by rounds, 4 and 12."""
    row, = speed.together({kind: [its] for kind, its in KINDS.items()})
    assert (row["rounds"], row["drafted"], row["accepted"], row["emitted"]) == (16, 59, 47, 70)
    assert row["tokens_per_s"] == pytest.approx(14) and row["baseline_tokens_per_s"] == pytest.approx(70 / 8.5)
    assert row["speedup"] == pytest.approx(8.5 / 5) and row["tokens_per_target_call"] == pytest.approx(70 / 16)
    assert row["predicted_speedup"] == pytest.approx(70 / (4 + 12))
    assert [row[key] for key in ("alpha", "c", "v", "steps", "overhead")] == pytest.approx([.8, .25, 1.4, 3.5, 1.1])
    assert (row["text"], row["busy"], row["speedup_talk"], row["speedup_code"]) == ("ab", True, .5, 2.5)
    assert "alpha_by_position" not in row and row["kinds"] == KINDS and row["drafter"] == "chain"


ROWS = [{"temperature": t, "draft": "gpt", "drafter": "chain", "gamma": gamma, "rule": "block", "alpha": .614 + t / 100,
         "c": .1236, "v": 1.377, "tokens_per_target_call": 2.644, "baseline_tokens_per_s": 1234.4,
         "tokens_per_s": 2345.6,
         "speedup": gain, "predicted_speedup": 1.812, "overhead": 1.073, "busy": False}
        for t, gamma, gain in ((0.0, 2, 1.913), (0.0, 4, .987), (.8, 2, 1.244), (.8, 4, 1.655))]


def test_the_table_of_speeds(capsys):
    speed.show(ROWS, "caption")
    assert capsys.readouterr().out.endswith("\ncaption\n")
    names, cells, caption = shown()
    assert names == ["T", "drafter", "gamma", "rule", "alpha", "c", "v", "per call", "plain per s", "fast per s",
                     "speed-up", "theory", "overhead"]
    assert cells[1] == ["0", "chain", "4", "block", "0.61", "0.124", "1.38", "2.64", "1,234", "2,346", "0.99 lost",
                        "1.81",
                        "1.07"]
    assert cells[2][:5] == ["0.8", "chain", "2", "block", "0.62"] and cells[3][10] == "1.66" and caption == "caption"
    assert list(terminal.SHOWN[-1][3]) == [True, False, False, True]        # the best of each temperature


def test_the_table_of_speeds_of_several_draft_models_kinds_or_setups():
    speed.show([ROWS[0] | {"kinds": KINDS, "speedup_talk": .5, "speedup_code": 2.5, "busy": True}], "caption",
               several=True)
    names, (cells,), caption = shown()
    assert names[1] == "draft" and cells[1] == "gpt" and names[-2:] == ["talk", "code"] and cells[-2:] == ["0.50",
                                                                                                           "2.50"]
    assert "overhead" not in names and "This machine is busy" in caption and "more than 1.5 times" in caption
    both = {"baseline_tokens_per_s_eager": 11.4, "baseline_tokens_per_s_compiled": 22.6, "tokens_per_s_eager": 33.4,
            "tokens_per_s_compiled": 44.6}
    speed.show([ROWS[0] | both], "caption")
    names, (cells,), _ = shown()
    assert dict(zip(names, cells)) | {"plain per s eager": "11", "plain per s compiled": "23", "fast per s eager": "33",
                                      "fast per s compiled": "45"} == dict(zip(names, cells))


# beside, against

def test_all_kinds_beside_transformers():
    """As many tokens of each kind: of each 1, in 1 / 5 + 1 / 20 seconds; plain decoding takes 1 / 10 + 1 / 8."""
    plain = {kind: {"tokens_per_s": its["baseline_tokens_per_s"]} for kind, its in KINDS.items()}
    kinds = {kind: {"tokens_per_s": its["tokens_per_s"], "tokens_per_target_call": calls}
             for (kind, its), calls in zip(KINDS.items(), (2.0, 3.0))}
    found = beside.over_all_kinds(kinds, plain)
    assert found["tokens_per_s"] == pytest.approx(8) and found["speedup"] == pytest.approx(8 / (2 / .225))
    assert found["tokens_per_target_call"] == pytest.approx(2.4) and found["speedups"] == {"talk": .5, "code": 2.5}


def test_methods_in_turns(clock, monkeypatch):
    """Three repeats of two prompts: 16 tokens in 8, 4 and 2 s, in 6 calls each; the first call of all warms up."""
    monkeypatch.setattr(against, "perf_counter", clock)
    took = {"a": iter([50, 3, 5, 1, 3, .5, 1.5]), "b": iter([60, 1, 1, 2, 2, 4, 4])}

    def writer(name, tokens, calls):
        def write(ids, seed):
            clock.wind(next(took[name]))
            return [7] * tokens * len(ids), [1] * calls * len(ids)
        return write

    a, b = against.in_turns({"a": writer("a", 5, 2), "b": writer("b", 4, 4)}, [[1], [2, 3]], 3, 0)
    assert a == {"method": "a", "tokens_per_s": 15 / 4, "tokens_per_target_call": 2.5, "ms_per_call": 14_000 / 18}
    assert b == {"method": "b", "tokens_per_s": 12 / 4, "tokens_per_target_call": 1, "ms_per_call": 14_000 / 36}


def test_what_a_round_takes_by_its_parts(monkeypatch):
    monkeypatch.setattr(against, "measure_costs",
                        lambda target, draft, sizes, context, **_: CallCosts(.2, {sizes[0]: 1.75}, context / 1e3))
    monkeypatch.setattr(against, "their_dtype", lambda *_: torch.bfloat16)
    monkeypatch.setattr(against, "hf_runs", lambda *_: {"hf generate": None})
    monkeypatch.setattr(against, "weights_of", lambda target: "float32")
    monkeypatch.setattr(against, "ours", lambda *_: {"plain": None, "speculative": None})
    monkeypatch.setattr(against, "in_turns", lambda writers, texts, *_: asked.append(texts) or [
        {"method": name} for name in writers])
    target = SimpleNamespace(config=SimpleNamespace(vocab_size=11), device="cpu")
    asked = []
    rows = against.compare([(target, None, None)], Path("."), gamma=3, new=36)
    assert asked == [[[(37 * place + 101 * text) % 10 + 1 for place in range(32)] for text in range(4)]]    # no 0
    assert [row.get("parts_ms") for row in rows] == [50, pytest.approx(50 * (.6 + 1.75)), None]     # 32 + 18 tokens


def test_the_data_type_in_which_transformers_is_faster(clock, monkeypatch):
    """By the best of three glances, in turns: 2 s in float32, and 2.5 in bfloat16. Or the one that is asked for."""
    took, asked = {torch.float32: iter([5, 2, 9]), torch.bfloat16: iter([3, 2.5, 4])}, []
    monkeypatch.setattr(against, "perf_counter", clock)
    monkeypatch.setattr(against, "hf_model", lambda folder, dtype, device: dtype)
    monkeypatch.setattr(against, "hf_writer", lambda model, *its: lambda *more: asked.append((model, its, more)) or (
        clock.wind(next(took[model]))))
    assert against.their_dtype(Path("."), torch.device("cpu"), "auto") == torch.float32
    assert asked == [(dtype, (8, 0.0), ([1] * 32, 0)) for dtype in took] * 3
    assert against.their_dtype(Path("."), torch.device("cpu"), "bfloat16") == torch.bfloat16 and len(asked) == 6


def test_the_table_beside_assisted_generation(monkeypatch):
    rows = [{"method": "plain", "tokens_per_s": 131.6, "tokens_per_target_call": 1.0, "ms_per_call": 7.614,
             "parts_ms": 7.216}, {"method": "hf assisted", "tokens_per_s": 44.4, "tokens_per_target_call": 2.644,
                                  "ms_per_call": 59.557}]
    for name in "extra", "check_vocabulary", "check_request":
        monkeypatch.setattr(against, name, lambda *_: None)
    pair = SimpleNamespace(config=SimpleNamespace(vocab_size=11))
    monkeypatch.setattr(against, "load_folder", lambda *_: pair)
    monkeypatch.setattr(against, "setups_of", lambda *_: ([], "where"))
    monkeypatch.setattr(against, "compare", lambda *_, **__: rows)
    assert against.run(Path("."), gamma=3, temperature=.7) == rows
    assert shown() == (["method", "tokens/s", "per call", "ms a call", "sum of parts"],
                       [["plain", "132", "1.00", "7.61", "7.22"], ["hf assisted", "44", "2.64", "59.56", ""]],
                       "gamma 3, temperature 0.7; ours: where")


def test_the_table_beside_generate(clock, monkeypatch, capsys):
    """Two kinds, of two texts and one, twice. Tokens and calls of each text, then the seconds: of a warm-up before each
    kind, and of each text. Plain decoding writes 12 tokens in 6 and 3 s, 2 and 4 a second, and 6 in 2 and 1.2 s.
    """
    texts = {"plain": [(6, 6), (6, 6), (6, 6)], "hybrid 4": [(10, 4), (8, 2), (8, 5)],
             "transformers": [(6, 6), (6, 6), (6, 6)], "transformers, prompt lookup": [(7, 5), (5, 3), (9, 2)]}
    took = {"plain": [99, 2, 4, 1, 2, 99, 2, 1.2], "hybrid 4": [99, 1, 2, .5, 1.5, 99, 1, .5],
            "transformers": [99, 4, 4, 4, 2, 99, 2, 4], "transformers, prompt lookup": [99, 2, 1, 1, 1.4, 99, 3, 9]}
    left, seeds, asked = {name: iter(its) for name, its in took.items()}, [], {}

    def writer(name, request):
        def write(ids, seed):
            clock.wind(next(left[name]))
            seeds.append((ids[0], seed))
            tokens, calls = texts[name][ids[0]]
            return [7] * tokens, [1] * calls
        asked[name] = request
        return write

    def keep(name, answer=None):
        """What it is asked is kept, but the name of a temporary folder."""
        monkeypatch.setattr(beside, name, lambda *its, **more: wired.append(
            (name, *("folder" if isinstance(it, Path) else it for it in its), *more.items())) or answer)

    wired, source = [], SimpleNamespace(path=SimpleNamespace(name="it"), target="its")
    target, setup = SimpleNamespace(device="cpu"), SimpleNamespace(device="there")
    pair = SimpleNamespace(target=target, draft="draft", note="a note", tokenizer=SimpleNamespace(ends={9, 8}))
    for name, answer in {"extra": None, "source_of": source, "chosen_drafters": ["hybrid"], "load_pair": pair,
                         "prompts_of": ({"talk": [[0], [1, 1]], "code": [[2]]}, "3 requests"), "check_request": None,
                         "setups_of": ([Setup(setup, "its draft", None)], "where"), "options_of": {"costs": "costs"},
                         "most_drafted": 4, "method_of": SimpleNamespace(name="hybrid 4", run="run"),
                         "save_folder": None, "their_dtype": torch.bfloat16, "hf_model": "theirs",
                         "weights_of": "int8"}.items():
        keep(name, answer)
    monkeypatch.setattr(against, "perf_counter", clock)
    monkeypatch.setattr(beside, "plain", lambda target, **request: writer("plain", (target, request)))
    monkeypatch.setattr(beside, "speculative", lambda run, **request: writer("hybrid 4", (run, request)))
    monkeypatch.setattr(beside, "hf_writer", lambda *its, **more: writer(
        "transformers" + ", prompt lookup" * ("prompt_lookup_num_tokens" in more), (*its, more)))
    rows = beside.run("it", gamma=4, temperature=.7, max_new_tokens=21, seed=5)
    assert [next(its, None) for its in left.values()] == [None] * 4
    assert seeds == [(0, 5)] * 4 + [(0, 5), (1, 6)] * 8 + [(2, 5)] * 12
    ours, theirs = {"max_new_tokens": 21, "temperature": .7, "stop": [8, 9]}, {"eos_token_id": [8, 9]}
    assert asked == {"plain": (setup, ours), "hybrid 4": ("run", ours), "transformers": ("theirs", 21, .7, theirs),
                     "transformers, prompt lookup": ("theirs", 21, .7, theirs | {"prompt_lookup_num_tokens": 4})}
    assert wired == [
        ("extra", "transformers"), ("source_of", "it"), ("chosen_drafters", (), source, ["gpt"], "--drafters"),
        ("load_pair", source), ("prompts_of", pair, "chat", 21),
        ("check_request", target, [1, 1], 21, .7, None, None, 5, 5), ("setups_of", target, "draft", "auto", None),
        ("options_of", setup, "its draft", [[0], [1, 1], [2]], ["hybrid"], {}, 4, ("temperature", .7)),
        ("most_drafted", "hybrid", "its draft", 4),
        ("method_of", setup, "its draft", "hybrid", ("gamma", 4), ("costs", "costs")),
        ("save_folder", setup, "folder", 8), ("their_dtype", "folder", "there", "auto"),
        ("hf_model", "folder", torch.bfloat16, "there"), ("weights_of", setup)]
    assert capsys.readouterr().err.splitlines() == ["a note", "measuring all methods, in turns ..."]
    # Paces of the kinds: 3 and 4; 7.5 and 12; 1.75 and 2.25; 4.5 and 2. As many tokens of each are written at 24 / 7,
    # 120 / 13, 63 / 32 and 36 / 13, and in calls of 3 and 1.6, and of 1.5 and 4.5 tokens, at 48 / 23 and 9 / 4.
    names, cells, caption = shown()
    assert names == ["method", "tokens/s", "per call", "speed-up", "talk", "code"]
    assert cells == [["plain", "3.4", "1.00", "1.00", "1.00", "1.00"],
                     ["hybrid 4", "9.2", "2.09", "2.69", "2.50", "3.00"],
                     ["transformers", "2.0", "1.00", "0.57", "0.58", "0.56"],
                     ["transformers, prompt lookup", "2.8", "2.25", "0.81", "1.50", "0.50"]]
    assert caption == "temperature 0.7, 21 tokens at most; where; transformers in bfloat16"
    assert list(terminal.SHOWN[-1][3]) == [False, True, False, False]
    assert [row["tokens_per_s"] for row in rows] == pytest.approx([24 / 7, 120 / 13, 63 / 32, 36 / 13])
    assert [(row["method"], row["temperature"], row["dtype"], row["their_dtype"]) for row in rows] == [
        (name, .7, "int8", "bfloat16") for name in texts]
    assert rows[1]["kinds"]["code"]["tokens_per_s"] == pytest.approx(12)
    assert rows[3]["kinds"]["talk"]["ms_per_call"] == pytest.approx(1e3 * 5.4 / 16)


# serve

def test_what_is_measured_of_requests(clock, monkeypatch):
    """Two rows; requests come after 0, 0, 3 and 8.5 s. Every step takes 2 s and writes 2 tokens for each of at most
    two, or 1 for a request alone. Asked for: 4, 2, 3 and 1 tokens.
    """
    monkeypatch.setattr(serve.time, "perf_counter", clock)
    monkeypatch.setattr(serve.time, "sleep", clock.wind)

    class Server:
        def __init__(self, target, drafter, rows, most_waiting, context):
            assert (rows, most_waiting, context) == (2, 4, 99)
            self.requests = []

        def submit(self, ids, max_new_tokens, seed):
            assert ids == [seed]
            self.requests.append(SimpleNamespace(tokens=[], left=[4, 2, 3, 1][seed], done=False, error=None))
            return self.requests[-1]

        def step(self):
            clock.wind(2)
            running = [request for request in self.requests if not request.done][:2]
            for request in running:
                new = min(len(running), request.left)
                request.tokens += [0] * new
                request.left -= new
                request.done = not request.left

    monkeypatch.setattr(serve, "Server", Server)
    pair = SimpleNamespace(target=SimpleNamespace(config=SimpleNamespace(context=99)))
    found = serve.served(pair, None, 2, [[0], [1], [2], [3]], [0.0, 0.0, 3.0, 8.5], {"max_new_tokens": 9})
    # After 2 s the second has its 2 tokens. After 6 s the first has its 4, and the third, which came after 3 s, 2 of
    # its 3. After 8 s it is done, and nobody is there until 8.5 s. The last one has its token after 10.5 s.
    assert found["first_p50"] == 2 and found["first_p99"] == pytest.approx(2 + .97 * 1)         # 2, 2, 3 and 2
    assert found["each_p50"] == pytest.approx(1 / 2) and found["each_p99"] == pytest.approx(1 + .97 / 3)
    assert found["tokens_per_s"] == pytest.approx(8 / 6)    # as long as both rows have requests


def test_the_table_of_requests():
    rows = [{"rows": rows, "method": method, "tokens_per_s": pace, "first_p50": .1234, "first_p99": .5678,
             "each_p50": .01234,
             "each_p99": .05678} for rows, method, pace in ((1, "plain", 131.6), (1, "chain 4", 197.4),
                                                            (4, "plain", 263.2), (4, "chain 4", 236.88))]
    serve.show(rows, "caption")
    names, cells, _ = shown()
    assert names == ["rows", "", "tokens/s", "over plain", "first token, ms median", "p99", "each token, ms median",
                     "p99"]
    assert cells == [["1", "plain", "132", "1.00", "123", "568", "12.3", "56.8"],
                     ["1", "chain 4", "197", "1.50", "123", "568", "12.3", "56.8"],
                     ["4", "plain", "263", "1.00", "123", "568", "12.3", "56.8"],
                     ["4", "chain 4", "237", "0.90", "123", "568", "12.3", "56.8"]]


def test_what_a_batch_is_predicted_to_gain(monkeypatch):
    """By alpha of by-load, and what rounds of so many texts cost: one without a draft over one with gamma tokens."""
    target = SimpleNamespace(config=SimpleNamespace(context=999, vocab_size=5), device="cpu")
    pair = SimpleNamespace(target=target, draft="draft")
    monkeypatch.setattr(serve, "source_of", lambda weights: SimpleNamespace(path=SimpleNamespace(name="pair")))
    monkeypatch.setattr(serve, "draft_of", lambda source: "gpt")
    monkeypatch.setattr(serve, "load_pair", lambda *_, **__: pair)
    monkeypatch.setattr(serve, "longest_chain", lambda draft, most: 2)
    monkeypatch.setattr(serve, "method_of", lambda *its, **__: (
        its == (target, "draft", "chain") and SimpleNamespace(name="chain 2", gamma=2, make=lambda: None)))
    monkeypatch.setattr(serve, "check_request", lambda *_: None)
    monkeypatch.setattr(serve, "held_out_prompts", lambda pair, count: [[1]] * count)
    monkeypatch.setattr(serve, "autotune", lambda *_, **__: "where")
    monkeypatch.setattr(serve, "WatchedByLoad", type("WatchedByLoad", (ByLoad,), {
        "__init__": lambda self, *_: None, "alpha": .75}))
    table = Costs({1: [1.0, 1.1, 1.25], 4: [2.0, 3.0, 5.0]})
    monkeypatch.setattr(serve, "round_seconds", lambda *_: table)
    turns = iter(range(18))

    def served(pair, drafter, rows, *_):
        """In each of three turns, of three methods: 10, 11, 12; 13, ... tokens a second."""
        return {"tokens_per_s": 10.0 + next(turns), "first_p50": 1.0, "first_p99": 2.0, "each_p50": 3.0,
                "each_p99": 4.0}

    monkeypatch.setattr(serve, "served", served)
    rows = serve.run(rows=(1, 4), gamma=2)
    assert [(row["rows"], row["method"], row["tokens_per_s"]) for row in rows] == [
        (1, "plain", 13), (1, "chain 2", 14), (1, "by-load", 15), (4, "plain", 22), (4, "chain 2", 23),
        (4, "by-load", 24)]
    tokens = 1 + .75 + .75 ** 2
    assert [row["predicted"] for row in rows if "predicted" in row] == pytest.approx([tokens / 1.25, tokens * 2 / 5])
    assert ["predicted" in row for row in rows] == [False, True, False] * 2
    _, cells, caption = shown()
    assert cells[4][:4] == ["4", "chain 2", "23", "1.05"]
    assert caption == "where; 8 held-out prompts, 64 tokens each, all at once"


# acceptance

def test_rows_of_a_text_that_was_read():
    """Draft tokens 1 and 2 stand with .5 and .25 in every place; what is accepted there on average, with .4 and .8."""
    stood = torch.tensor([[[.5] * 4, [.25] * 4]], dtype=torch.float64)
    beta = torch.tensor([[[.4] * 4, [.8] * 4]], dtype=torch.float64)
    one, two = acceptance.rows_of(stood, beta, CallCosts(.25, {2: 1.25, 3: 1.5}, 3.0))
    # Rounds are of 1 or 2 tokens with .5 each, or of 1, 2 or 3 with .5, .375 and .125. So one begins in the four places
    # with 1, .5, .75 and .625, or with 1, .5, .625 and .625.
    assert one["tokens_per_target_call"] == pytest.approx(4 / 2.875)
    assert two["tokens_per_target_call"] == pytest.approx(4 / 2.75)
    assert one["predicted_speedup"] == pytest.approx(4 / 2.875 / (.25 + 1.25)) and one["v"] == 1.25
    assert two["predicted_speedup"] == pytest.approx(4 / 2.75 / (.5 + 1.5)) and two["v"] == 1.5
    assert one["alpha_by_position"] == pytest.approx([.4]) and two["alpha_by_position"] == pytest.approx([.4, .8])
    assert (one["c"], one["gamma"], two["gamma"]) == (.25, 1, 2)


def test_the_tables_of_a_text_that_was_read(monkeypatch):
    pair = SimpleNamespace(target=SimpleNamespace(config=SimpleNamespace(context=4), device="cpu"), draft="draft",
                           note="",
                           tokenizer=SimpleNamespace(decode=lambda ids: " a" if ids[0] else "1"))
    stood = torch.full((2, 2, 2), .5)
    beta = torch.tensor([[[.25, .5], [.1, .2]], [[.75, 1.0], [.3, .4]]])             # .625 of first draft tokens
    asked = []
    monkeypatch.setattr(acceptance, "load_pair", lambda *_, **__: pair)
    monkeypatch.setattr(acceptance, "read_texts", lambda: ([], []))
    monkeypatch.setattr(acceptance, "to_ids", lambda *_: torch.tensor([0, 1, 0, 1, 1, 0, 0, 0, 1]))
    monkeypatch.setattr(acceptance, "setups_of", lambda *_: ([(pair.target, "small", None)], "where"))
    monkeypatch.setattr(acceptance, "longest_chain", lambda draft, most: 2)
    monkeypatch.setattr(acceptance, "judged", lambda *_: (stood, beta))
    monkeypatch.setattr(acceptance, "measure_costs", lambda target, small, sizes, context, **_: asked.append(
        ([*sizes], context)) or CallCosts(.125, {2: 1.1, 3: 1.9}, 1.0))
    monkeypatch.setattr(acceptance, "rows_of", lambda *its: its[0] is stood and its[1] is beta and [
        {"gamma": gamma, "tokens_per_target_call": tokens, "v": v, "predicted_speedup": gain,
         "alpha_by_position": alphas}
        for gamma, tokens, v, gain, alphas in ((1, 1.444, 1.1, 1.177, [.614]), (2, 1.716, 1.9, .799, [.614, .277]))])
    acceptance.run(temperature=.7)
    assert asked == [([2, 3], 2)]
    names, cells, caption = shown(-2)
    assert cells == [["1", "1.44", "1.10", "1.18", "0.61"], ["2", "1.72", "1.90", "0.80", "0.61 0.28"]]
    assert caption == "where; 2 texts of 4 tokens, read and not decoded; T = 0.7, alpha 0.625, c 0.125; best gamma 1"
    assert list(terminal.SHOWN[-2][3]) == [True, False]
    # Tokens after the first of each text: 1 0 | 0 0 (of two places); " a" is 1.
    names, cells, _ = shown()
    assert cells == [["digits", "75.0", "0.750"], ["the beginning of a word", "25.0", "0.250"]]


# large, roofline

def test_the_pace_of_simulated_rounds(clock):
    """The first three steps warm up. Of two texts one gets a token a step, the other three."""
    text, took, seen = Text([[1], [2]], 60, 5), iter([9, 9, 9, 1, 4, 2]), []

    def step(kv_length):
        seen.append(kv_length)
        clock.wind(next(took))
        text.length += torch.tensor([1, 3])

    dice = SimpleNamespace(device=torch.device("cpu"), refill=lambda uniforms: seen.append(f"refilled with {uniforms}"))
    assert large.pace(step, 17, text, dice, 5, 3, None) == (2, 2) and seen == ["refilled with 5", 17] * 6


def test_what_simulated_acceptance_gains(monkeypatch):
    """Of each alpha, in turns: a plain step of 2, 3 and 4 s, a round of 6, 6 and 20 s. 3, 2 and 5 steps: the median."""
    paces = iter([(2, 1), (6, 1.25), (3, 1), (6, 1.5), (4, 1), (20, 1.75)])
    monkeypatch.setattr(large, "pace", lambda *_: next(paces))
    target = SimpleNamespace(config=SimpleNamespace(vocab_size=5), device="cpu", new_cache=lambda *_: None)
    monkeypatch.setattr(large, "ModelDrafter", lambda draft,
                        gamma: SimpleNamespace(begin=lambda *_: None, uniforms=gamma,
                                                                                   size=gamma + 1))
    found = large.simulated(target, None, alphas=(.25, .5, .75), gammas=(2,), rows=(4,), context=3)
    assert [row["speedup"] for row in found] == pytest.approx([expected_tokens(a, 2) / 3 for a in (.25, .5, .75)])
    assert [(row["plain"], row["round"]) for row in found] == [(3, 6)] * 3
    assert [row["tokens_per_target_call"] for row in found] == [1.25, 1.5, 1.75]


def test_there_is_room_for_all_rounds_of_the_longest_drafts(monkeypatch):
    """Of 4 tokens each: five that are timed, three that warm up, and one to spare, after a context of 3."""
    lengths = []
    monkeypatch.setattr(large, "pace", lambda step, kv_length, *_: lengths.append(kv_length) or (1.0, 1.0))
    target = SimpleNamespace(config=SimpleNamespace(vocab_size=5), device="cpu", new_cache=lambda *_: None)
    monkeypatch.setattr(large, "ModelDrafter", lambda draft, gamma: SimpleNamespace(begin=lambda *_: None, uniforms=1,
                                                                                    size=gamma + 1))
    large.simulated(target, None, alphas=(.5,), gammas=(1, 3), rows=(2,), context=3, repeats=5)
    assert lengths == [3 + 9 * 4] * 4


@pytest.mark.parametrize("can", [True, False])
def test_the_large_pair_is_packed_where_it_can_be(monkeypatch, can):
    monkeypatch.setattr(large, "LARGE", [Config(11, 32, layers=layers, channels=8, heads=2, kv_heads=1, hidden=8)
                                         for layers in (2, 1)])
    monkeypatch.setattr(large, "can_pack", lambda weight: weight.dtype == torch.bfloat16 and can)
    monkeypatch.setattr(large, "pack", lambda model: ("packed", model))
    pair = large.large_pair("cpu")
    assert [model[1].config.layers if can else model.config.layers for model in pair] == [2, 1]


def test_the_table_of_simulated_acceptance(monkeypatch):
    monkeypatch.setattr(large, "large_pair", lambda device: (None, None))
    monkeypatch.setattr(large, "described", lambda target: "bfloat16")
    monkeypatch.setattr(large, "roofline", lambda *_: {"bytes": 2.347e9, "seconds": {"target step": .05},
                                                       "bandwidth": 61.6e9})
    monkeypatch.setattr(large, "simulated", lambda *_, **__: [
        {"rows": 4, "gamma": gamma, "alpha": alpha, "plain": plain, "round": whole, "speedup": gamma + alpha / 10}
        for gamma, plain, whole in ((2, .05123, .07456), (4, .05234, .08567)) for alpha in (.5, .9)])
    large.run(gammas=(2, 4), rows=(4,), alphas=(.9, .5), threads=1)
    names, cells, caption = shown()
    assert names[4:] == ["alpha 0.5", "alpha 0.9"]
    assert cells == [["4", "2", "51.2", "74.6", "2.05", "2.09"], ["4", "4", "52.3", "85.7", "4.05", "4.09"]]
    assert caption.endswith("A plain step reads 2.35 GB, 47 GB/s; measured for that many bytes: 62")


def test_the_limits_of_a_machine(monkeypatch):
    """Reading 4,000 bytes takes 2 s, 512 MiB 4 s; a product of matrices 8 s. The draft model has 1,000 bytes, and a
    step of it takes a fourth of the target's.
    """
    device, seconds = torch.device("cpu"), iter([2.0, 4.0, 8.0])
    monkeypatch.setattr(roofline, "median_seconds", lambda work, where: callable(work) and where is device
                        and next(seconds))
    monkeypatch.setattr(roofline, "weight_bytes", lambda model: model.bytes)
    monkeypatch.setattr(roofline, "measure_costs", lambda target, draft, sizes: CallCosts(
        draft.bytes / target.bytes, {sizes[0]: 1.5}, 3.0))
    found = roofline.roofline(SimpleNamespace(bytes=4000, device=device, dtype=torch.float32),
                              SimpleNamespace(bytes=1000))
    assert found == {"bytes": 4000, "bandwidth": 2000, "bandwidth_of_512_MiB": 2 ** 27,
                     "matrix_rate": 2 * 1024 ** 3 / 8,
                     "gamma": 4, "floor_seconds": {"target step": 2, "draft step": .5, "verification": 2, "round": 4},
                     "seconds": {"target step": 3, "draft step": .75, "verification": 4.5, "round": 3 * 2.5}}


def test_the_table_of_limits(monkeypatch):
    monkeypatch.setattr(roofline, "source_of", lambda weights: SimpleNamespace(path=SimpleNamespace(name="pair")))
    monkeypatch.setattr(roofline, "draft_of", lambda source: ("draft.pt", "gpt"))
    monkeypatch.setattr(roofline, "load_pair", lambda *_: ("target", "draft", None))
    monkeypatch.setattr(roofline, "autotune", lambda *its: its[:2] == ("target", "draft") and "where")
    monkeypatch.setattr(roofline, "roofline", lambda *its: its == ("target", "draft") and {
        "gamma": 4, "bytes": 36.64e6, "bandwidth": 41.4e9, "bandwidth_of_512_MiB": 12.6e9, "matrix_rate": 1.234e12,
        "floor_seconds": {"target step": .002, "round": .0034}, "seconds": {"target step": .00513, "round": .0123}})
    roofline.run()
    _, cells, caption = shown()
    assert cells == [["target step", "2.00", "5.13", "2.6"], ["round", "3.40", "12.30", "3.6"]]
    assert caption == ("where; gamma 4. The target's weights are 36.6 MB; that many bytes are read at 41 GB/s, 512 MiB "
                       "at 13; matrices are multiplied at 1.23 TFLOP/s")


def test_the_bytes_of_a_plain_step():
    """Config is here so that a change of the sizes is seen: 1.1 billion weights, and a twentieth."""
    sizes = [config.vocab_size * config.channels + config.layers * (
        2 * config.channels ** 2 + 2 * config.channels * config.kv_heads * config.channels // config.heads
        + 3 * config.channels * config.hidden) for config in large.LARGE]
    assert all(isinstance(config, Config) for config in large.LARGE)
    assert sizes[0] == pytest.approx(1.1e9, rel=.05) and sizes[1] / sizes[0] == pytest.approx(1 / 20, rel=.25)
