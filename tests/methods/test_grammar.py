"""A grammar: the text has the masked target's distribution, whoever drafts and whatever was thrown away. The truth is
computed here by hand, from the table of the grammar and that of the model; no cache, no wrapper, no rule has a part.
"""

import re
from functools import reduce
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.index import DRAFTERS, method_of
from nanospec.methods.wrappers import grammar
from nanospec.methods.wrappers.expression import Expression
from nanospec.methods.wrappers.grammar import Constrained, Grammar, grammar_of
from nanospec.methods.trees.drawn import TreeDrafter
from nanospec.methods.trees.tree_draft import TreeDraft
from nanospec.probs import probs
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.proof.walk import distance, walk
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from tests.proof import contract
from tests.proof.checks import FULL, FULL_DRAFT_MODEL, GPT4, RULED
from tests.proof.compare import Batch

RULES3 = [[1, -1, 2], [-1, 0, 2], [3, 1, -1], [-1, -1, 0]]              # RULED, of checks.py
FREE = [[0, 0, 1], [2, 1, -1], [-1, 0, 1]]                              # all may follow, until a token 2 opens
RULES4 = Grammar(torch.tensor([[1, -1, 2, 0], [-1, 0, 2, -1], [3, 1, -1, 3], [-1, 0, 0, -1]]))
SMALL = {"gamma": 2, "topology": [-1, 0, 0, 1], "costs": (0.3, {2: 1.1, 3: 1.2})}


def by_hand(model: TableModel, rules: list[list[int]], ids: list[int], new: int, **settings) -> dict:
    """The distribution of `new` tokens, from both tables."""
    found = {(): 1.0}
    for _ in range(new):
        longer = {}
        for tokens, weight in found.items():
            state, text = 0, [*ids, *tokens]
            for token in text:
                state = rules[state][token] if rules[state][token] >= 0 else max(rules[0][token], 0)
            masked = model.logits[model._hash(text)].clone()
            masked[torch.tensor(rules[state]) < 0] = float("-inf")
            longer |= {(*tokens, token): weight * p for token, p in enumerate(probs(masked, **settings).tolist()) if p}
        found = longer
    return found


def off(run, truth: dict, ids: list[int], new: int, **settings) -> float:
    found, _ = walk(lambda dice: tuple(tokens_of(run(ids, max_new_tokens=new, dice=dice, **settings))))
    return distance(found, truth)[0]


PAIR = Constrained(FULL, RULED), Constrained(FULL_DRAFT_MODEL, RULED)


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafter_writes_the_masked_targets_text(name):
    ids, new = [1, 0, 1, 2, 1], 3 if name in ("chain", "lookup", "suffix-tree") else 2
    truth = by_hand(FULL, RULES3, ids, new, temperature=0.7)
    assert off(method_of(*PAIR, name, **SMALL).run, truth, ids, new, temperature=0.7) < 1e-12


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"top_k": 2}, {"temperature": 1.3, "top_p": 0.6},
                                      {"temperature": 0.7, "top_k": 1, "top_p": 0.9}], ids=str)
def test_the_mask_comes_before_temperature_top_k_and_top_p(settings):
    for name in "chain", "tree":
        truth = by_hand(FULL, RULES3, [2, 0, 2], 2, **settings)
        assert off(method_of(*PAIR, name, **SMALL).run, truth, [2, 0, 2], 2, **settings) < 1e-12
    masked = PAIR[0](torch.tensor([[1]]))[0, -1]
    unmasked = FULL(torch.tensor([[1]]))[0, -1]
    assert probs(masked, top_k=1).argmax() != unmasked.argmax() and probs(masked, top_k=1).max() == 1


@pytest.mark.parametrize("rules", [RULES3, FREE], ids=["all of it", "where a token opens"])
def test_the_draft_need_not_be_masked(rules):
    """In the second, a draft token opens what the tokens after it, of the same draft, are bound by."""
    target, truth = Constrained(FULL, Grammar(torch.tensor(rules))), by_hand(FULL, rules, [0, 1], 2, top_k=2)
    mlp = small_learned("mlp", FULL)
    for drafter in (ModelDrafter(FULL_DRAFT_MODEL, 2), TreeDrafter(FULL_DRAFT_MODEL, [-1, 0, 1, 1]),
                    ModelDrafter(mlp, 1)):
        run = lambda ids, **request: speculate(target, drafter, ids, **request)             # noqa: E731
        assert off(run, truth, [0, 1], 2, top_k=2) < 1e-12


