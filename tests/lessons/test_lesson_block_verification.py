"""Block verification by hand is the library's; no rule passes its ceiling, and the ceilings are what
a maximal flow finds."""

import math
import re
from collections import Counter
from fractions import Fraction
from itertools import permutations, product

import networkx        # comes with torch
import pytest
import torch
from kseq import k_seq
from oracles import best_acceptance
from shorter import shorter

from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.theory import acceptance

CHAIN = ("token by token", "as a whole", "ceiling")
RULES, WITHOUT = ("independent, node rule", "independent, k-SEQ"), "without replacement, node rule"
MOST = {"independent": "independent, ceiling", "without replacement": "without replacement, ceiling"}


def of_texts(found) -> Counter:
    """{(accepted, text): probability} -> {text: probability}."""
    texts = Counter()
    for (_, text), weight in found.items():
        texts[text] += weight
    return texts


def mean_accepted(found) -> float:
    return sum(n * weight for (n, _), weight in found.items())


def table_of(out, first, columns):
    """The lines below a heading that begins so: lists of strings."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    start = next(i for i, line in enumerate(lines) if line[0].split()[:1] == [first] and len(line) == columns)
    end = next(i for i, line in enumerate(lines) if i > start and len(line) != columns)
    return lines[start + 1:end]


@pytest.mark.usefixtures("packed")
@shorter(("encode(prompt), 48", "encode(prompt), 16"))
def test_block_verification(lesson, exchanged):
    names, out = lesson("block_verification", *exchanged)
    the_example_in_fractions(names, out)
    truth = target_distribution(names["big"], [0], 3)

    # walked: exact, 10/9 and 11/9, and the rule by hand is the library's
    by_token, by_hand, by_library = (names["walked"][name] for name in (*CHAIN[:2], "methods/rules/block.py"))
    for found, accepted in (by_token, 10 / 9), (by_hand, 11 / 9), (by_library, 11 / 9):
        assert mean_accepted(found) == pytest.approx(accepted, abs=1e-12)
        assert distance(of_texts(found), truth)[1] < 1e-12
    assert distance(by_hand, by_library)[1] < 1e-12 and distance(by_hand, by_token)[1] > .05
    for name, accepted in ("token by token", 10), ("as a whole", 11), ("methods/rules/block.py", 11):
        assert f"{name:15} accepts {accepted}/9 of two draft tokens" in out

    # a tree: one of the two children is always accepted, and then a child of the first as token by token, or as a whole
    for (name, found), ninths in zip(names["walked_trees"].items(), (13, 14)):
        assert mean_accepted(found) == pytest.approx(ninths / 9, abs=1e-12) == names["tree_accepts"][name]
        assert distance(of_texts(found), truth)[1] < 1e-12 and f"{name:17} accepts {ninths}/9, " in out

    # on the pair: the same with one draft token, apart by the eighth
    less, more = (names["accepted_of"][name] for name in CHAIN[:2])
    assert less[0] == pytest.approx(more[0], abs=1e-9) and less[7] < more[7] - .05
    assert all(a <= b + 1e-9 for a, b in zip(less, more))
    for name in CHAIN[:2]:
        assert [name, *(f"{mean:.3f}" for mean in names["accepted_of"][name])] in table_of(out, "draft", 9)
    what_is_to_be_changed(names, truth)


def the_example_in_fractions(names, out):
    """What the prose says of the paper's example, and the table of all ways."""
    ninth = Fraction(1, 9)
    assert names["drafted"] == [4 * ninth, 2 * ninth, 2 * ninth, ninth] and names["by_token"] == [ninth] * 4
    assert names["as_one"] == [ninth, 2 * ninth, 2 * ninth, ninth]
    assert names["as_a_whole"] == [ninth, 2 * ninth, ninth, ninth] and names["accepted_on_average"] == 11 * ninth
    w = {"AA": ["1/2", "1/4", "1/4"], "AB": ["1/2", "1", "1/2"], "BA": ["1", "1/2", "1/2"], "BB": ["1", "1", "1"]}
    assert {line[0]: line[3:] for line in table_of(out, "draft", 6)[:4]} == w          # w_1, w_2; both, token by token
    third = Fraction(1, 3)
    assert names["steps"] == [["front", 1, "1/3, 2/3", "1/3, 1/3", "0, 1/3", third, third, 1],
                              ["after A", third * 3 / 2, "1/6, 1/3", "1/6, 1/3", "0, 0", 0, third * 3 / 2, 0],
                              ["after B", 1, "1/3, 2/3", "1/3, 1/3", "0, 1/3", third, third, 1]]
    ways = [line for line in (line.split() for line in out.splitlines())
            if len(line) == 6 and line[4] in ("AA", "B", "AB", "BA", "BB")]
    assert len(ways) == 6 and sum(Fraction(line[5]) for line in ways) == 1
    assert sum(int(line[2]) * Fraction(line[5]) for line in ways) == 11 * ninth
    for draft_model, chance, _, probability, _, together in ways:
        assert Fraction(chance) * Fraction(probability) == Fraction(together)
    p = {"A": third, "B": 2 * third}
    ends = table_of(out, "text", 5)
    assert [line[0] for line in ends] == ["AA", "AB", "BA", "BB"]
    for text, at_once, later, together, wanted in ends:
        assert Fraction(at_once) + Fraction(later) == Fraction(together) == Fraction(wanted) == p[text[0]] * p[text[1]]


