"""Every number in the tables of `nanospec bench`, and every clock behind one, asserted by hand: rounds that nobody
played, whose numbers all differ, and a clock that moves only when a test winds it.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lessons import machine
from nanospec.cli.bench import acceptance, markdown, serve, speed, transformers
from nanospec.cli.bench import measure as measuring
from nanospec.cli.bench.measure import CallCosts, Turn, measure, measure_costs
from nanospec.cli.show import terminal
from nanospec.fast import clock as clocks
from nanospec.methods.index import Method
from nanospec.methods.lengths.by_load import Costs
from nanospec.model import Config
from nanospec.probs import Sampling
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.text import Text
from nanospec.theory import expected_tokens
from tests.release import large
from tests.invented import LAST, ROUNDS, Clock


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("nanospec.fast.clock.perf_counter", clock)
    return clock


def parts_of(table: terminal.ShownTable) -> tuple[list[str], list[list[str]], str]:
    """Names of columns, cells, caption."""
    columns, cells, caption, _ = table
    return [name.replace("-\n", "").replace("\n", " ").strip() for name in columns], [*map(list, cells)], caption


@pytest.fixture
def tables_of(monkeypatch):
    """tables_of(module) -> a list of the tables that it shows from now on."""
    def of(module) -> list[terminal.ShownTable]:
        found: list[terminal.ShownTable] = []
        monkeypatch.setattr(module, "show_table", lambda *its: found.append(terminal.show_table(*its)) or found[-1])
        return found
    return of


# Clocks

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


def test_a_draft_step_is_timed_with_the_sampling_that_was_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(clocks, "step_seconds", lambda *its, **sampling: asked.append((its, sampling)) or 2.5)
    model = small_gpt(5, 1, 1)
    assert clocks.draft_seconds(model, 9, 2, 4, 3, top_k=6, top_p=.9, temperature=.7) == 2.5
    assert asked == [((model, 1, 9, 2, 4, 3, None), {"top_k": 6, "top_p": .9, "temperature": .7})]


def test_a_learned_draft_models_step_is_its_part_of_a_chain(monkeypatch):
    asked = []
    monkeypatch.setattr(clocks, "median_seconds",
                        lambda work, device, repeats, warm_up: asked.append((repeats, warm_up)) or work() or 6.0)
    draft_model = small_learned("mlp", small_gpt(5, 2, 1))
    assert clocks.draft_seconds(draft_model, context=8, repeats=4, warm_up=3) == 1.5 and asked == [(4, 3)]
    sampled = []
    monkeypatch.setattr(clocks.ModelDrafter, "propose", lambda self, text, sampling, *_: sampled.append(sampling))
    clocks.draft_seconds(draft_model, context=8, temperature=.7, top_k=4, top_p=.9, min_p=.1)
    assert sampled == [Sampling(.7, 4, .9, .1)]


def test_a_texts_first_two_rounds_are_the_warm_up(clock, monkeypatch):
    monkeypatch.setattr(clocks, "ModelDrafter", lambda draft_model, gamma: None)
    monkeypatch.setattr(clocks, "longest_chain", lambda draft_model, most: most)
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
    monkeypatch.setattr(measuring, "draft_seconds", lambda draft_model, **more: next_of("draft", more))
    found = measure_costs("target", "draft", [3, 4], 99, turns=3, temperature=.7)
    assert found == CallCosts(pytest.approx(.2), {3: 1.75, 4: 2.25}, 2.0)
    assert asked == [{"temperature": .7, "context": 99, "repeats": 1, "warm_up": 1}] * 12
    queues.clear()
    assert measure_costs("target", "draft", [3], turns=3, compiler="it") == CallCosts(.1, {3: 1.5}, 1.0)
    assert asked[12:] == [{"compiler": "it", "context": 256}] * 3           # one turn, with all its repeats


# speed

@pytest.mark.parametrize("compiler, watched", [(None, False), ("it", False), (None, True)])
def test_what_is_measured_of_a_method(clock, monkeypatch, compiler, watched):
    """Three repeats of two prompts. Plain decoding: 5 + 3 tokens in 4 + 12, 2 + 2 and 1 + 2 seconds. The method: 8 + 2
    tokens in 3 + 2, 9 + 11 and 4 + 4 seconds. With a compiler there is a turn before, in which it compiles. If
    somebody has watched the first repeat, it is not measured, and the numbers are the same.
    """
    more = [(ROUNDS[:3], [90, 1, 1]), (ROUNDS[3:], [80])] if compiler else []
    plain = iter([(5, 70), (3, 60)] * bool(compiler) + [(5, 4), (3, 12), (5, 2), (3, 2), (5, 1), (3, 2)])
    rounds = iter([*more, (ROUNDS[:3], [1, 1, 1]), (ROUNDS[3:], [2]), (ROUNDS[:3], [2, 3, 4]), (ROUNDS[3:], [11]),
                   (ROUNDS[:3], [1, 2, 1]), (ROUNDS[3:], [4])])
    seeds, contexts, seen = [], [], None
    asked = {"max_new_tokens": 21, "temperature": .7, "stop": [6], "compiler": compiler}
    if watched:
        seen = Turn(8 / 16, [[ROUNDS[:3], ROUNDS[3:]]], [[[1, 1, 1], [2]]])
        next(plain), next(plain), next(rounds), next(rounds)

    def generate(target, ids, seed, **request):
        assert request == asked
        seeds.append((ids, seed))
        count, seconds = next(plain)
        return clock.during([LAST] * count, [seconds / count] * count)

    def run(ids, seed, **request):
        assert request == asked
        seeds.append((ids, seed))
        return clock.during(*next(rounds))

    def costs(target, draft_model, sizes, context, **settings):
        contexts.append((sizes, context))
        assert settings == {"compiler": compiler, "temperature": .7}
        return CallCosts(.2, {3: 1.5, 4: 1.75}, 1.0)

    monkeypatch.setattr(measuring, "generate", generate)
    monkeypatch.setattr(measuring, "measure_costs", costs)
    monkeypatch.setattr(measuring, "weights_of", lambda target: "float32")
    target = SimpleNamespace(device="cpu")
    (row, done), = measure(target, "draft", [[1, 2], [3, 4, 5]], [Method("chain", "token", 3, None, run)],
                           seed=2 ** 32 - 1, max_new_tokens=21, temperature=.7, stop=[6], compiler=compiler, seen=seen)
    assert seeds[:4] == [([1, 2], 2 ** 32 - 1)] * 2 + [([3, 4, 5], 0)] * 2              # over the end
    assert seeds == seeds[:4] * (3 + bool(compiler) - watched) and next(plain, None) is next(rounds, None) is None
    assert contexts == [([3, 4], 3 + 10)] * 3 and done == ROUNDS
    assert row["baseline_tokens_per_s"] == pytest.approx(8 / 4)             # the median of 8 / 16, 8 / 4 and 8 / 3
    assert row["tokens_per_s"] == pytest.approx(10 / 8) and row["speedup"] == pytest.approx(.625)
    assert row["busy"] and row["temperature"] == .7 and row["dtype"] == "float32"
    # A round's parts are 1.9, 2.35 and, in the other text, 1.9 s; the first of each text does not count.
    assert row["overhead"] == pytest.approx((2 / 1.9 + 1 / 2.35) / 2)


ROWS = [{"temperature": t, "draft_model": "gpt", "drafter": "chain", "gamma": gamma, "rule": "block", "alpha": .614
         + t / 100,
         "c": .1236, "v": 1.377, "acceptance_length": 2.644, "baseline_tokens_per_s": 1234.4,
         "tokens_per_s": 2345.6,
         "speedup": gain, "predicted_speedup": 1.812, "overhead": 1.073, "busy": False}
        for t, gamma, gain in ((0.0, 2, 1.913), (0.0, 4, .987), (.8, 2, 1.244), (.8, 4, 1.655))]


def test_the_table_of_speeds(capsys):
    table = speed.show(ROWS, "caption")
    assert capsys.readouterr().out.endswith("\ncaption\n")
    names, cells, caption = parts_of(table)
    assert names == ["T", "drafter", "gamma", "rule", "alpha", "c", "v", "acceptance length", "plain per s",
                     "fast per s", "speed-up", "theory", "overhead"]
    assert cells[1] == ["0", "chain", "4", "block", "0.61", "0.124", "1.38", "2.64", "1,234", "2,346", "0.99 lost",
                        "1.81",
                        "1.07"]
    assert cells[2][:5] == ["0.8", "chain", "2", "block", "0.62"] and cells[3][10] == "1.66" and caption == "caption"
    assert list(table.bold) == [True, False, False, True]        # the best of each temperature


def test_the_table_of_speeds_of_several_draft_models_or_setups():
    names, (cells,), caption = parts_of(speed.show([ROWS[0] | {"busy": True}], "caption", several=True))
    assert names[1] == "draft model" and cells[1] == "gpt" and names[-1] == "speed-up" and cells[-1] == "1.91"
    assert "overhead" not in names and "This machine is busy" in caption and "more than 1.5 times" in caption
    assert measuring.busy([ROWS[0], ROWS[1] | {"busy": True}]) and not measuring.busy(ROWS)
    both = {"baseline_tokens_per_s_eager": 11.4, "baseline_tokens_per_s_compiled": 22.6, "tokens_per_s_eager": 33.4,
            "tokens_per_s_compiled": 44.6}
    names, (cells,), _ = parts_of(speed.show([ROWS[0] | both], "caption"))
    assert dict(zip(names, cells)) | {"plain per s eager": "11", "plain per s compiled": "23", "fast per s eager": "33",
                                      "fast per s compiled": "45"} == dict(zip(names, cells))


# beside

def test_the_data_type_in_which_transformers_is_faster(clock, monkeypatch):
    """By the best of three glances, in turns: 2 s in float32, and 2.5 in bfloat16. Or the one that is asked for."""
    took, asked = {torch.float32: iter([5, 2, 9]), torch.bfloat16: iter([3, 2.5, 4])}, []
    monkeypatch.setattr(transformers, "perf_counter", clock)
    monkeypatch.setattr(transformers, "hf_model", lambda folder, dtype, device: dtype)
    monkeypatch.setattr(transformers, "hf_writer", lambda model, *of: lambda *more: asked.append((model, of, more)) or (
        clock.wind(next(took[model]))))
    assert transformers.their_dtype(Path("."), torch.device("cpu"), "auto") == torch.float32
    assert asked == [(dtype, (8, 0.0), ([1] * 32, 0)) for dtype in took] * 3
    assert transformers.their_dtype(Path("."), torch.device("cpu"), "bfloat16") == torch.bfloat16 and len(asked) == 6


@pytest.mark.parametrize("temperature, sampling", [
    (0.0, {"do_sample": False}), (0.7, {"do_sample": True, "temperature": 0.7, "top_k": 0, "top_p": 1.0})])
def test_transformers_samples_from_all_tokens(temperature, sampling):
    """Its own default is a top_k of 50. 2 tokens of the prompt, then a call that brings 1 and one that brings 3."""
    asked = []

    def generate(prompt, streamer, **how):
        said = {name: value for name, value in how.items()
                if name in ("max_new_tokens", "do_sample", "temperature", "top_k", "top_p")}
        asked.append((prompt.tolist(), how["attention_mask"].tolist(), torch.initial_seed(), said))
        for count in 2, 1, 3:
            streamer.put(torch.zeros(count))
        return torch.tensor([[4, 5, 6, 7, 8, 9]])

    write = transformers.hf_writer(SimpleNamespace(device="cpu", generate=generate), 4, temperature, eos_token_id=3)
    assert write([0, 5], 11) == [[6], [7, 8, 9]]                # a token 0 is no padding
    assert asked == [([[0, 5]], [[1, 1]], 11, sampling | {"max_new_tokens": 4})]


def test_the_pace_of_a_server_begins_with_the_first_request(clock, monkeypatch):
    """Of two rows. Requests come at 2 and 2.25; a step takes half a second and writes two tokens of four for each. At
    2.5 two tokens are written, in half a second; later there is no request for every row."""
    class Fake:
        def __init__(self, *_, context):
            assert context == 9
            self.running = []

        def submit(self, ids, **settings):
            self.running.append(SimpleNamespace(ids=ids, tokens=[], done=False, error=None, seed=settings["seed"]))
            return self.running[-1]

        def step(self):
            clock.wind(0.5)
            for request in self.running:
                request.tokens += [1, 2] * (not request.done)
                request.done = len(request.tokens) == 4

    monkeypatch.setattr(serve, "Server", Fake)
    monkeypatch.setattr(serve, "time", SimpleNamespace(perf_counter=clock, sleep=clock.wind))
    pair = SimpleNamespace(target=SimpleNamespace(config=SimpleNamespace(context=9)))
    found = serve.served(pair, None, 2, [[1], [2]], [2.0, 2.25], 7, {})
    assert found["tokens_per_s"] == 4 and serve.per_second(2, [0.5]) == 4
    monkeypatch.setattr(Fake, "step", lambda self: vars(self.running[0]).update(error=KeyError("lost"), done=True))
    with pytest.raises(KeyError, match="lost"):
        serve.served(pair, None, 2, [[1]], [0.0], 7, {})


@pytest.mark.parametrize("drafts", [0, 1])
def test_how_transformers_is_asked(monkeypatch, drafts):
    """Assisted with as many draft tokens in every round as here, and once more as it chooses itself."""
    models = []

    def model(*its):
        models.append(SimpleNamespace(of=its, generation_config=SimpleNamespace()))
        return models[-1]

    monkeypatch.setattr(transformers, "hf_model", model)
    monkeypatch.setattr(transformers, "hf_writer", lambda model, **how: (model, how))
    found = transformers.their_writers([Path("t"), Path("d")][:1 + drafts], "dtype", "device", 3, {"max_new_tokens": 7})
    target, *assistants = models
    assert [its.of[0].name for its in models] == ["t", "d", "d"][:1 + 2 * drafts]
    assert found == {"transformers": (target, {"max_new_tokens": 7}),
                     "transformers, prompt lookup": (target, {"max_new_tokens": 7, "prompt_lookup_num_tokens": 3}),
                     **{f"transformers, {name}": (target, {"max_new_tokens": 7, "assistant_model": assistant})
                        for name, assistant in zip(["assisted", "assisted, its defaults"], assistants)}}
    settings = [vars(its.generation_config) for its in models]
    assert settings == [{}, {"num_assistant_tokens": 3, "num_assistant_tokens_schedule": "constant",
                             "assistant_confidence_threshold": 0.0}, {}][:1 + 2 * drafts]


def test_a_table_as_markdown_by_hand(monkeypatch):
    """No row is bold where none is the best; and a cell's own line is none between cells."""
    monkeypatch.setattr(markdown, "machine", lambda: "here")
    table = terminal.ShownTable(["kind of\ntoken", "accept-\nance"], [["a|b", "1"], ["c", "2"]], "caption", [])
    first, _, *lines = markdown.page(["acceptance", "--text", "a b"], table).splitlines()
    assert first.startswith("`nanospec bench acceptance --text 'a b'`. here, ")
    assert lines == ["| kind of token | acceptance |", "| --- | --- |", "| a&#124;b | 1 |", "| c | 2 |", "", "caption"]