@pytest.mark.parametrize("learned", ["early_exit", "eagle3"])
def test_a_learned_draft_model_knows_the_target_without_its_mask(learned):
    """Early exit drafts with the target's own layers, in a cache of its own."""
    target = Constrained(GPT4, RULES4)
    run = method_of(target, small_learned(learned, GPT4), gamma=3).run
    assert tokens_of(run([2, 1], max_new_tokens=12, temperature=0)) == list(generate(target, [2, 1], 12, 0))


def of_the_contract(monkeypatch):
    """What the contract is for, under a grammar."""
    pairs = {"TABLE": FULL, "DRAFT_MODEL": FULL_DRAFT_MODEL}
    for name in "TIED", "TIED_DRAFT_MODEL":
        pairs[name] = TableModel(3, len(name), zeros=0, ties=True)
    for name, table in pairs.items():
        monkeypatch.setattr(contract, name, Constrained(table, RULED))
    for name, seed in ("TABLE4", 3), ("DRAFT_MODEL4", 4):
        monkeypatch.setattr(contract, name, Constrained(TableModel(4, seed, zeros=0), RULES4))
    for name in "GPT4", "GPT_DRAFT_MODEL4", "LONG", "LONG_DRAFT_MODEL", "SHORT", "SHORT_DRAFT_MODEL":
        monkeypatch.setattr(contract, name, Constrained(getattr(contract, name), RULES4))


@pytest.mark.parametrize("part, names", [
    ("batch", ("chain", "tree")), ("same_greedy", ("tree", "suffix-tree")), ("long_caches", ("hybrid",)),
    ("alone", ("chain", "tree", "by-survival"))])
def test_the_contract_holds_under_a_grammar(part, names, monkeypatch):
    """In a batch, in a server with a prompt in pieces and rows that come and go, far into a text."""
    of_the_contract(monkeypatch)
    for name in names:
        _, error, tv = contract.CONTRACT[part](name, "token")
        assert error <= 1e-12 and tv <= 1e-12, name


@pytest.mark.slow
@pytest.mark.parametrize("part", contract.CONTRACT)
def test_the_whole_contract_holds_under_a_grammar(part, monkeypatch):
    of_the_contract(monkeypatch)
    for name, rule in contract.pairs_of(part):
        if " of " not in name:
            _, error, tv = contract.CONTRACT[part](name, rule)
            assert error <= 1e-12 and tv <= 1e-12, (name, rule)


def test_states_move_with_their_slots():
    """The path of a tree lies scattered; once it is kept, the slots of the text hold the states of the text."""
    rules, parents = RULES4.after.tolist(), torch.tensor([[-1, 0, 0, 1, 2, 4]])
    batch = Batch(Constrained(GPT4, RULES4), ModelDrafter(GPT4, 1), [[2, 1, 3]], 20)
    draft = TreeDraft(torch.tensor([[3, 0, 1, 2, 3, 0]]), torch.ones(1, 6, 4), parents)
    batch.cache.length = batch.text.length - 1
    batch.target(draft.tokens, batch.cache, 8, **draft.placing(batch.cache, 8))
    path, count = draft.path(torch.tensor([5]))
    draft.keep(batch.cache, path)
    state, states = 0, []
    for token in [2, 1, 3, 1, 3, 0]:
        state = rules[state][token]
        states.append(state)
    layer = batch.target.layer
    assert batch.cache.v[layer][0, :6, 0, 0].tolist() == states and int(count) == 3
    assert layer == GPT4.config.layers and len(GPT4.new_cache(1, 1).k) == layer


