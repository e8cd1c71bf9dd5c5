"""A draft: which node follows which, what a round asks of it, and how `verify` judges a chain that is shorter than
others of its batch. Trees are in tests/methods/test_tree_draft.py.
"""

from collections import OrderedDict
from types import SimpleNamespace

import pytest
import torch

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.errors import MOST_NODES, RequestError, check_gamma, check_ids
from nanospec.generate import generate
from nanospec.proof.tables import small_gpt
from nanospec.speculate import ModelDrafter, speculate, verify

GPT = small_gpt(4, 1, 3)
NESTED = [5]
for _ in range(40):
    NESTED = [NESTED, NESTED]           # to be printed whole it would take for ever


def chains(*lengths, V=5):
    """Chains of these numbers of draft tokens, all drawn from the same distribution."""
    n = 1 + max(lengths)
    exists = (torch.arange(n) <= torch.tensor(lengths)[:, None]) & (torch.arange(n) > 0)
    return Draft(torch.zeros(len(lengths), n, dtype=torch.int64), exists[:, :, None] * torch.full((V,), 1 / V))


def test_the_parents_of_a_chain():
    """Of a node that a text lacks, none: -1, as of node 0."""
    assert chains(3, 1, 0).parents.tolist() == [[-1, 0, 1, 2], [-1, 0, -1, -1], [-1] * 4]
    assert chains(0).parents.tolist() == [[-1]]
    rare = chains(2, V=3)
    rare.q_draft *= 1e-40                                   # little probability is some
    assert rare.parents.tolist() == [[-1, 0, 1]]


def test_a_chains_path_is_its_first_rows():
    path, count = chains(3, 3).path(torch.tensor([0, 3]))
    assert path.tolist() == [[0, 1, 2, 3]] * 2 and count.tolist() == [0, 3]


def test_a_chain_tells_the_target_nothing_and_is_in_its_place_already():
    draft, cache = chains(3, 1), GPT.new_cache(2, 8)
    cache.kv[:] = torch.randn(cache.kv.shape, generator=torch.Generator().manual_seed(0))
    before = cache.kv.clone()
    assert draft.placing(cache, 8) == {}
    draft.keep(cache, draft.path(torch.tensor([2, 1]))[0])
    assert cache.kv.equal(before)


def test_a_row_that_a_text_lacks_holds_the_id_of_any_token_but_no_other_number():
    """Which one changes nothing. -1, as others mark such nodes, is no token: it is loud, and nothing is judged."""
    draft, p_target = chains(2, 1, V=3), torch.full((2, 3, 3), 1 / 3)
    found = []
    for token in range(3):
        draft.tokens[1, 2] = token
        found.append(judged(draft, p_target, .5, .5, .5))
    assert found == [[(2, 1), (1, 1)]] * 3
    draft.tokens[1, 2] = -1
    with pytest.raises(RuntimeError, match="index -1 is out of bounds"):
        judged(draft, p_target, .5, .5, .5)


def judged(draft, p_target, *columns):
    """(accepted, token) of every text, with these uniforms."""
    dice = Dice(range(len(p_target)))
    dice.u = torch.tensor(columns, dtype=torch.float64).expand(len(p_target), -1)
    accepted, token = verify(draft, p_target, dice)
    assert dice.column == len(columns)                      # coins are flipped for missing nodes, too
    return list(zip(accepted.tolist(), token.tolist()))


def test_a_row_that_a_text_lacks_is_never_accepted_and_takes_nothing_from_the_bonus():
    """Three texts of one batch, with drafts of 2, 1 and 0 tokens. Where all of a text's own tokens are accepted, the
    bonus comes from p_target after the last of them, whole.
    """
    draft = Draft(torch.tensor([[9, 0, 0], [9, 0, 1], [9, 1, 1]]), torch.zeros(3, 3, 2))
    draft.q_draft[0, 1:] = draft.q_draft[1, 1] = torch.tensor([0.8, 0.2])
    p_target = torch.tensor([[[0.4, 0.6]] * 3] * 3)         # a coin of 0.5 for each token 0
    assert judged(draft, p_target, 0.0, 0.0, 0.39) == [(2, 0), (1, 0), (0, 0)]
    assert judged(draft, p_target, 0.0, 0.0, 0.41) == [(2, 1), (1, 1), (0, 1)]
    assert judged(draft, p_target, 0.0, 0.51, 0.39) == [(1, 1), (1, 0), (0, 0)]     # the first is rejected: residual
    assert judged(draft, p_target, 0.51, 0.0, 0.39) == [(0, 1), (0, 1), (0, 0)]


@pytest.mark.parametrize("gamma", [0, -1, MOST_NODES])
def test_a_draft_of_no_tokens_or_of_too_many_is_refused_before_anything_is_laid_out(gamma):
    with pytest.raises(RequestError, match=f"gamma must be at least 1 and at most 4095, got {gamma}"):
        ModelDrafter(GPT, gamma)


HUGE = 10 ** 5000       # Python itself refuses to write so many digits down


