"""The pretend GPU, plugged in for one test, and copies of models on it."""

import copy
from typing import Any

import pytest

from tests.device.pretend import NAME, plugged


@pytest.fixture
def gpu() -> Any:
    with plugged() as machine:
        yield machine


@pytest.fixture
def there(gpu) -> Any:
    """there(model) -> a copy of it on the device; there(draft, target), of a draft model for that copy of a target."""
    def moved(model: Any, target: Any = None) -> Any:
        copied = copy.deepcopy(model).to(NAME)
        return copied.attach(target) if target else copied
    return moved
