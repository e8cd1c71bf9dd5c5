"""How a model is set up for this machine. That the choice is the fastest is for the clock; that it is the same model,
for these.
"""

import threading
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from types import SimpleNamespace

import pytest
import torch

from nanospec.fast import autotune as tuning
from nanospec.fast.autotune import (Tuning, autotune, autotune_draft_model, copy_of, described, fastest, first_layers,
                                    set_up, setups_of)
from nanospec.fast.announce import announced, unseen
from nanospec.fast.clock import ClockedDrafter, clocked, draft_seconds, median_seconds, round_seconds, step_seconds
from nanospec.fast.fbgemm import halve, has_fbgemm
from nanospec.fast.packed import PackedLinear, can_pack
from nanospec.generate import generate
from nanospec.methods.draft_models.medusa import Medusa
from nanospec.model import GPT
from nanospec.probs import Sampling
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from tests.invented import Clock
from tests.three_calls import logits

@pytest.fixture
def model():
    return small_gpt(97, 3, 1).float()


def test_fastest_leaves_everything_as_it_was(model):
    threads, before = torch.get_num_threads(), logits(model)
    other = threads % 2 + 1
    tuning = fastest(model, threads=[other], seconds=lambda model: float(model.dtype == torch.float32))
    assert tuning.dtype == torch.bfloat16 and tuning.threads == other
    assert torch.get_num_threads() == threads and torch.equal(logits(model), before)


@pytest.mark.parametrize("tied", [True, False])
def test_first_layers_are_those_of_the_model_and_what_is_made_of_them_is_not(tied):
    """Twelve layers: the eleventh has a name that begins as the second's does."""
    torch.manual_seed(1)
    model = GPT(replace(small_gpt(97, 12, 1).config, tied=tied)).requires_grad_(False)
    before, whole = logits(model), [weight.clone() for weight in model.parameters()]
    short = first_layers(model, torch.float32, 2)
    for kept, weight in zip(short.parameters(), [weight for name, weight in model.named_parameters()
                                                 if name.split(".")[0] != "blocks" or int(name.split(".")[1]) < 2]):
        assert torch.equal(kept, weight) and kept.data_ptr() == weight.data_ptr()
    if has_fbgemm(torch.device("cpu")):
        halve(short)
    first_layers(model, torch.bfloat16, 3).embedding.weight.zero_()
    assert torch.equal(logits(model), before) and len(short.blocks) == short.config.layers == 2
    assert all(torch.equal(weight, once) for weight, once in zip(model.parameters(), whole))


def test_a_copy_of_a_learned_model_has_its_weights_in_another_type_and_its_target():
    target = small_gpt(11, 2, 1)
    model = small_learned("mlp", target)
    copy = copy_of(model, torch.float32)
    assert all(torch.equal(kept.float(), weight) and not weight.requires_grad and weight.dtype == torch.float32
               for kept, weight in zip(model.parameters(), copy.parameters(), strict=True))
    assert copy.target is target and next(model.parameters()).dtype == torch.float64


def test_the_quickest_of_all_tunings_is_taken(model):
    tried = []

    def seconds(model):
        packed = isinstance(model.head, PackedLinear) and model.head.copy is not None
        tried.append((model.dtype, torch.get_num_threads(), model.head.fewest if packed else 0))
        return 1 / len(tried)

    last = fastest(model, [torch.float64, torch.float32], [1, 2], seconds)
    assert last == Tuning(*tried[-1])
    first = int(can_pack(torch.zeros(1)))                                          # packed for every call, at first
    assert tried[:3] == [(torch.float64, 1, 0), (torch.float64, 2, 0), (torch.float32, 1, first)]
    half = 6 if can_pack(torch.zeros(1)) else 4
    assert len(set(tried)) == half and tried[half:] == tried[:half]        # two turns


