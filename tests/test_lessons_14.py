"""Lesson 14: no rule passes its ceiling, and the ceilings are what a maximal flow finds."""

import math
from collections import Counter
from itertools import permutations, product

import networkx        # comes with torch
import pytest
import torch

from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.rules.kseq import best_acceptance
from nanospec.theory import acceptance

BLOCK, RULES = ("block, token by token", "block, as a whole"), ("independent, in turn", "independent, k-SEQ")
MOST = {"block": "block, no rule keeps more", "independent": "independent, no rule keeps more",
        "none twice": "none twice, no rule keeps more"}


def of_texts(law) -> Counter:
    """{(kept, text): probability} -> {text: probability}."""
    texts = Counter()
    for (_, text), weight in law.items():
        texts[text] += weight
    return texts


def mean_kept(law) -> float:
    return sum(n * weight for (n, _), weight in law.items())


def most_by_flow(p_12, q_12, k, twice) -> float:
    """From every draw of k guesses to the tokens in it; p_target and q_draft in twelfths."""
    whole, flow = math.lcm(*range(1, 13)) ** k, networkx.DiGraph()
    draws = product(range(len(q_12)), repeat=k) if twice else permutations(range(len(q_12)), k)
    for draw in draws:
        chance, left = whole, 12
        for x in draw:
            chance, left = chance * q_12[x] // left, left if twice else left - q_12[x]
        flow.add_edge("from", draw, capacity=chance)
        flow.add_edges_from((draw, x) for x in draw)
    flow.add_edges_from((x, "to", {"capacity": p_x * whole // 12}) for x, p_x in enumerate(p_12))
    return networkx.maximum_flow_value(flow, "from", "to") / whole


def test_lesson_14_no_rule_passes_its_ceiling(lesson):
    names, out = lesson("14")
    truth = target_distribution(names["big"], [0], 3)

    # the toy, walked: exact, 10/9 and 11/9, and the rule by hand is the library's
    by_token, by_hand, by_library = names["laws"]
    for law, kept in (by_token, 10 / 9), (by_hand, 11 / 9), (by_library, 11 / 9):
        assert mean_kept(law) == pytest.approx(kept, abs=1e-12) and distance(of_texts(law), truth)[1] < 1e-12
    assert distance(by_hand, by_library)[1] < 1e-12 and distance(by_hand, by_token)[1] > .05
    for name, kept in ("token by token", 10), ("as a whole", 11), ("rules/block.py", 11):
        assert f"{name:15} keeps {kept}/9 of two guesses" in out

    # blocks: in this order for every draft and every place, the same for one guess, and apart by the eighth
    stay, in_block = names["stay"], names["in_block"]
    least, middle, most = (stay[name].double() for name in (*BLOCK, MOST["block"]))
    assert (least <= middle + 1e-6).all() and (middle <= most + 1e-6).all()
    assert in_block[BLOCK[0]][0] == pytest.approx(in_block[MOST["block"]][0], abs=1e-6)
    assert in_block[BLOCK[0]][7] < in_block[BLOCK[1]][7] - .05 < in_block[MOST["block"]][7] - .1
    done = names["rounds"][3]
    ratio = [float(p[x] / q[x]) for x, p, q in zip(done.tokens[1:], done.p_target, done.q_draft[1:])]
    w = 1.0
    for i in range(8):
        w = min(1.0, w * ratio[i])
        assert middle[3, i].item() == pytest.approx(w, abs=1e-6)
        assert least[3, i].item() == pytest.approx(math.prod(min(1, factor) for factor in ratio[:i + 1]), abs=1e-6)
        assert most[3, i].item() == pytest.approx(min(1, math.prod(ratio[:i + 1])), abs=1e-6)

    # several guesses: from keep-or-replace's share upwards, at every place below the ceiling of its kind
    of_token, kept_of = names["of_token"], names["kept_of"]
    for p, q in names["pairs"]:
        assert p.sum().item() == pytest.approx(1) and len(p) == 8
        for name, kept in kept_of.items():
            chances = [kept(p, q, k) for k in (1, 2, 3)]
            assert chances[0] == pytest.approx(acceptance(p, q).item(), abs=1e-9)
            assert chances[0] <= chances[1] + 1e-9 <= chances[2] + 2e-9
            ceiling = kept_of[MOST[name.split(",")[0]]]
            assert all(chance <= ceiling(p, q, k) + 1e-9 for k, chance in enumerate(chances, 1))
        assert kept_of[MOST["independent"]](p, q, 3) == pytest.approx(best_acceptance(p, q, 3), abs=1e-12)
        assert kept_of[MOST["none twice"]](p, q, 3) > kept_of[MOST["independent"]](p, q, 3) - 1e-12
    for k in range(1, 5):
        assert of_token[RULES[0]][k] < of_token[RULES[1]][k] < of_token[MOST["independent"]][k] - .005
        assert of_token[RULES[0]][k] < of_token["none twice, in turn"][k] < of_token[MOST["none twice"]][k] - .005

    # the table: every curve, its means, and its share of the ceiling
    curves, table = in_block | of_token, [row.split() for row in out.splitlines()]
    assert len(curves) == len(names["rows"]) == 8
    for name, kept in curves.items():
        share = kept[4] / curves[MOST[name.split(",")[0]]][4]
        assert [*name.split(), *(f"{mean:.3f}" for mean in kept[:5]), f"{share:.1%}"] in table

    the_ceilings_are_maximal_flows(names["ceiling"])
    what_is_to_be_changed(names, truth)


def the_ceilings_are_maximal_flows(ceiling):
    made, higher = torch.Generator().manual_seed(14), 0
    assert ceiling([.5, .5], [.8, .2], 1) == pytest.approx(.7) and ceiling([.5, .5], [.8, .2], 2) == pytest.approx(.86)
    assert ceiling([.5, .5], [.8, .2], 2, twice=False) == pytest.approx(1)
    for k, twice in product((1, 2, 3), (True, False)):
        for _ in range(6):
            p_12, q_12 = ((torch.randint(4, (8,), generator=made).bincount(minlength=4) + 1).tolist() for _ in range(2))
            laws = [torch.tensor(law, dtype=torch.float64) / 12 for law in (p_12, q_12)]
            found = ceiling(*(law.tolist() for law in laws), k, twice)
            assert found == pytest.approx(most_by_flow(p_12, q_12, k, twice), abs=1e-12)
            higher += found > best_acceptance(*laws, k) + 1e-9
    assert higher > 6                                           # without replacement more can be kept


def what_is_to_be_changed(names, truth):
    """Without its minimum the rule keeps what the ceiling allows, 12/9, and the law is wrong. Of the draft's favourites
    one is kept less often than of guesses drawn."""
    names["block"].__globals__["weights"] = lambda ratios: [1.0, *torch.stack(list(ratios)).cumprod(0)]

    def by_hand(draft, p_target, dice):
        return torch.tensor(names["block"](draft.tokens[0, 1:], draft.q_draft[0, 1:], p_target[0],
                                           names["OneRow"](dice)))[:, None]

    law, _ = walk(lambda dice: names["one_text"](by_hand, dice))
    assert mean_kept(law) == pytest.approx(12 / 9, abs=1e-12) and distance(of_texts(law), truth)[1] > .1
    for k in (1, 2):
        chosen = sum(p[q.topk(k).indices].sum().item() for p, q in names["pairs"]) / len(names["pairs"])
        assert chosen < names["of_token"]["independent, in turn"][k - 1] - .02
