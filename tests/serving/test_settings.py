"""Every setting of a request reaches whatever takes one, at values that differ from each other and the defaults."""

from inspect import signature

import pytest
import torch

from nanospec.dice import Dice
from nanospec.generate import generate
from nanospec.probs import probs
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.serving.conversation import Conversation
from nanospec.serving.request import Request
from nanospec.serving.server import Server
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from nanospec.text import WIDTH

TARGET, DRAFT_MODEL, IDS = TableModel(6, 8, zeros=0), TableModel(6, 58, zeros=0), [1, 0, 4]
SETTINGS: dict = {"max_new_tokens": 5, "temperature": 1.7, "top_k": 5, "top_p": 0.85, "min_p": 0.45, "seed": 13,
                  "stop": (3, 2)}
DEFAULTS = {"max_new_tokens": 80, "temperature": 1.0, "top_k": None, "top_p": None, "min_p": None, "stop": ()}
NO_SETTINGS = {"target", "drafter", "ids", "dice", "rule", "compiler", "others", "self", "tokens", "done", "error"}


def served(**settings) -> list[int]:
    server = Server(TARGET, ModelDrafter(DRAFT_MODEL, 2), rows=2, context=90)
    request = server.submit(IDS, **settings)
    while not request.done:
        server.step()
    return request.tokens


def replied(**settings) -> list[int]:
    return tokens_of(Conversation(TARGET, ModelDrafter(DRAFT_MODEL, 2)).reply(IDS, **settings))


def speculated(**settings) -> list[int]:
    return tokens_of(speculate(TARGET, ModelDrafter(DRAFT_MODEL, 2), IDS, **settings))


def by_hand(max_new_tokens, temperature, top_k, top_p, min_p, seed, stop) -> list[int]:
    """Plain decoding, written out."""
    ids, dice = [*IDS], Dice([seed])
    while len(ids) < len(IDS) + max_new_tokens and ids[len(IDS):][-1:] not in [[token] for token in stop]:
        dice.refill(1)
        ids.append(int(dice.pick(probs(TARGET(torch.tensor([ids]))[:, -1], temperature, top_k, top_p, min_p))))
    return ids[len(IDS):]


@pytest.mark.parametrize("takes", [speculate, generate, Conversation.reply, Request], ids=lambda takes: takes.__name__)
def test_these_are_all_settings(takes):
    """And without them a request is for 128 tokens of the target's own distribution."""
    known = signature(takes).parameters
    assert set(known) - NO_SETTINGS == set(SETTINGS)
    assert {name: known[name].default for name in DEFAULTS} == DEFAULTS | {"max_new_tokens": 128}


@pytest.mark.parametrize("run", [served, replied])
def test_who_takes_requests_takes_their_settings(run):
    """The text of `speculate`; and each setting makes a difference to it, so that one that is dropped shows."""
    for seed in range(40):
        assert run(**SETTINGS | {"seed": seed}) == speculated(**SETTINGS | {"seed": seed})
    for name, default in DEFAULTS.items():
        assert any(speculated(**SETTINGS | {name: default, "seed": seed}) != speculated(**SETTINGS | {"seed": seed})
                   for seed in range(40)), name


def test_plain_decoding_takes_them():
    assert [list(generate(TARGET, IDS, **SETTINGS | {"seed": seed})) for seed in range(40)] == [
        by_hand(**SETTINGS | {"seed": seed}) for seed in range(40)]


def test_the_plain_steps_of_a_conversation_take_them():
    """After eight texts, so that each of the settings decides something."""
    talk = Conversation(TARGET, ModelDrafter(DRAFT_MODEL, 8))
    settings = {"temperature": 1.7, "top_k": 5, "top_p": 0.7, "min_p": 0.6}
    steps, others = [], {name: [] for name in settings}
    for seed in range(8):
        talk.go_back(0)
        tokens_of(talk.reply(IDS, 5, seed=seed))
        steps.append(list(talk.plain_steps(9, **settings)))
        assert steps[-1] == list(generate(TARGET, talk.ids, 9, **settings, seed=0))
        for name, found in others.items():
            found.append(list(generate(TARGET, talk.ids, 9, **settings | {name: DEFAULTS[name]}, seed=0)))
    assert all(found != steps for found in others.values())


def test_a_draft_beyond_the_last_token_that_fits_has_slots():
    """With them a text of the whole context needs more room than a multiple of WIDTH."""
    target, draft_model = (small_gpt(4, 1, seed, context=WIDTH - 2) for seed in (9, 5))
    talk, server = (kind(target, ModelDrafter(draft_model, 6)) for kind in (Conversation, Server))
    wrote, request = tokens_of(talk.reply([1] * 118, 8, 0)), server.submit([1] * 118, max_new_tokens=8, temperature=0)
    while not request.done:
        server.step()
    assert wrote == request.tokens == list(generate(target, [1] * 118, 8, 0))
