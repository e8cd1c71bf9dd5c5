"""A draft model that is NaN, a shape that has no room, a drafter that had more texts before: refused, or right."""

import json

import pytest
import torch

from nanospec.cli.options import SHAPE
from nanospec.errors import NanospecError, RequestError
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.index import DRAFTERS, WITHOUT_DRAFT_MODEL, method_of
from nanospec.methods.wrappers.other_tokenizer import OtherTokenizer, tables_of
from nanospec.methods.trees.dynamic_tree import DynamicTree
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.serving.server import Server
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from tests.proof.other_tokenizer import Spellings

TARGET, IDS = small_gpt(8, 2, 1), [1, 2, 3, 1, 2, 3, 1]


@pytest.mark.parametrize("name", [name for name in DRAFTERS if name not in WITHOUT_DRAFT_MODEL])
def test_nan_of_a_draft_model_is_an_error_of_ours(name):
    draft_model = small_gpt(8, 1, 2)
    draft_model.norm.weight.data.fill_(float("nan"))
    method = method_of(TARGET, draft_model, name)
    try:
        list(method.run(IDS, max_new_tokens=6, seed=1))
    except NanospecError:
        pass
    server = Server(TARGET, method.make(), rows=2, context=64)
    asked = [server.submit(IDS, max_new_tokens=6) for _ in range(2)]
    for _ in range(20):
        server.step()
    assert all(request.done for request in asked)


@pytest.mark.parametrize("drafter", ["chain", "tree", "dynamic-tree"])
def test_a_learned_one_without_a_target_says_what_to_do(drafter):
    target = small_gpt(7, 2, 1)
    draft_model = LEARNED["eagle"](7, target.config.channels, **LEARNED["eagle"].sizes_for(target.config))
    with pytest.raises(RequestError, match=r"attach\(target\)"):
        options = {"topology": [-1, 0, 0]} if drafter == "tree" else {}
        next(method_of(target, draft_model, drafter, **options).run([1, 2], max_new_tokens=4))


def test_a_hybrid_of_many_texts_and_then_of_one():
    """Copies of a text that is no longer there are forgotten with it."""
    drafter = method_of(TARGET, small_gpt(8, 1, 2), "hybrid").make()
    drafter.since = {2: 5}
    assert len(tokens_of(speculate(TARGET, drafter, IDS, 20, seed=1))) == 20


@pytest.mark.parametrize("name", ["gpt", *LEARNED])
def test_a_tree_of_a_width_and_depth(name):
    """As EAGLE-2 grows it. What its levels read has room in the draft, or is refused, where it takes room at all."""
    draft_model = small_gpt(8, 1, 2) if name == "gpt" else small_learned(name, TARGET)
    for count, width, depth in (60, 10, 6), (20, 4, 6), (4, 4, 2):
        drafter = DynamicTree(draft_model, count, width, depth)
        assert len(tokens_of(speculate(TARGET, drafter, IDS, 9, seed=1))) == 9
    with pytest.raises(RequestError, match="its size must be as large, got 2"):
        DynamicTree(draft_model, 2, 3, 4)
    grown = SHAPE(json.dumps({"size": 8, "width": 4, "depth": 3}))
    assert DynamicTree(draft_model, **grown).most == 8


def test_two_versions_of_a_tokenizer_share_their_special_tokens():
    """By name, and where all else has one id in both, by id: 3 is another name there, as in Llama 3 and 3.1."""
    ours = Spellings([b"a", b"b", None, None, None], 4, {"<user>": 2, "<reserved>": 3, "<end>": 4})
    its = Spellings([b"a", b"b", None, None, None], 4, {"<user>": 2, "<pad>": 3, "<end>": 4})
    tables = tables_of(its, ours, 5)
    assert [part.tolist() for part in tables] == [[0, 1, 2, 3, 4]] * 3
    moved = Spellings([None, b"a", b"b", None], 3, {"<user>": 0, "<end>": 3})
    tables = tables_of(moved, ours, 5)
    assert tables.ids.tolist() == [0, 1, 2, 4] and tables.own.tolist() == [1, 2, 0, 3]
    assert tables.read_as.tolist() == [1, 2, 0, 3, 3]
    target = small_gpt(5, 1, 3)
    drafter = ModelDrafter(OtherTokenizer(target, tables_of(its, ours, 5)), 3)
    assert not any(done.rejected for done in speculate(target, drafter, [2, 0, 3], 9, seed=torch.tensor(1).item()))
