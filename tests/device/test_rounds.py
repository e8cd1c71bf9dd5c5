"""Every drafter and rule by its name, and every learned draft model, on the pretend GPU: the same tokens as on the CPU,
no tensors mixed, and as many waits as docs/DEVICE.md says.
"""

import re
from itertools import product
from pathlib import Path

import pytest

from nanospec.generate import generate
from nanospec.methods.draft_models import LEARNED
from nanospec.methods.index import DRAFTERS, method_of
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.proof.zoo.plant import bug, planted
from tests.device.pretend import NAME

PAGE = (Path(__file__).parents[2] / "docs" / "DEVICE.md").read_text()
WAITS = {name: [text.strip() for text in cells.split("|")[:3]]
         for name, cells in re.findall(r"^\| `([a-z-]+)` \|(.*)\|$", PAGE, re.MULTILINE)}
TARGET, DRAFT_MODEL = small_gpt(4, 3, 5), small_gpt(4, 1, 6)
SETTINGS = {"gamma": 3, "topology": [-1, 0, 0, 1], "costs": (0.3, {2: 1.1, 3: 1.2, 4: 1.4})}
# With these seeds tokens are accepted and rejected, copies and chains are drafted, and drafts stop early.
REQUEST = {"ids": [2, 1, 3, 2, 1], "max_new_tokens": 14, "temperature": 0.8, "seed": 3}
BEGIN = 2               # rounds that may wait more often: texts and caches are new


def both(gpu, there, drafter, rule, model="gpt", **more):
    """The rounds on the CPU and on the device, and each round's transfers there."""
    target, draft_model = there(TARGET), DRAFT_MODEL if model == "gpt" else small_learned(model, TARGET)
    here = list(method_of(TARGET, draft_model, drafter, rule, **SETTINGS).run(**REQUEST | more))
    moved = there(draft_model) if model == "gpt" else there(draft_model, target)
    gpu.taken()
    rounds = [(done, gpu.taken()) for done in method_of(
        target, moved, drafter, rule, **SETTINGS).run(**REQUEST | more)]
    return here, [done for done, _ in rounds], [taken for _, taken in rounds]


def same(here, rounds):
    for a, b in zip(here, rounds, strict=True):
        assert (a.tokens, a.parents, a.path, a.emitted, a.steps) == (b.tokens, b.parents, b.path, b.emitted, b.steps)
        assert b.p_target.device.type == b.q_draft.device.type == NAME
        assert (a.p_target - b.p_target.cpu()).abs().max() < 1e-12 > (a.q_draft - b.q_draft.cpu()).abs().max()


def counted(taken):
    ways = [transfer.way for transfer in taken]
    return sum(transfer.waits for transfer in taken), ways.count("read"), ways.count("write")


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_drafter_waits_as_often_as_the_page_says(gpu, there, drafter):
    here, rounds, taken = both(gpu, there, drafter, "token")
    same(here, rounds)
    if drafter not in WAITS:
        return
    lines = [f"{transfer.way} {transfer.where}" for transfer in max(taken[BEGIN:], key=len) if transfer.waits]
    reached = [False] * 3
    for done, its in [*zip(rounds, taken)][BEGIN:]:
        most = [eval(text, {"d": done.steps}) for text in WAITS[drafter]]
        assert all(found <= allowed for found, allowed in zip(counted(its), most)), lines
        reached = [before or found == allowed for before, found, allowed in zip(reached, counted(its), most)]
    assert all(reached), "the page allows more than it takes"


@pytest.mark.parametrize("drafter, model", [*product(("chain", "tree"), LEARNED)])
def test_a_learned_draft_model_waits_once(gpu, there, drafter, model):
    here, rounds, taken = both(gpu, there, drafter, "token", model, max_new_tokens=7)
    same(here, rounds)
    assert {counted(its) for its in taken[BEGIN:]} == {(1, 1, 1)}


@pytest.mark.parametrize("drafter, rule", [("chain", "block"), ("chain", "traversal"), ("tree", "block"),
                                           ("goodput", "block"), ("suffix-tree", "block")])
def test_a_rule_on_drafts_of_every_shape(gpu, there, drafter, rule):
    """A chain, a tree, a chain that may stop, and copies."""
    here, rounds, taken = both(gpu, there, drafter, rule)
    same(here, rounds)
    waits = {counted(its)[0] for its in taken[BEGIN:]}
    assert waits == {1} if (drafter, rule) == ("chain", "block") else max(waits) > 1 or drafter == "suffix-tree"


def test_plain_decoding(gpu, there):
    target, taken, wrote = there(TARGET), [], []
    for token in generate(target, **REQUEST):
        wrote.append(token)
        taken.append(counted(gpu.taken()))
    assert wrote == list(generate(TARGET, **REQUEST)) and set(taken[1:]) == {(1, 1, 1)}


def test_the_page_has_the_drafters_that_there_are():
    assert WAITS and set(WAITS) <= set(DRAFTERS)


ARANGE = "torch.arange(len(accepted), device=accepted.device)\n    left"
PLANTED = {
    "made on the CPU": ("speculate", "chain", ARANGE, ARANGE.replace(", device=accepted.device", ""), RuntimeError),
    "a mask of the CPU": ("methods.trees.tree_draft", "tree",
                          "count = torch.arange(max(W, kv_length), device=own.device)",
                          "count = torch.arange(max(W, kv_length))", RuntimeError),
    "a look at a number": ("speculate", "tree", "path, count = draft.path(accepted)",
                           "path, count = draft.path(accepted) if accepted.min() >= 0 else None", AssertionError),
    "a list sent on the way": ("methods.lengths.by_load", "by-load", "torch.minimum(count + 1, drafted)",
                               "torch.minimum(count + torch.tensor([1], device=count.device), drafted)",
                               AssertionError)}


@pytest.mark.parametrize("file, drafter, old, new, error", PLANTED.values(), ids=PLANTED)
def test_it_is_seen_to_fail(gpu, there, file, drafter, old, new, error):
    with planted(bug("a bug", "ours", "", "", (old, new), file=file)), pytest.raises(error):
        test_a_drafter_waits_as_often_as_the_page_says(gpu, there, drafter)
