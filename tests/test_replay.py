"""Methods compared on one text with one luck: that the text is the target's, and the luck that of accept or reject."""

import pytest

from nanospec.bench.replay import Script, drawn_from, replay, scripted
from nanospec.bench.stopping import DYNAMIC
from nanospec.dice import Dice
from nanospec.generate import generate
from nanospec.methods import method_of
from nanospec.proof.checks import WARM
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.proof.walk import distance, walk
from nanospec.speculate import tokens_of

GPT, GPT_DRAFT = small_gpt(11, 2, 1), small_gpt(11, 1, 2)
TABLE, DRAFT = TableModel(3, 8, zeros=0.4), TableModel(3, 58, zeros=0.4)
METHODS = [*(method_of(GPT, GPT_DRAFT, gamma=gamma) for gamma in (1, 3, 6)),
           *(method_of(GPT, GPT_DRAFT, name, gamma=6) for name in DYNAMIC)]


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_k": 4}, {"temperature": 0}])
def test_all_write_the_text_that_the_target_writes(settings):
    text = list(generate(GPT, [1, 2], 30, seed=1, **settings))
    for method, rounds in zip(METHODS, replay(GPT, [1, 2], METHODS, 30, 1, **settings)):
        assert tokens_of(rounds) == text, method.name


def fates(rounds) -> dict[int, bool]:
    """Of every place that was judged, whether the draft token was accepted."""
    at, out = 0, {}
    for done in rounds:
        accepted, drafted = len(done.path), len(done.tokens) - 1
        out |= {at + i: i < accepted for i in range(min(accepted + 1, drafted))}
        at += accepted + 1
    return out


def test_a_draft_token_is_accepted_or_rejected_whoever_drafts_it():
    both = stood = 0
    for seed in range(4):
        known = {}
        for rounds in replay(GPT, [3], METHODS, 30, seed):
            for place, stands in fates(rounds).items():
                if place < 29:                                  # the last token of the text is never a draft token
                    assert known.setdefault(place, stands) == stands
                    both, stood = both + 1, stood + stands
    assert 0.1 < stood / both < 0.9


@pytest.mark.parametrize("name, gamma, rounds", [("chain", 2, 1), ("chain", 1, 2), ("confidence", 2, 1)])
def test_the_distribution_is_that_of_speculate(monkeypatch, name, gamma, rounds):
    """Both walked: draft tokens, how many are accepted, and the token behind them, over all of these rounds together.

    The text is long enough that its end, where there is nothing to replay, is not reached.
    """
    method, new = method_of(TABLE, DRAFT, name, gamma=gamma), rounds * (gamma + 1) + 1

    def outcome(**more):
        run = method.run([1, 0], max_new_tokens=new, **more, **WARM)
        return tuple((tuple(done.tokens), len(done.path), done.token) for done, _ in zip(run, range(rounds)))

    def replayed(dice):
        text = list(generate(TABLE, [1, 0], new, dice=dice, **WARM))
        script = Script(text, drawn_from(TABLE, [1, 0], text, **WARM), seed=0)
        script.stands = lambda place, probability: bool(dice.flip(TABLE.logits.new_full((1, 1), probability)))
        with monkeypatch.context() as patched:
            patched.setattr(Dice, "pick", lambda self, weights: dice.pick(weights))
            return outcome(dice=script, rule=scripted)

    found, paths = walk(replayed)
    truth, _ = walk(lambda dice: outcome(dice=dice))
    assert paths > 50 and len({accepted for done in truth for _, accepted, _ in done}) == gamma + 1
    assert max(distance(found, truth)) < 1e-12
