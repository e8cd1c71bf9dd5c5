"""torch.compile: what is compiled writes what is written eagerly, and its distribution is the target's."""

import copy
import warnings
from functools import partial

import pytest
import torch
from torch import nn

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.fast import compiled as compiling
from nanospec.fast.compiled import compiled, compiler_for, stay_in_place, why_not
from nanospec.fast.fbgemm import halve, has_fbgemm
from nanospec.fast.int8 import can_quantise, quantise
from nanospec.fast.packed import can_pack, pack
from nanospec.generate import generate
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.rules.block import verify_block
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.dynamic_tree import DynamicTree
from nanospec.model import Linear
from nanospec.probs import Sampling
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.proof.walk import WalkingDice, distance
from nanospec.speculate import ModelDrafter, one_round, speculate, verify
from nanospec.text import Text, prefill

TARGET, DRAFT_MODEL = (small_gpt(3, layers, seed).requires_grad_(False) for layers, seed in ((2, 1), (1, 2)))
pytestmark = pytest.mark.xdist_group("compiled")        # one process: it compiles everything once
DRAFTERS = {"chain": lambda: ModelDrafter(DRAFT_MODEL, 2), "tree": lambda: TreeDrafter(DRAFT_MODEL, [-1, 0, 0, 1]),
            **{f"chain of {name}": lambda name=name: ModelDrafter(small_learned(name, TARGET), 2) for name in LEARNED},
            "dynamic tree of eagle3": lambda: DynamicTree(small_learned("eagle3", TARGET), 4)}


@pytest.fixture(scope="session")
def a_compiler():
    """Looked for when it is needed: to look is to compile, and every process of a test run reads this file."""
    reason = why_not()
    if reason:
        pytest.skip(f"nothing can be compiled here: {reason}")


def needs_a_compiler(test):
    """It compiles, which takes half a minute where nothing is on disk yet: before a release."""
    return pytest.mark.slow(pytest.mark.usefixtures("a_compiler")(test))


@pytest.fixture
def backend(request, monkeypatch):
    """What makes a function of the graph that was traced: torch's compiler, or its own operations, one by one. All of
    the tracing is tried every time, kernels before a release.
    """
    if request.param == "kernels":
        request.getfixturevalue("a_compiler")
    else:
        monkeypatch.setattr(compiling, "_inductor", lambda *traced: torch._dynamo.lookup_backend("aot_eager")(*traced))


CPU = torch.device("cpu")


def test_more_kinds_are_compiled_than_the_compiler_would_keep_by_itself():
    """Eight, that is; here twelve."""
    traced = []
    with compiling._settings(CPU), torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        add = torch.compile(lambda x, kind: x + len(kind), backend=lambda graph, _: traced.append(1) or graph.forward)
        assert [int(add(torch.zeros(()), "a" * size)) for size in range(12)] == [*range(12)]
    assert len(traced) == 12


def test_what_is_compiled_is_announced_once(monkeypatch, capsys):
    monkeypatch.setattr("nanospec.fast.announce.STILL", 100)
    monkeypatch.setattr(compiling, "_inductor", lambda graph, _: graph.forward)
    step = compiled(lambda slots: (torch.ones(2) * slots,), Text([[1]], 9, 11), None)
    assert [int(step(5)[0][1]) for _ in range(3)] == [128] * 3
    assert capsys.readouterr().err.count("compiling for texts of up to 128 tokens") == 1


def test_what_holds_itself_is_gone_through_once():
    held = [torch.zeros(2)]
    held.append(held)
    stay_in_place(held, set())
    assert held[0]._dynamo_static_input_type == "unguarded"


def test_what_the_compiler_warns_of_is_not_for_its_users():
    with warnings.catch_warnings(record=True) as said, compiling._settings(CPU):
        warnings.warn("its own affair")
    assert not said


either_backend = pytest.mark.parametrize("backend", ["operations", pytest.param("kernels", marks=pytest.mark.slow)],
                                         indirect=True)


@either_backend
@pytest.mark.parametrize("name, rule", [("chain", None), pytest.param("chain", verify_block, marks=pytest.mark.slow),
                                        *(pytest.param(name, None, marks=pytest.mark.slow)
                                          for name in DRAFTERS if name != "chain")])
