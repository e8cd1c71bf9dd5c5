"""The simulated server against what must hold of it, the formula of a hidden draft, and another way to be wrong."""

import pytest
from lessons.figures import lessons_24_to_32
from printed import table_under

from nanospec.theory import expected_tokens


def test_what_a_user_waits_for(lesson):
    names, out = lesson("what_a_user_waits_for")
    served, found = names["served"], names["found"]

    # one text at a time, and plain: a prompt takes 2, a token 1; with drafts, a round takes 1 + gamma c
    done, _ = served(1e6, 0, count=20)
    assert all(request.tokens == 60 for request in done)
    assert all(request.first - request.came == pytest.approx(3, abs=1e-6) for request in done)
    assert all((request.last - request.first) / 59 == pytest.approx(1, abs=1e-6) == request.pause for request in done)
    done, _ = served(1e6, 4, count=200)
    per_token = sum(request.last - request.first for request in done) / sum(request.tokens - 1 for request in done)
    assert per_token == pytest.approx(1.2 / expected_tokens(.7, 4), rel=0.05)
    assert all(request.first - request.came == pytest.approx(2 * 1.05 + 1.2, abs=1e-6) for request in done)

    # what is printed is what was found; the throughput of a server that keeps up is what is asked for
    printed = [line.split() for line in out.splitlines() if line.startswith(("seldom", "often", "all at once"))]
    assert [line[-4:] for line in printed] == [[f"{number:.2f}" for number in line] for line in found.values()]
    assert all(found["seldom", gamma][3] == pytest.approx(60 / 150, rel=0.1) for gamma in (0, 1, 4))

    # hidden: never slower than in turn, and most for the expensive draft model
    gains = names["gains"]
    assert all(once > turn for turn, once in gains.values())
    assert gains[0.3, 2][1] / gains[0.3, 2][0] > gains[0.02, 2][1] / gains[0.02, 2][0]
    hit = 0.7 ** 2
    assert gains[0.3, 1] == pytest.approx((1.7 / 1.3, 1.7 / (hit + (1 - hit) * 1.3)))
    assert {*table_under(out, "c  ")} == {"0.02", "0.1", "0.3", "v = 1"} and names["off"] < 1e-12


def test_its_picture(monkeypatch):
    """On the left the time of a token at each load; in the middle, at the last load, over plain decoding there."""
    drawn = []
    monkeypatch.setattr(lessons_24_to_32, "save", lambda figure, name: drawn.append(figure))
    lessons_24_to_32.what_a_user_waits_for(
        {("seldom", 0): (3, 1, 1.5, .5), ("seldom", 4): (6, .75, 2, .7), ("often", 0): (8, 2, 4, 10),
         ("often", 4): (4, 3, 10, 5)}, {(.1, 2): (1.25, 1.75)})
    left, middle, _ = ([bar.get_height() for bar in axes.patches] for axes in drawn[0].axes)
    assert left == [1, 2, .75, 3] and middle == [1, 1, 1, 1, .5, 1.5, 2.5, .5]
