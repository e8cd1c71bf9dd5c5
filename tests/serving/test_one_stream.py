"""Turns of one conversation and requests of one server are independent of one another, unless somebody asks for one
seed; and what was left is not taken up again.
"""

import copy
import pickle
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.copies.lookup import PromptLookup
from nanospec.methods.index import method_of
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.proof.walk import distance, walk
from nanospec.serving.conversation import CONTEXT, Conversation
from nanospec.serving.server import Server
from nanospec.speculate import ModelDrafter, speculate, tokens_of

TARGET, DRAFT_MODEL, LONG = TableModel(3, 8), TableModel(3, 58), small_gpt(5, 2, 1, context=256)


def both_turns(talk):
    return tuple(tokens_of(talk.reply([1, 2], 1))), tuple(tokens_of(talk.reply([0], 2)))


def test_two_turns_walked_together():
    """The joint law is that of the target, which reads the first answer before the second turn."""
    def right(dice):
        first = list(generate(TARGET, [1, 2], 1, dice=dice))
        return tuple(first), tuple(generate(TARGET, [1, 2, *first, 0], 2, dice=dice))

    found, _ = walk(lambda dice: both_turns(Conversation(TARGET, ModelDrafter(DRAFT_MODEL, 1), dice=dice)))
    assert distance(found, walk(right)[0])[1] < 1e-12


def test_turns_together_from_seeds():
    """Of 200 conversations; two turns of one seed each would be .4 from the law. Noise: about .06; .17 comes three
    times in a million.
    """
    flat, counts = small_gpt(2, 1, 1), np.zeros((2, 2))
    for weight in flat.parameters():
        weight.data *= 0
    for seed in range(200):
        talk = Conversation(flat, ModelDrafter(flat, 1), context=8, seed=seed)
        first, second = (tokens_of(talk.reply([0], 1))[0] for _ in range(2))
        counts[first, second] += 1
    assert abs(counts / 200 - 0.25).sum() / 2 < 0.17


def test_a_turn_that_has_a_seed_says_what_it_said():
    talk = Conversation(TARGET, ModelDrafter(DRAFT_MODEL, 2))
    said = tokens_of(talk.reply([1], 8, seed=5))
    talk.go_back(0)
    assert tokens_of(talk.reply([1], 8, seed=5)) == said
    talk.go_back(0)
    with pytest.raises(RequestError, match="seed"):
        next(talk.reply([1], 8, seed=-1))


def test_requests_without_a_seed_have_one_each():
    server = Server(TARGET, ModelDrafter(DRAFT_MODEL, 2), rows=4, context=64)
    asked = [server.submit([1], max_new_tokens=20) for _ in range(4)]
    given = server.submit([1], max_new_tokens=20, seed=0)
    while not given.done:
        server.step()
    assert len({tuple(request.tokens) for request in (*asked, given)}) == 5


def left(talk):
    list(talk.reply([1], 2))


@pytest.mark.parametrize("other", [left, lambda talk: talk.go_back(1), lambda talk: next(talk.plain_steps(1))])
def test_a_reply_that_was_left_is_not_taken_up_again(other):
    talk = Conversation(TARGET, ModelDrafter(DRAFT_MODEL, 2))
    reply = talk.reply([1, 2], 9)
    next(reply)
    other(talk)
    ids = list(talk.ids)
    with pytest.raises(RequestError, match="gone on without it"):
        list(reply)
    assert talk.ids == ids and tokens_of(talk.reply([2], 3))


def test_requests_of_a_conversation_that_cannot_be_answered():
    talk = Conversation(TARGET, ModelDrafter(DRAFT_MODEL, 2))
    for tokens in (-1, 1):
        with pytest.raises(RequestError, match="does not go back"):
            talk.go_back(tokens)
    most = TARGET.config.context
    for asked, right in (None, most), (1, 1), (7, 7), (2 * most, most):
        assert Conversation(TARGET, ModelDrafter(DRAFT_MODEL, 2), context=asked).context == right
    wide = TableModel(3, 8)
    wide.config = replace(wide.config, context=2 ** 30)         # what a file says, not what is laid out
    assert Conversation(wide, ModelDrafter(DRAFT_MODEL, 2)).context == CONTEXT == 8192
    with pytest.raises(RequestError, match="context of 1 or more"):
        Conversation(TARGET, ModelDrafter(DRAFT_MODEL, 2), context=0)
    with pytest.raises(RequestError, match="the rule must be"):
        next(talk.reply([1], rule="x"))