def what_is_to_be_changed(names, truth):
    """Without its minimum the rule accepts what the ceiling allows, 12/9, and the distribution is wrong."""
    names["block_verification"].__globals__["weights"] = lambda ratios: [1.0, *torch.stack(list(ratios)).cumprod(0)]
    found, _ = walk(lambda dice: names["one_text"](names["by_hand"], dice))
    assert mean_accepted(found) == pytest.approx(12 / 9, abs=1e-12) and distance(of_texts(found), truth)[1] > .1


@pytest.mark.usefixtures("packed")
@shorter(("encode(prompt), 48", "encode(prompt), 28"), ('radius):\\n"), 24, ', 'radius):\\n"), 10, '))
def test_no_rule_passes_its_ceiling(lesson, exchanged):
    names, out = lesson("how_close_a_rule_can_come", *exchanged)

    # one draft token: the printed bounds, and the lowest is what accept or replace accepts
    bounds = re.findall(r"^  S = (.+?) +at most ([\d.]+) is accepted$", out, re.MULTILINE)
    assert bounds[0] == ("zip, def", "0.50") and "accept or replace accepts 0.50" in out
    assert [bound for _, bound in bounds] == sorted(bound for _, bound in bounds)
    assert names["example"] == pytest.approx({RULES[0]: .76, RULES[1]: .7914, MOST["independent"]: .86, WITHOUT: 1,
                                              MOST["without replacement"]: 1}, abs=1e-4)
    one_seed_one_text(names, out)
    drafts_of_several(names)
    several_for_one_place(names)

    # the tables: every curve, its means, and its share of the ceiling
    curves, lines = names["chain"] | names["place"], [line.split() for line in out.splitlines()]
    assert len(curves) == 8
    for name, found in curves.items():
        most = curves["ceiling"] if name in CHAIN else curves[MOST[name.split(",")[0]]]
        assert [*name.split(), *(f"{mean:.3f}" for mean in found[:5]), f"{found[4] / most[4]:.1%}"] in lines

    the_ceilings_are_maximal_flows(names["ceiling"])
    for k in (1, 2):                                    # of the draft model's favourites one is accepted less often
        chosen = sum(p[q.topk(k).indices].sum().item() for p, q in names["pairs"]) / len(names["pairs"])
        assert chosen < names["place"]["independent, node rule"][k - 1]


def one_seed_one_text(names, out):
    """The printed shares by hand, the bounds, and that the text of a seed is that of the seed's own draws."""
    lines = {cells[0]: cells[1:] for cells in (re.split(r" {2,}", line.strip()) for line in out.splitlines())}
    # p [1/2, 1/2], q [4/5, 1/5]: .4 + .1; [0, 1/2) and [4/5, 1); 1/2 + 1/5; the same
    assert lines["two tokens"] == ["0.500", "0.700", "0.700", "0.700"]
    # p [.6, .3, .1, 0], q [.2, .2, .5, .1]: .12 + .06 + .05; the first .2 alone; 1 / (1 + 1 + 5/2 + 1/2) + ...; .5
    by_hand = 1 / 5 + 1 / (2 + 1 + 2.5 + .5) + 1 / (6 + 3 + 1 + .2)
    assert lines["the bad draft model from above"] == ["0.230", "0.200", f"{by_hand:.3f}", "0.500"]
    for apart, _, noise, most in names["accepted"].values():
        assert apart <= noise <= most + 1e-12
    seeded, noise = names["seeded"], names["noise"]
    for draft_model in names["big"], names["small"]:                    # whatever drafts
        text, calls = seeded(names["big"], draft_model, [1], 3, lambda place: noise(place)[:3], 2)
        assert text == seeded(names["big"], None, [1], 3, lambda place: noise(place)[:3], 0)[0]
        assert calls == 1 or draft_model is names["small"]
    assert names["off"] < 1e-12


