"""The plain chain, walked: what ships passes the checks of the core and every part of the contract. All other drafters
and rules are in tests/methods/test_contract.py.
"""

import itertools

import pytest
import torch

from nanospec.proof.walk import TOLERANCE, walk
from tests.proof.checks import CHECKS, OF_THE_CORE, result_of
from tests.proof.contract import CONTRACT


@pytest.mark.parametrize("name", OF_THE_CORE)
def test_check(name):
    result = result_of(CHECKS[name])
    assert result.passed and result.count, f"error {result.error:.2g}, total variation {result.tv:.2g}"


@pytest.mark.parametrize("part", CONTRACT)
def test_contract(part):
    count, error, tv = CONTRACT[part]("chain", "token")
    assert count and error <= TOLERANCE and tv <= TOLERANCE, f"error {error:.2g}, total variation {tv:.2g}"


def test_no_check_of_the_core_is_slow():
    assert not any(CHECKS[name].slow for name in OF_THE_CORE)


def test_a_walk_whose_odds_change_from_run_to_run_is_none():
    runs = itertools.count(2)
    with pytest.raises(AssertionError, match=r"decision 0 has other odds: \[1.0, 2.0\], now \[1.0, 3.0\]"):
        walk(lambda dice: int(dice.pick(torch.tensor([[1, next(runs)]], dtype=torch.float64))))
