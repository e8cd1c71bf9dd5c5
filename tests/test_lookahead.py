"""Lookahead decoding: exact whatever is guessed; and the window, its n-grams and their rows are what the paper says,
by a slow version that spells every column out."""

from functools import partial

import pytest
import torch

from nanospec.draft import Tree
from nanospec.drafters.lookahead import Lookahead
from nanospec.errors import RequestError
from nanospec.generate import generate
from nanospec.text import Text
from nanospec.probs import probs
from nanospec.proof.checks import Ledger
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import walk
from nanospec.proof.checks import TOLERANCE, rounds
from nanospec.proof.tables import prompts_of, small_gpt
from nanospec.proof.zoo.wings import TREE_BUGS
from nanospec.proof.zoo import Bug, changed, planted
from nanospec.rules.traversal import verify_traversal
from nanospec.rules.tree import verify_tree
from nanospec.speculate import speculate_tree
from nanospec.speculate import tokens_of

ZEROS, FULL, FOUR = TableModel(3, 1), TableModel(3, 5, zeros=0), TableModel(4, 3)
GPT3, GPT = small_gpt(3, 2, 1), small_gpt(11, 2, 1)
WARM = {"temperature": 0.7}
SIZES = [(1, 2, 1), (2, 3, 2), (3, 2, 0), (2, 4, 3), (4, 3, 2)]


def off(target, sizes, new, ids=(1, 0), rule=verify_tree, drafter=Lookahead, **settings):
    """(paths, greatest error, total variation) of whole requests of `new` tokens."""
    return rounds(target, partial(speculate_tree, target, drafter(*sizes), rule=rule), ids, new, **settings)


@pytest.mark.parametrize("rule", [verify_tree, verify_traversal])
@pytest.mark.parametrize("target, sizes, new, ids, settings", [
    (FULL, (2, 3, 2), 4, (1, 0), WARM), (ZEROS, (2, 3, 2), 5, (1,), WARM), (FULL, (1, 2, 2), 4, (2, 2, 2), {}),
    (ZEROS, (2, 4, 3), 5, (0, 1, 0), WARM | {"stop": {0}}), (FOUR, (3, 2, 1), 4, (3, 1), WARM | {"top_k": 2}),
    (GPT3, (2, 3, 2), 3, (2, 0), WARM)])
def test_the_text_has_the_law_of_the_target(target, sizes, new, ids, settings, rule):
    paths, error, tv = off(target, sizes, new, ids, rule, **settings)
    assert paths > 10 and error < TOLERANCE and tv < TOLERANCE


def test_among_the_walked_rounds_are_such_that_keep_an_ngram_of_the_pool():
    """Else the walks above would not have looked at what is carried from round to round."""
    def play(dice):
        drafter, pooled = Lookahead(2, 3, 2), 0
        for one in speculate_tree(FULL, drafter, [1, 0], 4, dice=dice, **WARM):
            pooled += bool(set(one.path) & set(range(max(drafter.ends) + 1, len(one.parents))))
        return pooled
    assert 0.1 < walk(play)[0][1] < 0.9


@pytest.mark.parametrize("sizes", SIZES)
def test_greedy_is_greedy(sizes):
    for seed, ids in enumerate(prompts_of(11, 20, 9)):
        fast = tokens_of(speculate_tree(GPT, Lookahead(*sizes), ids, 20, temperature=0, seed=seed))
        assert fast == list(generate(GPT, ids, 20, temperature=0))


@pytest.mark.parametrize("settings", [WARM, {"temperature": 0}, {"top_p": 0.8}, {"stop": {4, 7}, "seed": 5}])
def test_lengths_stops_uniforms_and_a_second_request(settings):
    drafter, stop = Lookahead(), settings.get("stop", ())
    for new in (1, 2, 7, 40):
        dice = Ledger([settings.get("seed", 0)])
        done = list(speculate_tree(GPT, drafter, [2, 3], new, dice=dice, **settings))
        text = tokens_of(done)
        assert len(text) == new or text[-1] in stop
        assert not set(text[:-1]) & set(stop)
        assert len(dice.handed) == len(set(dice.handed))
        assert all(one.steps == 0 and one.emitted for one in done)
        alone = speculate_tree(GPT, Lookahead(), [2, 3], new, **settings)
        assert [(one.drafted, one.emitted) for one in alone] == [(one.drafted, one.emitted) for one in done]


