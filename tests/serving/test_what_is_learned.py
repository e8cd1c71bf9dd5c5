"""What drafters learn from their rounds, computed a second time after every round, by a plain loop over texts and draft
tokens. The texts of a batch are rejected in different places, one of them is silent, and what a round costs depends on
how many texts there are.

A silent text has no draft in this round: it has got none of the budget, or another drafter drafts for it.
"""

from math import floor

import pytest
import torch

from nanospec.dice import Dice
from nanospec.draft import Draft
from nanospec.methods.copies.hybrid import Hybrid
from nanospec.methods.lengths.by_survival import BySurvival
from nanospec.methods.lengths.by_load import FADE, NEWS, WORST, ByLoad, Costs, WatchedByLoad
from nanospec.methods.lengths.dynamic import DynamicDrafter
from nanospec.methods.lengths.stopping import Goodput, Heuristic
from nanospec.probs import Sampling
from nanospec.proof.tables import small_gpt
from tests.invented import Clock
from tests.proof.compare import Batch

TARGET, DRAFT_MODEL = small_gpt(5, 2, 1), small_gpt(5, 1, 2)
PROMPTS = [[1, 2, 3], [4, 0, 1, 1, 2], [0, 3]]
T = 0.7                                                 # so that q_draft is not what the draft model says by itself


def costly(rows: int, gamma: int) -> float:
    """A draft token costs as much more as there are texts: of one text it pays to draft four, of three two."""
    return 1 + .06 * gamma * rows


def drafted_in(draft: Draft, b: int) -> int:
    return sum(draft.q_draft[b].sum(-1).tolist())       # nodes of text b, 1 for each


def own(q_row: torch.Tensor) -> torch.Tensor:
    """The draft model's distribution before temperature."""
    return (T * q_row.log()).softmax(-1)


def judged_in(draft: Draft, count: torch.Tensor, b: int) -> list[tuple[int, bool]]:
    """Of text b: (node, whether it was accepted) of every draft token that was judged, with the first rejected one."""
    found = []
    for node in range(1, round(drafted_in(draft, b)) + 1):
        found.append((node, node <= int(count[b])))
        if not found[-1][1]:
            break
    return found


def beta(draft: Draft, p_target: torch.Tensor, b: int, node: int) -> float:
    return sum(min(p, q) for p, q in zip(p_target[b, node - 1].tolist(), draft.q_draft[b, node].tolist()))


def different(counts: list[list[int]], drafts: list[Draft]) -> bool:
    """Whether in some round no two texts had as many accepted, with a rejection and an acceptance of all among them."""
    return any(len(set(count)) == len(count) and any(n < drafted_in(draft, b) for b, n in enumerate(count))
               for count, draft in zip(counts, drafts))


class Plain:
    """judged and accepted, of one class or of several, as they should be."""

    def __init__(self, judged: list[float], accepted: list[float]):
        self.judged, self.accepted = judged, accepted

    def learn(self, seen: list[tuple[int, float]]) -> None:
        """A round: (class, how much of it was accepted) of each draft token that was judged."""
        self.judged, self.accepted = ([.98 * part for part in parts] for parts in (self.judged, self.accepted))
        for its, part in seen:
            self.judged[its] += 1
            self.accepted[its] += part

    def same(self, drafter) -> None:
        assert drafter.acceptance.judged.tolist() == pytest.approx(self.judged)
        assert drafter.acceptance.accepted.tolist() == pytest.approx(self.accepted)


def best_length(alpha: float, rows: int, most: int, now: int) -> int:
    goodput = [sum(alpha ** i for i in range(gamma + 1)) / costly(rows, gamma) for gamma in range(most + 1)]
    best = goodput.index(max(goodput))
    return best if goodput[best] > 1.03 * goodput[now] else now


