"""A pattern that begins where the prompt ends, whatever the prompt holds."""

import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.index import method_of
from nanospec.methods.wrappers import grammar
from nanospec.methods.wrappers.grammar import Constrained, grammar_of
from nanospec.proof.tables import small_gpt
from nanospec.proof.walk import distance, walk
from nanospec.serving.conversation import Conversation
from nanospec.serving.server import Server
from nanospec.speculate import ModelDrafter, tokens_of

PIECES = ["1", "2", "12", ",", "x", "<end>"]
TOY = SimpleNamespace(decode=lambda ids: "".join(PIECES[i] for i in ids), ends={5})
PATTERN = "[12]{1,2}(,1)?"
GRAMMAR = grammar_of(PATTERN, TOY, 6)
TARGET, DRAFT_MODEL = (Constrained(small_gpt(6, layers, seed), GRAMMAR) for layers, seed in ((2, 1), (1, 2)))
PROMPTS = [[4], [0], [3, 3], [0, 1, 3, 0], [4] * 5 + [0]]


def matches(ids) -> bool:
    text = TOY.decode(ids)
    return bool(re.fullmatch(PATTERN, text.removesuffix("<end>"))) and text.endswith("<end>")


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("name", ["chain", "tree", "suffix"])
def test_every_outcome_matches_and_has_the_probability_of_plain_decoding(prompt, name):
    settings = {"max_new_tokens": 6, "stop": [5], "top_k": 2}
    right, _ = walk(lambda dice: tuple(generate(TARGET, prompt, dice=dice, **settings)))
    method = method_of(TARGET, DRAFT_MODEL, name, gamma=2, topology=[-1, 0, 0])
    found, _ = walk(lambda dice: tuple(tokens_of(method.run(prompt, dice=dice, **settings))))
    assert distance(found, right)[1] < 1e-6 and len(right) > 2
    assert all(map(matches, found))


def test_a_draft_model_that_is_the_target_is_always_right():
    """It reads the end of the prompt again, and knows it for that."""
    for prompt in PROMPTS:
        rounds = list(method_of(TARGET, TARGET, "chain", gamma=2).run(prompt, max_new_tokens=6, stop=[5], seed=3))
        assert not any(done.rejected for done in rounds) and matches(tokens_of(rounds))


def test_turns_and_rows_that_others_have_written_in_before():
    talk = Conversation(TARGET, ModelDrafter(DRAFT_MODEL, 2))
    for prompt in [[3, 4, 4, 4, 3, 4, 4, 4], [0], [2, 2]]:
        assert matches(tokens_of(talk.reply(prompt, 6, stop=[5])))
        if prompt == [0]:
            talk.go_back(0)                             # the next text is shorter than the prompt was
    server = Server(TARGET, ModelDrafter(DRAFT_MODEL, 2), rows=2)
    asked = [server.submit(prompt, max_new_tokens=6, stop=[5], seed=seed) for seed in (1, 2) for prompt in PROMPTS]
    while not all(request.done for request in asked):
        server.step()
    assert all(matches(request.tokens) for request in asked)


def test_a_pattern_that_would_take_minutes_is_refused(monkeypatch):
    """After so many looks at a character."""
    monkeypatch.setattr(grammar, "MOST_LOOKS", 200_000)
    assert grammar_of("(.*1){30}", TOY, 6)
    with pytest.raises(RequestError, match="too large"):
        grammar_of("(.*1){3000}", TOY, 6)


def test_what_is_looked_at_counts_once_for_every_way_that_leads_on(monkeypatch):
    """After n characters `(.?){20}` may be at 20 - n + 1 places, and at each of them the next one is looked up."""
    for looks, taken in (2000, False), (2500, True):
        monkeypatch.setattr(grammar, "MOST_LOOKS", looks)
        with nullcontext() if taken else pytest.raises(RequestError, match="too large"):
            grammar_of("(.?){20}", TOY, 6)
