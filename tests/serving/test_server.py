"""The server as its users see it. What comes of requests that join and leave at any time: test_random_schedules.py.
That what it writes is exact: "served" in tests/proof/checks.py, and `alone` in tests/proof/contract.py for every
drafter and rule.
"""

import pytest
import torch

from nanospec.cache import Cache
from nanospec.errors import LogitsError, RequestError
from nanospec.generate import generate
from nanospec.model import GPT, Config
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.serving.conversation import Conversation
from nanospec.serving.request import PIECE
from nanospec.serving.server import CONTEXT, Server, ServerError
from nanospec.speculate import ModelDrafter, speculate, tokens_of, verify

TARGET, DRAFT_MODEL = small_gpt(5, 2, 1), small_gpt(5, 1, 2)


def server_of(rows: int = 2, gamma: int = 3, target=TARGET) -> Server:
    return Server(target, ModelDrafter(DRAFT_MODEL, gamma), rows)


def served(server: Server, *requests) -> None:
    while not all(request.done for request in requests):
        server.step()


def alone(ids, **settings) -> list[int]:
    return tokens_of(speculate(TARGET, ModelDrafter(DRAFT_MODEL, 3), ids, **settings))


def test_no_two_requests_are_given_one_seed():
    """Whenever they come: while others wait, write, or are done; among those that ask for one of their own."""
    server, given = server_of(2), []
    for number in range(9):
        asked = {"seed": 4} if number == 5 else {}
        given.append(server.submit([1, number % 5], max_new_tokens=1 + number % 3, **asked))
        for _ in range(number % 3):
            server.step()
    assert given[5].seed == 4 and len({request.seed for request in given}) == 9


def test_a_prompt_stays_as_it_was_submitted():
    """Whatever its owner does with the list while it waits."""
    server, mine = server_of(1), [1, 2, 3]
    first, waits = (server.submit(mine, max_new_tokens=5, seed=seed) for seed in (1, 2))
    mine += [4] * 9
    served(server, first, waits)
    assert waits.ids == [1, 2, 3] and waits.tokens == alone([1, 2, 3], max_new_tokens=5, seed=2)


def test_the_docstring_s_example():
    server = server_of(8)
    request = server.submit([1, 2, 3], max_new_tokens=20, temperature=0.8, seed=1)
    while not request.done:
        server.step()
    assert request.tokens == alone([1, 2, 3], max_new_tokens=20, temperature=0.8, seed=1) and request.error is None


def test_of_a_prompt_no_logits_are_computed(monkeypatch):
    """But those after its last token, which its first round reads."""
    asked, call = [], type(TARGET).forward

    def heard(model, tokens, *its, **more):
        asked.append((tokens.shape[1], more.get("scored")))
        return call(model, tokens, *its, **more)

    server = server_of()
    monkeypatch.setattr(type(TARGET), "forward", lambda model, *its, **more: (
        heard if model is TARGET else call)(model, *its, **more))
    served(server, server.submit([1, 2] * 40, max_new_tokens=3))
    assert asked[:2] == [(PIECE, 0), (79 - PIECE, 0)] and {scored for _, scored in asked[2:]} == {None}


