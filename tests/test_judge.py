"""The judge: innocent where it should be, named where a bug is known, and T8, real dice on the pair that ships."""

import pytest
import torch

from nanospec.generate import generate
from nanospec.files.checkpoint import load_pair
from nanospec.proof.checks import DRAFT, TABLE
from nanospec.proof.walk import target_distribution
from nanospec.proof.judge import FALSE_ALARM, judge, sampler_with
from nanospec.proof.zoo import BUGS, CONTROLS
from nanospec.speculate import ModelDrafter, speculate, tokens_of

TASK = {"target": TABLE, "draft": DRAFT, "ids": [1], "new": 3, "gamma": 2, "temperature": 0.7}
NAMED = ["residual-is-target", "bonus-from-draft", "draft-dtype-mismatch"]
bugs = {bug.name: bug for bug in BUGS + CONTROLS}


def ours(dice):
    return tokens_of(speculate(TABLE, ModelDrafter(DRAFT), [1], 2, 3, 0.7, dice=dice))


def test_speculation_is_acquitted_twice():
    verdict = judge(ours, samples=400, **TASK)
    assert not verdict.wrong and verdict.distance < 1e-12 and verdict.p_value > FALSE_ALARM
    assert verdict.samples == 400 and 0 < verdict.visible < .2 and "every path walked" in str(verdict)


@pytest.mark.parametrize("name", NAMED)
def test_a_bug_is_named(name):
    """By its law, to the walk's precision; draft-dtype-mismatch is 2e-5 off, which no feasible sample shows."""
    verdict = judge(sampler_with(bugs[name], **TASK), samples=50, **TASK)
    assert verdict.wrong and verdict.distance > 1e-6 and verdict.bugs == [name]
    assert f"the law of {name}" in str(verdict) and str(verdict).startswith("WRONG")


@pytest.mark.parametrize("control", CONTROLS, ids=lambda bug: bug.name)
def test_a_control_is_acquitted(control):
    assert not judge(sampler_with(control, **TASK), samples=200, **TASK).wrong


def test_a_sampler_with_dice_of_its_own_is_judged_by_its_samples():
    own = torch.Generator().manual_seed(1)
    seed = lambda: int(torch.randint(10 ** 9, (1,), generator=own))                                 # noqa: E731
    honest = judge(lambda dice: list(generate(TABLE, [1], 3, 0.7, seed=seed())), samples=1000, **TASK)
    assert not honest.wrong and honest.distance is None and "could not be walked" in honest.why
    hot = judge(lambda dice: list(generate(TABLE, [1], 3, 2.0, seed=seed())), samples=1000, **TASK)
    assert hot.wrong and hot.distance is None and not hot.bugs


def test_chance_used_twice_is_seen_although_the_walk_is_clean():
    """The same uniforms in every run: each decision has the right odds, and all runs agree."""
    def frozen(dice):
        for generator in getattr(dice, "generators", []):
            generator.manual_seed(7)
        return ours(dice)

    verdict = judge(frozen, samples=200, **TASK)
    assert verdict.wrong and verdict.distance < 1e-12 and "although its walked law is" in verdict.why


def test_a_law_will_do_instead_of_a_model():
    law = target_distribution(TABLE, [1], 3, temperature=0.7)
    assert not judge(ours, law, samples=200).wrong
    verdict = judge(lambda dice: list(generate(TABLE, [1], 3, 1.0, dice=dice)), law, samples=200)
    assert verdict.wrong and verdict.distance > .001 and verdict.bugs == []


def test_a_wrong_length_is_said():
    assert "returned 2 to 2 tokens where 3" in judge(lambda dice: ours(dice)[:2], samples=20, **TASK).why


# T8: the pair that ships, float32, real dice, one long run of 1,500 tokens

@pytest.fixture(scope="module")
def real():
    target, draft, tokenizer = load_pair()
    return {"target": target, "draft": draft, "ids": tokenizer.encode("class Queue:\n    def"), "new": 50, "gamma": 4}


LONG = ["accept-everything", "resample-from-last-row"]


def test_the_shipped_pair_is_acquitted(real):
    sampler = lambda dice: tokens_of(speculate(real["target"], ModelDrafter(real["draft"]), real["ids"], 4, 50, 0.8,
                                               dice=dice))                                          # noqa: E731
    verdict = judge(sampler, samples=30, temperature=0.8, **real)
    assert not verdict.wrong and verdict.samples == 1500 and verdict.visible < .1


@pytest.mark.parametrize("name", LONG)
def test_a_long_run_shows_a_bug_on_the_shipped_pair(real, name):
    assert judge(sampler_with(bugs[name], temperature=0.8, **real), samples=30, temperature=0.8, **real).wrong
