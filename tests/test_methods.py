"""The table of names: what each makes, what is refused, what a method is called."""

import pytest

from nanospec.drafters.by_load import ByLoad
from nanospec.drafters.dynamic import DynamicDrafter
from nanospec.errors import RequestError
from nanospec.methods import DRAFTERS, GAMMA, RULES, Setting, method_of
from nanospec.proof.tables import TableModel
from nanospec.speculate import tokens_of, verify

TARGET, DRAFT = TableModel(5, 1), TableModel(5, 2)


def test_every_name_makes_a_drafter_of_the_size_that_was_asked_for():
    topology = [-1, 0, 0, 1, 1, 1]
    for name, way in DRAFTERS.items():
        size = way.make(Setting(DRAFT, gamma=3, topology=topology)).size
        expected = {"gamma": 4, "shape": 6, "itself": 16}[way.size]
        assert size == (expected + 3 if name == "merged" else expected)         # two drafters, of 3 tokens each
        assert way.dynamic == isinstance(way.make(Setting(DRAFT)), DynamicDrafter | ByLoad)
        assert not (way.dynamic and way.fixed)
    assert list(RULES) == ["token", "block", "traversal"] and RULES["token"] is verify


def test_a_methods_name_says_how_many_tokens_it_drafts_and_which_rule_is_not_the_usual():
    names = [method_of(TARGET, DRAFT, *pair, gamma=5).name for pair in (("chain",), ("tree", "block"), ("lookahead",),
                                                                        ("merged", "traversal"))]
    assert names == ["chain 5", "tree 6, block", "lookahead 15", "merged 9, traversal"]
    method = method_of(TARGET, DRAFT)
    assert method.gamma == GAMMA == method.make().size - 1 and method.make() is not method.make()


def test_every_run_begins_with_a_drafter_of_its_own_and_a_request_may_name_another_rule():
    """Two runs side by side do not disturb each other."""
    method, seen = method_of(TARGET, DRAFT, "heuristic", gamma=3), []
    runs = [method.run([1, 2], max_new_tokens=20, seed=seed) for seed in (0, 1)]
    beside = [[], []]
    for both in zip(*runs):
        for written, done in zip(beside, both):
            written += done.emitted
    for seed, written in enumerate(beside):
        assert tokens_of(method.run([1, 2], max_new_tokens=20, seed=seed))[:len(written)] == written

    def watched(draft, p_target, dice):
        seen.append(draft)
        return verify(draft, p_target, dice)

    list(method.run([1, 2], max_new_tokens=5, rule=watched))
    assert seen


COSTS = 0.1, {2: 1.1, 3: 1.2, 5: 1.4, 9: 1.6}


@pytest.mark.parametrize("name, setting, words", [
    (("nobody",), {}, "no 'nobody' here: there is chain, heuristic"), (("chain", "coin"), {}, "there is token, block"),
    *[((name,), {"gamma": gamma}, "at least 1|at most 4095") for gamma in (0, -3, 10 ** 4)
      for name, way in DRAFTERS.items() if way.size == "gamma"],
    (("tree",), {"topology": [0]}, "topology"), (("independent",), {"topology": [-1]}, "at least 1"),
    (("goodput",), {"gamma": 4, "costs": COSTS}, r"calls on 2 to 5 tokens are wanted, got \[2, 3, 5, 9\]"),
    (("goodput",), {"gamma": 100, "costs": (0.1, {m: 1.0 for m in range(2, 65)})}, "2 to 101 tokens are wanted")],
    ids=lambda value: str(value)[:40])
def test_what_cannot_be_made_is_refused_at_once(name, setting, words):
    with pytest.raises(RequestError, match=words):
        method_of(TARGET, DRAFT, *name, **setting)


def test_goodput_looks_no_further_than_gamma():
    """Costs of larger calls are known and not used: it could not draft so many."""
    costs = 0.1, {m: 1.0 for m in range(2, 30)}
    assert sorted(Setting(DRAFT, gamma=3, costs=costs).measured()[1]) == [2, 3, 4]
    assert sorted(Setting(DRAFT, gamma=3).measured()[1]) == [2, 3, 4]
