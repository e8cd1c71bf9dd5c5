"""The edge of the library: what takes a request, a name, a file, a number of a formula, or makes a drafter, a rule or a
tokenizer says in one sentence what it cannot use. Within the edge are texts, caches, dice, models and `probs`: whoever
calls these himself hands them tensors of the right shape, and they look at nothing.
"""

import math
from functools import partial
from pathlib import Path

import pytest
import torch

from lessons.cascade import cascade
from lessons.kseq import least_rho
from lessons.lossy_rules import lenient, typical
from nanospec import theory
from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.errors import NanospecError
from nanospec.files.model_file import load_model, save_model
from nanospec.files.checkpoint import Pair, load_pair
from nanospec.files.corpus import read_texts
from nanospec.files.for_engines import export
from nanospec.files.gguf import GGUFFile
from nanospec.files.sources import find_source
from nanospec.files.tokenizer import Tokenizer, train
from nanospec.generate import generate
from nanospec.methods.copies.hybrid import Hybrid
from nanospec.methods.copies.lookahead import Lookahead
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.copies.suffix import SuffixDrafter
from nanospec.methods.draft_models.medusa import Medusa
from nanospec.methods.index import method_of
from nanospec.methods.lengths.by_load import ByLoad
from nanospec.methods.lengths.by_survival import BySurvival
from nanospec.methods.lengths.dynamic import DynamicDrafter
from nanospec.methods.lengths.stopping import Confidence, Entropy, Goodput
from nanospec.methods.rules.block import verify_block
from nanospec.methods.rules.traversal import verify_traversal
from nanospec.methods.stack import Stack
from nanospec.methods.trees.drawn import TopTree, TreeDrafter
from nanospec.methods.trees.dynamic_tree import DynamicTree
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.shapes import best_size, best_tree, grown_tree
from nanospec.methods.trees.tree_draft import Tree, TreeDraft
from nanospec.model import GPT
from nanospec.proof.tables import small_gpt
from nanospec.serving.conversation import Conversation
from nanospec.serving.server import Server
from nanospec.speculate import ModelDrafter, speculate, verify

TARGET, DRAFT_MODEL = small_gpt(5, 2, 1), small_gpt(5, 1, 2)
HALF, BYTES = torch.tensor([0.5, 0.5]), {bytes([b]): b for b in range(256)}
CHAIN = Draft(torch.tensor([[1, 2]]), torch.tensor([[[0.0] * 5, [0.2] * 5]]))
NONE, NUMBERS, TEXTS = (None, "x", 5, GPT, object()), (0, -1, 1.5, "3", None), ("x", None, math.nan)
PATHS, TOKENIZER = (None, 5, [], b"x"), Tokenizer(BYTES)
METHOD = {"costs": (0.1, {2: 1.0})}

JUDGES = [verify, verify_tree, verify_block, verify_traversal, typical, cascade("v3", 0.5, verify)]

