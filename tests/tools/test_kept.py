"""What demo, why and chat keep of their measurements: found again while all that they depend on is the same, made anew
when any part of it is another. And what is looked at.
"""

from argparse import Namespace
from itertools import count

import pytest
import torch

from nanospec.cli import prepared
from nanospec.cli.bench.measure import CallCosts
from nanospec.cli.prepared import keeping, tuned
from nanospec.cli.method_options import options_of
from nanospec.fast import autotune as tuning
from nanospec.fast.autotune import Tuning, quantise, set_up, tuning_of
from nanospec.fast.int8 import can_quantise
from nanospec.fast.packed import can_pack
from nanospec.files.checkpoint import Pair
from nanospec.proof.tables import small_gpt, small_learned

CPU = torch.device("cpu")


def a_pair(draft_model="gpt", seed=1) -> Pair:
    target = small_gpt(11, 2, seed).float()
    made = {"gpt": lambda: small_gpt(11, 1, 2).float(), "mlp": lambda: small_learned("mlp", target).float(),
            "none": lambda: None}[draft_model]()
    return Pair(target, made, None)


def as_asked(**more) -> Namespace:
    return Namespace(**{"device": "cpu", "dtype": "auto", "threads": None, "measure": False} | more)


# Each takes the test's monkeypatch, the pair, and what was asked for, and changes one part of them.

def another(**asked):
    return lambda monkeypatch, pair, before: (pair, as_asked(**asked))


def with_pair(*its, **more):
    return lambda monkeypatch, pair, asked: (a_pair(*its, **more), asked)


def patched(name, value):
    def change(monkeypatch, pair, asked):
        monkeypatch.setattr(name, value)
        return pair, asked
    return change


def changed(how):
    def change(monkeypatch, pair, asked):
        how(pair)
        return pair, asked
    return change


PARTS = {
    "the target": with_pair(seed=3), "the draft model": with_pair("mlp"), "no draft model": with_pair("none"),
    "a single weight": changed(lambda pair: next(pair.draft_model.parameters()).data[0, :1].add_(1)),
    "the machine": patched("nanospec.cli.prepared.machine", lambda: "another"),
    "torch's version": patched("torch.__version__", "9.9.9"),
    "torch's threads": patched("torch.get_num_threads", lambda: 7),
    "device": another(device="cuda:1"), "dtype": another(dtype="float32"), "threads": another(threads=2),
    "the target's data type": changed(lambda pair: pair.target.bfloat16()),
    "the draft model's data type": changed(lambda pair: pair.draft_model.bfloat16()),
    "the target's layout": changed(lambda pair: set_up(pair.target, Tuning(torch.float32, 1, 1))),
    "this package's version": patched("nanospec.files.kept.metadata.version", lambda name: "9.9.9")}


@pytest.mark.parametrize("part", PARTS)
def test_what_every_measurement_depends_on(monkeypatch, part):
    if part == "the target's layout" and not can_pack(a_pair().target.head.weight):
        pytest.skip("this machine has no packed weights")
    numbers = count()
    assert keeping(a_pair(), as_asked())("costs", numbers.__next__) == 0
    assert keeping(a_pair(), as_asked())("costs", numbers.__next__) == 0, "the same is found again"
    with monkeypatch.context() as patch:
        found = [keeping(*PARTS[part](patch, a_pair(), as_asked()))("costs", numbers.__next__) for _ in range(2)]
    assert found == [1, 1] and keeping(a_pair(), as_asked())("costs", numbers.__next__) == 0


def test_what_one_measurement_is_about():
    """What it is, and its settings. With --measure it is made anew, and then kept."""
    numbers, pair = count(), a_pair()
    keep = keeping(pair, as_asked())
    for what, about in ("costs", {}), ("tree", {}), ("tree", {"temperature": .5}), ("tree", {"temperature": .7}), (
            "tree", {"top_k": .7}):
        number = keep(what, numbers.__next__, **about)
        assert [keep(what, numbers.__next__, **about) for _ in range(2)] == [number] * 2
    assert keep("costs", numbers.__next__) == 0 and number == 4
    anew = keeping(pair, as_asked(measure=True))
    assert [anew("costs", numbers.__next__) for _ in range(2)] == [5, 6] and keep("costs", numbers.__next__) == 6


SETTINGS = {"temperature": .5, "top_k": 4, "top_p": .75, "min_p": .1}


@pytest.mark.parametrize("drafter, changes", [
    ("goodput", {"most": 5, "prompts": [[1, 2], [1, 2, 3, 4]], "temperature": .6, "top_k": 3, "top_p": .25,
                 "min_p": .3}),
    ("tree", {"prompts": [[1, 2, 3], [1, 3]], "temperature": .6, "top_k": 3, "top_p": .25, "min_p": .3})])
def test_what_costs_and_trees_depend_on(monkeypatch, drafter, changes):
    """Costs on the longest prompt, trees on all of their tokens; both on every setting of sampling."""
    measured = []
    monkeypatch.setattr("nanospec.cli.method_options.measure_costs", lambda *its, **more: measured.append(
        (its[2:], more)) or CallCosts(.25, {2: 1.5}, 1.0))
    monkeypatch.setattr("nanospec.cli.method_options.best_topology", lambda *its, **more: measured.append(
        (its[2:], more)) or [-1, 0])

    def start(prompts=([1, 2, 3], [1, 2]), most=3, **settings) -> int:
        measured.clear()
        pair = a_pair()
        options = options_of(pair.target, pair.draft_model, prompts, [drafter], {}, most, keeping(pair, as_asked()),
                             **SETTINGS | settings)
        if drafter == "goodput":
            assert options["costs"]() == (.25, {2: 1.5})
        else:
            assert options["topology"] == [-1, 0]
        return len(measured)

    assert (start(), start()) == (1, 0)
    for name, value in changes.items():
        assert (start(**{name: value}), start(**{name: value}), start()) == (1, 0, 0), name