def test_by_load():
    """What was judged is not all that was drafted; the first rejected one is among it. And the price is of as many rows
    as there are.
    """
    asked, plain, now, counts, drafts = [], Plain([0.0], [0.0]), 0, [], []
    drafter = ByLoad(DRAFT_MODEL, lambda rows, gamma: asked.append(rows) or costly(rows, gamma), 5)
    batch, dice = Batch(TARGET, drafter, PROMPTS, 150), Dice([1, 2, 3])
    for _ in range(15):
        alpha = (16 * .6 + plain.accepted[0]) / (16 + plain.judged[0])
        assert drafter.alpha == pytest.approx(alpha)
        draft, _, _, count, _ = batch.round(dice, Sampling(T))
        now = best_length(alpha, 3, 5, now)
        assert drafter.gamma == now and draft.tokens.shape[1] == now + 1
        seen = [(0, stands) for b in range(3) for _, stands in judged_in(draft, count, b)]
        assert len(seen) <= 3 * now
        plain.learn(seen)
        plain.same(drafter)
        counts.append(count.tolist())
        drafts.append(draft)
    assert different(counts, drafts) and set(asked) == {3}
    # A text that is silent has judged nothing, and hoped for nothing.
    draft = drafts[0]
    draft.q_draft[2] = 0
    drafter.commit(draft, *batch_end(draft, [1, 0, 0]))
    plain.learn([(0, 1.0), (0, 0.0), (0, 0.0)])
    plain.same(drafter)


def batch_end(draft: Draft, counts: list[int]) -> tuple:
    """The rest of what a drafter is told when a round is over."""
    path = torch.arange(draft.tokens.shape[1]).expand_as(draft.tokens)
    return path, torch.tensor(counts), torch.full_like(draft.q_draft, .2), None, torch.zeros_like(draft.q_draft)


def test_by_load_prices_the_texts_that_are_there():
    drafter = ByLoad(DRAFT_MODEL, costly, 5)
    for rows in 1, 3:
        batch = Batch(TARGET, drafter, PROMPTS[:rows], 40)
        batch.round(Dice(range(rows)), Sampling(T))
        assert drafter.gamma == best_length(.6, rows, 5, 0)
    assert [best_length(.6, rows, 5, 0) for rows in (1, 2, 3)] == [4, 3, 2]


def test_what_rounds_cost_is_learned_of_as_many_texts_as_there_are(monkeypatch):
    """The clock is wound by .7 s in a round of three texts, by .2 s in one of two. After a silence none is timed."""
    clock, table = Clock(), {2: [.5, .5, .5], 3: [.4, .4, .4]}
    monkeypatch.setattr("nanospec.methods.lengths.by_load.perf_counter", clock)
    costs, propose = Costs(table), ByLoad.propose
    drafter = WatchedByLoad(DRAFT_MODEL, costs, 2)

    def rounds(prompts, seconds, gamma, missed=0):
        batch = Batch(TARGET, drafter, prompts, 40)
        drafter.best, drafter.new = lambda rows: gamma, missed
        monkeypatch.setattr(ByLoad, "propose", lambda *its: clock.wind(seconds / 4) or propose(*its))
        draft = drafter.propose(batch.text, Sampling(T), dice_of(prompts), 12)      # a quarter is drafting
        clock.wind(seconds * 3 / 4)
        drafter.commit(draft, *batch_end(draft, [0] * len(prompts)))

    rounds(PROMPTS, .7, 1)
    known = .4 + NEWS * .3
    assert costs.table[3] == pytest.approx([.4 * (1 - FADE), known, .4]) and costs.table[2] == [.5] * 3
    rounds(PROMPTS[:2], .2, 2)
    assert costs.table[2] == pytest.approx([.5 * (1 - FADE), .5 * (1 - FADE), .5 - NEWS * .3])
    rounds(PROMPTS, 9, 1)                                               # counts as WORST times what is known
    assert costs.table[3][1] == pytest.approx(known + NEWS * (WORST * known - known))
    before = costs.table[3][1]
    rounds(PROMPTS, 9, 1, missed=4)
    assert costs.table[3][1] == before
    rounds(PROMPTS, .1, 0, missed=4)                                    # silent again: it read nothing
    assert costs.table[3][0] == pytest.approx(.4 * (1 - FADE) ** 2 + NEWS * (.1 - .4 * (1 - FADE) ** 2))


def dice_of(prompts) -> Dice:
    dice = Dice(range(len(prompts)))
    dice.refill(8)
    return dice