def test_many_states_in_few_bits():
    """601 states, one after the other, in bfloat16, where 257 is 256. No part of the tokens is like another: a state
    that was mistaken for any other one would be seen.
    """
    states, chance = torch.arange(601), torch.Generator().manual_seed(3)
    follows, table = torch.randint(4, (601,), generator=chance), torch.full((601, 4), -1)
    table[states, follows] = (states + 1) % 601
    gpt = small_gpt(4, 1, 1, context=700).bfloat16()
    ids = list(generate(Constrained(gpt, Grammar(table)), [int(follows[0])], 650, 0))
    assert ids == [int(follows[n % 601]) for n in range(1, 651)]


def test_a_constrained_model_shows_the_hidden_states_of_the_model_in_it():
    """Also of a text without a cache."""
    tokens, constrained = torch.tensor([[2, 1, 0, 3, 0]]), Constrained(GPT4, RULES4)
    wanted, hidden = GPT4(tokens, layers=[1, 0])
    state, states = 0, []
    for token in tokens[0].tolist():
        state = int(RULES4.after[state, token])
        states.append(state)
    for cache in None, constrained.new_cache(1, 9):
        logits, found = constrained(tokens, cache, layers=[1, 0])
        assert torch.equal(found, hidden) and torch.equal(logits.isfinite()[0], RULES4.allowed[states])
        assert torch.equal(logits[logits.isfinite()], wanted[logits.isfinite()])


@pytest.mark.parametrize("pattern, letters", [
    ("a(b|c)*d?", "abcd"), ("(a|b)*abb", "ab"), ("a?b?c?|(ab)+c", "abc"), (r"\d\d?(\.\d+)?|-", "1.-"), ("", "a"),
    ("((a|)b*)+", "ab"), (r"[^\]a][\]a]|\\", r"a]\b"), ("(a|b?)+c", "abc"), (".+", "a\n")])
def test_an_expression_matches_what_python_says(pattern, letters):
    expression = Expression(pattern)
    for length in range(6):
        for text in map("".join, product(letters, repeat=length)):
            matches = () in reduce(expression.after, text, expression.begin)
            assert matches == bool(re.fullmatch(pattern, text)), text


# The tokens of a toy: pieces of numbers, a line break, half a character, one of no text, end of text.
PIECES = ["1", "2", "12", ",", "1,", ",1", "\n", "\ufffd", "", "<end>"]
TOY = SimpleNamespace(decode=lambda ids: "".join(PIECES[i] for i in ids), ends={9})


def test_a_token_may_follow_if_its_characters_may():
    grammar = grammar_of(r"\d+(,\d+)?|[^12\n]*2", TOY, 10, opens="\n")
    may = [{PIECES[i] for i in range(10) if allowed[i]} for allowed in grammar.allowed]
    after = grammar.after.tolist()
    state = {0: may[0], 1: may[1]}
    assert state == {0: {*PIECES}, 1: {"1", "2", "12", ",", "1,"}}      # no half character, no end before the pattern's
    number = after[1][0]
    assert may[number] == {"1", "2", "12", ",", "1,", ",1", "<end>"} and after[1][2] == number
    both = after[number][5]
    assert may[both] == {"1", "2", "12", "<end>"}
    assert may[after[both][9]] == {"<end>"} and after[both][6] == 1                      # a new line opens anew
    assert may[after[1][4]] == {"1", "2", "12"} and after[after[1][4]][3] == 0           # a prompt may leave it


def test_json_of_the_pair_that_ships():
    from nanospec.files import load_pair
    target, draft_model, tokenizer = load_pair()
    pattern = r'\{"name": "[A-Z][a-z]+( [A-Z][a-z]+)?", "age": \d\d?, "tags": \[("[a-z]+"(, "[a-z]+")?)?\]\}'
    grammar = grammar_of(pattern, tokenizer, target.config.vocab_size, opens="\n")
    pair = Constrained(target, grammar), Constrained(draft_model, grammar)
    ids = tokenizer.encode("# a user, as JSON:\n")                     # its last token is not the line break alone
    rounds = method_of(*pair, "tree").run(ids, max_new_tokens=80, stop=tokenizer.ends)
    assert re.fullmatch(pattern, tokenizer.decode(tokens_of(rounds)).removesuffix("<|endoftext|>"))