def test_a_machine_that_others_use_too_does_not_decide(model):
    """float64 takes 1.3 times as long as float32. In one turn the machine is quick just while float64 is measured."""
    def seconds(model):
        return next(mood) * (1.3 if model.dtype == torch.float64 else 1.0)

    for moods in [.5, 1, 1, 1, 2, 2, 1, 1, 2, 2], [1, 1, 2, 2, 1, 2]:
        mood, turns = iter(moods), len(moods) // 2
        assert fastest(model, [torch.float64, torch.float32], [1], seconds, False, turns=turns).dtype == torch.float32


def test_what_a_glance_shows_to_be_hopeless_is_not_measured(model):
    """Two threads take three times as long as one: they are looked at once. What takes less than twice the least is
    measured.
    """
    tried, glanced = [], []

    def seconds(model):
        tried.append(torch.get_num_threads())
        return 1.0

    def glance(model):
        glanced.append((model.dtype, torch.get_num_threads()))
        return 6.0 if torch.get_num_threads() == 2 else 1.9 if model.dtype == torch.float64 else 1.0

    assert fastest(model, [torch.float64, torch.float32], [1, 2], seconds, False, glance).threads == 1
    assert tried == [1] * 4 and glanced == [(torch.float64, 1), (torch.float64, 2), (torch.float32, 1)]


def test_every_measurement_is_a_step_of_a_bar(model, monkeypatch):
    @contextmanager
    def announced(what, at_once=True, steps=0):
        done = []
        yield lambda: done.append(1)
        told.append((what, at_once, steps, len(done)))

    told = []
    monkeypatch.setattr(tuning, "announced", announced)
    fastest(model, [torch.float64], [1, 2], lambda copy: 1.0, False, lambda copy: 1.0, 3, "trying")
    assert told == [("trying", False, 2, 2), ("trying", True, 6, 6)]


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [2, 3])
def test_threads_that_are_asked_for_are_those_of_the_pair(threads, count, monkeypatch):
    monkeypatch.setattr(tuning, "GLANCE", lambda copy: 1.0)
    monkeypatch.setattr(tuning, "round_seconds", lambda *pair: 1.0)
    torch.set_num_threads(1)
    autotune(small_gpt(11, 3, 1), small_gpt(11, 1, 2), "float32", count)
    assert torch.get_num_threads() == count


@pytest.mark.parametrize("asked, compiler, counts", [(None, None, []), (None, 1, [2]), (3, None, [3]), (3, 1, [3])])
def test_all_numbers_of_threads_are_tried_if_none_is_asked_for_and_nothing_is_compiled(threads, monkeypatch, asked,
                                                                                       compiler, counts):
    tried = []
    monkeypatch.setattr(tuning, "convert", lambda model, dtypes, threads, *_: tried.append(threads))
    torch.set_num_threads(2)
    autotune(small_gpt(11, 3, 1), None, "float32", asked, compiler)
    assert tried == [counts]


def test_tuned_models_decode(threads, capsys):
    target, draft_model = small_gpt(11, 3, 1), small_gpt(11, 1, 2)
    words = autotune(target, draft_model, "float32")
    assert target.dtype == draft_model.dtype == torch.float32 and described(target).startswith("float32")
    assert words.startswith("cpu, 1 thread; ") and words.endswith(
        f"target in {described(target)}, draft model in {described(draft_model)}")
    rounds = speculate(target, ModelDrafter(draft_model), [1, 2], 10, temperature=0)
    assert tokens_of(rounds) == list(generate(target, [1, 2], 10, temperature=0))
    out, err = capsys.readouterr()
    assert out == "" and [line.split(" ...")[0] for line in err.splitlines()] == [
        "measuring which data type, threads and weight layout are fastest here", "the same for the draft model"]


