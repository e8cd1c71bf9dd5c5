"""The chain whose length follows the load. That it is lossless: contract.py, by its name."""

from itertools import cycle

import pytest
import torch

from nanospec.cli.bench.serve import draw_arrivals, round_seconds, step_of_server
from nanospec.cli.quantities import quantile
from nanospec.dice import Dice
from nanospec.methods.lengths.acceptance_rate import Acceptance
from nanospec.methods.lengths.by_load import FADE, ByLoad, Costs, WatchedByLoad, lag_after, nothing_drafted
from nanospec.probs import Sampling
from nanospec.proof.tables import small_gpt, small_learned
from nanospec.speculate import ModelDrafter
from nanospec.text import Text
from nanospec.theory import expected_tokens
from tests.proof.compare import Batch

TARGET, DRAFT_MODEL = small_gpt(5, 2, 1), small_gpt(5, 1, 2)


def machine(rows: int, gamma: int) -> float:
    """A call costs 1 for up to 16 tokens, then in proportion; a draft step costs .1."""
    return max(1.0, rows * (gamma + 1) / 16) + 0.1 * gamma


def drafter_at(alpha: float, gamma: int = 6) -> ByLoad:
    """As after many rounds in which so many draft tokens were accepted."""
    drafter = ByLoad(DRAFT_MODEL, machine, gamma)
    drafter.begin(Batch(TARGET, ModelDrafter(DRAFT_MODEL, 1), [[1, 2]], 40).text)
    drafter.acceptance = Acceptance(torch.tensor([alpha]))
    return drafter


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.7, 0.9])
def test_it_chooses_as_well_as_the_best_length_for_every_number_of_texts(alpha):
    drafter = drafter_at(alpha)
    for rows in (1, 2, 3, 4, 8, 16, 32, 16, 8, 4, 2, 1):
        drafter.gamma = drafter.best(rows)
        goodput = [expected_tokens(alpha, gamma) / machine(rows, gamma) for gamma in range(7)]
        assert goodput[drafter.gamma] >= 0.97 * max(goodput)


def test_what_one_drafter_sees_another_of_the_same_table_does_not():
    table = {1: [1.0, 2.0], 4: [1.5, 2.5]}
    one, other = Costs(table), Costs(table)
    one.saw(1, 1, 30.0)
    assert one(1, 1) > 2 and other(1, 1) == 2 and table == {1: [1.0, 2.0], 4: [1.5, 2.5]}


def test_it_is_long_for_one_text_and_silent_in_a_full_batch():
    drafter = drafter_at(0.7)
    assert drafter.best(1) >= 3 and drafter.best(32) == 0


def test_what_is_hardly_better_changes_nothing():
    drafter = drafter_at(0.7)
    drafter.gamma = 4
    drafter.seconds = lambda rows, gamma: expected_tokens(drafter.alpha, gamma) / (1.02 if gamma == 5 else 1.0)
    assert drafter.best(1) == 4
    drafter.seconds = lambda rows, gamma: expected_tokens(drafter.alpha, gamma) / (1.1 if gamma == 5 else 1.0)
    assert drafter.best(1) == 5


@pytest.mark.parametrize("draft_model", [DRAFT_MODEL, small_learned("mlp", TARGET), small_learned("eagle3", TARGET),
                                   small_learned("prefix", TARGET)], ids=["gpt", "mlp", "eagle3", "prefix"])
def test_after_a_silence_it_drafts_as_one_that_has_read_everything(draft_model):
    silent = [3, 3, 0, 0, 0, 0, 0, 3, 0, 0, 0, 3]
    drafter = ByLoad(draft_model, lambda rows, gamma: 0.01 if gamma == silent[0] else 1.0, 3)
    batch, dice = Batch(TARGET, drafter, [[1, 2, 3], [4, 0, 1, 1, 2]], 60), Dice([1, 2])
    while silent:
        fresh = Batch(TARGET, ModelDrafter(draft_model, 3), batch.text.ids(), 60)
        missed = drafter.new
        drawn, *_ = batch.round(dice, Sampling())
        assert drafter.new == (0 if silent[0] else missed + 1)      # more would be read again, and again
        if silent[0]:
            dice.column = 0                             # the same uniforms once more
            again = fresh.drafter.propose(fresh.text, Sampling(), dice, int(fresh.text.length.max()) + 3)
            assert torch.equal(drawn.tokens, again.tokens)
            assert (drawn.q_draft - again.q_draft).abs().max() < 1e-12
        else:
            assert drawn.tokens.shape[1] == 1
            if len(silent) > 4:
                drafter.new += 1000                     # as after a thousand rounds more
            if len(silent) == 8:
                batch.begin_anew(0, [3, 3, 0, 2, 1, 0, 2])          # a request that comes while it is silent
        silent.pop(0)


def test_it_learns_how_much_is_accepted_and_forgets_in_silence():
    drafter = ByLoad(TARGET, lambda rows, gamma: 1.0, 3)                # the target drafts for itself
    batch, dice = Batch(TARGET, drafter, [[1, 2, 3]], 60), Dice([1])
    begins = drafter.alpha
    for _ in range(10):
        batch.round(dice, Sampling())
    assert begins == pytest.approx(ByLoad.PRIOR) and drafter.alpha > 0.8
    drafter.seconds = lambda rows, gamma: 1.0 if gamma else 0.01
    known = drafter.alpha
    for _ in range(20):
        batch.round(dice, Sampling())
    assert ByLoad.PRIOR < drafter.alpha < known


