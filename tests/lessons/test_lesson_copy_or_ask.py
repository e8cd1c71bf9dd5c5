"""How far copies can be trusted, both offers, and who may choose, by other roads."""

import pytest

from printed import table_under
from shorter import shorter

pytestmark = pytest.mark.xdist_group("held-out texts")      # which one process then reads once


@pytest.mark.usefixtures("packed")
@shorter(("held_out_prompts(pair, 6)", "held_out_prompts(pair, 2)"), ("new=96", "new=48"),
         ("enumerate(texts[kind])", "enumerate(texts[kind][:1])"),
         ("itself\": repetitive_prompts(pair)", "itself\": repetitive_prompts(pair)[:1]"),
         ("ids, 64, temperature=T", "ids, 24, temperature=T"))
def test_copy_or_ask(lesson, exchanged):
    names, out = lesson("copy_or_ask", *exchanged)

    # the longest match, by looking at every place
    longest_match = names["longest_match"]
    for ids in [1, 2, 3, 1, 2], [1, 1, 1], [1, 2, 3], [5, 1, 2, 7, 4, 1, 2, 8, 1, 2], [2, 1, 2, 1, 2]:
        every = [(n, at) for at in range(1, len(ids)) for n in range(1, at + 1) if ids[at - n:at] == ids[-n:]]
        n, at = max(every, default=(0, 0))
        assert longest_match(ids) == (n, ids[at] if n else None)

    # the chances are means of probabilities; every match is in one class
    for T, of_T in names["found"].items():
        classes = [names["class_of"](n) for n, _ in of_T]
        for i, chance in enumerate(names["chance"][T]):
            part = [p for (_, p), its in zip(of_T, classes) if its == i]
            assert not part or chance == pytest.approx(sum(part) / len(part))
            assert 0 <= chance <= 1
    assert [names["class_of"](n) for n in (1, 2, 3, 4, 5, 8, 9, 99)] == [0, 1, 2, 2, 3, 3, 4, 4]
    assert all(p in (0, 1) for _, p in names["found"][0])

    # both offers: no other length is better
    v, c, most = names["v"], names["C"], names["MOST"]
    for T in 0, 1:
        alpha = names["ALPHA"][T]
        chains = [(1 - alpha ** (g + 1)) / (1 - alpha) / (g * c + v(g + 1)) for g in range(1, most + 1)]
        assert names["chain_offer"](T) == pytest.approx((max(chains), 1 + chains.index(max(chains))))
        for n in 1, 2, 4, 8:
            chances, copies = [names["chance"][T][names["class_of"](n + k)] for k in range(most)], []
            for m in range(1, most + 1):
                stands = [1.0]
                for chance in chances[:m]:
                    stands.append(stands[-1] * chance)
                copies.append(sum(stands) / v(m + 1))
            assert names["copy_offer"](n, T)[0] == pytest.approx(max(copies))
    assert names["copy_offer"](8, 0)[0] > names["chain_offer"](0)[0]
    assert names["copy_offer"](1, 1)[0] < names["chain_offer"](1)[0]

    # who looks at the draw is wrong
    off = list(names["off"].values())
    assert max(off[:2]) < 1e-12 and off[2] > 0.1
    assert [cells[-1] for name, cells in table_under(out, "drafted is").items() if cells] == [f"{tv:.1e}" for tv in off]

    # what was counted
    counted = names["counted"]
    for kind in "held-out code", "code that repeats itself":
        gains = {name: counted[kind, 0, name][2] for name in names["DRAFTERS"]}
        if kind == "held-out code" and not exchanged:           # a short text teaches it too little
            assert gains["hybrid"] > max(gains["chain of 4"], gains["lookup"])
        steps = [counted[kind, 0, name][1] for name in ("lookup", "hybrid", "chain of 4")]
        assert steps[0] == 0 <= steps[1] < 4 == steps[2]
