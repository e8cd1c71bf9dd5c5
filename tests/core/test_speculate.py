"""The loop and its round: what the contract does not say of them. Requests that are refused are in test_text.py."""

import pytest
import torch

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.errors import LogitsError
from nanospec.generate import generate
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.rules.block import verify_block
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.model import GPT, Config
from nanospec.probs import Sampling
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.speculate import ModelDrafter, Round, one_round, speculate, tokens_of, verify
from nanospec.text import Text

TARGET, DRAFT_MODEL, TOPOLOGY = TableModel(5, 1), TableModel(5, 2), [-1, 0, 0, 1, 2, 1]


@pytest.mark.parametrize("rule", [verify, verify_tree, verify_block])
def test_the_worked_number(rule):
    """p_target [.5, .5], q_draft [.8, .2], draft token 0: accepted below .625; if it is rejected, always token 1."""
    p_target, q_draft = torch.tensor([[[.5, .5], [0, 1]]]), torch.tensor([[[0, 0], [.8, .2]]])
    for u, accepted in ((.6249, 1), (.625, 0), (.999, 0)):
        for last in (0.0, .5, .999):
            dice = Dice([0])
            dice.u = torch.tensor([[u, last]], dtype=torch.float64)
            found = rule(Draft(torch.tensor([[1, 0]]), q_draft), p_target, dice)
            assert [part.tolist() for part in found] == [[accepted], [1]]


def test_no_tokens_one_token_and_a_last_round_that_is_cut():
    """A round is whole, however few of its tokens are wanted."""
    for new in (0, 1, 2, 7):
        rounds = list(speculate(TARGET, ModelDrafter(DRAFT_MODEL, 8), [1, 2], new, 0.7))
        assert len(tokens_of(rounds)) == new and (rounds or not new)
        for done in rounds:
            assert len(done.tokens) == len(done.p_target) == len(done.q_draft) == 9 and done.steps == 8
            assert done.parents == list(range(-1, 8)) and not done.q_draft[0].any()
            assert [done.tokens[node] for node in done.path] + [done.token] == done.emitted or done is rounds[-1]


def test_what_was_rejected():
    """The children of the last accepted node; a node that the text lacks is nobody's child."""
    def rejected(parents, path):
        return Round([9, 1, 2, 3, 4], parents, path, 0, [], torch.empty(0), torch.empty(0), 0).rejected
    chain, tree = [-1, 0, 1, 2, 3], [-1, 0, 0, 1, -1]
    assert [rejected(chain, list(range(1, n))) for n in (1, 2, 5)] == [[1], [2], []]
    assert [rejected(tree, path) for path in ([], [1], [2], [1, 3])] == [[1, 2], [3], [], []]


def a_round(tokens, q_draft, accepted, token, V=3):
    """What `one_round` returns of a chain whose q_draft are one-hot; p_target is even."""
    draft = Draft(torch.tensor([tokens] * 2), torch.zeros(2, len(tokens), V), steps=7)
    for node, x in enumerate(q_draft, 1):
        draft.q_draft[0, node, x] = 1
    p_target = torch.full((2, len(tokens), V), 1 / V, dtype=torch.float64)
    path, count = draft.path(torch.tensor([accepted, 0]))
    return draft, p_target, path, count, torch.tensor([token, 1])


def test_a_round_is_read_from_the_first_text_of_a_batch():
    """Node 0 is no part of the path; a node that the text lacks has no parent."""
    done = Round.read(*a_round([5, 0, 1, 0], [0, 1], 2, 9))
    assert (done.tokens, done.parents, done.path, done.token) == ([5, 0, 1, 0], [-1, 0, 1, -1], [1, 2], 9)
    assert (done.emitted, done.rejected, done.steps) == ([0, 1, 9], [], 7)
    assert done.p_target.shape == done.q_draft.shape == (4, 3) and done.q_draft.sum(-1).tolist() == [0, 1, 1, 0]
    done = Round.read(*a_round([5, 0, 1, 0], [0, 1, 0], 0, 2))
    assert (done.path, done.emitted, done.rejected) == ([], [2], [0])
    done = Round.read(*a_round([4], [], 0, 2))
    assert (done.tokens, done.parents, done.path, done.emitted, done.rejected) == ([4], [-1], [], [2], [])
    assert {type(each) for each in (*done.tokens, *done.parents, done.token, *done.emitted)} == {int}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("which", ["p_target", "q_draft"])
def test_what_is_no_number_is_no_round(which, number):
    """Wherever it stands: no text of the batch can be trusted."""
    for b, node in ((0, 0), (0, 3), (1, 2)):
        draft, p_target, *rest = a_round([5, 0, 1, 0], [0, 1, 0], 2, 1)
        {"p_target": p_target, "q_draft": draft.q_draft}[which][b, node, 1] = number
        with pytest.raises(LogitsError, match="NaN or infinity"):
            Round.read(draft, p_target, *rest)


class Reads:
    """A language model that notes how many tokens of how many texts each call reads."""

    def __init__(self, model):
        self.model, self.read, self.config, self.new_cache = model, [], model.config, model.new_cache

    def __call__(self, tokens, cache, kv_length, **more):
        self.read.append(tuple(tokens.shape))
        return self.model(tokens, cache, kv_length, **more)