def test_a_draft_model_is_tuned_beside_a_target_that_stays(threads, monkeypatch):
    target, draft_model = small_gpt(11, 3, 1), small_gpt(11, 1, 2)
    monkeypatch.setattr(tuning, "GLANCE", lambda copy: 1.0)
    monkeypatch.setattr(tuning, "round_seconds", lambda big, small: 2.0 if small.dtype == torch.float32 else 1.0)
    autotune_draft_model(target, draft_model)
    assert target.dtype == torch.float64 and draft_model.dtype == torch.bfloat16


def test_a_target_is_tuned_for_a_step_and_a_round_with_its_draft_model(threads, monkeypatch):
    """In bfloat16 a step is quicker, and a round with this draft model slower."""
    target, draft_model = small_gpt(11, 3, 1), small_gpt(11, 1, 2)
    monkeypatch.setattr(tuning, "GLANCE", lambda copy: 1.0)
    monkeypatch.setattr(tuning, "step_seconds", lambda copy, **_: 1.0 if copy.dtype == torch.bfloat16 else 2.0)
    monkeypatch.setattr(tuning, "round_seconds", lambda big, small: (
        9.0 if big.dtype == torch.bfloat16 and small is draft_model else 1.0))
    autotune(target, draft_model)
    assert target.dtype == torch.float32


def test_setups_are_the_pair_and_with_a_compiler_copies_of_it(threads, monkeypatch):
    """The copies are tuned for themselves, and a draft model's target is the copy beside it."""
    target = small_gpt(11, 3, 1)
    draft_model = small_learned("prefix", target)
    monkeypatch.setattr(tuning, "compiler_for", lambda device: lambda step, *_: step)
    monkeypatch.setattr(tuning, "fastest", lambda model, *_, packed=True, **__: Tuning(
        torch.float32 if packed else torch.bfloat16, 1, 0))
    (eager,), words = setups_of(target, draft_model)
    assert eager == (target, draft_model, None) and words.count("target in float32") == 1 and ";" not in words[20:]
    setups, words = setups_of(target, draft_model, compile=True)
    assert setups[0] == (target, draft_model,
                         None) and setups[1].compiler and setups[1].draft_model.target is setups[1].target
    assert setups[1].target is not target and setups[1].target.dtype == setups[1].draft_model.dtype == torch.bfloat16
    assert target.dtype == torch.float32 and "; compiled: cpu, 1 thread; target in bfloat16" in words


@pytest.mark.parametrize("terminal", [True, False])
def test_what_takes_a_while_is_announced_and_a_terminal_takes_it_back(monkeypatch, capsys, terminal):
    class Its(threading.Thread):
        def join(self, timeout=None):
            waited_for.append(self.daemon)
            super().join(timeout)

    waited_for = []
    monkeypatch.setattr("nanospec.fast.announce.Thread", Its)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    with pytest.raises(KeyboardInterrupt), announced("working"):
        assert "working ..." in capsys.readouterr().err
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "\r\033[K" * terminal and waited_for == [True]


def test_a_terminal_that_keeps_what_has_no_end_of_line_is_told_at_once(monkeypatch):
    shown = BytesIO()
    kept = TextIOWrapper(shown, write_through=False)
    kept.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", kept)
    with announced("working"):
        assert shown.getvalue() == b"\r\033[Kworking ..."
    assert shown.getvalue() == b"\r\033[Kworking ...\r\033[K"