@pytest.mark.parametrize("call", [
    generate, lambda *of, **more: speculate(of[0], ModelDrafter(DRAFT_MODEL), *of[1:], **more),
    lambda *of, **more: Conversation(TARGET, ModelDrafter(DRAFT_MODEL)).reply(*of[1:], **more)])
def test_settings_of_other_programs_are_refused_in_a_sentence(call):
    with pytest.raises(RequestError, match="a request has no logit_bias: a distribution is made of"):
        next(call(TARGET, [1], 3, logit_bias={}))


def test_a_copy_that_shares_the_cache_is_refused():
    with pytest.raises(RequestError, match="copied by copy.deepcopy"):
        copy.copy(Conversation(TARGET, ModelDrafter(DRAFT_MODEL)))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
@pytest.mark.parametrize("name", ["chain", "hybrid"])
def test_a_copy_goes_on_as_the_original_does(copied, name):
    target, draft_model = small_gpt(4, 2, 9), small_gpt(4, 1, 3)
    talk = Conversation(target, method_of(target, draft_model, name).make(), 64)
    list(talk.reply([1, 2, 3], 5))
    other = copied(talk)
    assert tokens_of(other.reply([1], 9)) == tokens_of(talk.reply([1], 9))
    server = Server(target, method_of(target, draft_model, name).make(), rows=2, context=64)
    asked = [server.submit([1, 2], max_new_tokens=20), server.submit([3], max_new_tokens=9)]
    server.step()
    other, mine = copied((server, asked))
    for its, requests in ((other, mine), (server, asked)):
        while not all(request.done for request in requests):
            its.step()
    assert [request.tokens for request in mine] == [request.tokens for request in asked]


@cache
def in_whole_numbers() -> list[int]:
    return list(generate(LONG, [1, 2, 3] * 34, 100, top_k=3, seed=7))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint64])
def test_whole_numbers_of_few_bits_do_not_overflow(kind):
    """Prompts and lengths whose sum such a number cannot hold."""
    target, ids = LONG, [1, 2, 3] * 34
    plain = in_whole_numbers()
    theirs = [kind(token) for token in ids]
    settings = {"max_new_tokens": kind(100), "top_k": kind(3), "seed": kind(7)}
    assert list(generate(target, theirs, **settings)) == plain
    assert tokens_of(speculate(target, PromptLookup(kind(4)), theirs, **settings)) and len(plain) == 100
    with pytest.raises(RequestError, match="exceed the context of 150"):
        list(generate(small_gpt(5, 2, 1, context=150), theirs, **settings))
    server = Server(target, PromptLookup(kind(4)), rows=kind(2), context=kind(127))
    request = server.submit(theirs[:26], **settings)
    while not request.done:
        server.step()
    talk = Conversation(target, PromptLookup(kind(4)), context=kind(127))
    assert len(request.tokens) == len(tokens_of(talk.reply(theirs[:26], **settings))) == 100


@pytest.mark.filterwarnings("error")
def test_numbers_of_other_libraries():
    def said(**more):
        server = Server(TARGET, ModelDrafter(DRAFT_MODEL, 2), context=64)
        request = server.submit([1, 2], max_new_tokens=8, **more)
        while not request.done:
            server.step()
        return [list(generate(TARGET, [1, 2], 8, **more)), request.tokens,
                tokens_of(speculate(TARGET, ModelDrafter(DRAFT_MODEL, 2), [1, 2], 8, **more))]

    plain = {"temperature": 0.5, "top_k": 2, "top_p": 0.75, "min_p": 0.25, "seed": 3}
    for more in ({"temperature": Fraction(1, 2), "top_p": Fraction(3, 4)}, {"seed": np.int64(3), "top_k": np.int64(2)},
                 {"temperature": np.float32(0.5), "top_p": np.float32(0.75), "min_p": Fraction(1, 4)},
                 {"temperature": np.longdouble(0.5)}):
        assert said(**plain | more) == said(**plain)
