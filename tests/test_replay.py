"""Methods compared on one text with one luck: that the text is the target's, and the luck that of keep or replace."""

import pytest
import torch

from nanospec.generate import generate
from nanospec.methods import DYNAMIC, method_of
from nanospec.proof.checks import DRAFT, TABLE, WARM, expected_kept
from nanospec.proof.tables import small_gpt
from nanospec.bench.replay import replay
from nanospec.speculate import tokens_of

GPT, GPT_DRAFT = small_gpt(11, 2, 1), small_gpt(11, 1, 2)
METHODS = [*(method_of(GPT, GPT_DRAFT, gamma=gamma) for gamma in (1, 3, 6)),
           *(method_of(GPT, GPT_DRAFT, name, gamma=6) for name in DYNAMIC)]


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_k": 4}, {"temperature": 0}])
def test_all_write_the_text_that_the_target_writes(settings):
    for seed in range(4):
        text = list(generate(GPT, [1, 2], 40, seed=seed, **settings))
        for method, rounds in zip(METHODS, replay(GPT, [1, 2], METHODS, 40, seed, **settings)):
            assert tokens_of(rounds) == text, method.name


def fates(rounds) -> dict[int, bool]:
    """Of every place that was judged, whether the guess stood."""
    at, out = 0, {}
    for one in rounds:
        out |= {at + i: i < one.kept for i in range(min(one.kept + 1, len(one.drafted)))}
        at += one.kept + 1
    return out


def test_a_guess_stands_or_falls_whoever_makes_it():
    both = stood = 0
    for seed in range(10):
        known = {}
        for rounds in replay(GPT, [3], METHODS, 60, seed):
            for place, stands in fates(rounds).items():
                if place < 59:                                  # the last token of the text is never a guess
                    assert known.setdefault(place, stands) == stands
                    both, stood = both + 1, stood + stands
    assert 0.1 < stood / both < 0.9


def test_guesses_stand_as_often_as_by_keep_or_replace():
    """Over 3,000 texts the mean of the first round is within five standard errors of its exact expectation."""
    method, counts = method_of(TABLE, DRAFT, gamma=2), []
    for seed in range(3000):
        rounds, = replay(TABLE, [1, 0], [method], 6, seed, **WARM)
        counts.append(float(rounds[0].kept))
    counts, right = torch.tensor(counts), expected_kept(TABLE, DRAFT, [1, 0], 2, **WARM)
    assert 0.2 < right < 1.8 and abs(counts.mean().item() - right) < 5 * counts.std().item() / len(counts) ** 0.5