def test_a_machine_is_named_by_its_processor(monkeypatch, tmp_path):
    """Where the system has no such list, by what Python knows."""
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A: B 7\nprocessor\t: 1\nmodel name\t: C\n")
    monkeypatch.setattr(markdown, "CPU", tmp_path / "cpuinfo")
    assert markdown.machine().startswith("A: B 7 (")
    monkeypatch.setattr(markdown, "CPU", tmp_path / "nowhere")
    monkeypatch.setattr(markdown.platform, "processor", lambda: "")
    monkeypatch.setattr(markdown.platform, "machine", lambda: "of a kind")
    assert markdown.machine().startswith("of a kind (")


# serve

def test_what_is_measured_of_requests(clock, monkeypatch):
    """Two rows; requests come after 0, 0, 3 and 8.5 s. Every step takes 2 s and writes 2 tokens for each of at most
    two, or 1 for a request alone. Asked for: 4, 2, 3 and 1 tokens. Their seeds follow one another, over the end.
    """
    monkeypatch.setattr(serve.time, "perf_counter", clock)
    monkeypatch.setattr(serve.time, "sleep", clock.wind)

    class Server:
        def __init__(self, target, drafter, rows, context):
            assert (rows, context) == (2, 99)
            self.requests = []

        def submit(self, ids, max_new_tokens, seed):
            assert ids == [seed]
            left = [4, 2, 3, 1][seeds.index(seed)]
            self.requests.append(SimpleNamespace(tokens=[], left=left, done=False, error=None))
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
    seeds = [2 ** 32 - 2, 2 ** 32 - 1, 0, 1]
    pair = SimpleNamespace(target=SimpleNamespace(config=SimpleNamespace(context=99)))
    found = serve.served(pair, None, 2, [[seed] for seed in seeds], [0.0, 0.0, 3.0, 8.5], seeds[0],
                         {"max_new_tokens": 9})
    # After 2 s the second has its 2 tokens. After 6 s the first has its 4, and the third, which came after 3 s, 2 of
    # its 3. After 8 s it is done, and nobody is there until 8.5 s. The last one has its token after 10.5 s.
    assert found["first_p50"] == 2 and found["first_p99"] == pytest.approx(2 + .97 * 1)         # 2, 2, 3 and 2
    assert found["each_p50"] == 1 and found["each_p99"] == pytest.approx(1 + .98 / 3)
    assert found["tokens_per_s"] == pytest.approx(8 / 6)    # as long as both rows have requests


