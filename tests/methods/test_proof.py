"""The walk, what it is compared with, and the command that runs everything. What ships passes: test_contract.py. What
does not ship is caught: test_zoo.py.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from lessons.oracles import completed, product_of
from nanospec.judge.verdict import Verdict
from nanospec.proof.tables import TableModel, small_gpt, small_learned
from nanospec.proof.walk import WalkingDice, distance, target_distribution, walk
from nanospec.speculate import ModelDrafter, speculate
from tests.proof import __main__ as proof
from tests.proof import handover
from tests.proof.checks import CHECKS, FULL, FULL_DRAFT_MODEL, GPT4, GPT_DRAFT_MODEL4, Check
from tests.proof.compare import caches, rounds, worst
from tests.proof.look import Sighting
from tests.proof.zoo import ALL_BUGS, ALL_CONTROLS


def test_the_walk_itself():
    """Two coins and a die, by hand: {1/4 * (1/2, 1/2), 3/4} and a die only where the coin fell heads."""
    def play(dice):
        heads, = dice.flip(torch.tensor([[0.25]]))[0].tolist()
        return int(dice.pick(torch.tensor([[2.0, 0.0, 2.0]]))) if heads else "tails"
    found, paths = walk(play)
    assert found == {0: 0.125, 2: 0.125, "tails": 0.75} and paths == 3


def test_what_is_certain_is_no_choice():
    def play(dice):
        return (*dice.flip(torch.tensor([[0.0, 1.0, 1.7]]))[0].tolist(), int(dice.pick(torch.eye(3)[1:2])))
    assert walk(play) == ({(False, True, True, 1): 1.0}, 1)


def test_hidden_randomness_is_noticed():
    calls = []
    with pytest.raises(AssertionError, match="outside the dice"):
        walk(lambda dice: calls.append(0) or int(dice.pick(torch.tensor([[1.0, 1.0 + len(calls)]]))))


def test_a_walk_that_finds_no_end_says_so():
    """A rule that draws for nodes that do not exist: 2^20 paths."""
    with pytest.raises(AssertionError, match="more than 1,000 paths, and 20 decisions .* drawn where nobody looks"):
        walk(lambda dice: len([dice.pick(torch.ones(1, 2)) for _ in range(20)]), most=1_000)
    assert walk(lambda dice: len([dice.pick(torch.ones(1, 2)) for _ in range(10)]), most=1_024)[1] == 1_024
    with pytest.raises(AssertionError, match="more than 1,023 paths"):
        walk(lambda dice: len([dice.pick(torch.ones(1, 2)) for _ in range(10)]), most=1_023)


def test_what_is_wrong_says_where():
    """A rule that takes the likeliest token, and a draft model that is compared with another."""
    def likeliest_alone(draft, p_target, dice):
        return torch.zeros(len(p_target), dtype=torch.int64), p_target[:, 0].argmax(-1)

    off = rounds(FULL, partial(speculate, FULL, ModelDrafter(FULL_DRAFT_MODEL, 1), rule=likeliest_alone), [1, 0], 1)
    likeliest = int(FULL(torch.tensor([[1, 0]]))[0, -1].argmax())
    assert off.where.startswith(f"after [1, 0] comes ({likeliest},) with a probability of 1.000000000, and 0.")
    off = caches(GPT4, small_gpt(4, 1, 5), ModelDrafter(GPT_DRAFT_MODEL4, 2), [[1, 0]], 12)
    assert off.where.startswith("the q_draft of node ")


def test_weights_that_are_no_weights_are_noticed():
    for weights in ([0.0, 0.0], [float("nan"), 1.0], [-1.0, 2.0]):
        with pytest.raises(AssertionError, match="weights"):
            WalkingDice().pick(torch.tensor([weights]))


def test_distance_and_product():
    a, b = {"x": 0.5, "y": 0.5}, {"x": 0.25, "z": 0.75}
    assert distance(a, b) == (0.75, 0.75)
    assert product_of(a, b) == {("x", "x"): .125, ("x", "z"): .375, ("y", "x"): .125, ("y", "z"): .375}


def test_what_the_target_completes():
    table = TableModel(3, 7)
    truth = target_distribution(table, [1], 3)
    first = target_distribution(table, [1], 1)
    assert distance(completed(first, table, [1], 3), truth)[0] < 1e-15
    assert sum(truth.values()) == pytest.approx(1) and {len(tokens) for tokens in truth} == {3}


def test_a_table_notices_its_whole_context():
    """Any change of any token before it changes the distribution: what makes a stale cache visible."""
    table, text = TableModel(3, 7), [0, 1, 2, 2, 1, 0]
    truth = table(torch.tensor([text]))[0, -1]
    for i in range(len(text)):
        other = text[:i] + [(text[i] + 1) % 3] + text[i + 1:]
        assert not torch.equal(table(torch.tensor([other]))[0, -1], truth)
    assert not torch.equal(table(torch.tensor([text[1:]]))[0, -1], truth)


def test_every_second_context_of_a_table_may_have_likeliest_tokens_that_tie():
    tied, single = ((table.logits == table.logits.amax(-1, keepdim=True)).sum(-1) > 1
                    for table in (TableModel(4, 7, ties=True), TableModel(4, 7)))
    assert tied[1::2].float().mean() > .5 and not tied[::2].any() and not single.any()
    assert TableModel(4, 7, ties=True).logits.exp().sum(-1).isfinite().all()


@pytest.mark.parametrize("ties", [False, True])
def test_a_seed_is_one_table_whatever_torch_s_default_is(ties):
    before = torch.get_default_dtype()
    table = TableModel(3, 7, ties=ties)
    torch.set_default_dtype(torch.float64)
    try:
        again = TableModel(3, 7, ties=ties)
    finally:
        torch.set_default_dtype(before)
    same = [(table.logits, again.logits)]
    same += [(getattr(table, part).keywords["weight"], getattr(again, part).keywords["weight"])
             for part in ("embedding", "head")]
    assert all(torch.equal(*pair) for pair in same)


def test_a_seed_is_one_model_whatever_was_drawn_before():
    made = [(gpt := small_gpt(5, 1, seed), torch.rand(9), small_learned.__wrapped__("mlp", gpt)) for seed in (3, 3, 4)]
    (gpt, model), (again, same), (other, _) = ([parameters_to_vector(part.parameters()) for part in parts[::2]]
                                               for parts in made)
    assert torch.equal(gpt, again) and torch.equal(model, same) and not torch.equal(gpt, other)


def test_a_comparison_of_caches_that_saw_no_round_of_its_kind_says_so():
    target, draft_model = TableModel(3, 1, zeros=0.0), TableModel(3, 2, zeros=0.0)
    with pytest.raises(LookupError, match="what it leaves was not seen"):
        caches(target, draft_model, ModelDrafter(draft_model, 4), [[1]], 12, must_see=lambda done: len(done.path) > 4)


def test_several_runs_as_one_check():
    assert worst(iter([(3, 1e-13, 0.0), (4, 0.0, 2e-13)])) == (7, 1e-13, 2e-13)
    for wrong in (5, 0.1, 0.0), (5, 0.0, 0.1), (5, 0.0, float("nan")):
        parts = iter([(3, 1e-13, 0.0), wrong, (4, 0.3, 0.3)])
        assert repr(worst(parts)) == repr(wrong) and len([*parts]) == 1


@pytest.mark.parametrize("name", ["drafts", "hidden states"])
def test_what_is_handed_over_is_looked_at_when_a_row_begins_anew(name, monkeypatch):
    """The checks of handover.py play on: no text that they look at ends before its second request is under way."""
    seen = []
    play = handover.played

    def watched(*args):
        for text, *rest in play(*args):
            seen.append(text.length.tolist())
            yield text, *rest

    monkeypatch.setattr(handover, "played", watched)
    assert CHECKS[name].run()[1:] == (0, 0)
    assert any(after[1] < before[1] for before, after in zip(seen, seen[1:]))


RIGHT = Verdict(False, "fits", 0.5, 100, 0.1)
FINE = Check("T0", "T0", "the node", lambda: (75, 1e-16, 1e-16))


@pytest.fixture
def small(monkeypatch):
    """The command with nothing in its lists; put something there to see what it says."""
    def put(checks=(), contract=(), bugs=(), controls=(), verdict=RIGHT):
        monkeypatch.setattr(proof, "CHECKS", {check.name: check for check in checks})
        monkeypatch.setattr(proof, "CONTRACT", dict(contract))
        monkeypatch.setattr(proof, "pairs_of", lambda part, quick: [("chain", "token"), ("tree", "block")])
        monkeypatch.setattr(proof, "ALL_BUGS", list(bugs))
        monkeypatch.setattr(proof, "ALL_CONTROLS", list(controls))
        monkeypatch.setattr(proof, "load_pair", lambda: None)
        monkeypatch.setattr(proof, "long_run", lambda pair, samples: verdict)
    put()
    return put


def test_the_command_exits_1_when_anything_is_wrong(small, capsys):
    wrong, no_number = ((lambda: (1, error, error)) for error in (0.1, float("nan")))
    small([replace(FINE, name="a", run=wrong), replace(FINE, name="b", run=no_number), FINE])
    assert proof.main([]) == 1
    out = capsys.readouterr().out
    assert out.count("WRONG") == 3 and "1 of 3" in out
    bug = next(bug for bug in ALL_BUGS if bug.caught_by == "T1")
    small([FINE], {"part": lambda name, rule: (4, 0.0, 0.0)}, [bug])
    assert proof.main([]) == 0
    assert "nothing lost" in (out := capsys.readouterr().out) and "1 of 1 bugs" in out
    for contract in (lambda name, rule: (4, float(name == "tree"), 0.0), lambda name, rule: (0, 0.0, 0.0),
                     lambda name, rule: [][name == "tree"]):
        small(contract={"part": contract})
        assert proof.main([]) == 1 and "tree, block" in capsys.readouterr().out
    small(bugs=[replace(bug, caught_by="ledger")])
    assert proof.main([]) == 1 and "NOT CAUGHT" in capsys.readouterr().out
    small(controls=[bug])
    assert proof.main(["--quick"]) == 1 and "0 of 1 controls" in capsys.readouterr().out
    small(verdict=Verdict(True, "does not fit", 0.0, 100, 0.1))
    assert proof.main([]) == 1 and "WRONG: does not fit" in capsys.readouterr().out


def test_quick_leaves_out_what_is_slow(small, monkeypatch, capsys):
    ran, tried = [], []
    checks = [replace(FINE, name=name, slow=slow, run=lambda name=name: ran.append(name) or (1, 0.0, 0.0))
              for name, slow in (("quick", False), ("slow", True))]
    small(checks, controls=ALL_CONTROLS[:1])
    monkeypatch.setattr(proof, "look", lambda bug, check: tried.append(check) or Sighting(False, 0.0, "0"))
    assert proof.main(["--quick"]) == 0 and ran == ["quick"] and "T2" not in tried
    assert proof.main([]) == 0 and ran == ["quick", "quick", "slow"] and "T2" in tried


def test_the_command_refuses_in_a_line_and_stops_without_one(small, monkeypatch, capsys):
    with pytest.raises(SystemExit) as left:
        proof.main(["--help"])
    assert left.value.code == 0 and "--quick" in capsys.readouterr().out
    for argv in (["--junk"], ["more"], ["--quick=3"]):
        assert proof.main(argv) == 2
        err = capsys.readouterr().err
        assert err.startswith("proof: ") and err.count("\n") == 1
    small([replace(FINE, run=lambda: (_ for _ in ()).throw(KeyboardInterrupt))])
    assert proof.main([]) == 130
    assert capsys.readouterr().err == ""