def test_a_compiled_round_writes_what_an_eager_one_writes(name, rule, backend, capsys):
    """In float64 nothing is rounded to another token; two requests of one kind are one compiled function. And a user is
    told why it takes a while.
    """
    for ids in [1, 2, 0], [2, 2, 1, 0]:
        request = {"max_new_tokens": 40, "temperature": 0.8, "seed": 5, "rule": rule}
        eager = list(speculate(TARGET, DRAFTERS[name](), ids, **request))
        with torch.compiler.set_stance("default" if len(ids) == 3 else "fail_on_recompile"):
            fast = list(speculate(TARGET, DRAFTERS[name](), ids, compiler=compiled, **request))
        assert [done.emitted for done in fast] == [done.emitted for done in eager]
        for a, b in zip(fast, eager):
            assert torch.allclose(a.p_target, b.p_target, atol=1e-12) and a.path == b.path and a.steps == b.steps
            assert torch.allclose(a.q_draft, b.q_draft, atol=1e-12) and a.parents == b.parents
        assert capsys.readouterr().err.startswith("compiling for texts of up to 128 tokens ...\n")


@needs_a_compiler
def test_in_bfloat16_a_compiled_round_is_as_near_to_float32_as_an_eager_one():
    """The mean total variation from float32 with the same weights is .002 to .02 for both, and for the compiled round
    at most 1.1 times that of the eager one. What it reports are whole distributions, and it draws from these: the same
    uniforms lead an eager rule to the same tokens.
    """
    models = [small_gpt(11, layers, seed).requires_grad_(False).bfloat16() for layers, seed in ((2, 1), (1, 2))]
    exact, off = [copy.deepcopy(model).float() for model in models], [0.0, 0.0]
    for compiler, seed in [(compiler, seed) for compiler in (None, compiled) for seed in range(10)]:
        text, dice, gaps = [1, 2, 0], Dice([seed]), []
        for done in speculate(models[0], ModelDrafter(models[1], 2), text, 90, 0.8, seed=seed, compiler=compiler):
            ids = torch.tensor([text + done.tokens[1:]])
            right = [Sampling(0.8)(model(ids))[0, len(text) - 1:] for model in exact]
            found = done.p_target, done.q_draft[1:]
            dice.refill(2 + 3)
            assert [int(dice.pick(q[None])) for q in found[1]] == done.tokens[1:]
            accepted, token = verify(Draft(torch.tensor([done.tokens]), done.q_draft[None]), found[0][None], dice)
            assert (int(accepted), int(token)) == (len(done.path), done.token)
            for its, others in zip(found, (right[0], right[1][:-1])):
                assert its.dtype == torch.float32 and (its.sum(-1) - 1).abs().max() < 1e-6
                gaps += ((its - others).abs().sum(-1) / 2).tolist()
            text = text + done.emitted
        off[compiler is compiled] += sum(gaps) / len(gaps) / 10
    assert 0.002 < off[0] < 0.02 and off[1] < 1.1 * off[0], off


@needs_a_compiler
def test_a_compiled_plain_step():
    """What compiles a round compiles it too; that it is handed over is the next test's."""
    plain = list(generate(TARGET, [1, 2, 0], 40, temperature=0.8, seed=5))
    assert list(generate(TARGET, [1, 2, 0], 40, temperature=0.8, seed=5, compiler=compiled)) == plain


def test_a_plain_step_is_handed_over_whole():
    """It is called once for every token but those read with the prompt, and nothing else writes."""
    calls = []

    def watch(step, text, dice):
        def watched(kv_length):
            before = text.length.item()
            out = step(kv_length)
            calls.append((text.length.item() - before, torch.equal(out[0], text.last(1)[:, 0]), dice.column))
            return out
        return watched

    plain = list(generate(TARGET, [1, 2, 0], 12, temperature=0.8, seed=5))
    assert list(generate(TARGET, [1, 2, 0], 12, temperature=0.8, seed=5, compiler=watch)) == plain
    assert calls == [(1, True, 1)] * 12                 # with the dice that decide: their one uniform is gone


def test_the_compilers_work_on_disk_is_that_of_these_weights(monkeypatch):
    """Two layers of one shape have different keys, two with the same weights have one."""
    from torch._inductor import compile_fx
    monkeypatch.setattr(compile_fx, "compile_fx", lambda graph, inputs: torch.compiler.config.cache_key_tag)
    one, other = nn.Linear(3, 2), nn.Linear(3, 2)
    keys = [compiling._inductor(layer, []) for layer in (one, other, copy.deepcopy(one))]
    assert keys[0] == keys[2] != keys[1] and all(keys)


def product(layer, x, kv_length):
    return layer(x),


copies = pytest.mark.parametrize("convert, atol", [
    pytest.param(halve, 0.0, marks=pytest.mark.skipif(not has_fbgemm(CPU), reason="no products in float16 here")),
    pytest.param(quantise, 1e-6, marks=[pytest.mark.slow, pytest.mark.skipif(not can_quantise(CPU),
                                                                             reason="no products in 8 bits here")])])


