"""The walk finds nothing wrong in what ships. What it finds in what does not ship: test_zoo.py."""

from dataclasses import replace

import pytest
import torch

from nanospec.proof import __main__ as command
from nanospec.proof import layers, zoo
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import WalkingDice, distance, product_of, walk
from nanospec.proof.judge import Verdict

CHECKS = layers.checks()
LONGEST = ("table V3 gamma 2, 4 tokens, T 0.7, no zeros", "table V4 gamma 3, 5 tokens, T 0.7, by prefix")


@pytest.mark.parametrize("layer, setting, check", [
    pytest.param(*check, id=f"{check[0]}: {check[1]}", marks=[pytest.mark.slow] * (check[1] in LONGEST))
    for check in CHECKS])
def test_nothing_lost(layer, setting, check):
    result = layers.run(layer, setting, check)
    assert result.passed, f"{setting}: greatest error {result.error:g}, TV {result.tv:g}; expected at most 1e-12"


def test_what_is_marked_slow_is_there():
    assert set(LONGEST) <= {setting for _, setting, _ in CHECKS}


def test_the_walk_itself():
    """Two coins and a die, by hand: {1/4 * (1/2, 1/2), 3/4} and a die only where the coin fell heads."""
    def play(dice):
        heads, = dice.flip(torch.tensor([[0.25]]))[0].tolist()
        return int(dice.pick(torch.tensor([[2.0, 0.0, 2.0]]))) if heads else "tails"
    law, paths = walk(play)
    assert law == {0: 0.125, 2: 0.125, "tails": 0.75} and paths == 3


def test_what_is_certain_is_no_choice():
    def play(dice):
        return (*dice.flip(torch.tensor([[0.0, 1.0, 1.7]]))[0].tolist(), int(dice.pick(torch.eye(3)[1:2])))
    assert walk(play) == ({(False, True, True, 1): 1.0}, 1)


def test_hidden_randomness_is_noticed():
    calls = []
    with pytest.raises(AssertionError, match="outside the dice"):
        walk(lambda dice: calls.append(0) or int(dice.pick(torch.tensor([[1.0, 1.0 + len(calls)]]))))


def test_weights_that_are_no_weights_are_noticed():
    for weights in ([0.0, 0.0], [float("nan"), 1.0], [-1.0, 2.0]):
        with pytest.raises(AssertionError, match="weights"):
            WalkingDice().pick(torch.tensor([weights]))


def test_distance_and_product():
    a, b = {"x": 0.5, "y": 0.5}, {"x": 0.25, "z": 0.75}
    assert distance(a, b) == (0.75, 0.75)
    assert product_of(a, b) == {("x", "x"): .125, ("x", "z"): .375, ("y", "x"): .125, ("y", "z"): .375}


def test_a_table_notices_its_whole_context():
    """Any change of any token before it changes the law: what makes a stale cache visible."""
    table, text = TableModel(3, 7), [0, 1, 2, 2, 1, 0]
    law = table(torch.tensor([text]))[0, -1]
    for i in range(len(text)):
        other = text[:i] + [(text[i] + 1) % 3] + text[i + 1:]
        assert not torch.equal(table(torch.tensor([other]))[0, -1], law)
    assert not torch.equal(table(torch.tensor([text[1:]]))[0, -1], law)


def test_the_command_line_exits_1_when_anything_is_wrong(monkeypatch, capsys):
    for name in ("ALL_BUGS", "ALL_CONTROLS"):
        monkeypatch.setattr(command, name, [])
    monkeypatch.setattr(command, "tree_checks", list)
    monkeypatch.setattr(command, "long_run", lambda pair: Verdict(False, "fits", 0.5, 100, 0.1))
    monkeypatch.setattr(command, "checks", lambda: [("T0", "wrong on purpose", lambda: (1, 0.1, 0.1)),
                                                    ("T0", "nan is no pass", lambda: (1, float("nan"), float("nan"))),
                                                    ("T0", "the node", layers.node)])
    assert command.main() == 1
    out = capsys.readouterr().out
    assert out.count("WRONG") == 3 and "1 of 3" in out
    monkeypatch.setattr(command, "checks", lambda: [("T0", "the node", layers.node)])
    assert command.main() == 0
    monkeypatch.setattr(command, "ALL_BUGS", [replace(zoo.BUGS[0], caught_by="ledger")])
    assert command.main() == 1 and "NOT CAUGHT" in capsys.readouterr().out
    monkeypatch.setattr(command, "ALL_BUGS", [])
    monkeypatch.setattr(command, "ALL_CONTROLS", [zoo.BUGS[0]])
    assert command.main() == 1 and "0 of 1 controls" in capsys.readouterr().out
    monkeypatch.setattr(command, "ALL_CONTROLS", [])
    monkeypatch.setattr(command, "long_run", lambda pair: Verdict(True, "does not fit", 0.0, 100, 0.1))
    assert command.main() == 1 and "WRONG: does not fit" in capsys.readouterr().out


def test_a_comparison_of_caches_that_saw_no_round_kept_whole_says_so():
    target, draft = TableModel(3, 1, zeros=0.0), TableModel(3, 2, zeros=0.0)
    with pytest.raises(LookupError, match="no round kept all"):
        layers.caches(target, draft, [[1]], 12, 4)
