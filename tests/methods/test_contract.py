"""Every drafter and rule, by its name, through every part of the contract; and the checks that are no part of it. The
plain chain is in tests/core/test_walks.py.
"""

import pytest

from nanospec.proof.walk import TOLERANCE
from tests.proof.checks import CHECKS, OF_THE_CORE, result_of
from tests.proof.compare import Off
from tests.proof.contract import CONTRACT, pairs_of

ALL = [pytest.param(part, *pair, id=f"{part}-{', '.join(pair)}", marks=[pytest.mark.slow] * (pair not in quick))
       for part in CONTRACT for quick in [pairs_of(part, quick=True)] for pair in pairs_of(part)
       if pair != ("chain", "token")]


@pytest.mark.parametrize("part, name, rule", ALL)
def test_contract(part, name, rule):
    found = CONTRACT[part](name, rule)
    count, error, tv = found
    where = found.where if isinstance(found, Off) else ""
    assert count and error <= TOLERANCE and tv <= TOLERANCE, f"error {error:.2g}, total variation {tv:.2g}: {where}"


@pytest.mark.parametrize("check", [pytest.param(check, marks=[pytest.mark.slow] * check.slow, id=name)
                                   for name, check in CHECKS.items() if name not in OF_THE_CORE])
def test_check(check):
    result = result_of(check)
    assert result.passed and result.count, f"error {result.error:.2g}, total variation {result.tv:.2g}"