@either_backend
@copies
@torch.inference_mode()
def test_copies_of_weights_are_read_by_what_is_compiled(convert, atol, backend):
    """Those of the layer itself, bias and all, as they were when it was converted last."""
    layers = [nn.Sequential(Linear(6, 4, bias=True)) for _ in range(2)]
    x, found = torch.arange(18.0).view(1, 3, 6), []
    for layer in [*map(convert, layers), layers[0]]:
        (out,) = compiled(partial(product, layer, x), Text([[0]], 1, 3), Dice([0]))(1)
        assert torch.allclose(out, layer(x), rtol=0, atol=atol)
        found.append(out)
        layer[0].weight.mul_(2)
        convert(layer)
    assert not torch.allclose(found[0], found[1]) and not torch.allclose(found[0], found[2])


# CUDA graphs. The recording itself needs a GPU; the rest of that path runs here, too.

@needs_a_compiler
@pytest.mark.parametrize("name", ["chain", "tree", "chain of prefix"])
def test_all_but_the_recording_writes_what_an_eager_round_writes(name, monkeypatch):
    """And torch's condition for a recording holds: whatever a round writes is known to stay where it is."""
    from torch._inductor.output_code import CompiledFxGraph
    finish, seen = CompiledFxGraph.post_compile, []

    def watched(graph, *more):
        seen.append((set(graph.mutated_input_idxs), set(graph.fx_kwargs["static_input_idxs"])))
        return finish(graph, *more)

    monkeypatch.setattr(CompiledFxGraph, "post_compile", watched)
    monkeypatch.setattr(compiling, "has_graphs", lambda device: True)           # torch finds that a CPU has none
    request = {"max_new_tokens": 40, "temperature": 0.8, "seed": 5}
    eager = list(speculate(TARGET, DRAFTERS[name](), [1, 2, 0], **request))
    fast = list(speculate(TARGET, DRAFTERS[name](), [1, 2, 0], compiler=compiled, **request))
    assert [done.emitted for done in fast] == [done.emitted for done in eager]
    for a, b in zip(fast, eager):           # every round has tensors of its own, although a graph has one buffer
        assert torch.allclose(a.p_target, b.p_target, atol=1e-12) and torch.allclose(a.q_draft, b.q_draft, atol=1e-12)
    assert seen and all(len(written) > 5 and written <= stays for written, stays in seen)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method")            # torch's own, when it loads its compiler
def test_what_leaves_a_graph_is_a_copy(monkeypatch):
    """A graph writes its next results into the same memory."""
    buffer, heard = torch.zeros(3), []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: heard.append("step"))
    monkeypatch.setattr(compiling, "_inductor", lambda graph, inputs: lambda x: (
        heard.append("run"), buffer.copy_(x), None, 7)[1:])
    run = compiling._recorded(None, [])
    first, nothing, number = run(torch.ones(3))
    second, *_ = run(torch.full((3,), 2.0))
    assert first.tolist() == [1, 1, 1] and second.tolist() == [2, 2, 2] and (nothing, number) == (None, 7)
    assert heard == ["step", "run"] * 2


@pytest.mark.parametrize("name", ["chain", "tree", "chain of prefix", "chain of eagle3"])
def test_what_a_round_carries_is_marked_and_stays_where_it_is(name):
    """A tensor that is replaced, and not written in place, would be lost on a recording, or recorded anew each time."""
    drafter, seen = DRAFTERS[name](), {}

    def watch(step, text, dice):
        stay_in_place(step, set())
        cache = step.args[1]
        carried = {"tokens": text.tokens, "length": text.length, "k": cache.k[0], "v": cache.v[-1]}
        reader = vars(drafter.reader)
        carried |= {"kept": reader["kept"]} if "kept" in reader else {}
        carried |= {"own k": reader["cache"].k[0]} if reader.get("cache") else {}
        assert all(tensor._dynamo_static_input_type == "unguarded" for tensor in carried.values())

        def watched(kv_length):
            addresses = {name: tensor.data_ptr() for name, tensor in (carried | {"u": dice.u}).items()}
            assert seen.setdefault("at", addresses) == addresses
            assert text.tokens is carried["tokens"] and text.length is carried["length"]
            assert cache.k[0] is carried["k"] and drafter.reader.__dict__.get("kept") is carried.get("kept")
            return step(kv_length)
        return watched

    rounds = speculate(TARGET, drafter, [1, 2], 30, compiler=watch)
    assert sum(len(done.emitted) for done in rounds) == 30 and len(seen["at"]) >= 5