@pytest.mark.parametrize("call", [
    lambda: ModelDrafter(GPT, HUGE), lambda: [*generate(GPT, [1], 2, seed=HUGE)],
    lambda: [*generate(GPT, [1], 2, temperature=HUGE)], lambda: [*generate(GPT, [1], 2, top_k=-HUGE)],
    lambda: [*generate(GPT, [1], 2, top_p=HUGE)], lambda: [*generate(GPT, [1], 2, min_p=HUGE)],
    lambda: [*generate(GPT, [1], HUGE)],
    lambda: [*generate(GPT, range(10 ** 12), 2)], lambda: [*generate(GPT, [1], 2, stop=range(10 ** 12))],
    lambda: [*generate(GPT, [1], -HUGE)], lambda: [*generate(GPT, HUGE, 2)]])
def test_a_number_that_cannot_be_shown_is_refused_all_the_same(call):
    with pytest.raises(RequestError, match="a int|a list of token ids|more than 16,777,216 tokens"):
        call()


def test_a_list_of_ids_has_an_end(monkeypatch):
    monkeypatch.setattr("nanospec.errors.MOST_IDS", 3)
    check_ids("a text", [7, 5, 8])
    with pytest.raises(RequestError, match="a text has more than 3 tokens"):
        check_ids("a text", [7, 5, 8, 6])


def test_as_many_rows_as_may_be_and_a_draft_longer_than_the_context():
    assert check_gamma(MOST_NODES - 1, "gamma") == MOST_NODES - 1
    for gamma in (96, 4000):
        with pytest.raises(RequestError, match=f"of up to {gamma} tokens exceeds the context of 96"):
            next(speculate(GPT, ModelDrafter(GPT, gamma), [1], 10))
    assert sum(len(done.emitted) for done in speculate(GPT, ModelDrafter(GPT, 95), [1], 95)) == 95


@pytest.mark.parametrize("call, words", [
    (lambda: ModelDrafter(None), "draft model must be a language model"),
    (lambda: ModelDrafter(GPT, "4"), "gamma must be a whole number, got '4'"),
    (lambda: next(speculate(None, ModelDrafter(GPT), [1])), "target must be a language model"),
    (lambda: next(speculate(None, SimpleNamespace(propose=0, size=2, layers=[1]), [1])), "target must be a language"),
    (lambda: next(generate(None, [1])), "target must be a language model"),
    (lambda: next(speculate(GPT, ModelDrafter, [1])), "the drafter must be a drafter"),
    (lambda: next(speculate(GPT, SimpleNamespace(propose=0), [1])), "the drafter must be a drafter"),
    (lambda: next(speculate(GPT, SimpleNamespace(propose=0, most=1, layers=()), [1])), "the drafter must be a drafter"),
    (lambda: next(speculate(GPT, ModelDrafter(GPT), [1], 9, rule="block")), "rule must be a function, got 'block'"),
    (lambda: next(speculate(GPT, ModelDrafter(GPT), [1], 9, compiler=1)), "compiler must be a function, got 1"),
    (lambda: next(generate(GPT, [1], 9, compiler="it")), "compiler must be a function, got 'it'"),
    (lambda: next(speculate(GPT, ModelDrafter(GPT), [1], 9, dice=6)), "dice must be Dice, got 6"),
    (lambda: next(speculate(GPT, ModelDrafter(GPT), [1], 9, stop=5)), "stop must be a list of token ids"),
    (lambda: next(speculate(GPT, ModelDrafter(GPT), "text", 9)), "prompt must be a list of token ids"),
    (lambda: next(generate(GPT, "")), "prompt must be a list of token ids, got ''"),
    (lambda: next(generate(GPT, [1], stop="")), "stop must be a list of token ids, got ''"),
    (lambda: next(generate(GPT, range(10 ** 30))), "the prompt has more than 16,777,216 tokens"),
    (lambda: next(generate(GPT, [1], temperature=2 ** 1024 - 1)), "temperature must be finite, 0 or more"),
    (lambda: next(generate(GPT, [1], temperature=OrderedDict(a=NESTED))), r"number, got \{'a': \[\[\[\.\.\.\], \["),
    (lambda: next(speculate(GPT, ModelDrafter(GPT), [1], 9, temperature="1")), "temperature must be a number, got '1'"),
    (lambda: next(speculate(GPT, ModelDrafter(GPT), [1], 9, temperature=10 ** 400)), "temperature must be finite, 0"),
    (lambda: next(speculate(GPT, ModelDrafter(GPT), [1], 9, top_k=1.5)), "top_k must be a whole number, got 1.5"),
    (lambda: next(speculate(GPT, ModelDrafter(GPT), [1], 9, seed=True)), "seed must be a whole number, got True"),
    (lambda: Draft(torch.zeros(2, 3), torch.zeros(2, 4, 5)), r"got \(2, 3\), \(2, 4, 5\)"),
    (lambda: verify(Draft(torch.zeros(1, 3), torch.zeros(1, 3, 5)), torch.zeros(1, 2, 5), None), "p_target, both"),
])
def test_the_edge_of_the_library_refuses_in_one_sentence(call, words):
    """A ValueError, and RequestError is one: a wrong type, value or shape, before any work is done."""
    with pytest.raises(ValueError, match=words) as raised:
        call()
    assert "\n" not in str(raised.value)
