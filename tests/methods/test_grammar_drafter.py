"""Drafting under a grammar: the mask for any draft model, and forced tokens without one."""

from types import SimpleNamespace

import pytest
import torch

from nanospec.dice import Dice
from nanospec.errors import RequestError
from nanospec.methods.index import DRAFTERS, Entry
from nanospec.methods.lengths.by_load import nothing_drafted
from nanospec.methods.wrappers.grammar import Constrained, Grammar, grammar_of
from nanospec.methods.wrappers.grammar_drafter import GrammarDrafter
from nanospec.probs import Sampling
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.serving.server import Server
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from nanospec.text import Text
from tests.methods import test_grammar
from tests.proof import contract
from tests.proof.checks import FULL, GPT4, GPT_DRAFT_MODEL4, RULED
from tests.proof.compare import caches, prompts_of, ragged, rounds

# Two of its four states force a token, one after the other.
FORCING = Grammar(torch.tensor([[1, -1, 2, 0], [-1, 3, -1, -1], [3, 1, -1, 3], [-1, -1, 0, -1]]))
# After token 0 come 1, 2 and 3, whatever anybody thinks, and then 0 or 1.
STEPS = Grammar(torch.tensor([[1, -1, -1, -1], [-1, 2, -1, -1], [-1, -1, 3, -1], [-1, -1, -1, 4], [1, 4, -1, -1]]))


@pytest.mark.parametrize("part", ["exact", "batch", "settings", "same_greedy", "stops", "uniforms", "long_caches",
                                  "alone", "second_request", "shrinking_text", "foreign_vocabulary"])
def test_the_contract_holds(part, monkeypatch):
    monkeypatch.setattr(test_grammar, "RULES4", FORCING)
    test_grammar.of_the_contract(monkeypatch)
    monkeypatch.setattr(contract, "BY_COMPANY", contract.BY_COMPANY | {"forced"})
    monkeypatch.setitem(DRAFTERS, "forced", Entry(GrammarDrafter, lambda model, o: GrammarDrafter(
        model, RULED if model.config.vocab_size == 3 else FORCING, o.gamma, o.gamma + 2)))
    _, error, tv = contract.CONTRACT[part]("forced", "token")
    assert error <= 1e-12 and tv <= 1e-12


def test_what_was_forced_is_read_before_the_draft_model_is_asked_again():
    """In short drafts, which are often accepted to their end: q_draft of every token against a recomputed one."""
    target, alone = Constrained(GPT4, FORCING), Constrained(GPT_DRAFT_MODEL4, FORCING)
    for gamma, most in (1, 3), (2, 2), (2, 5):
        drafter = GrammarDrafter(GPT_DRAFT_MODEL4, FORCING, gamma, most)
        _, error, tv = caches(target, alone, drafter, prompts_of(4, 3, 5), 40, temperature=0.7)
        assert error <= 1e-12 and tv <= 1e-12


def test_after_rounds_without_a_draft_it_still_knows_where_the_grammar_is():
    """As behind a gate. Every token is forced, so every draft token is accepted."""
    forced = Grammar(torch.tensor(
        [[-1, 1, -1, -1], [-1, -1, -1, 2], [3, -1, -1, -1], [-1, -1, 4, -1], [0, -1, -1, -1]]))

    class Seldom(GrammarDrafter):
        rounds = 0

        def propose(self, text, *its, **more):
            self.rounds += 1
            return nothing_drafted(text) if self.rounds % 4 in (1, 2) else super().propose(text, *its, **more)

    drafter, drafted = Seldom(GPT_DRAFT_MODEL4, forced, 1, 3), []
    for done in speculate(Constrained(GPT4, forced), drafter, [1, 3, 0], 40, seed=2):
        assert len(done.path) == len(done.tokens) - 1
        drafted.append(len(done.path))
    assert set(drafted) == {0, 3}


def test_nothing_is_drafted_after_the_end():
    """Two tokens and the end, all forced. The end would be forced again, for ever; a text that goes on has it alone."""
    pieces = SimpleNamespace(decode=lambda ids: "".join("ab.\ufffd"[i] for i in ids), ends={3})
    grammar = grammar_of("ba", pieces, 4)
    done = list(speculate(Constrained(GPT4, grammar), GrammarDrafter(GPT_DRAFT_MODEL4, grammar, 1, 9), [2, 0], 5))
    assert done[0].tokens == [0, 1, 0, 3] and done[0].emitted[:3] == [1, 0, 3]