def test_after_any_silence_no_more_is_read_again_than_a_text_has_room_for():
    text = Text([[1, 2, 3]], 40, 5)
    room = text.tokens.shape[1]
    found = [lag_after(missed, 1, 2, text) for missed in (0, 7, room - 2, room - 1, 10 ** 6)]
    assert found == [2, 9, room, room, room]
    assert lag_after(7, 5, 2, text) == 12


def test_nothing_drafted_is_node_0_alone():
    draft = nothing_drafted(Text([[1, 2], [3]], 4, 7))
    assert draft.tokens.tolist() == [[2], [3]] and draft.q_draft.shape == (2, 1, 7) and not draft.q_draft.any()
    assert draft.steps == 0 and draft.parents.tolist() == [[-1], [-1]]


def test_costs_between_measured_numbers_of_texts_lie_on_a_line(monkeypatch):
    late = cycle([0, 5])                                                # every second step of the 7 was disturbed
    monkeypatch.setattr("nanospec.cli.bench.serve.step_of_server",
                        lambda _, drafter, rows, ids: rows * (drafter.most + 1) + 1 + next(late))
    seconds = round_seconds(TARGET, DRAFT_MODEL, [1, 4], [1], 6)
    assert [seconds(rows, 2) for rows in (1, 2, 3, 4, 9)] == [4, 7, 10, 13, 13]
    assert Costs({3: [1.0, 2.0], 5: [3.0, 6.0]})(2, 1) == 2             # of fewer texts as of the fewest measured


def test_costs_follow_what_rounds_take_and_one_odd_round_moves_them_little():
    costs = Costs({1: [1.0, 2.0], 5: [3.0, 6.0]})
    costs.saw(1, 1, 1000.0)
    assert costs(1, 1) == pytest.approx(2.4) and costs(1, 0) == 0.995
    for _ in range(40):
        costs.saw(3, 1, 3.0)
    assert costs(3, 1) == pytest.approx(3, abs=0.01) and costs(5, 1) == 6
    assert costs(3, 0) == pytest.approx(2 * (1 - FADE) ** 40, abs=0.01)           # nobody has tried it for so long


def lengths_chosen(costs: Costs, seconds: float, rounds: int, monkeypatch) -> list[int]:
    """Each round's gamma, where a round without a draft takes 1 second, and one with a draft takes so many."""
    drafter, now = WatchedByLoad(TARGET, costs, 3), [0.0]

    def clock():
        now[0] += seconds if drafter.gamma else 1.0
        return now[0]
    monkeypatch.setattr("nanospec.methods.lengths.by_load.perf_counter", clock)
    batch, dice, drafted = Batch(TARGET, drafter, [[1, 2, 3], [4, 0, 1]], 80), Dice([1, 2]), []
    for _ in range(rounds):
        batch.round(dice, Sampling())
        drafted.append(drafter.gamma)
        batch.text.length.clamp_(max=20)                        # the texts may not outgrow their context
    return drafted


def test_plain_decoding_that_seemed_too_dear_is_tried_again(monkeypatch):
    """It was timed in a bad moment, and seems six times as slow as it is."""
    drafted = lengths_chosen(Costs({2: [6.0] + [10.0] * 3}), 10.0, 260, monkeypatch)
    assert all(drafted[:50]) and not any(drafted[-20:])


def test_a_table_that_was_wrong_is_soon_found_out(monkeypatch):
    """It says that drafting is free. The clock says that a round with a draft takes ten times as long."""
    costs = Costs({2: [1.0] * 4})
    drafted = lengths_chosen(costs, 10.0, 40, monkeypatch)
    assert drafted[0] == 3 and not any(drafted[-20:]) and costs(2, 0) == pytest.approx(1.0, abs=0.01)


def test_a_step_is_timed_while_all_write(monkeypatch):
    seen = []

    def watched(step, device, repeats, warm_up):
        assert warm_up == 3                                     # the prompt is read in two, and one more warms up
        for _ in range(warm_up):
            step()
        server = step.__self__
        assert server.context == 5000                           # the target's, as where requests are served
        for _ in range(repeats):
            assert not any(request.done for request in server.running) and len(server.running) == 3
            before = [len(request.tokens) for request in server.running]
            step()
            seen.append(all(len(request.tokens) > n for request, n in zip(server.running, before)))
        return 0.5
    monkeypatch.setattr("nanospec.cli.bench.serve.median_seconds", watched)
    # All four of a round are written.
    target = small_gpt(5, 2, 1, context=5000)
    assert step_of_server(target, ModelDrafter(target, 3), 3, [1, 2] * 40) == 0.5 and all(seen) and len(seen) == 8


def test_arrivals_are_a_poisson_process():
    come = torch.tensor(draw_arrivals(4000, 5.0, 1))
    assert (come.diff() >= 0).all() and abs(come[-1].item() / 4000 - 0.2) < 0.015
    assert draw_arrivals(3, 0.0, 1) == [0, 0, 0] and quantile([1.0, 3.0], 0.5) == 2