def test_the_table_of_requests():
    rows = [{"rows": rows, "method": method, "tokens_per_s": pace, "first_p50": .1234, "first_p99": .5678,
             "each_p50": .01234,
             "each_p99": .05678} for rows, method, pace in ((1, "plain", 131.6), (1, "chain 4", 197.4),
                                                            (4, "plain", 263.2), (4, "chain 4", 236.88))]
    names, cells, _ = parts_of(serve.show(rows, "caption"))
    assert names == ["rows", "", "tokens/s", "over plain", "first token, ms median", "p99", "each token, ms median",
                     "p99"]
    assert cells == [["1", "plain", "132", "1.00", "123", "568", "12.3", "56.8"],
                     ["1", "chain 4", "197", "1.50", "123", "568", "12.3", "56.8"],
                     ["4", "plain", "263", "1.00", "123", "568", "12.3", "56.8"],
                     ["4", "chain 4", "237", "0.90", "123", "568", "12.3", "56.8"]]


def test_a_batch_is_served_in_turns_and_medians_are_told(monkeypatch):
    """by-load believes what rounds were measured to cost, and keeps what it learns of them from turn to turn."""
    target = SimpleNamespace(config=SimpleNamespace(context=999, vocab_size=5), device="cpu")
    pair = SimpleNamespace(target=target, draft_model="draft")
    monkeypatch.setattr(serve, "find_source", lambda weights: SimpleNamespace(path=SimpleNamespace(name="pair")))
    monkeypatch.setattr(serve, "chosen_drafters", lambda names, source, drafts, option: names)
    read = []
    monkeypatch.setattr(serve, "read_pair", lambda *_: read.append(1) or pair)
    monkeypatch.setattr(serve, "longest_chain", lambda draft_model, most: most - 4)           # of 6
    monkeypatch.setattr(serve, "method_of", lambda *its, **__: (
        its == (target, "draft", "chain") and SimpleNamespace(name="chain 2", gamma=2, make=lambda: None)))
    monkeypatch.setattr(serve, "check_request", lambda *_: None)
    monkeypatch.setattr(serve, "held_out_prompts", lambda pair, count: [[1]] * count)
    monkeypatch.setattr(serve, "autotune", lambda *its, rows: its == (target, "draft", "float64", 3) and f"for {rows}")
    believed = []
    monkeypatch.setattr(serve, "WatchedByLoad",
                        lambda draft_model, costs, most: believed.append((draft_model, costs, most)))
    table = Costs({1: [1.0, 1.1, 1.25], 4: [2.0, 3.0, 5.0]})
    timed = []
    monkeypatch.setattr(serve, "round_seconds", lambda *its: timed.append(its[2]) or table)
    turns = iter(range(18))

    def served(pair, drafter, rows, prompts, arrivals, seed, settings):
        """In each of three turns, of three methods: 10, 11, 12; 13, ... tokens a second."""
        assert seed == 77 and settings == {"max_new_tokens": 5, "temperature": 0.25}
        assert len(prompts) == len(arrivals) == 8               # of few requests much is luck
        return {"tokens_per_s": 10.0 + next(turns), "first_p50": 1.0, "first_p99": 2.0, "each_p50": 3.0,
                "each_p99": 4.0}

    monkeypatch.setattr(serve, "served", served)
    rows, shown = serve.run(rows=(1, 4), gamma=2, seed=77, dtype="float64", threads=3, max_new_tokens=5,
                            temperature=0.25)
    assert [(row["rows"], row["method"], row["tokens_per_s"]) for row in rows] == [
        (1, "plain", 13), (1, "chain 2", 14), (1, "by-load", 15), (4, "plain", 22), (4, "chain 2", 23),
        (4, "by-load", 24)]
    assert timed == [[1], [1, 4]]                               # in the end there is one request alone
    assert believed == [("draft", table, 2)] * 6 and len(read) == 2      # anew for 4, since what is tuned is converted
    _, cells, caption = parts_of(shown)
    assert cells[4][:4] == ["4", "chain 2", "23", "1.05"]
    assert caption == "1 at once: for 1; 4 at once: for 4; 8 held-out prompts, 5 tokens each, all at once"
    assert serve.told({1: "as it is", 4: "as it is"}) == "as it is"


