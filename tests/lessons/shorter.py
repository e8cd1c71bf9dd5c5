"""A lesson in a test: with less to do, and before a release as it is."""

import pytest


def shorter(*exchanged: tuple[str, str]) -> pytest.MarkDecorator:
    """For a test that runs lesson(number, *exchanged): with these words the lesson trains, writes or measures less.

    Every claim is still true then. `pytest -m slow` runs the lesson as it is.
    """
    return pytest.mark.parametrize("exchanged", [pytest.param(exchanged, id="shorter"),
                                                 pytest.param((), id="whole", marks=pytest.mark.slow)])
