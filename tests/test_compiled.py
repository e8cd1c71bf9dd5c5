"""torch.compile: what is compiled says what is said eagerly, and its distribution is the target's."""

from functools import partial

import pytest
import torch

from nanospec.dice import Dice
from nanospec.draft_models import LEARNED
from nanospec.drafters.dynamic_tree import DynamicTree
from nanospec.drafters.tree import TreeDrafter
from nanospec.fast import compiled as compiling
from nanospec.fast.compiled import compiled, why_not
from nanospec.generate import generate
from nanospec.model import Linear, can_pack
from nanospec.probs import Sampling
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.proof.walk import WalkingDice, distance
from nanospec.rules.block import verify_block
from nanospec.speculate import ModelDrafter, one_round, speculate, verify
from nanospec.text import Text, prefill

NOTHING = why_not()
TARGET, DRAFT = (small_gpt(3, 2, seed).requires_grad_(False) for seed in (1, 2))
needs_a_compiler = pytest.mark.skipif(bool(NOTHING), reason=f"nothing can be compiled here: {NOTHING}")
pytestmark = pytest.mark.xdist_group("compiled")        # one process: it compiles everything once


class Watched:
    """Counts what is compiled."""

    def __init__(self):
        self.said = []

    def __call__(self, what):
        self.said.append(what)
        return compiling.nullcontext()


def drafters():
    return {"chain": ModelDrafter(DRAFT, 2), "tree": TreeDrafter(DRAFT, [-1, 0, 0, 1]),
            **{f"chain of {name}": ModelDrafter(small_learned(name, TARGET), 2) for name in LEARNED},
            "dynamic tree of eagle3": DynamicTree(small_learned("eagle3", TARGET), 4)}


@needs_a_compiler
@pytest.mark.parametrize("name, rule", [("chain", verify), pytest.param("chain", verify_block, marks=pytest.mark.slow),
                                        *(pytest.param(name, verify, marks=pytest.mark.slow)
                                          for name in drafters() if name != "chain")])
def test_a_compiled_round_writes_what_an_eager_one_writes(name, rule):
    """In float64 nothing is rounded to another token; two requests of one kind are one compiled function."""
    for ids in [1, 2, 0], [2, 2, 1, 0]:
        request = {"max_new_tokens": 40, "temperature": 0.8, "seed": 5, "rule": rule}
        eager = list(speculate(TARGET, drafters()[name], ids, **request))
        with torch.compiler.set_stance("default" if len(ids) == 3 else "fail_on_recompile"):
            fast = list(speculate(TARGET, drafters()[name], ids, capture=compiled, **request))
        assert [done.emitted for done in fast] == [done.emitted for done in eager]
        for a, b in zip(fast, eager):
            assert torch.allclose(a.p_target, b.p_target, atol=1e-12) and a.path == b.path and a.steps == b.steps
            assert torch.allclose(a.q_draft, b.q_draft, atol=1e-12) and a.parents == b.parents


@needs_a_compiler
def test_a_compiled_plain_step():
    watched = Watched()
    plain = list(generate(TARGET, [1, 2, 0], 40, temperature=0.8, seed=5))
    assert list(generate(TARGET, [1, 2, 0], 40, temperature=0.8, seed=5,
                         capture=partial(compiled, progress=watched))) == plain
    assert watched.said == ["compiling for texts of up to 128 tokens"]


def product(layer, x, upto):
    return layer(x),


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
@pytest.mark.slow
@pytest.mark.skipif(not can_pack(torch.zeros(1)), reason="this build of torch cannot pack weights")
def test_a_packed_model_is_compiled_from_its_plain_weights():
    packed = small_gpt(11, 2, 1).float().requires_grad_(False).pack()
    plain = list(generate(packed, [1, 2, 0], 40, temperature=0.8, seed=5))
    assert list(generate(packed, [1, 2, 0], 40, temperature=0.8, seed=5, capture=compiled)) == plain


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

    def __init__(self, columns: int):
        super().__init__([0])
        self.refill(columns)

    def give(self, u: list[float]) -> None:
        self.u[0, :len(u)], self.column = torch.tensor(u, dtype=self.dtype), 0


@needs_a_compiler
@torch.inference_mode()
@pytest.mark.parametrize("name", ["chain", pytest.param("tree", marks=pytest.mark.slow)])
def test_the_compiled_round_is_exact(name):
    """Every path of a round is walked eagerly; the compiled round, led down the same path, must end where it ends."""
    ids, drafter = [1, 2, 0], drafters()[name]
    given, dice, found, ends = Given(drafter.columns + drafter.size), Midpoints(), {}, []

    def text_of():
        text = Text([ids], 2 * drafter.size, 3)
        cache, _ = prefill(TARGET, text)
        drafter.begin(text, [0], None)
        return text, cache

    def play(text, cache, its_dice, way=lambda step, text, dice: step):
        way(partial(one_round, TARGET, cache, drafter, verify, text, Sampling(0.8), its_dice), text, its_dice)(
            text.tokens.shape[1])
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


def test_without_a_compiler_there_is_one_line(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no C++\n compiler")

    monkeypatch.setattr(torch, "compile", broken)
    assert why_not() == "no C++ compiler"