def test_who_writes_is_not_stalled_by_a_long_prompt():
    """Every step brings it a token at least, while the other's prompt is read."""
    server = server_of()
    writer = server.submit([1], max_new_tokens=40)
    server.step()
    reader, steps = server.submit([1, 2] * 45, max_new_tokens=1), 0
    while not reader.tokens:
        before = len(writer.tokens)
        server.step()
        assert writer.done or len(writer.tokens) > before
        steps += 1
    assert steps == -(-89 // PIECE)


@pytest.mark.parametrize("ids, settings, what", [
    ([], {}, "prompt is empty"), ([7], {}, "outside 0..4"), ([1], {"max_new_tokens": 200}, "context of 96"),
    ([1], {"temperature": -1}, "temperature"), ([1], {"top_k": 0}, "top_k"), ([1], {"min_p": 2}, "min_p"),
    ([1], {"seed": 2 ** 70}, "32 bits"), (range(10 ** 30), {}, "has more than"), (range(97), {}, "97 prompt tokens"),
    ("ab", {}, "must be a list of token ids"), (None, {}, "must be a list of token ids"),
    ([1], {"typical_p": 0.1, "logit_bias": {}}, "no logit_bias, typical_p: .* top_k, top_p and min_p alone"),
    ([1], {"tokens": [2]}, "no tokens")])
def test_a_request_that_cannot_be_answered_is_refused_at_once(ids, settings, what):
    server = server_of()
    with pytest.raises(RequestError, match=what):
        server.submit(ids, **{"max_new_tokens": 9} | settings)
    assert not server.waiting


def test_slots_are_for_the_texts_that_may_come_and_not_for_all_that_the_target_could_read():
    target = small_gpt(5, 1, 1, context=10_000)
    server = Server(target, ModelDrafter(target, 3))
    assert server.cache.kv.shape[3] < 2 * CONTEXT and (server.context, server.rows) == (4096, 8)
    server = Server(target, ModelDrafter(target, 3), context=30)
    request = server.submit([1] * 20, max_new_tokens=10, temperature=0)
    with pytest.raises(RequestError, match="21 prompt tokens and 10 new ones .* context of 30: .*context="):
        server.submit([1] * 21, max_new_tokens=10)
    assert server.submit([1] * 30, max_new_tokens=0).tokens == []
    with pytest.raises(RequestError, match="31 prompt tokens exceed this server's context of 30"):
        server.submit([1] * 31, max_new_tokens=0)
    served(server, request)
    assert request.tokens == list(generate(target, [1] * 20, 10, 0)) and server.cache.kv.shape[3] <= 128
    for context, right in (10 ** 9, 96), (1, 1):
        assert Server(TARGET, ModelDrafter(DRAFT_MODEL, 3), context=context).context == right
    for context, words in (0, "a context"), ("9", "context must be"), (None, "context must be"):
        with pytest.raises(RequestError, match=words):
            Server(TARGET, ModelDrafter(DRAFT_MODEL, 3), context=context)


def test_a_server_without_rows_is_refused():
    with pytest.raises(RequestError, match="a server has rows"):
        server_of(rows=0)


def test_who_waits_comes_in_turn_and_who_was_cancelled_does_not():
    server = server_of(rows=2)
    asked = [server.submit([1], max_new_tokens=4) for _ in range(5)]
    server.cancel(asked[3])
    served(server, *asked)
    assert [len(request.tokens) for request in asked] == [4, 4, 4, 0, 4]


class Poisoned(torch.nn.Module):
    """A model whose logits are NaN wherever token 4 is read. lengths: of the texts that its calls could see."""

    def __init__(self, model=TARGET):
        super().__init__()
        self.model, self.lengths = model, []
        self.config, self.device, self.dtype = model.config, model.device, model.dtype

    def new_cache(self, rows: int, slots: int) -> Cache:
        return self.model.new_cache(rows, slots)

    def forward(self, tokens, cache=None, kv_length=None, **how):
        self.lengths.append(kv_length)
        logits = self.model(tokens, cache, kv_length, **how)
        return logits.masked_fill((tokens == 4)[:, tokens.shape[1] - logits.shape[1]:, None], float("nan"))


def test_as_many_prompts_are_read_as_rows_have_become_free():
    """Six requests for a token each, three at once: two steps."""
    server = server_of(3)
    requests = [server.submit([1, token], max_new_tokens=1) for token in (0, 1, 2, 3, 4, 0)]
    server.step()
    server.step()
    assert all(request.done for request in requests)


def test_a_request_fails_alone_and_its_row_serves_the_next():
    server = server_of(rows=2, target=Poisoned())
    bad, good = server.submit([1, 4], max_new_tokens=9), server.submit([1], max_new_tokens=9, top_k=1)
    later = server.submit([2], max_new_tokens=5, top_k=1)
    served(server, bad, good, later)
    assert isinstance(bad.error, LogitsError) and "NaN" in str(bad.error) and not bad.tokens
    assert good.error is None or 4 in good.tokens
    assert later.error is None or 4 in later.tokens
    server.cancel(bad)                                  # too late: it stays a request that has failed
    assert isinstance(bad.error, LogitsError)


def test_a_draft_that_is_no_number_is_a_fault_of_its_request_alone():
    server = Server(TARGET, ModelDrafter(Poisoned(DRAFT_MODEL), 3), 2)
    bad, good = server.submit([1, 4], max_new_tokens=9), server.submit([1], max_new_tokens=1, top_k=1)
    served(server, bad, good)
    assert isinstance(bad.error, LogitsError) and not bad.tokens and good.error is None and len(good.tokens) == 1


def test_no_call_looks_at_more_slots_than_the_longest_text_needs():
    """Its tokens, and the draft's; others' room is not read."""
    target = Poisoned()
    server = Server(target, ModelDrafter(DRAFT_MODEL, 3), 2)
    server.submit([1, 2, 3], max_new_tokens=80, temperature=0), server.submit([1], max_new_tokens=80, temperature=0)
    server.step()                                       # the prompts
    for _ in range(5):
        longest = max(server.length)
        server.step()
        assert target.lengths[-1] == longest + 3


def test_the_users_rule_comes_before_the_drafters():
    """In a server, a conversation and `speculate`."""
    def rule(draft, p_target, dice):
        asked.append(draft.tokens.shape[0])
        return verify(draft, p_target, dice)

    def others(draft, p_target, dice):
        raise AssertionError("not asked")

    def serve(drafter):
        server = Server(TARGET, drafter, 2, rule=rule)
        served(server, server.submit([1], max_new_tokens=4))

    for run in (serve,
                lambda drafter: list(speculate(TARGET, drafter, [1], 4, rule=rule)),
                lambda drafter: list(Conversation(TARGET, drafter).reply([1], 4, rule=rule))):
        asked, drafter = [], ModelDrafter(DRAFT_MODEL, 3)
        drafter.rule = others
        run(drafter)
        assert asked and set(asked) == {1}


def test_the_prompt_of_the_next_is_read_while_all_rows_write():
    """And of no other, for which those that write would have to wait."""
    server = server_of(rows=2)
    for ids, new in ([1], 40), ([2], 40), ([1, 2] * 40, 1), ([2, 1] * 40, 1):
        server.submit(ids, max_new_tokens=new)
    server.step()
    server.step()
    assert [prompt.length for prompt in server.waiting] == [PIECE, 0]


def test_a_request_for_nothing_is_done_at_once():
    """A target that is broken has no part in it."""
    server = server_of(target=Poisoned())
    request = server.submit([1, 4], max_new_tokens=0)
    assert request.done and request.error is None and not request.tokens
    server.step()
    assert request.error is None and not server.running


def test_hidden_states_have_the_target_s_type():
    """Of a prompt of one token there are none, and none must not be of another type than some."""
    target = small_gpt(5, 2, 1).to(torch.bfloat16)
    draft_model = small_learned("eagle", TARGET)
    again = type(draft_model)(**draft_model.sizes).to(torch.bfloat16).attach(target)
    server, read = Server(target, ModelDrafter(again, 2), 1), []
    begins = server.drafter.read
    server.drafter.read = lambda text, rows, hidden: (read.append(hidden.dtype), begins(text, rows, hidden))
    requests = [server.submit(ids, max_new_tokens=2) for ids in ([1], [1, 2, 3])]
    served(server, *requests)
    assert {*read} == {torch.bfloat16} and all(request.error is None for request in requests)


def test_an_exception_ends_the_server_and_what_was_done_stays():
    """A drafter that breaks while it reads the third prompt; more of this in test_faults.py."""
    server = server_of(rows=2)
    read, breaks = server.drafter.read, ValueError("broken")

    def reads(text, rows, hidden):
        if text.tokens[rows[0], 0] == 3:
            raise breaks
        read(text, rows, hidden)

    server.drafter.read = reads
    done, running = server.submit([1], max_new_tokens=2, seed=1), server.submit([2], max_new_tokens=30, seed=2)
    third, fourth = server.submit([3], max_new_tokens=2), server.submit([4], max_new_tokens=2)
    with pytest.raises(ValueError, match="broken"):
        served(server, done, running, third, fourth)
    assert done.tokens == alone([1], max_new_tokens=2, seed=1) and done.error is None
    for lost in running, third, fourth:
        assert lost.done and lost.error.__cause__ is breaks
    assert running.tokens and running.tokens == alone([2], max_new_tokens=30, seed=2)[:len(running.tokens)]
    for refused in server.step, lambda: server.submit([1]):
        with pytest.raises(ServerError, match=r"with ValueError\('broken'\): go on with another"):
            refused()


def test_what_a_row_has_kept_is_no_longer_there_when_it_is_free():
    """NaN shines through every mask, so a cache is cleared for the next text."""
    cache = TARGET.new_cache(2, 8)
    cache.kv.fill_(float("nan"))
    cache.put([1], TARGET.new_cache(1, 3))
    assert not cache.kv[:, :, 1].any() and cache.kv[:, :, 0].isnan().all()


@pytest.mark.parametrize("parts, words", [
    (["target"], "the target"), ([TARGET, "drafter"], "the drafter"), ([TARGET, None, 1, "rule"], "the rule"),
    ([TARGET, None, 1, None, 7], "dice")])
def test_what_is_no_part_of_a_server_is_named(parts, words):
    parts += [None] * (2 - len(parts))
    parts[1] = parts[1] or ModelDrafter(DRAFT_MODEL, 3)
    with pytest.raises(RequestError, match=f"{words} must be"):
        Server(*parts)


def test_a_drafter_that_cannot_draft_for_this_target_is_refused():
    with pytest.raises(RequestError, match="vocabulary"):
        Server(TARGET, ModelDrafter(small_gpt(7, 1, 1)))
    with pytest.raises(RequestError, match="vocabulary|channels"):
        Server(TARGET, ModelDrafter(small_learned("mlp", small_gpt(7, 2, 1))))
    wider = GPT(Config(5, 96, 2, 32, heads=2, kv_heads=1, hidden=24)).double()
    with pytest.raises(RequestError, match="hidden states of 32 channels, the target's have 16"):
        Server(TARGET, ModelDrafter(small_learned("mlp", wider)))