def test_by_survival():
    """Classes are of the draft's own sureness. The first rejected draft token counts, one that no text got does not."""
    middle = [(i + .5) / 8 for i in range(8)]
    plain, silent, counts, drafts = Plain([4.0] * 8, [4 * (1 + m) / 2 for m in middle]), 0, [], []
    drafter = BySurvival(DRAFT_MODEL, 3)
    batch, dice = Batch(TARGET, drafter, PROMPTS, 150), Dice([1, 2, 3])
    for _ in range(20):
        plain.same(drafter)
        draft, p_target, _, count, _ = batch.round(dice, Sampling(T))
        seen = []
        for b in range(3):
            silent += drafted_in(draft, b) < 1
            for node, _ in judged_in(draft, count, b):
                sure = own(draft.q_draft[b, node]).max().item()
                seen.append((floor(8 * sure), beta(draft, p_target, b, node)))
        plain.learn(seen)
        counts.append(count.tolist())
        drafts.append(draft)
    plain.same(drafter)
    assert silent and different(counts, drafts)


@pytest.mark.parametrize("drafter", [
    BySurvival(DRAFT_MODEL, 3), DynamicDrafter(DRAFT_MODEL, Goodput(.05, {2: 1.1, 3: 1.2, 4: 1.3}), 3)],
    ids=["by-survival", "goodput"])
def test_a_text_without_numbers_leaves_the_others_what_they_have_learned(drafter):
    """It fails alone, when the round is over."""
    batch, dice = Batch(TARGET, drafter, PROMPTS, 90), dice_of(PROMPTS)
    draft = drafter.propose(batch.text, Sampling(T), dice, 12)
    path, count, p_target, *rest = batch_end(draft, [0, 0, 0])
    p_target[1] = float("nan")
    drafter.commit(draft, path, count, p_target, *rest)
    known = drafter.acceptance if isinstance(drafter, BySurvival) else drafter.rules[0].acceptance
    assert known.share.isfinite().all() and known.judged.sum() > 31.36          # 8 classes began with 4 each


def test_hybrid():
    """Text 0 copies after a match of 2 tokens, text 1 after one of 7, and text 2 in every third round alone: in the
    others the draft model drafts for it, and learns of it alone.
    """
    drafter = Hybrid(ByLoad(DRAFT_MODEL, costly, 3), {m: 1 + .05 * m for m in range(2, 7)})
    copies = {0: (2, [3, 1, 0, 2]), 1: (7, [0, 0, 4]), 2: (0, [])}
    batch, dice = Batch(TARGET, drafter, PROMPTS, 150), Dice([4, 5, 6])
    plain = Plain([4.0] * 6, [4 * .8 * n / (n + 1) for n in (1, 2, 4, 8, 16, 32)])
    chain, counts, rates = Plain([0.0], [0.0]), [], []
    drafter._copy = lambda b, rate: rates.append(rate) or ((4, [2, 2]) if b == 2 and alone else copies[b])
    classes = {0: [1, 2, 2, 3], 1: [3, 3, 4], 2: [2, 3]}    # of matches of 2 3 4 5, of 7 8 9 and of 4 5
    for number in range(18):
        alone, alpha = number % 3 == 2, drafter.other.alpha
        draft, p_target, _, count, _ = batch.round(dice, Sampling(T))
        seen, of_chain = [], []
        for b in range(3):
            for node, stands in judged_in(draft, count, b):
                if b == 2 and not alone:
                    of_chain.append((0, float(stands)))
                else:
                    seen.append((classes[b][node - 1], p_target[b, node - 1, draft.tokens[b, node]].item()))
        assert alone or draft.steps == drafter.other.gamma > 0
        plain.learn(seen)
        chain.learn(of_chain)
        plain.same(drafter)
        chain.same(drafter.other)
        # What a copy has to beat: the best that the draft model brings, in a batch of three.
        goodput = [sum(alpha ** i for i in range(g + 1)) / costly(3, g) for g in range(4)]
        assert rates[-3:] == pytest.approx([max(goodput)] * 3)
        counts.append(count.tolist())
    assert any(a != b and a < 4 for a, b, _ in counts) and len({tuple(its) for its in counts}) > 4


class Certain:
    """A draft model that is sure of one token."""

    def __init__(self, model):
        self.model = model

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, *its, **more):
        logits = self.model(*its, **more)
        return torch.where(torch.arange(logits.shape[-1]) == 3, logits, float("-inf"))


