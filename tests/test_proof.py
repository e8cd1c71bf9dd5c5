"""The walk finds nothing wrong in what ships, and does find what is wrong in what does not.

Each mutant below is one line of speculate.py changed, and names the check that must catch it. (The zoo of bugs that
really shipped elsewhere grows in nanospec/proof.)
"""

import inspect
import sys
import types

import pytest
import torch

import nanospec.speculate
from nanospec.proof import layers
from nanospec.proof.exact import TableModel, WalkingDice, distance, product_law, walk

CHECKS = layers.checks()


@pytest.mark.parametrize("layer, setting, check", CHECKS, ids=[f"{layer}: {setting}" for layer, setting, _ in CHECKS])
def test_nothing_lost(layer, setting, check):
    result = layers.run(layer, setting, check)
    assert result.passed, f"{setting}: greatest error {result.error:g}, TV {result.tv:g}; expected at most 1e-12"


T3, D3 = TableModel(3, 1), TableModel(3, 2)
T4, D4 = TableModel(4, 3), TableModel(4, 4)
G4, H4 = layers.small_gpt(4, 2, 3), layers.small_gpt(4, 1, 4)
CATCHERS = {
    "T0": layers.node,
    "T1": lambda: layers.one_round(T4, D4, [1, 3, 0], 2, temperature=0.7),
    "T2": lambda: layers.rounds(T3, D3, [1, 0], 1, 4, temperature=0.7),
    "T2 stop": lambda: layers.rounds(T3, D3, [1, 2], 2, 4, temperature=0.7, stop={0}),
    "T2 rows": lambda: layers.ragged(T3, D3, [[1], [0, 2, 1, 1]], 1, 2, temperature=0.7),
    "T3 cache": lambda: layers.caches(G4, H4, layers.prompts_of(4, 3, 5), 3, 40, temperature=0.7),
    "T6": lambda: layers.greedy([(G4, H4)], layers.prompts_of(4, 10, 5), 30),
}
MUTANTS = {
    # name: (the line, its change, who must catch it, who cannot)
    "ratio flipped": ("p_target[:, :-1].gather(-1, at) / q_draft.gather(-1, at)",
                      "q_draft.gather(-1, at) / p_target[:, :-1].gather(-1, at)", "T0", ""),
    "accept everything": (".clamp(max=1))", ".clamp(min=1))", "T0", ""),
    "residual is the target": ("(p_there - q_there).clamp(min=0)", "p_there", "T0", ""),
    "residual of absolute differences": ("(p_there - q_there).clamp(min=0)", "(p_there - q_there).abs()", "T0", ""),
    "residual softmaxed": ("(p_there - q_there).clamp(min=0)", "(p_there - q_there).clamp(min=0).softmax(-1)", "T0", ""),
    "keep after a refusal": (".cumprod(-1).sum(-1)", ".sum(-1)", "T1", "T0"),
    "only the first test counts": ("survives.long().cumprod(-1)", "survives[:, :1].expand_as(survives).long()", "T1", "T0"),
    "bonus from the draft": ("F.pad(q_draft, (0, 0, 0, 1))", "F.pad(q_draft, (0, 0, 0, 1), value=.3)", "T1", "T0"),
    "replacement from the row before": ("p_target[row, kept], q_draft", "p_target[row, (kept - 1).clamp(min=0)], q_draft",
                                        "T1", ""),
    "replacement from the last row": ("p_target[row, kept], q_draft", "p_target[row, -1], q_draft", "T1", ""),
    "target warped otherwise than the draft": ("law(target(block, cache, upto))",
                                               "law(target(block, cache, upto) * 1.1)", "T1", "T0"),
    "target cache not rolled back": ("    cache.length = text.length - 1 ",
                                     "    cache.length = cache.length + gamma + 1 if cache.length.any() else text.length - 1 ",
                                     "T2", "T1"),
    "target cache rolled back one too few": ("    cache.length = text.length - 1 ", "    cache.length = text.length - 0 ",
                                             "T1", "T0"),
    "draft misses its own last token": ("feed = text.last(2)\n        self.cache.length = text.length - 2",
                                        "feed = text.last(1)\n        self.cache.length = text.length - 1",
                                        "T3 cache", "T2"),
    "stop looked for in the last token only": ("until(guesses[:n] + [last], stop)", "(guesses[:n] + [last], last in stop)",
                                               "T2 stop", "T2"),
    "rows share the first row's refusal": ("kept = survives.long().cumprod(-1).sum(-1) ",
                                           "kept = survives.long().cumprod(-1).sum(-1)[:1].expand(len(drafted)) ",
                                           "T2 rows", "T2"),
    "greedy: the draft's word is taken": ("ratio[:, :, 0].clamp(max=1)", "ratio[:, :, 0].clamp(min=1e-2, max=1)", "T0", ""),
}