@pytest.mark.parametrize("table, message", [
    ([[0, 0], [-1, -1]], "dead end: in state 1"), ([[2, 0], [0, 1]], "each entry"), ([[-2, 0]], "each entry")])
def test_a_grammar_that_cannot_go_on_is_rejected(table, message):
    with pytest.raises(RequestError, match=message):
        Grammar(torch.tensor(table))


@pytest.mark.parametrize("table", [None, [[0]], torch.tensor([0]), torch.tensor([[0.0]]), torch.zeros(0, 3).long(),
                                   torch.zeros(3, 0).long()], ids=str)
def test_what_is_no_table_is_rejected(table):
    with pytest.raises(RequestError, match="a grammar"):
        Grammar(table)


def test_what_opens_has_nothing_after_it_in_its_token():
    """Of "\\n1" the 1 would not be matched."""
    pieces = ["1", "\n", "\n1", "1\n", "<end>"]
    toy = SimpleNamespace(decode=lambda ids: "".join(pieces[i] for i in ids), ends={4})
    assert grammar_of("1", toy, 5, opens="\n").after[0].tolist() == [0, 1, 0, 1, 0]
    with pytest.raises(RequestError, match="opens the text"):       # the second of the tokens that open can
        grammar_of(r"21\n", SimpleNamespace(decode=lambda ids: ["\n", "1\n", "2", ""][ids[0]], ends={3}), 4, "\n")


def test_any_of_the_ends_may_follow_where_the_pattern_is_through():
    toy = SimpleNamespace(decode=lambda ids: "1<>"[ids[0]], ends={1, 2})
    assert grammar_of("1", toy, 3).allowed[:3].long().tolist() == [[1, 0, 0], [0, 1, 1], [0, 1, 1]]


def test_a_table_that_would_be_too_large_is_refused(monkeypatch):
    """10 tokens, and a state each for 111, 11, 1 and nothing."""
    monkeypatch.setattr(grammar, "MOST_ENTRIES", 40)
    assert grammar_of("111", TOY, 10)
    monkeypatch.setattr(grammar, "MOST_ENTRIES", 39)
    with pytest.raises(RequestError, match="too large for a vocabulary of 10 tokens"):
        grammar_of("111", TOY, 10)


@pytest.mark.parametrize("vocab_size", [-1, 0, max(TOY.ends), 1.5, None, 10 ** 9, 10 ** 4000])
def test_a_vocabulary_is_that_of_the_tokenizer(vocab_size):
    with pytest.raises(RequestError, match="vocab"):
        grammar_of("1", TOY, vocab_size)


@pytest.mark.parametrize("pattern", ["a(b", "a)b", "*a", "a|+", "[b-a]", "["])
def test_what_is_no_expression(pattern):
    with pytest.raises(RequestError, match="the pattern"):
        Expression(pattern)


def test_other_requests_that_cannot_be_answered():
    with pytest.raises(RequestError, match="grammar is of 3 tokens, the model of 4"):
        Constrained(GPT4, RULED)
    with pytest.raises(RequestError, match="must be a language model"):
        Constrained(small_learned("mlp", FULL), RULED)
    with pytest.raises(RequestError, match="opens the text"):
        grammar_of(r"1\n2", TOY, 10, opens="\n")
    for pattern in "1x", r"1[^12,\n]2", r"[^\s\S]":
        with pytest.raises(RequestError, match="matches no text that these tokens spell"):
            grammar_of(pattern, TOY, 10)
    for pattern in "1$2", "2^1":
        with pytest.raises(RequestError, match="no automaton is made of that"):
            grammar_of(pattern, TOY, 10)
    for pattern in "(?:1{5000}){3}", "(?:1{0,999}){99}", "(1|2)*1(1|2){20}":
        with pytest.raises(RequestError, match="too large: an automaton for it has more than 10,000 states"):
            grammar_of(pattern, TOY, 10)
    with pytest.raises(RequestError, match="no token of this tokenizer ends in '12,1'"):
        grammar_of("1", TOY, 10, "12,1")
    with pytest.raises(RequestError, match="opens must be a text, got 3"):
        grammar_of("1", TOY, 10, 3)
