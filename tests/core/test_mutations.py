"""Mutation tests of the core: every bug of the zoo that is planted in one of its files is caught by the check that
claims it, and each check has its reason. Bugs of the rooms, and how bugs are planted: tests/methods/test_zoo.py.
"""

import pytest

from nanospec.proof.tables import TABLE
from nanospec.proof.walk import distance, target_distribution
from nanospec.proof.zoo import planted
from tests.proof.look import look
from tests.proof.zoo import ALL_CONTROLS, CORE_BUGS, ENOUGH

NAMED = {bug.name: bug for bug in CORE_BUGS}
CONTROLS = [control for control in ALL_CONTROLS if "." not in control.file]
SEEN = 1e-11            # a total variation that no rounding makes: ten times what a check forgives


@pytest.mark.parametrize("bug", CORE_BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_caught_by_the_check_that_claims_it(bug):
    sighting = look(bug, bug.caught_by)
    assert sighting.caught, f"{bug.name}: {bug.caught_by} saw nothing"
    assert sighting.tv is None or sighting.tv > SEEN, f"{bug.name}: only {sighting.tv} off"


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_what_looks_like_a_bug_and_is_exact_passes(control):
    for check in ENOUGH[control.file]:
        sighting = look(control, check)
        assert not sighting.caught, f"{control.name}: {check} found {sighting.found}"


# Why there is more than one check: what one round cannot see, a walk of the text, short texts, settings one by one, a
# count of uniforms.
BLIND = {"T1": ("target-not-rolled-back", "eos-inside-block", "cross-row-write", "cold-is-greedy"),
         "exact: chain, token": ("draft-missing-last-accepted", "private-dice-like-the-requests"),
         "T2 rows": ("a-new-request-overwrites-all", "residual-reuses-accept-uniform", "uniform-can-be-zero",
                     "seed-ignored", "hidden-states-of-a-rejected-row"),
         "T3 cache": ("eighty-slots-seen",), "rules agree": ("almost-nothing-left",),
         "reports": ("path-cut-with-the-text", "one-step-too-many", "rejected-at-the-root")}


@pytest.mark.parametrize("check, name", [(check, name) for check, names in BLIND.items() for name in names])
def test_each_check_has_its_reason(check, name):
    assert not look(NAMED[name], check).caught, f"{check} sees {name} too"


@pytest.mark.parametrize("name", ["soft-draft-judged-as-one-hot", "draft-missing-last-accepted"])
def test_what_is_exact_may_be_slower_and_the_check_of_speed_says_so(name):
    bug = next(bug for bug in (*CORE_BUGS, *CONTROLS) if bug.name == name)
    assert look(bug, "T5 speed").caught


def test_a_bug_does_not_spoil_the_oracle():
    """What checks compare with is written by `generate`, which shares files with what speculates."""
    request = {"ids": [1, 0], "new": 2, "temperature": 0.7, "top_k": 2}
    truth = target_distribution(TABLE, **request)
    for bug in CORE_BUGS:
        if bug.file not in ("speculate", "reader"):
            with planted(bug):
                assert distance(target_distribution(TABLE, **request), truth) == (0, 0), bug.name