# A call of one argument, and arguments that it refuses.
REFUSED = {
    "speculate, target": (lambda x: next(speculate(x, ModelDrafter(DRAFT_MODEL, 2), [1])), NONE),
    "speculate, drafter": (lambda x: next(speculate(TARGET, x, [1])), NONE),
    "speculate, dice": (lambda x: next(speculate(TARGET, ModelDrafter(DRAFT_MODEL, 2), [1], dice=x)), (5, Dice)),
    "generate": (lambda x: next(generate(TARGET, [1], **x)), (
        {"temperature": "1"}, {"stop": 5}, {"top_k": 1.5}, {"top_p": "1"}, {"min_p": "1"}, {"seed": 0.5},
        {"max_new_tokens": "4"})),
    "Server": (lambda x: Server(TARGET, ModelDrafter(DRAFT_MODEL, 2), x), NUMBERS),
    "submit": (lambda x: Server(TARGET, ModelDrafter(DRAFT_MODEL, 2)).submit(x, max_new_tokens=2),
               (None, "12", [1.5], 5)),
    "cancel": (Server(TARGET, ModelDrafter(DRAFT_MODEL, 2)).cancel, NONE),
    "generate, dice": (lambda x: next(generate(TARGET, [1], dice=x)), (5, Dice)),
    "Conversation": (lambda x: Conversation(TARGET, ModelDrafter(DRAFT_MODEL, 2), x), (1.5, "3")),
    "go_back": (Conversation(TARGET, ModelDrafter(DRAFT_MODEL, 2)).go_back, (1.5, "3", None)),
    "method_of": (lambda x: method_of(TARGET, DRAFT_MODEL, x), ("nope", None, [], 5)),
    "method_of, rule": (lambda x: method_of(TARGET, DRAFT_MODEL, "chain", x), ("nope", None, [])),
    "method_of, costs": (lambda x: method_of(TARGET, DRAFT_MODEL, "hybrid", gamma=1, costs=x), (
        5, (0.1,), ("x", {2: 1.0}), (0.1, None), (0.1, {}), (-1.0, {2: 1.0}))),
    "method_of, remember": (lambda x: method_of(TARGET, DRAFT_MODEL, "hybrid", gamma=1, remember=x, **METHOD),
                            (-1, "x")),
    "ModelDrafter": (lambda x: ModelDrafter(x, 2), NONE),
    "TreeDraft": (lambda x: TreeDraft(CHAIN.tokens, CHAIN.q_draft, x), (None, 5, torch.ones(1), torch.ones(1, 3))),
    "Tree.add, parent": (lambda x: Tree(3).add(x, 4), (None, 1, -1, "0", torch.tensor(0), torch.tensor([0, 0]))),
    "Tree.add, token": (lambda x: Tree(3).add(0, x), (None, 1.5, "a", torch.tensor(4), [4])),
    "TreeDrafter": (lambda x: TreeDrafter(x, [-1, 0]), NONE), "TopTree": (lambda x: TopTree(x, [-1, 0]), NONE),
    "DynamicTree": (lambda x: DynamicTree(x, 3), NONE),
    "DynamicTree, width": (lambda x: DynamicTree(DRAFT_MODEL, 4, x), NUMBERS),
    "BySurvival": (lambda x: BySurvival(x, 2), NONE), "ByLoad": (lambda x: ByLoad(x, lambda *_: 1.0), NONE),
    "ByLoad, seconds": (lambda x: ByLoad(DRAFT_MODEL, x), (None, 5, {})),
    "Stack": (lambda x: Stack(x, PromptLookup(2)), NONE), "Stack, lowest": (lambda x: Stack(DRAFT_MODEL, x), NONE),
    "Hybrid": (lambda x: Hybrid(x, {2: 1.0}), NONE),
    "Hybrid, v": (lambda x: Hybrid(ByLoad(DRAFT_MODEL, lambda *_: 1.0, 1), x), (
        None, 5, {}, {1: 1.0}, {3: 1.0}, {2: "x"}, {"2": 1.0}, {2: -1.0}, {2: math.nan})),
    "DynamicDrafter": (lambda x: DynamicDrafter(DRAFT_MODEL, x, 2), (None, "heuristic", Confidence)),
    "Confidence": (Confidence, ("x", None)), "Entropy": (Entropy, ("x", None)),
    "Goodput": (lambda x: Goodput(x, {2: 1.0}), ("x", None, math.nan, -1)),
    "Goodput, v": (lambda x: Goodput(.1, {2: 1.0, 3: x}), ("x", None, math.nan, -1)),
    "gamma": (lambda x: ModelDrafter(DRAFT_MODEL, x), (*NUMBERS, 10 ** 6)), "count": (PromptLookup, NUMBERS),
    "topology": (lambda x: TreeDrafter(DRAFT_MODEL, x), (
        None, 5, "ab", [], [-1], [0], [-1, 1], [-1, "0"], [-1, 0.5], torch.tensor([-1, 0]))),
    "Lookahead, window": (lambda x: Lookahead(window=x), NUMBERS),
    "Lookahead, ngram": (lambda x: Lookahead(ngram=x), NUMBERS),
    "Lookahead, guesses": (lambda x: Lookahead(guesses=x), ("2", -1, None)),
    "SuffixDrafter, past": (lambda x: SuffixDrafter(2, past=x), (5, None, "ab", [5], [["a"]])),
    "SuffixDrafter, least": (lambda x: SuffixDrafter(2, least=x), ("x", None, 0, 2)),
    "SuffixDrafter, remember": (lambda x: SuffixDrafter(2, remember=x), (-1, 1.5, "5", None)),
    **{f"{rule.__qualname__}, p_target": (partial(lambda rule, x: rule(CHAIN, x, None), rule), (
        None, 5, torch.ones(1, 3, 5))) for rule in JUDGES},
    **{f"{rule.__qualname__}, draft": (partial(lambda rule, x: rule(x, torch.ones(1, 2, 5), None), rule), NONE)
       for rule in JUDGES},
    "lenient": (lambda x: lenient(x, verify), (0, 2, *TEXTS)), "lenient, rule": (lambda x: lenient(0.5, x), (None, 5)),
    "cascade": (lambda x: cascade(x, 0.5, verify), ("nope", None)),
    "cascade, a": (lambda x: cascade("v3", x, verify), ("x", None)),
    "k-SEQ": (lambda x: least_rho(HALF, HALF, x), NUMBERS),
    "expected_tokens": (lambda x: theory.expected_tokens(x, 3), (2, -1, *TEXTS)),
    "expected_tokens, gamma": (lambda x: theory.expected_tokens(0.5, x), (-1, 1.5, "3", None)),
    "speedup": (lambda x: theory.speedup(0.5, 3, x), (-1, *TEXTS)),
    "speedup, v": (lambda x: theory.speedup(0.5, 3, 0.0, x), (0.0, -1, *TEXTS)),
    "sure_gain": (lambda x: theory.sure_gain(x, 0.1), (2, -1, *TEXTS)),
    "best_gamma": (lambda x: theory.best_gamma(0.5, 0.1, most=x), NUMBERS),
    "break_even": (lambda x: theory.break_even(x, 3, 0.1), (-1, *TEXTS)),
    "best_tree": (lambda x: best_tree(x, 3), ([], [2.0], "ab", None)),
    "best_tree, size": (lambda x: best_tree([0.5], x), NUMBERS),
    "grown_tree": (lambda x: grown_tree(x, 3), ([], [[]], None)),
    "best_size": (lambda x: best_size([0.5], x, 0.1, [2]), ({}, None)),
    "best_size, depths": (lambda x: best_size([0.5], {2: 1.0}, 0.1, x), ([], range(0))),
    "load_pair, dtype": (lambda x: load_pair(dtype=x), ("float32", 5, torch.int64)),
    "load_pair, draft": (lambda x: load_pair(draft_model=x), ("nope", 5, None, [])),
    "export": (lambda x: export(x, None), (None, 5, (TARGET, DRAFT_MODEL, None))),
    "load_pair, path": (load_pair, PATHS), "Tokenizer.load": (Tokenizer.load, PATHS), "GGUFFile": (GGUFFile, PATHS),
    "load_model": (load_model, PATHS), "find_source": (find_source, PATHS), "read_texts": (read_texts, PATHS[1:]),
    "save": (TOKENIZER.save, PATHS), "export, path": (lambda x: export(Pair(TARGET, DRAFT_MODEL, TOKENIZER), x), PATHS),
    "save_model": (lambda x: save_model(x, Path("no"), TOKENIZER), NONE),
    "save_model, tokenizer": (lambda x: save_model(TARGET, Path("no"), x), NONE),
    "encode": (TOKENIZER.encode, (None, 5, b"ab", ["a"])), "decode": (TOKENIZER.decode, (None, 5, "ab", [1, "a"])),
    "attach": (Medusa(5, 16, [1], heads=2).attach, NONE), "layers": (lambda x: Medusa(5, 16, x, heads=2), NUMBERS),
    "Tokenizer": (Tokenizer, (None, 5, {}, [b"a"], {"a": 1}, {b"a": 0}, BYTES | {b"ab": 3}, BYTES | {b"ab": 900},
                              BYTES | {b"ab": -1}, BYTES | {b"ab": 256.5})),
    "train": (lambda x: train(x, 300), (None, b"ab", 5)), "train, size": (lambda x: train("ab", x), (10, "300", None)),
}
# Of these a ValueError, no more.
PLAIN = {"train, size", "TreeDraft", "Tree.add, parent", "Tree.add, token", "layers", *(
    f"{rule.__qualname__}, {of}" for rule in JUDGES for of in ("p_target", "draft"))}


