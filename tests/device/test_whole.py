"""A round is one graph: traced whole, with nothing in it that Python would have to decide by a tensor's numbers.

The tracer alone, on the CPU: what it makes runs eagerly, and nothing is built. With fullgraph=True it raises where it
would have to stop and look. What is built of such a graph is tested in tests/tools/test_compiled.py.
"""

import pytest
import torch
import torch._dynamo.config

from nanospec.fast.compiled import KINDS, _step
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.index import DRAFTERS, method_of
from nanospec.proof.tables import small_learned
from tests.device.test_rounds import DRAFT_MODEL, REQUEST, SETTINGS, TARGET

FIXED = [name for name, entry in DRAFTERS.items() if entry.kind.fixed]
slow = pytest.mark.slow


SMALL = SETTINGS | {"gamma": 2}
REST = [name for name in LEARNED if name not in ("prefix", "early_exit")]      # those differ most


def rounds(drafter, rule="token", model="gpt", compiler=None):
    draft_model = DRAFT_MODEL if model == "gpt" else small_learned(model, TARGET)
    with torch._dynamo.config.patch(recompile_limit=KINDS):
        return [done.emitted for done in method_of(TARGET, draft_model, drafter, rule, **SMALL).run(
            **REQUEST, compiler=compiler)]


def traced(step, text, dice):
    run = torch.compile(_step, backend="eager", fullgraph=True, dynamic=False)
    return lambda kv_length: run(step, text.tokens.shape[1])


@pytest.mark.parametrize("drafter, rule, model", [
    ("tree", "token", "gpt"), ("dynamic-tree", "token", "gpt"),                 # test_compiled.py traces the chain
    *(pytest.param(name, "token", "gpt", marks=slow) for name in FIXED if name not in ("tree", "dynamic-tree")),
    *(("chain", "token", name) for name in LEARNED if name not in REST),
    pytest.param("chain", "block", "gpt", marks=slow),
    *(pytest.param("chain", "token", name, marks=slow) for name in REST),
    *(pytest.param("tree", "token", name, marks=slow) for name in LEARNED),
    *(pytest.param("dynamic-tree", "token", name, marks=slow) for name in LEARNED)])
def test_a_round_is_traced_whole(drafter, rule, model):
    assert rounds(drafter, rule, model, traced) == rounds(drafter, rule, model)


@pytest.mark.parametrize("drafter, rule", [("goodput", "token"), ("chain", "traversal")])
def test_what_looks_at_a_number_is_found(drafter, rule):
    with pytest.raises(torch._dynamo.exc.TorchDynamoException):
        rounds(drafter, rule, compiler=traced)


def test_these_have_drafts_of_one_shape():
    assert FIXED == ["chain", "tree", "independent", "top", "dynamic-tree"]