@pytest.mark.parametrize("terminal", [True, False])
def test_what_has_an_end_has_a_bar(monkeypatch, capsys, terminal):
    """Of 20 characters: of 8 steps one is 2.5, of which 2 are drawn. In a file only what takes long is told."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    with announced("working", steps=8) as step:
        assert capsys.readouterr().err.strip("\r\033[K\n") == f"working ... [{'.' * 20}]"
        for _ in range(8):
            step()
        said = capsys.readouterr().err
    assert said == "".join("\r\033[Kworking ... [" + "#" * full + "." * (20 - full) + "]"
                           for full in (2, 5, 7, 10, 12, 15, 17, 20)) * terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_is_drawn_only_of_what_takes_long_if_it_is_not_said_at_once(monkeypatch, capsys, terminal):
    """And in a file by none of its steps."""
    clock = Clock()
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    monkeypatch.setattr("nanospec.fast.announce.perf_counter", clock)
    monkeypatch.setattr("nanospec.fast.announce.STILL", 100)
    with announced("working", at_once=False, steps=2) as step:
        step()
        assert not capsys.readouterr().err
        clock.wind(101)
        step()
        assert ("[" + "#" * 20 + "]" in capsys.readouterr().err) == terminal


@pytest.mark.parametrize("terminal, pauses", [(True, [2.5] * 4), (False, [2.5, 5.0, 10.0, 20.0])])
def test_a_file_gets_fewer_and_fewer_lines(terminal, pauses, monkeypatch, capsys):
    class Wound:
        def wait(self, pause):
            waited.append(pause)
            return len(waited) == 4

        def set(self):
            pass

    waited = []
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    monkeypatch.setattr("nanospec.fast.announce.STILL", 2.5)
    monkeypatch.setattr("nanospec.fast.announce.Event", Wound)
    with announced("working"):
        pass
    assert waited == pauses and capsys.readouterr().err.count("working ...") == 4


def test_what_goes_on_says_so_and_of_two_the_inner_one(monkeypatch, capsys):
    def next_lines() -> set[str]:
        while not (said := capsys.readouterr().err):
            pass
        return set(said.splitlines())

    monkeypatch.setattr("nanospec.fast.announce.STILL", 0.001)
    monkeypatch.setattr("nanospec.fast.announce.perf_counter", lambda: 0.0)
    with announced("working", at_once=False):
        with announced("still working"):
            next_lines(), next_lines()
            assert {line for _ in range(5) for line in next_lines()} == {"still working ... 0 s"}
        next_lines(), next_lines()
        assert next_lines() == {"working ... 0 s"}
    capsys.readouterr()
    assert not capsys.readouterr().err


def test_a_round_is_timed_in_a_short_context_and_with_a_draft_model_of_a_few_draft_tokens():
    """A text of 8 tokens may be written in a single round. Two heads draft no four tokens."""
    target = small_gpt(11, 2, 1, context=16)
    heads = Medusa(11, 16, [1], heads=2).double().attach(target)
    assert all(seconds > 0 for seconds in (round_seconds(target, target), round_seconds(target, heads),
                                           draft_seconds(heads, context=8, repeats=1)))


def test_without_a_draft_model_as_many_calls_are_timed_as_rounds_with_one(monkeypatch):
    """Two to warm up, and five; after as many tokens as a round is."""
    target, calls, call = small_gpt(11, 2, 1), [], GPT.forward
    monkeypatch.setattr(GPT, "forward", lambda model, tokens, cache, kv_length: (
        calls.append((tokens.shape[1], kv_length)) or call(model, tokens, cache, kv_length)))
    assert round_seconds(target, None) > 0 and calls == [(5, 48 + 5)] * 7


def test_what_warms_up_does_not_count_and_of_the_rest_the_middle_does(monkeypatch):
    clock, takes = Clock(), iter([50, 60, 1, 2, 9])
    monkeypatch.setattr("nanospec.fast.clock.perf_counter", clock)
    assert median_seconds(lambda: clock.wind(next(takes)), torch.device("cpu"), 3, 2) == 2


def test_the_first_two_rounds_of_a_text_warm_up(monkeypatch):
    """Of seven rounds. The text is as long again as its prompt, which is half a short context."""
    clock, asked, takes = Clock(), [], (90, 80, 1, 2, 9, 4, 3, 70)
    monkeypatch.setattr("nanospec.fast.clock.perf_counter", clock)
    monkeypatch.setattr("nanospec.fast.clock.speculate", lambda target, drafter, *text: (
        asked.append((drafter.most, *text)) or clock.during(takes, takes)))
    target = small_gpt(11, 2, 1, context=20)
    assert round_seconds(target, target) == 3 and asked == [(4, [0] * 10, 10)]


@pytest.mark.parametrize("seconds, tokens", [(step_seconds, {"tokens": 3}), (draft_seconds, {})])
def test_a_step_is_timed_as_it_is_asked_for(monkeypatch, seconds, tokens):
    calls, settings, call, count = [], [], GPT.forward, tokens.get("tokens", 1)
    monkeypatch.setattr(GPT, "forward", lambda model, fed, cache, kv_length: (
        calls.append((*fed.shape, cache.length.tolist(), kv_length)) or call(model, fed, cache, kv_length)))
    monkeypatch.setattr("nanospec.fast.clock.Sampling", lambda **told: settings.append(told) or Sampling(**told))
    seconds(small_gpt(11, 2, 1), context=20, rows=2, repeats=4, warm_up=1, temperature=0.5, **tokens)
    assert calls == [(2, count, [20, 20], 20 + count)] * 5 and settings == [{"temperature": 0.5}]


def test_a_draft_token_of_a_learned_model_is_its_part_of_a_chain(monkeypatch):
    """Two heads draft two tokens, in 6 seconds."""
    clock, told = Clock(), []
    heads = Medusa(11, 16, [1], heads=2).double().attach(small_gpt(11, 2, 1))
    monkeypatch.setattr("nanospec.fast.clock.perf_counter", clock)
    monkeypatch.setattr(ModelDrafter, "propose", lambda drafter, text, sampling, *_: (
        told.append(sampling.temperature) or clock.wind(6)))
    assert draft_seconds(heads, context=8, repeats=2, warm_up=1, temperature=0.5) == 3 and told == [0.5] * 3


def test_a_draft_is_timed_after_a_context_that_was_read(monkeypatch):
    heads, read, reads = Medusa(11, 16, [1], heads=2).double().attach(small_gpt(11, 2, 1)), [], ModelDrafter.read
    monkeypatch.setattr(ModelDrafter, "read", lambda drafter, text, rows, hidden: (
        read.append((*rows, hidden.shape, hidden.dtype)), reads(drafter, text, rows, hidden)))
    draft_seconds(heads, context=8, rows=2, repeats=1)
    assert read == [(0, 1, (2, 7, 1, 16), torch.float64)]


def test_models_that_will_be_compiled_are_measured_so_and_not_packed(threads):
    """A compiler has layouts of its own."""
    compiled, calls = [], []
    target, draft_model = small_gpt(11, 2, 1), small_gpt(11, 1, 2)
    autotune(target, draft_model, compiler=lambda step, *_: compiled.append(1) or (
        lambda kv_length: calls.append(1) or step(kv_length)))
    types = 2 + has_fbgemm(target.device)
    assert len(calls) == (5 + 12) * len(compiled)
    assert len(compiled) == 4 * types and "packed" not in described(target) + described(draft_model)


def test_many_texts_at_once_are_measured_as_many(threads, monkeypatch):
    """A call of a chain's length on all of them takes the place of a round of one text."""
    target, draft_model, seen = small_gpt(11, 2, 1), small_gpt(11, 1, 2), []

    def seconds(model, tokens=1, rows=1, **how):
        seen.append((len(model.blocks), tokens, rows, *how.items()))
        return 1.0

    for name in "step_seconds", "draft_seconds":
        monkeypatch.setattr(tuning, name, seconds)
    monkeypatch.setattr(tuning, "GLANCE", lambda copy: 1.0)
    autotune(target, draft_model, rows=6)
    few = ("repeats", 3), ("warm_up", 1)
    assert {*seen} == {(2, 1, 6, *few), (2, 5, 6, *few), (1, 1, 6, *few)}


