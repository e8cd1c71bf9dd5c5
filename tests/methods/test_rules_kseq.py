"""Several draft tokens at one place, walked: k-SEQ is exact, and no rule accepts more than the optimum says."""

import math
from itertools import product

import networkx        # comes with torch
import pytest
import torch

from lessons import kseq
from lessons.kseq import k_seq, least_rho
from lessons.oracles import best_acceptance, sequential_acceptance
from nanospec.probs import residual
from nanospec.proof.walk import distance, walk
from nanospec.theory import acceptance
from tests.proof.compare import node_cases

P, Q = torch.tensor([[.5, .5], [.8, .2]], dtype=torch.float64)
CASES = [pair for _, *pair in node_cases()]         # with zeros, equal, equal up to rounding, disjoint, one-hot
SOME = CASES[:60:6] + CASES[60:]


def without(q_draft, drawn):
    """What comes next is drawn from: q_draft without these tokens, or if that is nothing, all other tokens evenly."""
    left = [of.index_fill(0, torch.tensor(drawn, dtype=torch.int64), 0.0) for of in (q_draft, torch.ones_like(q_draft))]
    found = left[0] if left[0].sum() > 0 else left[1]
    return found / found.sum().clamp(min=1e-300)


def played(rule, p_target, q_draft, k, replacement=True) -> tuple[float, float]:
    """Draws and all: the total variation between the token that comes out and p_target; how often one is accepted."""
    def play(dice):
        drawn, left = [], q_draft
        while len(drawn) < k and left.sum() > 0:
            drawn.append(int(dice.pick(left[None])))
            left = left if replacement else without(q_draft, drawn)
        index, token = rule(drawn, p_target, q_draft, dice)
        return index is not None, token

    found = walk(play)[0]
    tokens = {x: found.get((True, x), 0.0) + found.get((False, x), 0.0) for x in range(len(p_target))}
    return distance(tokens, dict(enumerate(p_target.tolist())))[1], sum(found.get((True, x), 0.0) for x in tokens)


def accepted_by_k_seq(p_target, q_draft, k) -> float:
    return 1 - (1 - acceptance(p_target / least_rho(p_target, q_draft, k), q_draft).item()) ** k


@pytest.mark.parametrize("k, cases", [(1, SOME), (2, SOME), (3, SOME[::9])])
def test_k_seq_is_exact_and_accepts_what_the_formula_says(k, cases):
    for pair in cases:
        assert played(k_seq, *pair, k) == pytest.approx((0, accepted_by_k_seq(*pair, k)), abs=1e-12)


def test_the_worked_numbers():
    rho = least_rho(P, Q, 2)
    assert rho == pytest.approx(1.4568, abs=5e-5) and accepted_by_k_seq(P, Q, 2) == pytest.approx(.7914, abs=5e-5)
    assert accepted_by_k_seq(P, Q, 2) == pytest.approx(rho * acceptance(P / rho, Q).item(), abs=1e-12)
    assert walk(lambda dice: k_seq([1], P, Q, dice))[0] == {(0, 1): 1}
    of_0_0 = walk(lambda dice: k_seq([0, 0], P, Q, dice))[0]
    assert of_0_0.keys() == {(0, 0), (1, 0), (None, 1)} and of_0_0[0, 0] == pytest.approx(.429, abs=5e-4)
    others = best_acceptance(P, Q, 2), *(sequential_acceptance(P, Q, 2, replacement) for replacement in (True, False))
    assert others == pytest.approx((.86, .76, 1), abs=1e-15)


@pytest.mark.parametrize("factor, exact", [(0.98, False), (1.02, True)])
def test_coins_are_held_back_as_little_as_may_be(factor, exact, monkeypatch):
    """A greater rho is exact too, and accepts less; a smaller one is not."""
    monkeypatch.setattr(kseq, "least_rho", lambda *pair: factor * least_rho(*pair))
    tv, accepted = played(k_seq, *CASES[0], 2)
    assert tv < 1e-12 and accepted < accepted_by_k_seq(*CASES[0], 2) - .001 if exact else tv > .006


def test_draws_without_replacement_are_not_for_k_seq():
    assert played(k_seq, P, Q, 2, replacement=False)[0] == pytest.approx(.157, abs=5e-4)