def test_a_draft_token_that_is_certain_is_of_the_last_class():
    drafter = BySurvival(Certain(DRAFT_MODEL), 2)
    batch = Batch(TARGET, drafter, PROMPTS, 90)
    draft, p_target, _, count, _ = batch.round(Dice([1, 2, 3]), Sampling(T))
    seen = [beta(draft, p_target, b, node) for b in range(3) for node, _ in judged_in(draft, count, b)]
    assert drafter.acceptance.judged[7].item() == pytest.approx(.98 * 4 + len(seen))
    assert drafter.acceptance.accepted[7].item() == pytest.approx(.98 * 4 * (1 + 15 / 16) / 2 + sum(seen))
    assert drafter.acceptance.judged[:7].tolist() == pytest.approx([.98 * 4] * 7)


@pytest.mark.parametrize("make", [lambda: ByLoad(DRAFT_MODEL, costly, 3), lambda: BySurvival(DRAFT_MODEL, 3),
                                  lambda: Hybrid(ByLoad(DRAFT_MODEL, costly, 3),
                                                 {m: 1 + .05 * m for m in range(2, 7)})],
                         ids=["by-load", "by-survival", "hybrid"])
def test_what_is_known_stays_when_a_request_comes_and_goes_with_the_batch(make):
    drafter, fresh = make(), make()
    batch, dice = Batch(TARGET, drafter, PROMPTS, 150), Dice([1, 2, 3])
    for _ in range(4):
        batch.round(dice, Sampling(T))
    known = Plain(drafter.acceptance.judged.tolist(), drafter.acceptance.accepted.tolist())
    batch.begin_anew(1, [2, 2, 0])
    known.same(drafter)
    Batch(TARGET, fresh, PROMPTS[:2], 40), Batch(TARGET, drafter, PROMPTS[:2], 40)
    Plain(fresh.acceptance.judged.tolist(), fresh.acceptance.accepted.tolist()).same(drafter)
    assert fresh.acceptance.judged.tolist() != known.judged
    if isinstance(drafter, ByLoad):
        assert drafter.gamma == drafter.new == 0            # nothing was drafted or missed of these texts


def test_a_stopping_rule_learns_of_its_own_text():
    """Texts 0 and 1 draft by what they have learned; text 2 has a rule that draws nothing."""
    drafter = DynamicDrafter(DRAFT_MODEL, Goodput(.05, {m: 1 + .02 * m for m in range(2, 7)}), 5)
    batch, dice = Batch(TARGET, drafter, PROMPTS, 150), Dice([1, 2, 3])
    drafter.rules[2].draws = lambda own: own.new_zeros((), dtype=torch.bool)
    begin = [(i + .5) / 8 for i in range(8)]
    plain = [Plain([4.0] * 8, [4 * (1 + m) / 2 for m in begin]) for _ in range(3)]
    counts, drafts = [], []
    for _ in range(15):
        draft, p_target, _, count, _ = batch.round(dice, Sampling(T))
        for b in range(3):
            seen = []
            for node, _ in judged_in(draft, count, b):
                sure = own(draft.q_draft[b, node])[draft.tokens[b, node]].item()
                seen.append((floor(8 * sure), beta(draft, p_target, b, node)))
            plain[b].learn(seen)
            plain[b].same(drafter.rules[b])
            alpha = sum(plain[b].accepted) / sum(plain[b].judged)
            assert drafter.rules[b].alpha == pytest.approx(alpha)
            assert drafter.rules[b].rate == pytest.approx(max(
                sum(alpha ** i for i in range(m)) / (.05 * (m - 1) + 1 + .02 * m) for m in range(2, 7)))
        assert drafted_in(draft, 2) == 0 and count[2] == 0
        counts.append(count.tolist())
        drafts.append(draft)
    assert any(a != b and min(drafted_in(draft, 0), drafted_in(draft, 1)) for (a, b, _), draft in zip(counts, drafts))


def test_the_heuristic_learns_of_its_own_text():
    """Two more after all were accepted, else one fewer."""
    drafter = DynamicDrafter(DRAFT_MODEL, Heuristic(2), 8)
    batch, dice = Batch(TARGET, drafter, PROMPTS[:2], 250), Dice([1, 5])
    lengths, seen = [2, 2], set()
    for _ in range(25):
        draft, _, _, count, _ = batch.round(dice, Sampling(T))
        for b in range(2):
            drafted = min(lengths[b], 8)
            assert round(drafted_in(draft, b)) == drafted
            lengths[b] = drafted + 2 if int(count[b]) == drafted else max(1, drafted - 1)
            assert drafter.rules[b].length == lengths[b]
        seen.add(tuple(lengths))
    assert any(a != b for a, b in seen) and len(seen) > 3
