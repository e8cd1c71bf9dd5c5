"""The index of the rooms: what each name makes, what is refused, what a method is called."""

import pytest

from nanospec.errors import RequestError
from nanospec.methods.index import DRAFTERS, is_fixed, method_of, most_drafted
from nanospec.methods.settings import GAMMA, Options
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.speculate import ModelDrafter, tokens_of, verify

TARGET, DRAFT_MODEL = TableModel(5, 1), TableModel(5, 2)


def test_every_name_makes_a_drafter_of_the_size_that_was_asked_for():
    topology = [-1, 0, 0, 1, 1, 1]
    for name, entry in DRAFTERS.items():
        drafter = entry.make(DRAFT_MODEL, Options(gamma=3, topology=topology))
        assert drafter.most == {"gamma": 3, "shape": 5}.get(entry.takes, drafter.most)
        assert type(drafter) is entry.kind                  # whose facts are the drafter's
        # What a class says of itself is one of the words that the index knows.
        assert entry.takes in ("gamma", "shape", "") and entry.learns in ("length", "tokens", "")


def test_of_two_trees_one_draws_its_children_independently():
    tree, independent = (DRAFTERS[name].make(DRAFT_MODEL, Options()) for name in ("tree", "independent"))
    assert not tree.independent and independent.independent


def test_the_size_of_a_tree_that_is_grown_is_its_own():
    asked = Options(gamma=8, grown={"count": 20, "width": 4, "depth": 3})
    drafter = DRAFTERS["dynamic-tree"].make(DRAFT_MODEL, asked)
    assert (drafter.most, drafter.width, drafter.depth) == (20, 4, 3)


def test_what_can_be_compiled():
    """Rounds without a branch: drafts of one shape, by a rule without a branch."""
    for name, entry in DRAFTERS.items():
        assert is_fixed(name, "token") == entry.kind.fixed and not is_fixed(name, "traversal")
        assert is_fixed(name, "block") == (name == "chain")
    assert is_fixed("tree", "token") and not is_fixed("goodput", "token")


def test_a_chain_is_no_longer_than_its_draft_model_can_draft():
    model = small_learned("dflash", small_gpt(5, 2, 1))
    deepest = most_drafted("chain", model, 10 ** 3)
    assert 1 < deepest < 10 ** 3 and most_drafted("chain", DRAFT_MODEL, 7) == 7
    assert most_drafted("chain", DRAFT_MODEL) == GAMMA
    for name, entry in DRAFTERS.items():
        assert most_drafted(name, model, 10 ** 3) == (deepest if issubclass(entry.kind, ModelDrafter) else 10 ** 3)


def test_a_methods_name_says_how_many_tokens_it_drafts_and_which_rule_is_not_the_usual():
    names = [method_of(TARGET, DRAFT_MODEL, *pair, gamma=5).name
             for pair in (("chain",), ("tree", "block"), ("lookahead",),
                                                                        ("suffix-tree", "traversal"))]
    assert names == ["chain 5", "tree 6, block", "lookahead 15", "suffix-tree 5, traversal"]
    method = method_of(TARGET, DRAFT_MODEL)
    assert method.gamma == GAMMA == method.make().most and method.make() is not method.make()


def test_every_run_begins_with_a_drafter_of_its_own_and_a_request_may_name_another_rule():
    """Two runs side by side do not disturb each other."""
    method, seen = method_of(TARGET, DRAFT_MODEL, "heuristic", gamma=3), []
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
    (("nobody",), {}, "no 'nobody' here: there are chain, heuristic"),
    (("chain", "coin"), {}, "there are token, block"),
    *[((name,), {"gamma": gamma}, "at least 1|at most 4095") for gamma in (0, -3, 10 ** 4)
      for name, entry in DRAFTERS.items() if entry.takes == "gamma"],
    (("tree",), {"topology": [0]}, "topology"), (("independent",), {"topology": [-1]}, "at least 1"),
    (("goodput",), {"gamma": 4, "costs": COSTS}, r"calls on 2 to 5 tokens are needed, got \[2, 3, 5, 9\]"),
    (("goodput",), {"gamma": 100, "costs": (0.1, {m: 1.0 for m in range(2, 65)})}, "2 to 101 tokens are needed"),
    *[((name,), {"gamma": 2, "costs": costs}, words) for name in ("goodput", "by-load", "hybrid") for costs, words in (
        ((0.1, {2: 1.0, 3: 0.0}), "a call takes time"), ((0.1, {2: -1.0, 3: 1.2}), r"v\(2\) must be 0 or more"),
        ((-0.1, {2: 1.0, 3: 1.2}), "c must be 0 or more"), ((0.1, {2: "1", 3: 1.2}), r"v\(2\) must be a"))]],
    ids=lambda value: str(value)[:40])
def test_what_cannot_be_made_is_refused_at_once(name, setting, words):
    with pytest.raises(RequestError, match=words):
        method_of(TARGET, DRAFT_MODEL, *name, **setting)


def test_goodput_looks_no_further_than_gamma():
    """Costs of larger calls are known and not used: it could not draft so many."""
    costs = 0.1, {m: 1.0 for m in range(2, 30)}
    assert sorted(Options(gamma=3, costs=costs).measured()[1]) == [2, 3, 4]
    assert sorted(Options(gamma=3).measured()[1]) == [2, 3, 4]


def test_the_costs_of_a_plausible_machine():
    """A draft step is a tenth of a call, and each token more a twentieth."""
    assert Options(gamma=2).measured() == (0.1, {2: pytest.approx(1.05), 3: pytest.approx(1.1)})


@pytest.mark.parametrize("gamma, chain", [(3, 3), (20, 8)])
def test_a_hybrids_copies_may_be_longer_than_its_chains(gamma, chain):
    drafter = method_of(TARGET, DRAFT_MODEL, "hybrid", gamma=gamma).make()
    assert (drafter.most, drafter.other.most) == (gamma, chain)


def test_the_copies_at_the_bottom_of_a_stack_are_as_long_as_its_drafts():
    drafter = method_of(TARGET, DRAFT_MODEL, "stack", gamma=3).make()
    assert (drafter.most, drafter.lowest.most) == (3, 3)


def test_what_a_round_costs_by_what_its_calls_cost():
    """A round without a draft is a plain step, whatever a call on two tokens takes."""
    seconds = Options(gamma=2, costs=(0.5, {2: 1.25, 3: 1.75})).seconds()
    assert [seconds(rows, gamma) for rows, gamma in ((1, 0), (7, 1), (1, 2))] == [1, 1.75, 2.75]


def test_costs_are_measured_when_a_drafter_asks_for_them_and_not_before():
    asked = []

    def costs():
        asked.append(1)
        return 0.1, {m: 1.0 for m in range(2, 10)}

    for name in DRAFTERS:
        asked.clear()
        method_of(TARGET, DRAFT_MODEL, name, gamma=3, costs=costs)
        assert bool(asked) == (name in ("goodput", "by-load", "hybrid")), name
