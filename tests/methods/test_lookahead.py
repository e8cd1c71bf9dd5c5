"""Lookahead decoding: the window, its n-grams and their nodes are what the paper says, by a slow version that spells
every column out; and what they are good for."""

import pytest
import torch

from nanospec.errors import RequestError
from nanospec.methods.copies.lookahead import Lookahead
from nanospec.methods.trees.tree_draft import of_text
from nanospec.probs import probs
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import speculate
from nanospec.text import Text
from tests.proof.compare import prompts_of

FULL, GPT, WARM = TableModel(3, 5, zeros=0), small_gpt(11, 2, 1), {"temperature": 0.7}
SIZES = [(1, 2, 1), (2, 3, 2), (3, 2, 0), (2, 4, 3), (4, 3, 2)]


def test_rounds_that_accept_an_ngram_of_the_pool_are_exact():
    """Three tokens: in the contract's two the pool is never of use, so that nothing is carried from round to round."""
    settings, pooled = {"top_k": 2, **WARM}, set()

    def play(dice):
        drafter, tokens = Lookahead(2, 3, 2), ()
        for done in speculate(FULL, drafter, [1, 0], 3, dice=dice, **settings):
            tokens += (*done.emitted,)
            pooled.update([tokens] * any(node > max(drafter.columns[0].ends) for node in done.path))
        return tokens
    assert max(distance(walk(play)[0], target_distribution(FULL, [1, 0], 3, **settings))) < 1e-12
    assert pooled


class Slow:
    """What is drafted, the obvious way: every column is spelled out after the text and read from the start."""

    def __init__(self, target, ids, window, ngram, guesses):
        self.target, self.guesses, self.written = target, guesses, []
        end = [ids[0]] * (window + ngram) + list(ids)
        self.columns = [(end[len(end) - window - ngram + 2:])[i:i + ngram - 1] for i in range(window)]

    def after(self, ids):
        """Every text that is drafted after `ids`: the columns, each after level 0 so far, and the pool's."""
        chain = [column[0] for column in self.columns]
        pooled = []
        for ngram in reversed(self.written):
            if ngram[0] == ids[-1] and ngram[1:] not in pooled:
                pooled.append(ngram[1:])
        return [chain[:i] + column for i, column in enumerate(self.columns)] + pooled[:self.guesses]

    def answer(self, ids):
        answers = [int(self.target(torch.tensor([[*ids, *path]]))[0, -1].argmax())
                   for path in self.after(ids)[:len(self.columns)]]
        whole = [[*column, token] for column, token in zip(self.columns, answers)]
        self.written += whole
        self.columns = [column[1:] for column in whole]