# What is looked at

@pytest.fixture
def tried(monkeypatch):
    """The data types and threads that are tried, of one model after the other. The last one is taken."""
    found = []

    def fastest(model, dtypes=(), threads=(), *_, **__):
        found.append(([*dtypes], [*threads]))
        return Tuning(dtypes[-1], (threads or [1])[0], 0)

    for module in tuning, prepared:
        monkeypatch.setattr(module, "fastest", fastest)
    return found


@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize("can", [False, True])
def test_8_bits_are_tried_where_they_are_asked_for_and_can_be_had(monkeypatch, tried, measure, can):
    """Without VNNI they cannot. With it, a look takes them at once."""
    monkeypatch.setitem(tuning.COPIES, torch.int8, (quantise, lambda device: can and can_quantise(device)))
    can = can and can_quantise(CPU)
    for rounding, dtype in (True, "auto"), (False, "auto"), (True, "float32"):
        tried.clear()
        asked, pair = as_asked(measure=measure, dtype=dtype), a_pair()
        tuned(pair, asked, keeping(pair, asked), rounding)
        assert len(tried) == 1 + measure
        assert {torch.int8 in dtypes for dtypes, _ in tried} == {can and rounding and dtype == "auto"}
        assert (len(tried[0][0]) > 1) == (dtype == "auto" and (measure or not (can and rounding)))


def test_threads_that_are_asked_for_are_the_only_ones_tried(tried):
    for measure in False, True:
        asked, pair = as_asked(threads=2, measure=measure), a_pair()
        assert tuned(pair, asked, keeping(pair, asked)).startswith("cpu, 2 threads; target in ")
        assert tried[-1 - measure][1] == [2] and torch.get_num_threads() == 2


@pytest.mark.parametrize("weights, layers", [(1, 1), (1953, 2), (4000, 3), (10 ** 9, 5)])
def test_a_look_is_at_as_many_layers_as_have_that_many_weights(monkeypatch, weights, layers):
    """Of five. And the whole model is what runs."""
    target, looked_at, how = small_gpt(11, 5, 1).float(), [], []
    assert sum(weight.numel() for weight in target.blocks[0].parameters()) == 1952
    monkeypatch.setattr(prepared, "LOOKED_AT", weights)
    monkeypatch.setattr(prepared, "fastest", lambda model, *_, **more: looked_at.append(model) or how.append(more) or
                        Tuning(torch.bfloat16, 1, 0))
    pair = Pair(target, None, None)
    tuned(pair, as_asked(), keeping(pair, as_asked()))
    assert [model.config.layers for model in looked_at] == [layers] and target.config.layers == 5
    assert looked_at[0].dtype == torch.float32 and target.dtype == torch.bfloat16
    assert how == [{"glance": tuning.GLANCE, "turns": 1}]


def test_a_look_times_a_step_and_a_call_on_a_draft(monkeypatch):
    asked = []
    monkeypatch.setattr(prepared, "step_seconds", lambda *its, **more: asked.append((*its, more)) or its[1] / 4)
    monkeypatch.setattr(prepared, "fastest", lambda model, dtypes, threads, seconds, **_: asked.append(
        seconds("a copy")) or Tuning(torch.float32, 1, 0))
    tuned(a_pair(), as_asked(), keeping(a_pair(), as_asked()))
    how = {"repeats": 2, "warm_up": 1}
    assert asked == [("a copy", 1, how), ("a copy", 5, how), 1.5]


@pytest.mark.parametrize("draft_model", ["gpt", "mlp", "none"])
def test_both_models_run_as_it_was_found_and_at_the_next_start_again(monkeypatch, draft_model):
    """The draft model's own tuning where it was measured with care, else the target's."""
    first, pair = a_pair(draft_model), a_pair(draft_model)
    monkeypatch.setattr(prepared, "fastest", lambda *_, **__: Tuning(torch.bfloat16, 1, 0))
    words = tuned(first, as_asked(), keeping(first, as_asked()))
    monkeypatch.setattr(prepared, "fastest", None)
    assert tuned(pair, as_asked(), keeping(pair, as_asked())) == words
    assert words == "cpu, 1 thread; target in bfloat16" + ", draft model in bfloat16" * (draft_model != "none")
    for model in [*first[:2], *pair[:2]]:
        assert model is None or tuning_of(model) == (torch.bfloat16, 1, 0)

    def careful(target, draft_model, *_, **__):
        set_up(target, Tuning(torch.float32, 1, 0))
        if draft_model is not None:
            set_up(draft_model, Tuning(torch.bfloat16, 1, 0))

    monkeypatch.setattr(prepared, "autotune", careful)
    for asked in as_asked(measure=True), as_asked():
        pair = a_pair(draft_model)
        words = tuned(pair, asked, keeping(pair, asked))
        assert words == "cpu, 1 thread; target in float32" + ", draft model in bfloat16" * (draft_model != "none")