def drafts_of_several(names):
    """In this order for every draft and every place, the same for one draft token, and apart by the eighth."""
    ways, chain = torch.tensor(names["found"], dtype=torch.float64), names["chain"]         # (rounds, gamma, 3)
    least, middle, most = ways.unbind(-1)
    assert (least <= middle + 1e-6).all() and (middle <= most + 1e-6).all()
    assert chain["token by token"][0] == pytest.approx(chain["ceiling"][0], abs=1e-6)
    assert chain["token by token"][7] < chain["as a whole"][7] - .05 < chain["ceiling"][7] - .1
    done = names["rounds"][3]
    ratio = [float(p[x] / q[x]) for x, p, q in zip(done.tokens[1:], done.p_target, done.q_draft[1:])]
    w = 1.0
    for i in range(8):
        w = min(1.0, w * ratio[i])
        assert middle[3, i].item() == pytest.approx(w, abs=1e-6)
        assert least[3, i].item() == pytest.approx(math.prod(min(1, factor) for factor in ratio[:i + 1]), abs=1e-6)
        assert most[3, i].item() == pytest.approx(min(1, math.prod(ratio[:i + 1])), abs=1e-6)


def several_for_one_place(names):
    """From accept-or-replace's share upwards, at every place below the ceiling of its kind."""
    place, accepted_by = names["place"], names["accepted_by"]
    for p, q in names["pairs"]:
        assert p.sum().item() == pytest.approx(1) and len(p) == 8
        for name, rule in accepted_by.items():
            chances = [rule(p, q, k) for k in (1, 2, 3)]
            assert chances[0] == pytest.approx(acceptance(p, q).item(), abs=1e-9)
            assert chances[0] <= chances[1] + 1e-9 <= chances[2] + 2e-9
            most = accepted_by[MOST[name.split(",")[0]]]
            assert all(chance <= most(p, q, k) + 1e-9 for k, chance in enumerate(chances, 1))
        assert accepted_by[MOST["independent"]](p, q, 3) == pytest.approx(best_acceptance(p, q, 3), abs=1e-12)
        assert accepted_by[MOST["without replacement"]](p, q, 3) > accepted_by[MOST["independent"]](p, q, 3) - 1e-12
    p, q = names["pairs"][0]                            # and k-SEQ's formula is what the rule does there
    found, _ = walk(lambda dice: k_seq([int(dice.pick(q[None])) for _ in range(2)], p, q, dice))
    one = sum(weight for (child, _), weight in found.items() if child is not None)
    assert accepted_by[RULES[1]](p, q, 2) == pytest.approx(one, abs=1e-12)
    for k in range(1, 5):
        assert place[RULES[0]][k] < place[RULES[1]][k] < place[MOST["independent"]][k] - .005
        assert place[RULES[0]][k] < place[WITHOUT][k] < place[MOST["without replacement"]][k] - .005


def most_by_flow(p_12, q_12, k, independent) -> float:
    """From every draw of k draft tokens to the tokens in it; p_target and q_draft in twelfths."""
    whole, flow = math.lcm(*range(1, 13)) ** k, networkx.DiGraph()
    draws = product(range(len(q_12)), repeat=k) if independent else permutations(range(len(q_12)), k)
    for draw in draws:
        chance, left = whole, 12
        for x in draw:
            chance, left = chance * q_12[x] // left, left if independent else left - q_12[x]
        flow.add_edge("from", draw, capacity=chance)
        flow.add_edges_from((draw, x) for x in draw)
    flow.add_edges_from((x, "to", {"capacity": p_x * whole // 12}) for x, p_x in enumerate(p_12))
    return networkx.maximum_flow_value(flow, "from", "to") / whole


def the_ceilings_are_maximal_flows(ceiling):
    made, higher = torch.Generator().manual_seed(14), 0
    assert ceiling([.5, .5], [.8, .2], 1) == pytest.approx(.7) and ceiling([.5, .5], [.8, .2], 2) == pytest.approx(.86)
    assert ceiling([.5, .5], [.8, .2], 2, independent=False) == pytest.approx(1)
    for k, independent in product((1, 2, 3), (True, False)):
        for _ in range(6):
            p_12, q_12 = ((torch.randint(4, (8,), generator=made).bincount(minlength=4) + 1).tolist() for _ in range(2))
            pair = [torch.tensor(twelfths, dtype=torch.float64) / 12 for twelfths in (p_12, q_12)]
            found = ceiling(*(distribution.tolist() for distribution in pair), k, independent)
            assert found == pytest.approx(most_by_flow(p_12, q_12, k, independent), abs=1e-12)
            higher += found > best_acceptance(*pair, k) + 1e-9
    assert higher > 6                                           # without replacement more can be accepted