# acceptance

def test_rows_of_a_text_that_was_read():
    """Draft tokens 1 and 2 stand with .5 and .25 in every place; what is accepted there on average, with .4 and .8."""
    stood = torch.tensor([[[.5] * 4, [.25] * 4]], dtype=torch.float64)
    beta = torch.tensor([[[.4] * 4, [.8] * 4]], dtype=torch.float64)
    one, two = acceptance.rows_of(stood, beta, CallCosts(.25, {2: 1.25, 3: 1.5}, 3.0))
    # Rounds are of 1 or 2 tokens with .5 each, or of 1, 2 or 3 with .5, .375 and .125. So one begins in the four places
    # with 1, .5, .75 and .625, or with 1, .5, .625 and .625.
    assert one["acceptance_length"] == pytest.approx(4 / 2.875)
    assert two["acceptance_length"] == pytest.approx(4 / 2.75)
    assert one["predicted_speedup"] == pytest.approx(4 / 2.875 / (.25 + 1.25)) and one["v"] == 1.25
    assert two["predicted_speedup"] == pytest.approx(4 / 2.75 / (.5 + 1.5)) and two["v"] == 1.5
    assert one["alpha_by_position"] == pytest.approx([.4]) and two["alpha_by_position"] == pytest.approx([.4, .8])
    assert (one["c"], one["gamma"], two["gamma"]) == (.25, 1, 2)


