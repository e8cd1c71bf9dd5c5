"""What every lesson uses."""

import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from kit import OneRow, Quiet, page
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


def test_links_to_the_page_lead_to_its_views():
    """Each lesson that links it prints a view that the page has; two of them the node, two the formulas."""
    lessons = sorted((Path(__file__).parents[2] / "lessons").glob("[0-9]*.py"))
    linked = {path.stem[3:]: re.findall(r'page\("(.+?)"\)', path.read_text()) for path in lessons}
    assert {name: views for name, views in linked.items() if views} == {
        "accept_or_replace": ["node"], "why_it_is_lossless": ["node"], "how_fast": ["formulas"],
        "where_it_loses": ["formulas"]}
    for view in "node", "formulas", "replay":
        link = urlsplit(page(view))
        text = Path(url2pathname(link.path)).read_text(encoding="utf-8")
        assert f'<section id="{link.fragment}"' in text and link.fragment == view