@pytest.mark.parametrize("lag, right", [(0, False), (1, False), (3, False), (4, True), (6, True)])
def test_a_draft_model_reads_what_it_is_told_may_be_new_to_it_and_never_less_than_its_own_rounds_leave(lag, right):
    """Three tokens were written without it, so with the last one that a round leaves four are new."""
    model = Reads(small_gpt(5, 1, 2))
    drafter, dice, text = ModelDrafter(model, 3), Dice([1, 2]), Text([[1, 2, 3, 0, 1, 2], [4, 0, 4, 4, 1]], 40, 5)
    drafter.begin(text)
    drafter.read(text, range(2), None)
    assert model.read == [(2, 5)]                           # the prompts but for their last tokens
    drafter.read(text, [1], None)                           # as if text 1 were a new request
    assert model.read.pop() == (1, 4)
    text.commit(torch.tensor([[4, 1, 3], [2, 2, 0]]), 3)
    dice.refill(3)
    draft = drafter.propose(text, Sampling(), dice, 30, lag)
    assert model.read[1:] == [(2, max(lag, 2)), (2, 1), (2, 1)] and draft.steps == 3
    errors = []
    for b, ids in enumerate(text.ids()):
        again = model.model(torch.tensor([[*ids, *draft.tokens[b, 1:3].tolist()]]))[0, len(ids) - 1:].softmax(-1)
        errors.append((draft.q_draft[b, 1:] - again).abs().max())
    assert (max(errors) < 1e-12) == right


@pytest.mark.parametrize("way, rule", [("chain", verify), ("chain", verify_tree), ("chain", verify_block),
                                       ("tree", verify_tree)])
def test_a_round_is_branch_free_and_stays_on_its_device(way, rule, monkeypatch):
    """On the meta device tensors have shapes and no values: a branch on a value, a read-back, or a tensor made on
    another device would raise. So a round can be compiled (fast/compiled.py)."""
    config, rows = Config(11, context=32, layers=2, channels=16, heads=4, kv_heads=2, hidden=24), 3
    with torch.device("meta"):
        target, model = GPT(config).eval(), GPT(config).eval()
    monkeypatch.setattr("nanospec.reader.prefill", lambda *_, **__: None)    # reading is no part of a round
    text = Text([[1, 2, 3], [4], [5, 6]], 20, 11, "meta")
    drafter = ModelDrafter(model, 5) if way == "chain" else TreeDrafter(model, TOPOLOGY)
    drafter.begin(text)
    drafter.read(text, range(rows), None)
    dice = Dice([0] * rows, "meta")
    dice.refill(drafter.uniforms + drafter.most + 1)
    with torch.inference_mode():
        draft, *out = one_round(target, target.new_cache(rows, 23), drafter, rule, text,
                                Sampling(temperature=0.7, top_k=3, top_p=0.9), dice, kv_length=23)
    assert dice.column == 5 + 6
    every = [draft.tokens, draft.q_draft, *out]
    assert {part.device.type for part in (*every, text.tokens, text.length)} == {"meta"}
    assert [list(part.shape) for part in every] == [[3, 6], [3, 6, 11], [3, 6, 11], [3, 6], [3], [3]]


def test_other_precisions_mix():
    """A draft model's own precision makes it another model, no more: its distribution in that precision is reported."""
    target, draft_model = small_gpt(7, 2, 5), small_gpt(7, 1, 6).float()
    rounds = list(speculate(target, ModelDrafter(draft_model, 3), [1, 2], 30))
    assert rounds[0].p_target.dtype == torch.float64 and rounds[0].q_draft.dtype == torch.float32
    assert len(tokens_of(rounds)) == 30


class Broken:
    """A table model whose logits turn to NaN at one place in the text."""

    def __init__(self, model, at):
        self.model, self.at = model, at
        self.config, self.device, self.new_cache = model.config, model.device, model.new_cache

    def __call__(self, tokens, cache=None, kv_length=None, positions=None, attention_mask=None, layers=(), scored=None):
        logits = self.model(tokens, cache, kv_length, positions, attention_mask).clone()
        slots = cache.next_slots(tokens.shape[1])
        broken = logits.masked_fill((slots == self.at)[:, :, None], float("nan"))
        return broken if scored is None else broken[:, tokens.shape[1] - scored:]


DRAFTERS = {"chain": lambda draft_model: ModelDrafter(draft_model, 3),
            "tree": lambda draft_model: TreeDrafter(draft_model, TOPOLOGY),
            "copies": lambda draft_model: PromptLookup(3)}


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("way, who", [("chain", "target"), ("chain", "draft"), ("tree", "target"), ("tree", "draft"),
                                      ("copies", "target")])
def test_logits_with_nan_are_an_error_and_what_came_before_stands(way, who, temperature):
    """Everything up to the broken place is the text that whole models write; nothing after it is yielded."""
    settings = {"max_new_tokens": 20, "temperature": temperature, "seed": 3}
    whole = tokens_of(speculate(TARGET, DRAFTERS[way](DRAFT_MODEL), [1, 2], **settings))
    target, draft_model = (Broken(model, 9) if who == name else model for name, model in (("target", TARGET),
                                                                                    ("draft", DRAFT_MODEL)))
    written = []
    with pytest.raises(LogitsError, match="NaN"):
        for done in speculate(target, DRAFTERS[way](draft_model), [1, 2], **settings):
            written += done.emitted
    assert written == whole[:len(written)] and 1 < len(written) <= 8


def test_plain_decoding_too_stops_at_nan():
    for temperature in (0.0, 0.7):
        settings, written = {"max_new_tokens": 20, "temperature": temperature, "seed": 3}, []
        whole = list(generate(TARGET, [1, 2], **settings))
        with pytest.raises(LogitsError, match="NaN"):
            for token in generate(Broken(TARGET, 9), [1, 2], **settings):
                written.append(token)
        assert written == whole[:8]


def test_plain_decoding_needs_no_room_for_a_draft():
    """A model whose whole context is the prompt: nothing can be written, and nothing is wrong with asking for it."""
    assert list(generate(GPT(Config(8, 1, 1, 8, 1, 1, 8)), [1], max_new_tokens=0)) == []
