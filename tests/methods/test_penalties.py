"""Penalties: what has been written is worth less, and nothing that was rejected counts. The truth is computed here by
hand, from the text and the table of the model; no cache, no wrapper, no rule has a part.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from nanospec.errors import RequestError
from nanospec.methods.index import DRAFTERS, method_of
from nanospec.methods.wrappers.grammar import Constrained
from nanospec.methods.wrappers.in_slots import MOST_KEPT, InSlots
from nanospec.methods.wrappers.penalties import Penalised
from nanospec.probs import probs
from nanospec.proof.tables import DRAFT_MODEL, TABLE, TableModel, small_gpt, small_learned
from nanospec.proof.walk import distance, walk
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from tests.proof import contract
from tests.proof.checks import PENALISED, PENALTIES, RULED

SMALL = {"gamma": 2, "topology": [-1, 0, 0, 1], "costs": (0.3, {2: 1.1, 3: 1.2})}
IDS = [1, 0, 1, 2, 1]


def by_hand(model: TableModel, ids: list[int], new: int, rules=None, **settings) -> dict:
    """The distribution of `new` tokens. rules: of a grammar, from state 0 and the first token on."""
    found = {(): 1.0}
    for _ in range(new):
        longer = {}
        for tokens, weight in found.items():
            text, state = [*ids, *tokens], 0
            logits = model.logits[model._hash(text)].tolist()
            for token in {*text}:
                logits[token] = logits[token] / 1.5 if logits[token] > 0 else logits[token] * 1.5
                logits[token] -= 0.4 + 0.7 * text.count(token)
            for token in text if rules else ():
                state = rules[state][token] if rules[state][token] >= 0 else max(rules[0][token], 0)
            may = [p if not rules or rules[state][token] >= 0 else float("-inf") for token, p in enumerate(logits)]
            after = probs(torch.tensor(may, dtype=torch.float64), **settings).tolist()
            longer |= {(*tokens, token): weight * p for token, p in enumerate(after) if p}
        found = longer
    return found


def off(run, truth: dict, new: int, **settings) -> float:
    found, _ = walk(lambda dice: tuple(tokens_of(run(IDS, max_new_tokens=new, dice=dice, **settings))))
    return distance(found, truth)[0]


def test_three_penalties_by_hand():
    """Logits 2, -1, 0.5 and 3; the text has token 0 twice and token 1 once."""
    model = TableModel(4, 1)
    model.logits = torch.tensor([[2.0, -1.0, 0.5, 3.0]]).expand(model.CONTEXTS, 4)
    after = Penalised(model, repetition=2.0, presence=0.25, frequency=0.125)(torch.tensor([[0, 1, 0]]))[0]
    assert after[-1].tolist() == [2 / 2 - 0.25 - 2 * 0.125, -1 * 2 - 0.25 - 0.125, 0.5, 3.0]
    assert after[0].tolist() == [2 / 2 - 0.25 - 0.125, -1.0, 0.5, 3.0]
    assert torch.equal(Penalised(model)(torch.tensor([[0, 1, 0]])), model(torch.tensor([[0, 1, 0]])))


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafter_writes_the_penalised_targets_text(name):
    truth = by_hand(TABLE, IDS, 2, temperature=0.7, top_k=2)
    assert off(method_of(*PENALISED, name, **SMALL).run, truth, 2, temperature=0.7, top_k=2) < 1e-12


@pytest.mark.parametrize("drafts", [DRAFT_MODEL, small_learned("mlp", TABLE)], ids=["a model", "a learned one"])
def test_the_draft_model_need_not_be_penalised(drafts):
    drafter = ModelDrafter(drafts, 1)
    run = lambda ids, **request: speculate(PENALISED[0], drafter, ids, **request)           # noqa: E731
    assert off(run, by_hand(TABLE, IDS, 2, top_k=2), 2, top_k=2) < 1e-12


def test_a_grammar_around_a_model_with_penalties():
    """Each has a layer of its own in the cache."""
    pair = [Constrained(model, RULED) for model in PENALISED]
    truth = by_hand(TABLE, IDS, 3, [[1, -1, 2], [-1, 0, 2], [3, 1, -1], [-1, -1, 0]], temperature=0.7)
    assert off(method_of(*pair, "tree", **SMALL).run, truth, 3, temperature=0.7) < 1e-12


@pytest.mark.parametrize("part, name", [("batch", "chain"), ("batch", "tree"), ("same_greedy", "suffix-tree"),
                                        ("long_caches", "tree"), ("alone", "chain"), ("alone", "by-survival")])
def test_the_contract_holds_with_penalties(part, name, monkeypatch):
    """In a batch, in a server with a prompt in pieces and rows that come and go, far into a text."""
    for model in "TABLE", "DRAFT_MODEL", "GPT4", "GPT_DRAFT_MODEL4", "LONG", "LONG_DRAFT_MODEL":
        monkeypatch.setattr(contract, model, Penalised(getattr(contract, model), **PENALTIES))
    _, error, tv = contract.CONTRACT[part](name, "token")
    assert error <= 1e-12 and tv <= 1e-12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_slot_keeps_any_token_in_few_bits(dtype):
    numbers = torch.tensor([[0, 1, 256, 257, 512, 513, 131_584, 151_935, MOST_KEPT - 1]])
    model = InSlots("it", small_gpt(4, 1, 1).to(dtype))
    cache = model.new_cache(1, 12)
    model.keep(cache, cache.next_slots(9) + 2, numbers)
    assert model.kept(cache).tolist() == [[0, 0, *numbers[0].tolist(), 0]]


@pytest.mark.parametrize("numbers, message", [
    ({"repetition": 0}, "repetition must be a finite number above 0, got 0"), ({"repetition": -1.1}, "above 0"),
    ({"presence": float("nan")}, "presence must be a finite number, got nan"), ({"frequency": float("inf")}, "finite"),
    ({"presence": "1"}, "presence must be a number"), ({"frequency": Fraction(10 ** 400)}, "finite number"),
    ({"repetition": Fraction(1, 10 ** 400)}, "above 0")])
def test_what_is_no_penalty(numbers, message):
    with pytest.raises(RequestError, match=message):
        Penalised(TABLE, **numbers)


def test_numbers_of_others_are_penalties_too():
    model = Penalised(TABLE, Fraction(3, 2), np.float32(0.25), np.longdouble(2))
    assert (model.repetition, model.presence, model.frequency) == (1.5, 0.25, 2.0)
    assert model(torch.tensor([[1, 1]])).equal(Penalised(TABLE, 1.5, 0.25, 2.0)(torch.tensor([[1, 1]])))


def test_a_token_that_stands_301_times_in_bfloat16_counts_301_times():
    model = small_gpt(5, 1, 1, context=310).bfloat16()
    ids = torch.tensor([[2] * 301])
    off = Penalised(model, frequency=2 ** -6)(ids)[0, -1].double() - model(ids)[0, -1].double()
    assert off.tolist() == [0, 0, pytest.approx(-301 / 64, abs=1e-6), 0, 0]


def test_what_cannot_have_penalties():
    with pytest.raises(RequestError, match="what is penalised must be a language model"):
        Penalised(small_learned("mlp", TABLE))
    model = small_gpt(5, 1, 1)
    model.config = replace(model.config, vocab_size=MOST_KEPT)
    Penalised(model)
    model.config = replace(model.config, vocab_size=MOST_KEPT + 1)
    with pytest.raises(RequestError, match=f"penalties are for {MOST_KEPT} tokens or fewer"):
        Penalised(model)