@pytest.mark.parametrize("settings", [WARM, {"temperature": 0}], ids=str)
@pytest.mark.parametrize("target", [FULL, GPT], ids=["table", "GPT"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_tree_is_the_papers_window_and_its_ngrams_and_the_mask_is_its_mask(target, sizes, settings):
    """Every round's tree has the slow version's nodes and no others; p_target is that of each node's own path."""
    for seed, ids in enumerate([[1], [2, 0, 2, 0, 2, 0, 2], [0, 1, 2, 2, 1]]):
        slow, text = Slow(target, ids, *sizes), list(ids)
        for done in speculate(target, Lookahead(*sizes), ids, 11, seed=seed, **settings):
            paths = [[]]
            for token, parent in zip(done.tokens[1:], done.parents[1:]):
                paths.append([*paths[parent], token])
            drafted = {tuple(path[:n]) for path in slow.after(text) for n in range(len(path) + 1)}
            assert set(map(tuple, paths)) == drafted and len(paths) == len(drafted)
            for path, p_target in zip(paths, done.p_target):
                again = probs(target(torch.tensor([text + path]))[0, -1], **settings)
                assert (again - p_target).abs().max() < 1e-12
            slow.answer(text)
            text += done.emitted


def test_the_example_of_the_docstring():
    """a1 a2 over b1 b2 is 1 2 over 3 4, and 5 6 is answered: 1 3 5 and 2 4 6 are in the pool, by 1 and 2."""
    drafter, text = Lookahead(2, 3, 1), Text([[0, 0, 1]], 9, 9)
    drafter.begin(text)
    drafter.read(text, [0], None)
    drafter.columns[0].levels = [[1, 2], [3, 4]]
    draft = drafter.propose(text, None, None, 0)
    assert draft.tokens.tolist() == [[1, 1, 3, 2, 4]] and draft.parents.tolist() == [[-1, 0, 1, 1, 3]]
    drafter.commit(draft, *draft.path(torch.tensor([0])), torch.eye(9)[None, [1, 3, 5, 4, 6]], None, None)
    assert drafter.columns[0].levels == [[3, 4], [5, 6]] and drafter.columns[0].pool == {1: [[3, 5]], 2: [[4, 6]]}
    draft = drafter.propose(text, None, None, 0)            # 3 5 stands in the window, too
    assert draft.tokens.tolist() == [[1, 3, 5, 4, 6]] and draft.parents.tolist() == [[-1, 0, 1, 1, 3]]


def test_every_text_of_a_batch_has_a_window_and_a_pool_of_its_own():
    drafter, text = Lookahead(2, 3, 1), Text([[1, 2, 3, 4], [5]], 9, 9)
    drafter.begin(text)
    drafter.read(text, [0, 1], None)
    assert [drafter.columns[b].levels for b in (0, 1)] == [[[2, 3], [3, 4]], [[5, 5], [5, 5]]]
    drafter.columns[0].levels = [[1, 2], [3, 4]]
    draft = drafter.propose(text, None, None, 0)
    assert of_text(draft, 0)[:2] == ([4, 1, 3, 2, 4], [-1, 0, 1, 1, 3])
    assert of_text(draft, 1)[:2] == ([5, 5, 5, 5, 0], [-1, 0, 1, 2, -1])     # columns that begin alike share nodes
    answers = torch.eye(9)[None, [0, 1, 6, 7, 8]].repeat(2, 1, 1)
    drafter.commit(draft, *draft.path(torch.tensor([0, 0])), answers, None, None)
    pools = [drafter.columns[b].pool for b in (0, 1)]
    assert pools == [{1: [[3, 6]], 2: [[4, 8]]}, {5: [[5, 7]]}]             # of one that is kept, the newer
    drafter.read(text, [0], None)                                           # a new request in row 0 alone
    assert drafter.columns[0].pool == {} and drafter.columns[1].pool == pools[1]


class Circle(TableModel):
    """Goes round through its tokens, 0 1 2 ... 6 0 1 ..., and with one chance in ten somewhere else."""

    def __init__(self):
        super().__init__(7, 1)
        table = torch.full((7, 7), 0.1 / 6, dtype=self.dtype)
        table[torch.arange(7), (torch.arange(7) + 1) % 7] = 0.9
        self.logits = table.log()

    def _hash(self, context):
        return context[-1]


def test_a_text_that_goes_round_is_drafted_an_ngram_a_call():
    """N tokens a call once the first round trip is in the pool; without a pool one, for ever."""
    for sizes in (2, 3, 1), (2, 4, 3):
        done = list(speculate(Circle(), Lookahead(*sizes), [3], 60, temperature=0))
        assert [len(each.emitted) for each in done[:-1]] == [1] * 7 + [sizes[1]] * (len(done) - 8)
    assert sum(1 for _ in speculate(Circle(), Lookahead(2, 4, 3), [3], 60, temperature=1)) < 30
    assert sum(1 for _ in speculate(Circle(), Lookahead(6, 2, 0), [3], 60, temperature=0)) == 60


def test_without_a_pool_a_pass_fixes_one_token_at_least():
    """Jacobi's property, at temperature 0."""
    fixed = {len(done.emitted) for ids in prompts_of(11, 6, 9)
             for done in speculate(GPT, Lookahead(6, 2, 0), ids, 40, temperature=0)}
    assert min(fixed) == 1 and max(fixed) == 7


@pytest.mark.parametrize("sizes", [(0, 3, 1), (2, 1, 1), (2, 3, -1), (10 ** 6,), (10 ** 3, 10 ** 3)])
def test_bad_sizes(sizes):
    with pytest.raises(RequestError, match="lookahead needs|draft tokens of lookahead .* at most 4095"):
        Lookahead(*sizes)