def test_the_tables_of_a_text_that_was_read(monkeypatch, tables_of):
    pair = SimpleNamespace(target=SimpleNamespace(config=SimpleNamespace(context=4), device="cpu"), draft_model="draft",
                           note="",
                           tokenizer=SimpleNamespace(decode=lambda ids: " a" if ids[0] else "1", begin=[2],
                                                     end_of_text=2))
    stood = torch.full((2, 2, 2), .5)
    beta = torch.tensor([[[.25, .5], [.1, .2]], [[.75, 1.0], [.3, .4]]])             # .625 of first draft tokens
    asked = []
    monkeypatch.setattr(acceptance, "find_source", lambda _: None)
    monkeypatch.setattr(acceptance, "read_pair", lambda *_: pair)
    monkeypatch.setattr(acceptance, "read_texts", lambda: ("for training", "held out"))
    monkeypatch.setattr(acceptance, "to_ids", lambda texts, _: texts == "held out" and torch.tensor(
        [0, 1, 0, 1, 1, 0, 0, 0, 1]))
    monkeypatch.setattr(acceptance, "setups_of", lambda *_: ([(pair.target, "small", None)], "where"))
    monkeypatch.setattr(acceptance, "longest_chain", lambda draft_model, most: 2)
    read = []
    monkeypatch.setattr(acceptance, "judged", lambda *its: read.append(its[2].tolist()) or (stood, beta))
    monkeypatch.setattr(acceptance, "measure_costs", lambda target, small, sizes, context, **more: asked.append(
        ([*sizes], context, more)) or CallCosts(.125, {2: 1.1, 3: 1.9}, 1.0))
    monkeypatch.setattr(acceptance, "rows_of", lambda *its: its[0] is stood and its[1] is beta and [
        {"gamma": gamma, "acceptance_length": tokens, "acceptance_rate": rate, "v": v, "predicted_speedup": gain,
         "alpha_by_position": alphas, "accepted_lengths": [.375, .625]}
        for gamma, tokens, rate, v, gain, alphas in ((1, 1.444, .444, 1.1, 1.177, [.614]),
                                                     (2, 1.716, .358, 1.9, .799, [.614, .277]))])
    tables = tables_of(acceptance)
    _, last = acceptance.run(temperature=.7)
    assert asked == [([2, 3], 2, {"temperature": .7})]
    names, cells, caption = parts_of(tables[0])
    assert cells == [["1", "1.44", "0.44", "1.10", "1.18", "0.61"],
                     ["2", "1.72", "0.36", "1.90", "0.80", "0.61 0.28"]]
    assert caption == ("where; 2 texts of 4 tokens, read and not decoded; T = 0.7, alpha 0.625, c 0.125; best gamma 1; "
                       "draft tokens accepted in a round of it: 0: 38%  1: 62%; this is NOT text that the target "
                       "writes: its tokens would be accepted 0.50 of the time, those of the target 0.62, so all "
                       "lengths here are too small")
    assert list(tables[0].bold) == [True, False]
    # Tokens after the first of each text: 1 0 | 0 0 (of two places); " a" is 1.
    names, cells, _ = parts_of(last)
    assert cells == [["digits", "75.0", "0.750"], ["the beginning of a word", "25.0", "0.250"]]
    pair.tokenizer.begin = [3]                                      # it wants this before everything
    acceptance.run(temperature=.7)
    assert read == [[[0, 1, 0, 1], [1, 0, 0, 0]], [[3, 0, 1, 0], [3, 1, 0, 0]]]


