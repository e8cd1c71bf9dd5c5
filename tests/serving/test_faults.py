"""Random schedules in which a model, the drafter, the rule, the dice or a move of rows throws something at a random
call: before it has done its work, or after. What was done stays, what was running says what happened, and the server
takes no further step. The requests that it lost are asked anew of another one.
"""

from functools import partial

import pytest
from hypothesis import settings
from hypothesis.stateful import rule, run_state_machine_as_test
from hypothesis.strategies import integers, lists, sampled_from, tuples

from nanospec.cache import Cache
from nanospec.dice import Dice
from nanospec.errors import LogitsError
from nanospec.model import GPT
from nanospec.proof.tables import TableModel
from nanospec.serving import rows
from nanospec.serving.server import Server, ServerError
from tests.serving.test_random_schedules import DIFFERENT, LEARNED, ROWS, Schedule, dice_of, new_drafter

CALLS = integers(0, 60)             # until a fault: some steps
KINDS = sampled_from([ValueError, KeyboardInterrupt, LogitsError])


class Faults:
    """coming: after how many more calls of those that are counted what is thrown. now: whether they are counted."""

    def __init__(self):
        self.coming, self.now = [], False

    def counted(self, function):
        def call(*args, **how):
            self.count()
            result = function(*args, **how)
            self.count()
            return result
        return call

    def count(self):
        if not self.now or not self.coming:
            return
        (calls, error), *later = self.coming
        self.coming = later if calls == 0 else [(calls - 1, error), *later]
        if calls == 0:
            raise error


@pytest.fixture
def faults(monkeypatch):
    """In all that a server calls, but for the drafter, the rule and what begins with an underscore."""
    found = Faults()
    for thing, names in ((TableModel, ["__call__", "new_cache"]), (GPT, ["forward", "new_cache"]),
                         (Dice, ["refill", "flip", "pick"]), (Cache, ["put", "index", "write"]),
                         (rows, ["move", "begin"])):
        for name in names:
            monkeypatch.setattr(thing, name, found.counted(getattr(thing, name)))
    return found


class Faulty(Schedule):
    """Sooner or later a step throws. The next server gets what it had not finished."""

    def __init__(self, name, faults):
        super().__init__(name)
        self.faults, faults.coming = faults, []
        self.judged = faults.counted(self.judged)
        self.open()

    def open(self):
        self.drafter = new_drafter(self.name)
        self.server = Server(self.target, self.drafter, ROWS, dice=dice_of(self.name)([0]))
        self.server.rule = partial(self.judged, self.server.rule)
        for name in "begin", "propose", "commit":
            setattr(self.drafter, name, self.faults.counted(getattr(self.drafter, name)))

    @rule(those=lists(tuples(CALLS, KINDS), min_size=1, max_size=3))
    def something_will_go_wrong(self, those):
        self.faults.coming += [(calls, kind("thrown")) for calls, kind in those]

    def step(self):
        before = {request: (request.done, request.error, [*request.tokens]) for request, *_ in self.known}
        coming = {error for _, error in self.faults.coming}
        self.faults.now = True
        try:
            super().step()
        except (ValueError, KeyboardInterrupt, LogitsError) as error:
            self.faults.now = False
            assert error in coming
            self.ended(before, coming, error)
        finally:
            self.faults.now = False
        for entry in self.known:                # the drafter refused it at `begin`, and the others went on
            entry[3] |= entry[0].error in coming

    def ended(self, before, coming, error):
        """Nothing that was done has changed, all others have failed, and nothing more can be had of this server."""
        lost = [entry for entry in self.known if not before[entry[0]][0] and isinstance(entry[0].error, ServerError)]
        for entry in self.known:
            request, (was_done, *was) = entry[0], before[entry[0]]
            assert request.done and (not was_done or was == [request.error, request.tokens])
            assert was_done or entry in lost or request.error in coming or request.ids[0] in self.errors
        for entry in lost:
            assert entry[0].error.__cause__ is error and "thrown" in str(entry[0].error)
            entry[3] = True
        for refused in self.server.step, partial(self.server.submit, [1]):
            with pytest.raises(ServerError, match="in the middle of a step, with .*thrown"):
                refused()
        self.open()
        for _, which, *_ in lost:
            self.ask_for(which)


@pytest.mark.parametrize("name", [*DIFFERENT, *LEARNED])
def test_nothing_is_wrong_and_nothing_lost(name, faults):
    run_state_machine_as_test(partial(Faulty, name, faults), settings=settings(
        derandomize=True, database=None, deadline=None, max_examples=4, stateful_step_count=25))