@needs_a_compiler
@torch.inference_mode()
def test_weights_of_one_shape_are_told_apart():
    """What the compiler keeps on disk holds weights, where they are float32. The second layer's used to be the first's.
    """
    x = torch.ones(1, 64)
    for scale in 1.0, 2.0:
        layer = Linear(64, 64)
        layer.weight.fill_(scale)
        (found,) = compiled(partial(product, layer, x), Text([[0]], 1, 3), Dice([0]))(1)
        assert torch.allclose(found, 64 * scale * x)


@needs_a_compiler
@pytest.mark.skipif(not can_pack(torch.zeros(1)), reason="this build of torch cannot pack weights")
def test_a_packed_model_is_compiled_from_its_plain_weights():
    packed = pack(small_gpt(11, 2, 1).float().requires_grad_(False))
    plain = list(generate(packed, [1, 2, 0], 40, temperature=0.8, seed=5))
    assert list(generate(packed, [1, 2, 0], 40, temperature=0.8, seed=5, compiler=compiled)) == plain


@needs_a_compiler
@copies
def test_a_model_over_copies_writes_the_same_compiled(convert, atol):
    model = convert(small_gpt(11, 2, 1).float().requires_grad_(False))
    plain = list(generate(model, [1, 2, 0], 40, temperature=0.8, seed=5))
    assert list(generate(model, [1, 2, 0], 40, temperature=0.8, seed=5, compiler=compiled)) == plain


class Midpoints(WalkingDice):
    """Notes, on every path, uniforms that lead a `Dice` down the same path: from the middle of each outcome's range."""

    def rewind(self) -> None:
        super().rewind()
        self.u: list[float] = []

    def flip(self, prob):
        stands = super().flip(prob)
        for p, heads in zip(prob.clamp(max=1).flatten().tolist(), stands.flatten().tolist()):
            self.u.append(p / 2 if heads else (1 + p) / 2)
        return stands

    def pick(self, weights):
        at = super().pick(weights)
        for row, i in zip(weights.flatten(0, -2).tolist(), at.flatten().tolist()):
            self.u.append((sum(row[:i]) + row[i] / 2) / sum(row))
        return at


class Given(Dice):
    """Hands out the uniforms it is given."""

    def __init__(self, uniforms: int):
        super().__init__([0])
        self.refill(uniforms)

    def give(self, u: list[float]) -> None:
        self.u[0, :len(u)], self.column = torch.tensor(u, dtype=self.dtype), 0


@either_backend
@torch.inference_mode()
@pytest.mark.parametrize("name", ["chain", pytest.param("tree", marks=pytest.mark.slow)])
def test_the_compiled_round_is_exact(name, backend):
    """Every path of a round is walked eagerly; the compiled round, led down the same path, must end where it ends."""
    ids, drafter = [1, 2, 0], DRAFTERS[name]()
    given, dice, found, ends = Given(drafter.uniforms + drafter.most + 1), Midpoints(), {}, []

    def text_of():
        text = Text([ids], 2 * (drafter.most + 1), 3)
        cache, _ = prefill(TARGET, text)
        drafter.begin(text)
        drafter.read(text, [0], None)
        return text, cache

    def play(text, cache, its_dice, compiler=lambda step, text, dice: step):
        step = partial(one_round, TARGET, cache, drafter, drafter.rule or verify, text, Sampling(0.8), its_dice)
        compiler(step, text, its_dice)(text.tokens.shape[1])
        return tuple(text.ids()[0][len(ids):])

    while True:
        dice.rewind()
        eager = play(*text_of(), dice)
        given.give(dice.u)
        assert play(*text_of(), given, compiled) == eager
        found[eager[:1]] = found.get(eager[:1], 0) + dice.weight
        ends.append(eager)
        if not dice.advance():
            break
    p = Sampling(0.8)(TARGET(torch.tensor([ids]))[:, -1])[0].tolist()
    assert distance(found, {(token,): weight for token, weight in enumerate(p)})[0] < 1e-12
    assert len(ends) > 40 and len(set(ends)) > 10


def test_without_a_compiler_there_is_one_line(monkeypatch, capsys):
    def broken(*_, **__):
        raise RuntimeError("no C++\n compiler")

    monkeypatch.setattr(torch, "compile", broken)
    assert why_not() == "no C++ compiler" and compiler_for(torch.device("cpu")) is None
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "nothing can be compiled here, so all runs eagerly: no C++ compiler"
