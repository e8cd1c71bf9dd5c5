"""What every lesson uses."""

import pytest

from kit import OneRow, Quiet
from nanospec.dice import Dice


@pytest.mark.parametrize("seconds, busy", [([1e-3] * 6, False), ([1e-3, 1.4e-3] * 3, False),
                                           ([1e-3] * 5 + [2e-3], True), ([4e-3] + [1e-3] * 5, True),
                                           ([1e-3] * 3 + [3e-3] + [1e-3] * 3, True)])
def test_a_busy_machine_is_told(seconds, busy, capsys):
    times = iter(seconds)
    quiet = Quiet(lambda: next(times))
    if len(seconds) == 7:
        quiet.look()
    quiet.tell("v(2) 1.04")
    out = capsys.readouterr().out
    assert ("This machine is busy" in out) == busy == ("On an idle machine: v(2) 1.04." in out)
    assert not busy or f"{1e3 * min(seconds):.2f} to {1e3 * max(seconds):.2f} ms" in out


def test_dice_for_one_text_take_the_librarys_uniforms():
    """One decision, one uniform."""
    one, library = OneRow(seed=3), Dice([3])
    for weights in [.2, .3, .5], [1, 0, 3]:
        library.refill(1)
        u, total = library.u[0, 0].item(), sum(weights)
        assert one.pick(weights) == next(i for i in range(3) if sum(weights[:i + 1]) > u * total)
    library.refill(1)
    assert one.flip(.5) == (library.u[0, 0].item() < .5)