@pytest.mark.parametrize("dtype, rounding, int8", [("auto", False, [False, False]), ("auto", True, [True, True]),
                                                   ("int8", False, [True, True]), ("float32", True, [False, False])])
def test_8_bits_are_for_both_models_or_for_none(monkeypatch, dtype, rounding, int8):
    """A draft model beside a target in 8 bits may have others: no text depends on it."""
    tried = []
    monkeypatch.setitem(tuning.COPIES, torch.int8, (None, lambda device: True))
    monkeypatch.setattr(tuning, "convert", lambda model, dtypes, *_: tried.append(dtypes))
    autotune(small_gpt(11, 2, 1), small_gpt(11, 1, 2), dtype, rounding=rounding)
    assert [torch.int8 in dtypes for dtypes in tried] == int8
    assert (torch.bfloat16 in tried[1]) == (dtype != "float32") and (len(tried[0]) > 1) == (dtype == "auto")


def test_two_turns_in_which_the_machine_changes_its_mind_decide_nothing(threads, monkeypatch):
    """Of six turns the first two, in which float32 takes longer than float64."""
    monkeypatch.setattr(tuning, "GLANCE", lambda copy: 1.0)
    monkeypatch.setattr(tuning, "dtypes_of", lambda *_: [torch.float64, torch.float32])
    monkeypatch.setattr(tuning, "can_pack", lambda weight: False)
    takes = iter([1, 2, 1, 2, 2, 1, 2, 1, 2, 1, 2, 1])
    monkeypatch.setattr(tuning, "round_seconds", lambda target, copy: next(takes))
    draft_model = small_gpt(11, 1, 2)
    autotune_draft_model(small_gpt(11, 3, 1), draft_model)
    assert draft_model.dtype == torch.float32 and not [*takes]