# tests/release/large.py

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
    monkeypatch.setattr(large, "ModelDrafter", lambda draft_model,
                        gamma: SimpleNamespace(begin=lambda *_: None, read=lambda *_: None, uniforms=gamma,
                                                                                   most=gamma))
    found = large.simulated(target, None, alphas=(.25, .5, .75), gammas=(2,), rows=(4,), context=3)
    assert [row["speedup"] for row in found] == pytest.approx([expected_tokens(a, 2) / 3 for a in (.25, .5, .75)])
    assert [(row["plain"], row["round"]) for row in found] == [(3, 6)] * 3
    assert [row["acceptance_length"] for row in found] == [1.25, 1.5, 1.75]


def test_there_is_room_for_all_rounds_of_the_longest_drafts(monkeypatch):
    """Of 4 tokens each: five that are timed, three that warm up, and one to spare, after a context of 3."""
    lengths = []
    monkeypatch.setattr(large, "pace", lambda step, kv_length, *_: lengths.append(kv_length) or (1.0, 1.0))
    target = SimpleNamespace(config=SimpleNamespace(vocab_size=5), device="cpu", new_cache=lambda *_: None)
    monkeypatch.setattr(large, "ModelDrafter", lambda draft_model, gamma: SimpleNamespace(
        begin=lambda *_: None, read=lambda *_: None, uniforms=1, most=gamma))
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