class Slow:
    """What is guessed, the obvious way: every column is spelled out behind the text and read from the start."""

    def __init__(self, target, ids, window, ngram, guesses):
        self.target, self.guesses, self.written = target, guesses, []
        end = [ids[0]] * (window + ngram) + list(ids)
        self.columns = [(end[len(end) - window - ngram + 2:])[i:i + ngram - 1] for i in range(window)]

    def behind(self, ids):
        """Every text that is guessed behind `ids`: the columns, each behind level 0 so far, and the pool's."""
        chain = [column[0] for column in self.columns]
        pooled = []
        for ngram in reversed(self.written):
            if ngram[0] == ids[-1] and ngram[1:] not in pooled:
                pooled.append(ngram[1:])
        return [chain[:i] + column for i, column in enumerate(self.columns)] + pooled[:self.guesses]

    def answer(self, ids):
        answers = [int(self.target(torch.tensor([[*ids, *path]]))[0, -1].argmax())
                   for path in self.behind(ids)[:len(self.columns)]]
        whole = [[*column, token] for column, token in zip(self.columns, answers)]
        self.written += whole
        self.columns = [column[1:] for column in whole]


def wrong_rounds(target, sizes, new=24, drafter=Lookahead, **settings):
    """Rounds whose tree is not the slow version's, a row for every guess that differs; and the greatest error of a law
    behind a row from that of the row's own path, recomputed."""
    wrong, error = 0, 0.0
    for seed, ids in enumerate([[1], [2, 0, 2, 0, 2, 0, 2], [0, 1, 2, 2, 1]]):
        slow, text = Slow(target, ids, *sizes), list(ids)
        for one in speculate_tree(target, drafter(*sizes), ids, new, seed=seed, **settings):
            tree = Tree([text[-1], *one.drafted], one.parents)
            paths = [[tree.tokens[i] for i in tree.path(row)] for row in range(len(tree.tokens))]
            guessed = {tuple(path[:n]) for path in slow.behind(text) for n in range(len(path) + 1)}
            wrong += set(map(tuple, paths)) != guessed or len(paths) != len(guessed)
            for path, p_target in zip(paths, one.p_target):
                recomputed = probs(target(torch.tensor([text + path]))[0, -1], **settings)
                error = max(error, (recomputed - p_target).abs().max().item())
            slow.answer(text)
            text += one.emitted
    return wrong, error


@pytest.mark.parametrize("target", [FULL, GPT])
@pytest.mark.parametrize("sizes", SIZES)
def test_the_tree_is_the_papers_window_and_its_ngrams_and_the_mask_is_its_mask(target, sizes):
    for settings in (WARM, {"temperature": 0}):
        wrong, error = wrong_rounds(target, sizes, **settings)
        assert wrong == 0 and error < TOLERANCE


@pytest.mark.parametrize("name", ["siblings-see-each-other", "positions-ignore-parent", "path-not-gathered"])
def test_a_wrong_mask_a_wrong_position_and_a_path_left_where_it_was_are_seen(name):
    bug, = (bug for bug in TREE_BUGS if bug.name == name)
    with planted(bug):
        assert wrong_rounds(GPT, (4, 3, 2), **WARM)[1] > 1e-3


def test_the_example_of_the_docstring():
    """a1 a2 over b1 b2 is 1 2 over 3 4, and 5 6 is answered: 1 3 5 and 2 4 6 are in the pool, by 1 and 2."""
    drafter, text = Lookahead(2, 3, 1), Text([[0, 0, 1]], 9)
    drafter.begin(text, 9)
    drafter.levels = [[1, 2], [3, 4]]
    tree = drafter.propose(text, None, None)
    assert tree.tokens == [1, 1, 3, 2, 4] and tree.parents == [-1, 0, 1, 1, 3]
    drafter.commit([], torch.eye(9)[[1, 3, 5, 4, 6]])
    assert drafter.levels == [[3, 4], [5, 6]] and drafter.pool == {1: [[3, 5]], 2: [[4, 6]]}
    tree = drafter.propose(text, None, None)
    assert tree.tokens == [1, 3, 5, 4, 6] and tree.parents == [-1, 0, 1, 1, 3]      # 3 5 stands in the window too


class Circle(TableModel):
    """Goes round through its tokens, 0 1 2 ... 6 0 1 ..., and with one chance in ten somewhere else."""

    def __init__(self):
        super().__init__(7, 1)
        table = torch.full((7, 7), 0.1 / 6, dtype=self.dtype)
        table[torch.arange(7), (torch.arange(7) + 1) % 7] = 0.9
        self.logits = table.log()

    def _hash(self, context):
        return context[-1]


def tokens_per_call(target, new=60, drafter=Lookahead, sizes=(2, 4, 3), **settings):
    return new / sum(1 for _ in speculate_tree(target, drafter(*sizes), [3], new, **settings))