@pytest.mark.parametrize("call", REFUSED)
def test_it_says_in_one_sentence_what_it_cannot_use(call):
    of, refused = REFUSED[call]
    for given in refused:
        with pytest.raises((NanospecError, ValueError)) as caught:
            of(given)
        words = str(caught.value)
        assert words and "\n" not in words and len(words) < 500
        assert isinstance(caught.value, NanospecError) or call in PLAIN, f"{given!r}: {words}"


def test_the_last_that_is_allowed():
    """A server of one row. To cancel a request that has ended changes nothing."""
    server = Server(TARGET, ModelDrafter(DRAFT_MODEL, 2), 1)
    request = server.submit([1], max_new_tokens=1)
    server.step()
    server.cancel(request)
    assert len(request.tokens) == 1 and not request.error


def test_numbers_of_every_kind_are_numbers():
    """What is refused is not a type that a user has at hand."""
    import numpy
    assert theory.expected_tokens(numpy.float64(0.5), numpy.int64(1)) == theory.expected_tokens(0.5, 1) == 1.5
    assert theory.expected_tokens(1, 5) == 6 and theory.expected_tokens(1 + 1e-9, 1) > 2         # as it is measured
    assert theory.speedup(torch.tensor([0.5, 1.0]), 1, torch.tensor(0.5)).tolist() == pytest.approx([1.0, 2.0 / 1.5])
    assert ModelDrafter(DRAFT_MODEL, numpy.int64(3)).most == 3 and PromptLookup(numpy.int32(2)).most == 2
