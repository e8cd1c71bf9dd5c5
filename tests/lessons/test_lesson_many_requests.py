"""Its tables say what its own rounds, formulas and servers do; what may be cut is exact for both rows."""

import re
from collections import Counter
from functools import lru_cache

import pytest
from oracles import product_of

from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import ModelDrafter, one_round, verify
from nanospec.text import Text, prefill
from nanospec.theory import expected_tokens
from tests.printed import table_under
from tests.proof.zoo import ALL_BUGS


def fewest(alpha, gamma, B):
    """The distribution of the fewest accepted tokens of B rows, added row by row."""
    one = [alpha ** i * (1 - alpha) for i in range(gamma)] + [alpha ** gamma]
    found = one
    for _ in range(B - 1):
        both = [0.0] * (gamma + 1)
        for i, a in enumerate(found):
            for j, b in enumerate(one):
                both[min(i, j)] += a * b
        found = both
    return found


def two_rows(names, rules, dice):
    """What both rows commit in a round of the lesson's models, cut by each of these rules."""
    ids, p_model = names["ids"], names["p_model"]
    text, drafter = Text(ids, 8, 2), ModelDrafter(names["q_model"], 2)
    cache, _ = prefill(p_model, text)
    drafter.begin(text)
    drafter.read(text, [0, 1], None)
    draft, p_target, _, accepted, token = one_round(p_model, cache, drafter, verify, text, names["Sampling"](), dice, 8)
    return tuple(tuple(tuple(rule(draft.tokens[b, 1:].tolist(), int(accepted[b]), int(token[b]), int(accepted.min()),
                                  p_target[b], dice)) for b in range(2)) for rule in rules)


def joints_of(names, rules):
    """Of 3 tokens of both texts, by each rule: the target completes what is shorter."""
    @lru_cache(maxsize=None)
    def behind(b, own):
        ids = [*names["ids"][b], *own]
        return target_distribution(names["p_model"], ids, 3 - len(own)) if len(own) < 3 else {(): 1.0}

    found = walk(lambda dice: two_rows(names, rules, dice))[0]
    for i in range(len(rules)):
        committed, whole = Counter(), Counter()
        for by_rule, weight in found.items():
            committed[by_rule[i]] += weight
        for new, weight in committed.items():
            rest = behind(0, new[0]), behind(1, new[1])
            for (one, other), probability in product_of(*rest).items():
                whole[new[0] + one, new[1] + other] += weight * probability
        yield whole


def test_no_row_waits_and_every_row_is_exact(lesson):
    names, out = lesson("many_requests")

    # eight people: 1 to gamma + 1 tokens in each of six steps, and not all as many
    counts = [len(asked.tokens) for asked in names["eight"]]
    assert all(6 <= count <= 30 for count in counts) and len(set(counts)) > 1, counts
    printed = table_under(out, "prompt")
    assert [int(printed[repr(start)][0]) for start in names["starts"]] == counts

    # the ragged rounds, and what is stale behind them
    assert names["slots"] == [[1, 0, 4, "3 to 6", 3, 8, "none"], [1, 1, 2, "1 to 4", 0, 3, "2 3 4"],
                              [2, 0, 8, "7 to 10", 0, 9, "8 9 10"], [2, 1, 3, "2 to 5", 3, 7, "none"]]
    for line in names["slots"]:
        assert re.search(r"\s+".join(map(re.escape, " ".join(map(str, line)).split())) + r"\s*$", out, re.M)
    for ids, new, text in zip(names["prompts"], names["alone"], names["texts"]):
        assert text == ids + new[:len(text) - len(ids)] and len(text) == len(ids) + 5

    # lockstep: the formula, beside the distribution of the fewest
    lockstep_tokens, printed = names["lockstep_tokens"], table_under(out, "rows   at its own pace")
    for alpha in .5, .7, .95:
        for B in 1, 2, 4, 8:
            mean = sum(k * weight for k, weight in enumerate(fewest(alpha, 4, B)))
            assert lockstep_tokens(alpha, 4, B) == pytest.approx(1 + mean)
            assert 1 + mean == pytest.approx(expected_tokens(alpha ** B, 4))
    for B, wasted in (1, "0%"), (2, "49%"), (4, "82%"), (8, "97%"):
        assert printed[str(B)] == ["2.77", f"{lockstep_tokens(.7, 4, B):.2f}", wasted]
    assert .7 ** 8 == pytest.approx(.06, abs=.005)

    # what may be cut: walked, also both rows together; the mistakes cost nothing but the truth
    off, length = names["off"], names["length"]
    assert list(off) == ["own", "cut", "token_from_elsewhere", "cut_too_much"]
    assert max(off["own"], off["cut"]) < 1e-12 < .1 < off["cut_too_much"] < off["token_from_elsewhere"]
    assert length["own"] - 1 > 5 * (length["cut"] - 1) > 0
    assert length["cut"] == pytest.approx(length["cut_too_much"]) == pytest.approx(length["token_from_elsewhere"])
    assert {name: cells for name, cells in table_under(out, "rule").items() if name in off} == {
        name: [f"{length[name]:.2f}", f"{off[name]:.3f}"] for name in off}
    truth = product_of(*(target_distribution(names["p_model"], ids, 3) for ids in names["ids"]))
    for name, joint in zip(off, joints_of(names, [names[name] for name in off])):
        far = distance(joint, truth)[1]
        assert far < 1e-12 if off[name] < 1e-12 else far > .1
    assert "lockstep" in {bug.name for bug in ALL_BUGS}

    # dice of one's own: the company does not matter
    assert len(set(map(tuple, names["written"].values()))) == 1
    assert out.count(" ".join(map(str, names["written"]["alone"]))) == 3

    # joining and leaving: the long prompt in two pieces, beside one who writes in each step
    of_person = {name: [line[i] for line in names["timetable"]] for i, name in enumerate(names["requests"])}
    assert of_person["B"][0] == "reads 64" and of_person["B"][1].startswith("reads 15, writes ")
    for name, cells in of_person.items():
        asked = names["requests"][name]
        counts = {what: sum(map(int, re.findall(rf"{what} (\d+)", ", ".join(cells)))) for what in ("reads", "writes")}
        assert counts == {"reads": len(asked.ids) - 1, "writes": asked.max_new_tokens}
        kinds = [cell.split()[-2] if "writes" in cell else cell for cell in cells]
        first, last = kinds.index("writes"), len(kinds) - kinds[::-1].index("writes")
        assert kinds[first:last] == ["writes"] * (last - first) and set(kinds[last:]) <= {"has left"}
    first_of_c = next(i for i, cell in enumerate(of_person["C"]) if "writes" in cell)
    assert "reads 1" in of_person["C"][:first_of_c] and of_person["C"][0] == "waits"
    assert "writes" in of_person["A"][first_of_c - 1] and of_person["A"][first_of_c] == "has left"
    steps = sorted(table_under(out, "step").items(), key=lambda line: int(line[0]))
    assert [cells for _, cells in steps] == names["timetable"]

    # "change this": eight rows with alpha .95
    kept = lockstep_tokens(.95, 4, 8)
    assert f"{kept:.2f} {expected_tokens(.95, 4):.2f}" == "2.59 4.52" and .95 ** 8 == pytest.approx(.66, abs=.005)
    assert (expected_tokens(.95, 4) - kept) / (expected_tokens(.95, 4) - 1) == pytest.approx(.55, abs=.005)