def test_the_table_of_simulated_acceptance(monkeypatch, tables_of):
    tables = tables_of(large)
    monkeypatch.setattr(large, "large_pair", lambda device: (None, None))
    monkeypatch.setattr(large, "described", lambda target: "bfloat16")
    monkeypatch.setattr(large, "roofline", lambda *_: {"bytes": 2.347e9, "seconds": {"target step": .05},
                                                       "bandwidth": 61.6e9})
    monkeypatch.setattr(large, "simulated", lambda *_, **__: [
        {"rows": 4, "gamma": gamma, "alpha": alpha, "plain": plain, "round": whole, "speedup": gamma + alpha / 10}
        for gamma, plain, whole in ((2, .05123, .07456), (4, .05234, .08567)) for alpha in (.5, .9)])
    large.run((2, 4), (4,), (.9, .5), "cpu", False)
    names, cells, caption = parts_of(*tables)
    assert names[4:] == ["alpha 0.5", "alpha 0.9"]
    assert cells == [["4", "2", "51.2", "74.6", "2.05", "2.09"], ["4", "4", "52.3", "85.7", "4.05", "4.09"]]
    assert caption.endswith("A plain step reads 2.35 GB, 47 GB/s; measured for that many bytes: 62")


def test_the_limits_of_a_machine(monkeypatch):
    """Reading 4,000 bytes takes 2 s, 512 MiB 4 s; a product of matrices 8 s. The draft model has 1,000 bytes, and a
    step of it takes a fourth of the target's.
    """
    device, seconds = torch.device("cpu"), iter([2.0, 4.0, 8.0])
    monkeypatch.setattr(machine, "median_seconds", lambda work, where: callable(work) and where is device
                        and next(seconds))
    monkeypatch.setattr(large, "weight_bytes", lambda model: model.bytes)
    monkeypatch.setattr(large, "measure_costs", lambda target, draft_model, sizes: CallCosts(
        draft_model.bytes / target.bytes, {sizes[0]: 1.5}, 3.0))
    found = large.roofline(SimpleNamespace(bytes=4000, device=device, dtype=torch.float32),
                              SimpleNamespace(bytes=1000))
    assert found == {"bytes": 4000, "bandwidth": 2000, "bandwidth_of_512_MiB": 2 ** 27,
                     "matrix_rate": 2 * 1024 ** 3 / 8,
                     "gamma": 4, "floor_seconds": {"target step": 2, "draft step": .5, "verification": 2, "round": 4},
                     "seconds": {"target step": 3, "draft step": .75, "verification": 4.5, "round": 3 * 2.5}}


def test_the_bytes_of_a_plain_step():
    """Config is here so that a change of the sizes is seen: 1.1 billion weights, and a twentieth."""
    sizes = [config.vocab_size * config.channels + config.layers * (
        2 * config.channels ** 2 + 2 * config.channels * config.kv_heads * config.channels // config.heads
        + 3 * config.channels * config.hidden) for config in large.LARGE]
    assert all(isinstance(config, Config) for config in large.LARGE)
    assert sizes[0] == pytest.approx(1.1e9, rel=.05) and sizes[1] / sizes[0] == pytest.approx(1 / 20, rel=.25)