def test_nothing_left_of_the_residual_falls_back_to_the_target():
    """Equal up to rounding, and the coin falls all the same."""
    p_target = torch.tensor([.3, 0, .7])
    pair = p_target, torch.nextafter(p_target, torch.ones(1))
    assert walk(lambda dice: k_seq([0], *pair, dice))[0].keys() == {(0, 0), (None, 0), (None, 2)}


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("replacement", [True, False])
def test_sequential_acceptance_is_what_a_walk_finds(replacement, k):
    """The node rule, spelt out."""
    def rule(drawn, p_target, q_draft, dice):
        for i, x in enumerate(drawn):
            its = q_draft if replacement else without(q_draft, drawn[:i])
            if dice.flip((p_target[x] / its[x]).view(1, 1)):
                return i, x
            p_target = residual(p_target, its)
        return None, int(dice.pick(p_target[None]))

    for pair in SOME[::1 if k < 3 else 3]:
        accepted = sequential_acceptance(*pair, k, replacement)
        assert played(rule, *pair, k, replacement) == pytest.approx((0, accepted), abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_optimum_is_a_maximal_flow(k):
    """From every draw to the tokens in it, in whole numbers: twelfths of p_target and q_draft."""
    made = torch.Generator().manual_seed(k)
    for _ in range(8):
        p_12, q_12 = (torch.randint(4, (12,), generator=made).bincount(minlength=4).tolist() for _ in range(2))
        flow = networkx.DiGraph()
        for draw in product(range(4), repeat=k):
            flow.add_edge("from", draw, capacity=math.prod(q_12[x] for x in draw))
            flow.add_edges_from((draw, x) for x in draw)
        flow.add_edges_from((x, "to", {"capacity": p_x * 12 ** (k - 1)}) for x, p_x in enumerate(p_12))
        best = best_acceptance(*(torch.tensor(twelfths, dtype=torch.float64) / 12 for twelfths in (p_12, q_12)), k)
        assert best == pytest.approx(networkx.maximum_flow_value(flow, "from", "to") / 12 ** k, abs=1e-12)


def test_the_order_of_the_rules():
    """From one draft token alone up to the optimum; k-SEQ accepts 1 - 1/e of that, as the paper says."""
    for p_target, q_draft in CASES:
        one = acceptance(p_target, q_draft).item()
        for k in (1, 2, 3):
            best, by_k_seq = best_acceptance(p_target, q_draft, k), accepted_by_k_seq(p_target, q_draft, k)
            in_turn = sequential_acceptance(p_target, q_draft, k, replacement=True)
            assert one - 1e-12 < min(by_k_seq, in_turn) and max(by_k_seq, in_turn) < best + 1e-12
            assert by_k_seq > (1 - 1 / math.e) * best - 1e-12
            if k == 1:
                alone = sequential_acceptance(p_target, q_draft, 1, replacement=False)
                assert (by_k_seq, in_turn, alone, best) == pytest.approx((one,) * 4, abs=1e-12)


@pytest.mark.parametrize("V", [2, 3, 5])
def test_of_as_many_distinct_draft_tokens_as_there_are_tokens_one_is_always_accepted(V):
    pair = torch.rand(2, V, generator=torch.Generator().manual_seed(V), dtype=torch.float64) + .01
    p_target, q_draft = pair / pair.sum(-1, keepdim=True)
    assert sequential_acceptance(p_target, q_draft, V, replacement=False) == pytest.approx(1, abs=1e-12)
    assert sequential_acceptance(p_target, q_draft, V - 1, replacement=False) < 1 - 1e-3


def test_what_q_draft_lacks_is_drawn_evenly_when_it_is_used_up():
    """Sequoia's Algorithm 2, lines 12 to 15. Of [0, 1] and [1, 0] the second draft token is always accepted. By hand:
    token 0 of four is certain to be drawn, and rejected; each of the others comes second with 1/3. p_target(1) = .5 is
    more than that, .3 and .2 less: accepted with 1/3 + .3 + .2.
    """
    one = torch.tensor([1., 0, 0, 0], dtype=torch.float64)
    p_target = torch.tensor([0, .5, .3, .2], dtype=torch.float64)
    assert sequential_acceptance(torch.tensor([0., 1]), torch.tensor([1., 0]), 2, False) == 1
    assert sequential_acceptance(torch.tensor([0., 1]), torch.tensor([1., 0]), 2, True) == 0
    assert sequential_acceptance(p_target, one, 1, False) == 0
    assert sequential_acceptance(p_target, one, 2, False) == pytest.approx(1 / 3 + .3 + .2, abs=1e-12)
    assert sequential_acceptance(p_target, one, 4, False) == pytest.approx(1, abs=1e-12)
    # Three tokens are drawn and rejected in turn, and then nothing is left to draw but the fourth.
    three, rest = (torch.tensor(row, dtype=torch.float64) for row in ([.25, .25, .5, 0], [0, 0, 0, 1]))
    assert sequential_acceptance(rest, three, 4, False) == pytest.approx(1, abs=1e-12)
    assert sequential_acceptance(p_target, one, 9, False) == pytest.approx(1, abs=1e-12)        # no tenth is drawn