def test_set_up_sets_what_it_is_told(model, threads):
    set_up(model, Tuning(torch.bfloat16, 1, 0))
    assert described(model) == "bfloat16" and torch.get_num_threads() == 1


def test_while_somebody_types_nothing_is_announced(monkeypatch, capsys):
    """What still goes on afterwards is seen then, and taken back at its end."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with announced("typing", steps=2) as first:
        with pytest.raises(KeyboardInterrupt), unseen():
            capsys.readouterr()
            first()
            with announced("measuring"):
                pass
            assert capsys.readouterr().err == ""
            raise KeyboardInterrupt
        first()
        assert "typing ... [####################]" in capsys.readouterr().err
    assert capsys.readouterr().err == "\r\033[K"


def test_what_is_done_with_an_item_is_no_part_of_its_time(monkeypatch):
    """Items take 1, 2 and 4 seconds, and each is shown for 10."""
    clock, found = Clock(), []
    monkeypatch.setattr("nanospec.fast.clock.perf_counter", clock)
    for item, seconds in clocked(clock.during((1, 2, 4), (1, 2, 4))):
        found.append((item, seconds))
        clock.wind(10)
    assert found == [(1, 1), (2, 2), (4, 4)]


def test_a_gpu_is_waited_for_before_and_after_what_is_timed(monkeypatch):
    """What was asked of it earlier, 8 seconds, is no part of what a draft takes; all that was asked of it in it is."""
    clock, queue, gpu = Clock(), [8], torch.device("cuda")
    monkeypatch.setattr("nanospec.fast.clock.perf_counter", clock)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: [clock.wind(queue.pop()) for _ in queue[:]])
    drafter = ClockedDrafter(SimpleNamespace(propose=lambda *_: queue.append(2)))
    drafter.propose(SimpleNamespace(tokens=SimpleNamespace(device=gpu)), None, None, 9)
    assert drafter.seconds == 2 and median_seconds(lambda: queue.append(3), gpu) == 3


def test_a_clock_around_a_drafter_hands_over_all_that_it_is_told():
    heard, text = [], SimpleNamespace(tokens=torch.zeros(1))
    drafter = ClockedDrafter(SimpleNamespace(propose=lambda *told: heard.append(told) or "a draft"))
    assert drafter.propose(text, "sampling", "dice", 12, 5) == "a draft"
    assert heard == [(text, "sampling", "dice", 12, 5)]
