"""Every tensor of the library says where it is: what a notebook sets as torch's default device changes nothing. And a
device without float64, as Apple's, is enough.
"""

import ast
from copy import deepcopy
from pathlib import Path

import pytest
import torch

import nanospec
from nanospec.dice import Dice
from nanospec.errors import RequestError
from nanospec.files import load_pair
from nanospec.generate import generate
from nanospec.methods.index import method_of
from nanospec.methods.wrappers.grammar import Constrained, grammar_of
from nanospec.proof.tables import small_gpt
from nanospec.serving.server import Server
from nanospec.speculate import tokens_of

TARGET, DRAFT_MODEL, IDS = small_gpt(5, 2, 1), small_gpt(5, 1, 2), [1, 2, 3, 1, 2]
WIDE = small_gpt(1024, 1, 1)
MAKES = {"tensor", "zeros", "ones", "empty", "full", "arange", "rand", "randn", "randint", "randperm", "eye",
         "linspace", "as_tensor", "scalar_tensor"}


def served():
    server = Server(TARGET, method_of(TARGET, DRAFT_MODEL, "hybrid").make(), rows=2, context=64)
    asked = [server.submit(IDS, max_new_tokens=8, seed=seed) for seed in (1, 2)]
    while not all(request.done for request in asked):
        server.step()
    return [request.tokens for request in asked]


def shaped():
    tokenizer = load_pair().tokenizer
    grammar = grammar_of("[ab]c", tokenizer, 1024)
    return list(generate(Constrained(WIDE, grammar), [5], 3, seed=1))


CALLS = {"generate": lambda: list(generate(TARGET, IDS, 8, seed=1)), "a server": served, "a grammar": shaped,
         "a learned draft model": lambda: tokens_of(method_of(*load_pair(draft_model="prefix")[:2], "chain").run(
             IDS, max_new_tokens=4, seed=1))}
CALLS |= {name: lambda name=name: tokens_of(method_of(TARGET, DRAFT_MODEL, name).run(IDS, max_new_tokens=8, seed=1))
          for name in ("chain", "tree", "dynamic-tree", "suffix", "entropy", "by-survival", "stack", "lookahead")}


@pytest.mark.parametrize("name", CALLS)
def test_a_default_device_changes_nothing(name):
    """"meta" stands in for a GPU: nothing can be read back from it."""
    right = CALLS[name]()
    torch.set_default_device("meta")
    try:
        assert CALLS[name]() == right
    finally:
        torch.set_default_device(None)


def test_what_makes_a_tensor_names_its_device():
    """But for the weights of a module that is made, which its user places."""
    found = []
    for path in Path(nanospec.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in MAKES \
                    and ast.unparse(call.func.value) == "torch" and not {"proof", "judge"} & {*path.parts}:
                found += [path.name] * (not {"device", None} & {key.arg for key in call.keywords})
    assert sorted(found) == ["dflash.py", "pruned.py"]


BEGINS = torch.rand, torch.empty                        # how dice begin, on the CPU


class NoFloat64(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.dtype == torch.float64 and function not in BEGINS:
            raise TypeError("this device has no float64")
        return out


@pytest.mark.parametrize("name", ["a server", "generate", "hybrid"])
def test_float32_is_enough(name, monkeypatch):
    begins = Dice.__init__

    def in_float32(self, seeds, device="cpu"):
        begins(self, seeds, device)
        self.dtype, self.u = torch.float32, self.u.float()

    monkeypatch.setattr(Dice, "__init__", in_float32)
    for model in "TARGET", "DRAFT_MODEL":
        monkeypatch.setitem(globals(), model, deepcopy(globals()[model]).float())
    call = CALLS.get(name) or (lambda: tokens_of(method_of(TARGET, DRAFT_MODEL, name).run(IDS, max_new_tokens=8,
                                                                                          seed=1)))
    right = call()
    with NoFloat64():
        assert call() == right


@pytest.mark.parametrize("weights", [torch.ones(3), [0.5, 0.5], torch.ones(3).numpy(), torch.ones(2, 3),
                                     torch.ones(1), torch.ones(1, 3).numpy()])
def test_dice_say_what_they_decide_for(weights):
    dice = Dice([1])
    dice.refill(2)
    for decide in dice.pick, dice.flip:
        with pytest.raises(RequestError, match=r"\(1, V\), got .*: for one distribution p \(V,\) say pick"):
            decide(weights)