def test_a_text_that_goes_round_is_guessed_an_ngram_a_call():
    """N tokens a call once the first round trip is in the pool, where what guesses is that and not the window."""
    for sizes in [(2, 3, 1), (2, 4, 3)]:
        done = list(speculate_tree(Circle(), Lookahead(*sizes), [3], 60, temperature=0))
        assert [len(one.emitted) for one in done[:-1]] == [1] * 7 + [sizes[1]] * (len(done) - 8)
    assert tokens_per_call(Circle(), temperature=1) > 2


def test_without_a_pool_a_pass_fixes_one_token_at_least_and_there_exactly_one():
    """Jacobi's property, at temperature 0. Going round, a column behind a wrong guess is wrong by as much, for ever."""
    fixed = {len(one.emitted) for ids in prompts_of(11, 6, 9)
             for one in speculate_tree(GPT, Lookahead(6, 2, 0), ids, 40, temperature=0)}
    assert min(fixed) == 1 and max(fixed) == 7
    assert tokens_per_call(Circle(), sizes=(6, 2, 0), temperature=0) == 1


@pytest.mark.parametrize("sizes", [(0, 3, 1), (2, 1, 1), (2, 3, -1)])
def test_bad_sizes(sizes):
    with pytest.raises(RequestError, match="lookahead"):
        Lookahead(*sizes)


def spoilt(old, new):
    return changed(Bug("", "", "", "", "drafters.lookahead", ((old, new),)))["Lookahead"]


HARVEST, LEVEL = "for first, *guess in zip(*self.levels, newest):", "self.levels = [*self.levels[1:], newest]"
CHAIN, END = "column = _behind(tree, column, [first])", "self.ends.append(_behind(tree, column, later))"

# All of these leave the text exact: guesses are judged as certain, whatever they are. They cost guesses that are kept.
ONLY_SLOWER = [
    ("n-grams are kept by their second token", HARVEST, "for _, first, *guess in zip(*self.levels, newest):"),
    ("n-grams are kept by their last token", HARVEST, "for *guess, first in zip(*self.levels, newest):"),
    ("what is answered is taken for the next column's", "p_target[self.ends]", "p_target[self.ends[::-1]]"),
    ("what is answered behind level 0 is harvested", END, END + "; self.ends[-1] = column"),
    ("what the target finds least likely is harvested", "argmax(-1)", "argmin(-1)"),
    ("the oldest n-grams stay", "known[:self.guesses]", "known[::-1][:self.guesses][::-1]"),
    ("the levels stand still", LEVEL, "self.levels = [*self.levels[:-1], newest]"),
    ("every column hangs from the root", CHAIN, "column = _behind(tree, 0, [first])"),
    ("a column hangs from the end of the one before", CHAIN, "column = _behind(tree, ([0] + self.ends)[-1], [first])"),
    ("n-grams hang from the window", "_behind(tree, 0, guess)", "_behind(tree, 1, guess)"),
    ("guesses that begin alike do not share rows", "if known is None else known", "")]


@pytest.mark.parametrize("wrong", ONLY_SLOWER, ids=lambda wrong: wrong[0])
def test_what_costs_only_speed_is_seen_by_the_slow_version(wrong):
    drafter = spoilt(*wrong[1:])
    assert off(FULL, (2, 3, 2), 3, drafter=drafter, **WARM)[2] < TOLERANCE
    assert wrong_rounds(FULL, (2, 3, 2), drafter=drafter, **WARM)[0] > 10


def test_more_guesses_than_were_said_are_seen():
    with pytest.raises((RuntimeError, IndexError)):
        list(speculate_tree(FULL, spoilt("known[:self.guesses]", "known")(2, 3, 1), [1, 0], 60, **WARM))


@pytest.mark.parametrize("kept, old", [("pool", "= {}      # first"), ("levels", "= [end[level")])
def test_what_a_request_leaves_to_the_next_is_seen(kept, old):
    drafter = spoilt(old, f"= vars(self).get({kept!r}) or {old[2:]}")(2, 3, 2)
    first, second = ([one.drafted for one in speculate_tree(FULL, drafter, [2, 0], 30, **WARM)] for _ in range(2))
    assert first != second


def test_a_guess_that_claims_to_have_been_drawn_is_seen():
    law = "tree.add(row, token, Tensor([.5, .3, .2]).double())"
    assert off(FULL, (2, 3, 2), 3, drafter=spoilt("tree.add(row, token)", law), **WARM)[2] > .6