def mutant(old, new):
    """speculate.py with one line changed, as a module of its own."""
    source = inspect.getsource(nanospec.speculate)
    assert source.count(old) == 1, f"this line is no longer there, or not alone: {old!r}"
    module = types.ModuleType("mutant")
    sys.modules["mutant"] = module              # dataclasses look their module up
    exec(source.replace(old, new), module.__dict__)
    return module


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught_by_the_check_that_claims_it(name, monkeypatch):
    old, new, catcher, blind = MUTANTS[name]
    changed = mutant(old, new)
    for what in ("verify", "chain_round", "speculate", "ModelDrafter"):
        monkeypatch.setattr(layers, what, getattr(changed, what))
    try:
        _, error, _ = CATCHERS[catcher]()
    except (AssertionError, IndexError, RuntimeError) as broken:        # it fell over: caught, too
        error = broken
    assert isinstance(error, Exception) or error > 1e-3, f"{catcher} found only {error}"
    if blind:
        assert CATCHERS[blind]()[1] < layers.TOLERANCE, f"{blind} sees it too: say so above"


def test_the_planting_itself_changes_nothing(monkeypatch):
    """The control: the same surgery with nothing changed passes every catcher."""
    unchanged = mutant("gamma guesses for every row", "gamma guesses for every row")
    for what in ("verify", "chain_round", "speculate", "ModelDrafter"):
        monkeypatch.setattr(layers, what, getattr(unchanged, what))
    for catcher in CATCHERS.values():
        assert catcher()[1] < layers.TOLERANCE


def test_the_walk_itself():
    """Two coins and a die, by hand: {1/4 * (1/2, 1/2), 3/4} and a die only where the coin fell heads."""
    def play(dice):
        heads, = dice.flip(torch.tensor([[0.25]]))[0].tolist()
        return int(dice.pick(torch.tensor([[2.0, 0.0, 2.0]]))) if heads else "tails"
    law, paths = walk(play)
    assert law == {0: 0.125, 2: 0.125, "tails": 0.75} and paths == 3


def test_what_is_certain_is_no_choice():
    law, paths = walk(lambda dice: (dice.flip(torch.tensor([[0.0, 1.0, 1.7]])).tolist(), int(dice.pick(torch.eye(3)[1:2]))
                                    ).__repr__())
    assert paths == 1 and law == {"([[False, True, True]], 1)": 1.0}


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
    assert product_law(a, b) == {("x", "x"): .125, ("x", "z"): .375, ("y", "x"): .125, ("y", "z"): .375}


def test_a_table_notices_its_whole_context():
    """Any change of any token before it changes the law: what makes a stale cache visible."""
    table, text = TableModel(3, 7), [0, 1, 2, 2, 1, 0]
    law = table(torch.tensor([text]))[0, -1]
    for i in range(len(text)):
        other = text[:i] + [(text[i] + 1) % 3] + text[i + 1:]
        assert not torch.equal(table(torch.tensor([other]))[0, -1], law)
    assert not torch.equal(table(torch.tensor([text[1:]]))[0, -1], law)


def test_the_command_line_exits_1_when_anything_is_wrong(monkeypatch, capsys):
    from nanospec.proof import __main__ as command
    monkeypatch.setattr(command, "checks", lambda: [("T0", "wrong on purpose", lambda: (1, 0.1, 0.1)),
                                                    ("T0", "nan is no pass", lambda: (1, float("nan"), float("nan"))),
                                                    ("T0", "the node", layers.node)])
    assert command.main() == 1
    out = capsys.readouterr().out
    assert out.count("WRONG") == 3 and "1 of 3" in out
    monkeypatch.setattr(command, "checks", lambda: [("T0", "the node", layers.node)])
    assert command.main() == 0