@pytest.mark.parametrize("learned", ["mlp", "eagle", "medusa"])
def test_a_learned_draft_model_gets_the_mask(learned):
    """Exact, in a batch too, and it drafts nothing that may not follow. The target need not have the grammar."""
    drafter = GrammarDrafter(small_learned(learned, FULL), RULED, 1, 3)
    for target in Constrained(FULL, RULED), FULL:
        _, error, tv = rounds(target, lambda ids, **its: speculate(target, drafter, ids, **its), [1, 0, 1], 2, top_k=2)
        assert error <= 1e-12 and tv <= 1e-12
    target = Constrained(FULL, RULED)
    _, error, tv = ragged(target, drafter, [[1, 2], [0, 2, 1, 1]], 2, settings=[{"temperature": 0}, {"top_k": 2}])
    assert error <= 1e-12 and tv <= 1e-12
    state = 0
    for token in [0, 2, 0]:
        state = int(RULED.after[state, token])
    for done in speculate(target, drafter, [0, 2, 0], 20, seed=3):
        here = state
        for token in done.tokens[1:]:
            assert RULED.allowed[here, token]
            here = int(RULED.after[here, token])
        for token in done.emitted:
            state = int(RULED.after[state, token])


@pytest.mark.parametrize("draft_model", [GPT_DRAFT_MODEL4, small_learned("mlp", GPT4)], ids=["a GPT", "a learned one"])
def test_forced_tokens_cost_no_call_of_the_draft_model(draft_model):
    """After 0 all of 1, 2, 3 is drafted for nothing and accepted. Then the draft model is asked, once."""
    target = Constrained(GPT4, STEPS)
    drafter = GrammarDrafter(draft_model, STEPS, 1, 3)
    first, second, *_ = speculate(target, drafter, [0], 8, seed=1)
    assert first.tokens == [0, 1, 2, 3] and first.path == [1, 2, 3] and first.steps == 0
    assert first.q_draft[1:].tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert second.steps == (second.tokens[0] != 0)
    plain = list(speculate(target, ModelDrafter(draft_model, 3), [0], 8, temperature=0))
    ours = list(speculate(target, GrammarDrafter(draft_model, STEPS, 3, 3), [0], 8, temperature=0))
    assert sum(done.steps for done in ours) < sum(done.steps for done in plain) == 3 * len(plain)


@pytest.mark.parametrize("draft_model, steps", [(GPT_DRAFT_MODEL4, 3), (small_learned("mlp", GPT4), 4)],
                         ids=["a GPT", "a learned one"])
def test_forced_tokens_are_read_in_one_call_if_that_can_be(draft_model, steps):
    """The text is a call, both forced tokens are one or two, and the third token is one. Two are asked for then."""
    grammar = Grammar(torch.tensor([[1, -1, -1, -1], [-1, 2, -1, -1], [-1, -1, 3, -1], [-1, 3, 3, -1]]))
    first, *_ = speculate(Constrained(GPT4, grammar), GrammarDrafter(draft_model, grammar, 2, 9), [0], 8, seed=1)
    assert first.tokens[:3] == [0, 1, 2] and (len(first.tokens), first.steps) == (5, steps)


def test_what_cannot_be_drafted():
    with pytest.raises(RequestError, match="the grammar is of 3 tokens, the target of 4"):
        list(speculate(GPT4, GrammarDrafter(GPT_DRAFT_MODEL4, RULED), [1], 3))
    with pytest.raises(RequestError, match="vocabulary"):
        list(speculate(GPT4, GrammarDrafter(small_gpt(7, 1, 1), FORCING), [1], 3))
    with pytest.raises(RequestError, match="most must be at least 1"):
        GrammarDrafter(GPT_DRAFT_MODEL4, FORCING, 4, 0)


def test_who_takes_a_row_over_begins_where_its_prompt_does():
    """In as many rounds as if nobody had been there. A pattern begins after the prompt, whatever stands there."""
    grammar = Grammar(STEPS.after.where(STEPS.allowed, -1), at_once=True)
    target = Constrained(GPT4, grammar)

    def new():
        return GrammarDrafter(GPT_DRAFT_MODEL4, grammar, 3, 3)

    server = Server(target, new(), rows=1)
    for prompt in [3], [3, 3, 1], [0], [2, 2, 2, 0]:
        request, steps = server.submit(prompt, max_new_tokens=7, temperature=0), 0
        while not request.done:
            server.step()
            steps += 1
        rounds = list(speculate(target, new(), prompt, 7, temperature=0))
        assert (request.tokens, steps) == (tokens_of(rounds), len(rounds)), prompt


def test_what_any_text_of_a_batch_has_missed_is_read(monkeypatch):
    """The second one has gone on without the draft model, the first one has not."""
    drafter = GrammarDrafter(GPT_DRAFT_MODEL4, FORCING, 2, 4)
    text = Text([[1, 3, 0], [1, 3, 0, 0, 2, 1, 3, 0]], 20, 4)
    drafter.begin(text)
    drafter.read(text, [0, 1], None)
    drafter.read_to = torch.tensor([2, 1])
    read, start = [], drafter.reader.start
    monkeypatch.setattr(drafter.reader, "start", lambda text, lag, kv_length: read.append(lag) or start(
        text, lag, kv_length))
    dice = Dice([1, 2])
    dice.refill(drafter.uniforms + drafter.most + 1)
    drafter.propose(text, Sampling(1.0), dice, 20, 1)
    assert read == [7] and drafter.read_to.tolist() == drafter.known.tolist() == [3, 8]
