"""Token recycling: which tokens it drafts. That it is lossless: contract.py, by its name."""

import pytest
import torch

from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.methods.copies.token_recycling import TokenRecycling
from nanospec.methods.trees.tree_draft import of_text
from nanospec.proof.tables import small_gpt
from nanospec.speculate import speculate, tokens_of
from nanospec.text import Text

TOPOLOGY = [-1, 0, 0, 1, 1, 2]


def answers(*likeliest: tuple[int, int]) -> torch.Tensor:
    """Logits (1, n, 6): after each node these two are the likeliest."""
    logits = torch.zeros(1, len(likeliest), 6)
    for node, (first, second) in enumerate(likeliest):
        logits[0, node, first], logits[0, node, second] = 2.0, 1.0
    return logits


def told(drafter: TokenRecycling, text: Text, logits: torch.Tensor) -> None:
    """A round at temperature 0 in which the draft is answered so, and nothing is accepted."""
    draft = drafter.propose(text, None, None, 0)
    drafter.commit(draft, *draft.path(torch.tensor([0])), torch.eye(6)[logits.argmax(-1)], None, logits)


def begun(*prompts: list[int]) -> tuple[TokenRecycling, Text]:
    drafter, text = TokenRecycling(TOPOLOGY), Text(prompts, 20, 6)
    drafter.begin(text)
    drafter.read(text, range(len(prompts)), None)
    return drafter, text


def test_what_the_target_held_likely_after_a_token_is_drafted_when_the_token_comes_again():
    """the = 0, cat = 1, dog = 2, sat = 3, ran = 4. Of 2 only the first follower is asked for."""
    drafter, text = begun([5, 0])
    assert of_text(drafter.propose(text, None, None, 0), 0)[0] == [0]                   # nothing is known
    told(drafter, text, answers((1, 2)))
    assert of_text(drafter.propose(text, None, None, 0), 0)[:2] == ([0, 1, 2], [-1, 0, 0])
    told(drafter, text, answers((1, 2), (3, 4), (4, 3)))                                # 1 and 2 are rejected, and read
    assert of_text(drafter.propose(text, None, None, 0), 0)[:2] == ([0, 1, 2, 3, 4, 4], TOPOLOGY)
    text.commit(torch.tensor([[2]]), 1)
    tokens, parents, q_draft = of_text(drafter.propose(text, None, None, 0), 0)
    assert (tokens, parents) == ([2, 4, 3], [-1, 0, 0]) and q_draft.tolist() == torch.eye(6)[[2, 4, 3]].mul(
        torch.tensor([[0.0], [1], [1]])).tolist()
    told(drafter, text, answers((5, 4), (5, 4), (5, 4)))
    assert drafter.likeliest[0] == {0: [1, 2], 1: [3, 4], 2: [5, 4], 3: [5, 4], 4: [5, 4]}  # nothing is forgotten


def test_a_tree_that_is_widest_below_its_root_knows_enough_followers():
    """Node 1 has three children, the root has one."""
    drafter, text = TokenRecycling([-1, 0, 1, 1, 1]), Text([[0]], 20, 6)
    drafter.begin(text)
    drafter.read(text, [0], None)
    told(drafter, text, torch.tensor([[[0., 9, 0, 0, 0, 0]]]))
    told(drafter, text, torch.tensor([[[0., 9, 0, 0, 0, 0], [0, 0, 9, 8, 7, 0]]]))
    assert of_text(drafter.propose(text, None, None, 0), 0)[:2] == ([0, 1, 2, 3, 4], [-1, 0, 1, 1, 1])


def test_the_newest_answer_stands_and_every_text_has_a_table_of_its_own():
    drafter, text = begun([0], [1])
    logits = torch.cat([answers((1, 2)), answers((3, 4))])
    draft = drafter.propose(text, None, None, 0)
    drafter.commit(draft, *draft.path(torch.tensor([0, 0])), logits.softmax(-1), None, logits)
    assert drafter.likeliest == {0: {0: [1, 2]}, 1: {1: [3, 4]}}
    draft = drafter.propose(text, None, None, 0)
    logits = torch.cat([answers((5, 1), (0, 1), (0, 1)), answers((3, 5), (0, 1), (0, 1))])
    drafter.commit(draft, *draft.path(torch.tensor([0, 0])), logits.softmax(-1), None, logits)
    assert drafter.likeliest[0] == {0: [5, 1], 1: [0, 1], 2: [0, 1]} and drafter.likeliest[1][1] == [3, 5]
    drafter.read(text, [0], None)
    assert drafter.likeliest[0] == {} and drafter.likeliest[1]                          # a new request in row 0


def test_a_row_that_a_text_lacks_teaches_nothing():
    drafter, text = begun([0], [1])
    drafter.likeliest[0] = {0: [1, 2]}
    draft = drafter.propose(text, None, None, 0)                    # text 1 has node 0 alone, the others are padding
    logits = torch.cat([answers((1, 2), (3, 4), (4, 3)), answers((3, 4), (5, 4), (5, 4))])
    drafter.commit(draft, *draft.path(torch.tensor([0, 0])), logits.softmax(-1), None, logits)
    assert drafter.likeliest[1] == {1: [3, 4]}


def test_at_temperature_0_there_are_runners_up_and_it_drafts_more_than_a_chain():
    """p_target is one-hot there. The tree has second children all the same, and some are accepted."""
    target = small_gpt(5, 2, 1)
    rounds = list(speculate(target, TokenRecycling([-1, 0, 0, 1, 1]), [1, 2], 60, temperature=0))
    assert tokens_of(rounds) == list(generate(target, [1, 2], 60, temperature=0))
    assert any(len(done.tokens) == 5 for done in rounds) and len(rounds) < 40


def test_a_node_may_ask_for_more_children_than_there_are_tokens():
    target = small_gpt(3, 2, 1)
    rounds = list(speculate(target, TokenRecycling([-1, 0, 0, 0, 0]), [1, 2], 20, temperature=0))
    assert tokens_of(rounds) == list(generate(target, [1, 2], 20, temperature=0))
    assert max(len(done.tokens) for done in rounds) == 4


def test_what_is_no_tree_is_refused():
    for topology in [], [-1], [0, 0], [-1, 1], "ab":
        with pytest.raises(RequestError, match="topology"):
            TokenRecycling(topology)
