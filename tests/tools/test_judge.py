"""The judge: right samplers of many kinds are called right, wrong ones wrong and by name; and T8, real dice on the pair
that ships.
"""

import math
import sys
import threading
from contextlib import nullcontext
from itertools import count, cycle, product

import numpy as np
import pytest
import torch

from nanospec.dice import Dice
from nanospec.errors import SEEDS, RequestError
from nanospec.fast.packed import pack
from nanospec.files.checkpoint import load_pair
from nanospec.generate import generate
from nanospec.probs import Sampling
from nanospec.judge import sampler as foreign
from nanospec.judge.sampler import tokens_from, walked
from nanospec.judge import verdict as judge_file
from nanospec.judge.verdict import FALSE_ALARM, Verdict, judge
from nanospec.proof.stats import Fit, goodness_of_fit, smallest_visible
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution
from nanospec.judge import known_bugs as samplers
from nanospec.judge.known_bugs import AS_IT_SHIPS, OF_A_CHAIN, beginnings, sampler_with
from nanospec.speculate import ModelDrafter, speculate, tokens_of
from tests.proof import itself
from tests.proof.checks import DRAFT_MODEL, GPT4, GPT_DRAFT_MODEL4, TABLE
from tests.proof.zoo import ALL_BUGS, ALL_CONTROLS

TASK = {"target": TABLE, "draft_model": DRAFT_MODEL, "ids": [1], "new": 3, "gamma": 2, "temperature": 0.7}
ALONE = {"target": TABLE, "ids": [1], "new": 2, "temperature": 0.7}         # no draft model: no name is looked for
bugs = {bug.name: bug for bug in ALL_BUGS + ALL_CONTROLS}


def ours(dice):
    return tokens_of(speculate(TABLE, ModelDrafter(DRAFT_MODEL, 2), [1], 2, 0.7, dice=dice))


def warm(ids, temperature=0.7):
    """(V,), what the target says of the next token."""
    return Sampling(temperature)(TABLE(torch.tensor([ids]))[0, -1:])[0]


def test_speculation_is_right_by_both_witnesses():
    verdict = judge(ours, samples=400, **ALONE)
    assert not verdict.wrong and verdict.distance < 1e-12 and verdict.p_value > FALSE_ALARM
    assert verdict.samples == 400 and 0 < verdict.visible < .2 and "every path walked" in str(verdict)


@pytest.mark.parametrize("name, new", [("draft-dtype-mismatch", 2), ("accept-after-a-rejection", 3)])
def test_a_bug_is_named(name, new, monkeypatch):
    """By its distribution, to the walk's precision: draft-dtype-mismatch is 2e-5 off, which no samples show."""
    few = ("ratio-flipped", "row-before", "draft-dtype-mismatch", "accept-after-a-rejection", "overshoot")
    monkeypatch.setattr(samplers, "OF_A_CHAIN", [bug for bug in OF_A_CHAIN if bug.name in few])
    task = TASK | {"new": new}
    sampler = sampler_with(bugs[name], **task)
    del task["gamma"]                           # it is 2
    verdict = judge(sampler, samples=50, **task)
    assert verdict.wrong and verdict.distance > 1e-6 and verdict.bugs == [name]
    assert f"the distribution of {name}" in str(verdict) and str(verdict).startswith("WRONG")


TRUTH = {(0,): .5, (1,): .3, (2,): .199, (3,): .001}


def told_by(counts: list[list[int]], samples: int, looks: int) -> Verdict:
    """Of a sampler that returns each outcome so often: one list of counts after the other."""
    drawn = iter([(outcome,) for part in counts for outcome, count in enumerate(part) for _ in range(count)])
    return judge(lambda dice: next(drawn), TRUTH, samples=samples, looks=looks)


def test_the_numbers_of_a_verdict_after_several_looks(monkeypatch):
    """Of 100, 200 and 400 samples. What is pooled is not seen. The last look has half of the false alarms, each of the
    two before a twentieth of a tenth.
    """
    monkeypatch.setattr(judge_file, "walked", lambda sampler, seconds: None)
    verdict = told_by([[45, 32, 22, 1], [50, 30, 20, 0], [85, 70, 45, 0]], 400, 3)
    fit = goodness_of_fit({(0,): 180, (1,): 132, (2,): 87, (3,): 1}, TRUTH)
    statistic = 20 ** 2 / 200 + 12 ** 2 / 120 + 8 ** 2 / 80
    assert not verdict.wrong and verdict.samples == 400 and fit.pooled == pytest.approx(.2)
    assert verdict.p_value == pytest.approx(math.exp(-statistic / 2))
    assert verdict.visible == pytest.approx(.2 + smallest_visible(2, 400, .0005, .01))
    one = told_by([[180, 132, 87, 1]], 400, 1)
    assert one.visible == pytest.approx(.2 + smallest_visible(2, 400, .001, .01)) and one.visible < verdict.visible
    # 200 samples of which 60 are off: far beyond what any right sampler of 10 / bar is.
    wrong = told_by([[50, 30, 20, 0], [10, 30, 60, 0]], 400, 3)
    statistic = 40 ** 2 / 100 + 40 ** 2 / 40
    assert wrong.wrong and wrong.samples == 200 and wrong.p_value == pytest.approx(math.exp(-statistic / 2))
    assert wrong.visible == pytest.approx(.2 + smallest_visible(2, 200, .00005, .01)) and wrong.most_off[0] == (2,)
    assert str(wrong).splitlines()[-1] == (
        "200 samples, p = 6.9e-13. A right sampler is called wrong once in 1,000 times; one that is more than "
        f"{wrong.visible:.2g} off (total variation) is missed once in 100 times at most.")


def test_the_outcome_that_is_most_off_of_a_walk(monkeypatch):
    """The second; the first is the likeliest, the last is one that the target never writes."""
    exact = {(0,): .5, (1,): .19, (2,): .26, (7,): .05}
    monkeypatch.setattr(judge_file, "walked", lambda sampler, seconds: exact)
    drawn = iter([tokens for tokens, part in exact.items() for _ in range(round(100 * part))])
    verdict = judge(lambda dice: next(drawn), {(0,): .5, (1,): .3, (2,): .2}, samples=100)
    assert verdict.wrong and verdict.distance == pytest.approx(.11) and verdict.most_off == ((1,), .3, .19)
    monkeypatch.setattr(judge_file, "walked", lambda sampler, seconds: {(0,): .3, (1,): .3, (2,): .1, (8,): .3})
    verdict = judge(lambda dice: [8], {(0,): .5, (1,): .3, (2,): .2}, DRAFT_MODEL, samples=9)
    assert verdict.most_off == ((8,), 0, .3) and verdict.bugs == []             # of no model no bug is known


def test_a_bug_is_known_by_its_samples_where_nothing_was_walked(monkeypatch):
    """By a distribution that they fit. What hardly differs from the target's is no bug, though they fit it, too."""
    truth = {(0,): .5, (1,): .5}
    known = {"near": {(0,): .5 + 1e-7, (1,): .5 - 1e-7}, "it": {(0,): .45, (1,): .55}, "another": {(0,): .9, (1,): .1}}
    monkeypatch.setattr(judge_file, "named", lambda fits, *_, **__: ((name, fits(its)) for name, its in known.items()))
    monkeypatch.setattr(judge_file, "OF_A_CHAIN", [*known])
    verdict = Verdict(True, "It is off.", .001, 100, .1)
    judge_file._name(verdict, [(0,)] * 47 + [(1,)] * 53, None, truth, 1e-6)
    assert verdict.bugs == ["it"] and verdict.why == "It is off."
    monkeypatch.setattr(judge_file, "OF_A_CHAIN", [*known, "a fourth"])
    judge_file._name(verdict, [(0,)] * 47 + [(1,)] * 53, None, truth, 1e-6)
    assert verdict.why.splitlines() == ["It is off.", "There was time for 3 of the zoo's 4 bugs."]
    # With a tolerance of 0 the very same is still the same, and what the target itself has is no bug.
    known |= {"near": {(0,): .55, (1,): .45}, "another": truth}
    for exact in known["it"], None:
        verdict = Verdict(True, "It is off.", .001, 100, .1)
        judge_file._name(verdict, [(0,)] * 40 + [(1,)] * 60, exact, truth, 0)
        assert verdict.bugs == ["it"]


def test_where_a_sampler_goes_wrong():
    """Of 300 samples 180 begin with a 0, where half of them should; or each token is right and the second the first."""
    truth = dict.fromkeys(product(range(2), repeat=2), .25)
    begins = [(0, 0)] * 90 + [(0, 1)] * 90 + [(1, 0)] * 60 + [(1, 1)] * 60
    assert judge_file._where(begins, truth) == "Its first token is off already."
    assert judge_file._where([(0, 0), (1, 1)] * 150, truth).startswith("Its first token fits, what follows does not")
    assert judge_file._where([(0, 0)], truth).startswith("Its first token fits")        # a single one tells no seed
    assert judge_file._where([(0, 0)] * 2, truth).startswith("All 2 samples are the same")


def test_what_is_compared_with(monkeypatch):
    """The exact distribution of up to 5,000 outcomes: of 17 tokens three, and not of 18. top-k counts, and so does
    temperature 0: of one vocabulary of 300 there are 90,000 texts of two tokens, and four, and one.
    """
    monkeypatch.setattr(judge_file, "truth_walked", lambda target, ids, new, **settings: "exact")
    for size, truth in (17, "exact"), (18, None):
        assert judge_file._truth(TableModel(size, 1), [1], 3, 2, 9, 0, {}) == (truth, 3)
    for settings, truth in ({}, None), ({"top_k": 70}, "exact"), ({"top_k": 71}, None), ({"temperature": 0}, "exact"):
        assert judge_file._truth(TableModel(300, 1), [1], 2, 2, 9, 0, settings) == (truth, 2)
    assert judge_file.outcomes(32_000, 2, top_k=2) == 4 and judge_file.outcomes(10 ** 5, 2, top_k=501) == math.inf
    assert judge_file.outcomes(10 ** 5, 2, top_k=500) == 250_000
    assert judge_file.outcomes(32_000, 10 ** 9) > judge_file.MOST_OUTCOMES      # without a billion digits
    judge_file.check_task(3, 2, 50, SEEDS - 101, {})                # the last seed is used, and none beyond
    with pytest.raises(RequestError, match="seed"):
        judge_file.check_task(3, 2, 50, SEEDS - 100, {})


@pytest.mark.parametrize("most, unit", [(9, "total variation"), (8, "of the tokens moved, in the order of p_target")])
def test_as_many_outcomes_as_are_allowed_are_counted(most, unit, monkeypatch):
    """Nine texts of two tokens out of three. Four samples are few for each. That is so whether their distribution is
    known or not, and what was sampled walked or not.
    """
    truth = target_distribution(**ALONE)
    monkeypatch.setattr(judge_file, "MOST_OUTCOMES", most)
    monkeypatch.setattr(judge_file, "transformed", lambda drawn, *_, **settings: Fit(.25, 1, 0.0, len(drawn)))
    verdicts = [judge(ours, samples=4, **ALONE)]
    monkeypatch.setattr(judge_file, "_truth", lambda target, ids, new, *_: (truth, new))
    verdicts.append(judge(ours, samples=4, **ALONE))
    monkeypatch.setattr(judge_file, "walked", lambda sampler, seconds: None)
    verdicts.append(judge(ours, samples=4, **ALONE))
    assert {(verdict.unit, verdict.p_value) for verdict in verdicts} == {(unit, 1.0 if most == 9 else .25)}


@pytest.mark.parametrize("draft_model, order", [(DRAFT_MODEL, "q_draft - p_target"), (None, "p_target")])
def test_tokens_are_judged_by_all_that_was_given(draft_model, order, monkeypatch):
    heard = []
    monkeypatch.setattr(judge_file, "MOST_OUTCOMES", 8)
    monkeypatch.setattr(judge_file, "transformed", lambda drawn, *its, **settings: (
        heard.append((*its, settings)) or Fit(.25, 1, 0.0, len(drawn))))
    verdict = judge(ours, samples=4, seed=5, draft_model=draft_model, **ALONE)
    assert verdict.unit == f"of the tokens moved, in the order of {order}"
    assert heard == [(TABLE, draft_model, [1], 5, {"temperature": .7})]


def test_a_transform_of_1_is_in_the_last_of_the_parts():
    """Rounding makes one of a right program's."""
    assert judge_file.uniform([torch.linspace(0, 1, 3_201).double()]).p_value > .9


def test_tokens_one_by_one_in_the_order_of_what_the_draft_model_favours():
    """By a plain loop: below a token stands what the draft model favours less. The uniforms are not the sampler's."""
    drawn, ids, seed, bins = [*product(range(3), repeat=3)] * 2, [1, 0], 7, [0] * 16
    for number, tokens in enumerate(drawn):
        u = np.random.default_rng([63, seed, number]).random(3)
        for place, token in enumerate(tokens):
            text = [*ids, *tokens[:place]]
            p, q = (Sampling(.7)(model(torch.tensor([text]))[0, -1:])[0] for model in (TABLE, DRAFT_MODEL))
            order = sorted(range(3), key=lambda token: q[token] - p[token])
            below = sum(p[other] for other in order[:order.index(token)])
            bins[min(15, int(16 * (below + u[place] * p[token])))] += 1     # of tokens that p forbids, too
    found = judge_file.transformed(drawn, TABLE, DRAFT_MODEL, ids, seed, temperature=.7)
    assert {i: seen for i, (_, seen) in enumerate(found.cells)} == dict(enumerate(bins))
    assert found.p_value == goodness_of_fit(dict(enumerate(bins)), dict.fromkeys(range(16), 1 / 16)).p_value


def test_a_control_is_right():
    task = TASK | {"new": 2}
    assert not judge(sampler_with(bugs["no-bonus"], **task), samples=50, **task).wrong


# Right samplers as others write them: with chance of their own, and with tokens of every shape.

def numpys(seeds=np.random.default_rng(1)):
    """Leviathan's loop with numpy's chance, a draft token at a time."""
    ids = [1]
    while len(ids) < 3:
        p, q = (Sampling(0.7)(model(torch.tensor([ids]))[0, -1:])[0].numpy() for model in (TABLE, DRAFT_MODEL))
        x = seeds.choice(3, p=q)
        if seeds.random() >= p[x] / q[x]:
            x = seeds.choice(3, p=np.maximum(p - q, 0) / np.maximum(p - q, 0).sum())
        ids.append(x)
    return ids[1:]


def torchs(generator=torch.Generator().manual_seed(2)):
    """transformers' style: (1, length) tensors that grow, multinomial."""
    ids = torch.tensor([[1]])
    while ids.shape[1] < 3:
        p = torch.softmax(TABLE(ids)[:, -1] / 0.7, -1)
        ids = torch.cat([ids, torch.multinomial(p, 1, generator=generator)], 1)
    return ids[:, 1:]


def matching(generator=torch.Generator().manual_seed(3)):
    """transformers without candidate logits: a draft token stands if the target's own sample is the same."""
    ids = [1]
    while len(ids) < 3:
        for x in (*generate(DRAFT_MODEL, ids, 2, 0), None):
            ids.append(int(torch.multinomial(warm(ids), 1, generator=generator)))
            if ids[-1] != x:
                break
    return ids[1:3]


def with_a_coin_of_its_own(dice, generator=torch.Generator().manual_seed(4)):
    """The first token is picked by the dice, the others are its own affair."""
    ids = [1]
    ids.append(int(dice.pick(warm(ids)[None])) if not isinstance(dice, Dice) else one_pick(dice, warm(ids)))
    while len(ids) < 3:
        ids.append(int(torch.multinomial(warm(ids), 1, generator=generator)))
    return ids[1:]


def one_pick(dice, weights):
    dice.refill(1)
    return int(dice.pick(weights[None]))


@pytest.mark.parametrize("sampler, forms", [
    (numpys, [list, lambda tokens: np.array([tokens])]),
    (torchs, [torch.clone, lambda text: list(text[0]), lambda text: list(text[0][:, None]), torch.Tensor.int]),
    (matching, [iter, tuple])], ids=["numpy", "torch", "matching"])
def test_right_samplers_of_others_are_called_right(sampler, forms):
    """Every sample has another shape."""
    forms = cycle(forms)
    verdict = judge(lambda dice: next(forms)(sampler()), samples=300, **ALONE)
    assert not verdict.wrong and verdict.decided and verdict.distance is None and "could not be walked" in verdict.why


def test_what_is_walked_may_have_any_shape():
    """Every path has another one."""
    forms = cycle([list, torch.tensor, lambda tokens: torch.tensor([tokens]), np.array, iter,
                   lambda tokens: [torch.tensor(token) for token in tokens]])
    assert distance(walked(lambda dice: next(forms)(ours(dice)), again=0), target_distribution(**ALONE))[1] < 1e-12


@pytest.mark.parametrize("said", [None, "abc", {1: 2}, [1, None], [[1, 2], [3]]], ids=repr)
def test_what_is_no_tokens_is_refused(said):
    with pytest.raises(RequestError, match="a sampler returns its tokens"):
        tokens_from(said)


def test_a_coin_of_its_own_is_not_walked():
    """Walked, it would be wrong with certainty: of its own chance a walk sees one outcome a path."""
    assert walked(with_a_coin_of_its_own) is None
    verdict = judge(with_a_coin_of_its_own, samples=600, **ALONE)
    assert not verdict.wrong and verdict.distance is None


def test_a_walk_that_disagrees_with_the_samples_decides_nothing(monkeypatch):
    """Had the second walk been lucky: what was walked does not fit the samples, and these fit the target."""
    monkeypatch.setattr(judge_file, "walked", lambda sampler, seconds: {(0, 0): 1.0})
    verdict = judge(ours, samples=100, **ALONE)
    assert not verdict.wrong and verdict.distance is None and "chance of its own" in str(verdict)


# Wrong ones, with chance of their own.

def even(generator=torch.Generator().manual_seed(5)):
    """All tokens alike."""
    return torch.randint(3, (1, 3), generator=generator)


def twice(generator=torch.Generator().manual_seed(6)):
    """Every token is drawn by the same uniform: each alone is right."""
    u, ids = torch.rand(1, generator=generator, dtype=torch.float64), [1]
    while len(ids) < 4:
        ids.append(int(torch.searchsorted(warm(ids).cumsum(-1), u, right=True)))
    return ids[1:]


@pytest.mark.parametrize("sampler, said", [(even, "first token is off"), (twice, "is chance used twice"),
                                           (lambda: [0, 0, 0], "All 300 samples are the same")],
                         ids=["even odds", "chance used twice", "frozen"])
def test_wrong_samplers_of_others_are_called_wrong(sampler, said):
    verdict = judge(lambda dice: sampler(), samples=300, **ALONE | {"new": 3})
    assert verdict.wrong and verdict.distance is None and not verdict.bugs and said in str(verdict)


def test_chance_used_twice_is_seen_although_the_walk_is_clean():
    """The same uniforms in every run: each decision has the right odds, and all runs agree."""
    def frozen(dice):
        for generator in getattr(dice, "generators", []):
            generator.manual_seed(7)
        return ours(dice)

    verdict = judge(frozen, samples=200, **ALONE)
    assert verdict.wrong and verdict.distance < 1e-12 and "although its walked distribution does" in verdict.why


def test_a_distribution_will_do_instead_of_a_model():
    truth = target_distribution(**ALONE)
    assert not judge(ours, truth, samples=50).wrong
    verdict = judge(lambda dice: list(generate(TABLE, [1], 2, 1.0, dice=dice)), truth, samples=50)
    assert verdict.wrong and verdict.distance > .001 and verdict.bugs == []

    def four(dice):
        dice.refill(1)
        return dice.pick(torch.tensor([[.4, .39, .1, .11]], dtype=torch.float64)).tolist()

    verdict = judge(four, TRUTH, samples=200)
    assert verdict.distance == pytest.approx(.199)          # .09 and .109 too often; of one outcome, .109 at most
    assert judge(lambda dice: ours(dice)[:1], beginnings(truth, 1), samples=50).samples == 50       # of one token


def test_with_no_tolerance_what_is_exactly_right_is_right():
    """Halves have no rounding. The same uniform in every run is still wrong, and what it is walked as is the target.
    A distribution may name what has no probability.
    """
    truth = dict.fromkeys(product(range(2), repeat=2), .25)
    verdict = judge(binary(2), truth | {(7, 7): 0.0}, samples=50, tolerance=0)
    assert not verdict.wrong and verdict.distance == 0

    def frozen(dice):
        for generator in getattr(dice, "generators", []):
            generator.manual_seed(7)
        return binary(2)(dice)

    verdict = judge(frozen, truth, samples=50, tolerance=0)
    assert verdict.wrong and verdict.distance == 0 and "although its walked distribution does" in verdict.why


def test_each_sample_has_the_next_seed(monkeypatch):
    monkeypatch.setattr(judge_file, "walked", lambda sampler, seconds: None)
    seeds = []
    judge(lambda dice: seeds.append(dice.generators[0].initial_seed()) or [0], {(0,): 1.0}, samples=3, seed=70)
    assert seeds == [70, 71, 72]


def test_a_wrong_length_is_said():
    verdict = judge(lambda dice: ours(dice)[:1], samples=20, **ALONE)
    assert "returned 1 tokens where 2" in verdict.why
    assert (verdict.p_value, verdict.visible, verdict.samples) == (0, 0, 20)
    assert judge(lambda dice: ours(dice)[:1], samples=80, looks=5, **ALONE).samples == 5        # the first look tells
    assert "the prompt in front" in judge(lambda dice: [1, *ours(dice)], samples=20, **ALONE).why
    for front, said in ([2, 1], True), ([2, 0], False), ([0, 1], False), ([2, 1, 1], False):
        verdict = judge(lambda dice: [*front, *ours(dice)], samples=20, **ALONE | {"ids": [2, 1]})
        assert ("the prompt in front" in verdict.why) == said


def test_too_few_samples_are_no_verdict():
    verdict = judge(lambda dice: numpys(), samples=20, **ALONE)
    assert not verdict.wrong and not verdict.decided and str(verdict).startswith("No verdict")
    assert judge(ours, samples=20, **ALONE).decided                     # it was walked: nothing is left to luck
    assert [Verdict(False, "", .3, 9, visible).decided for visible in (.5, .5001)] == [True, False]


@pytest.mark.parametrize("given, said", [
    ({"samples": 0}, "samples"), ({"samples": -1}, "samples"), ({"samples": 2.5}, "samples"), ({"new": 0}, "new"),
    ({"gamma": 0}, "gamma"), ({"seed": 2 ** 64}, "seed"), ({"temperature": -1}, "temperature"), ({"top_k": 0}, "top_k"),
    ({"ids": []}, "prompt"), ({"ids": [7]}, "prompt"), ({"new": 99}, "context"),
    ({"target": {(0, 1, 2): 0.4}}, "add up to 1"), ({"target": {(0,): 0.5, (1, 1): 0.5}}, "one length"),
    ({"target": {(0,): 1.5, (1,): -0.5}}, "add up to 1"), ({"target": {(0,): 1.0, (1,): math.nan}}, "add up to 1"),
    ({"target": {0: 0.5, 1: 0.5}}, "tuples of one"), ({"target": {(): 1.0}}, "of one length, 1 or more"),
    ({"target": {(0,): 1.0}, "temperature": 0.7}, "as it is")], ids=str)
def test_what_cannot_be_judged_is_refused(given, said):
    with pytest.raises(RequestError, match=said) as refused:
        judge(ours, **{"target": TABLE, "draft_model": DRAFT_MODEL, "ids": [1], "new": 3} | given)
    assert "\n" not in str(refused.value)


def test_a_bug_is_walked_as_long_as_its_beginning_is_within_the_tolerance(monkeypatch):
    heard = []
    monkeypatch.setattr(samplers, "walked", lambda sampler, left, again, like, same: heard.append((like, same)))
    task = {name: value for name, value in TASK.items() if name != "new"}
    assert not any(same for _, same in samplers.named(bool, {(0, 1): .75, (0, 2): .25}, 1e9, .125, 2, **task))
    assert heard == [({(0,): 1.0}, .125)] * len(OF_A_CHAIN)


def test_the_search_for_a_name_ends_and_one_hears_that_it_is_wrong_before(monkeypatch):
    """A wrong sampler on a GPT, of which even the shortest walk takes long."""
    clock, said = count(), []                                           # a second passes with every look at it
    for module in foreign, samplers:
        monkeypatch.setattr(module, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(judge_file, "walked", lambda sampler, seconds: None)
    monkeypatch.setattr(judge_file, "truth_walked", target_distribution)
    stepped = []
    monkeypatch.setattr(judge_file, "announced", lambda words, at_once, steps=0: (
        said.append((words, steps)) or nullcontext(lambda: stepped.append(1))))
    task = {"target": GPT4, "draft_model": GPT_DRAFT_MODEL4, "ids": [1, 2], "new": 2, "gamma": 3}
    verdict = judge(lambda dice: generate(GPT4, [1, 2], 2, 9.0, dice=dice), samples=100, **task)
    assert verdict.wrong and "There was time for" in str(verdict)
    assert f"of the zoo's {len(OF_A_CHAIN)} bugs" in verdict.why
    assert f"time for {len(stepped)} of" in str(verdict) and said == [
        ("walking every path, for at most 30 s", 0),
        ("WRONG. Which bug of the zoo is it? Looking for 30 seconds at most", len(OF_A_CHAIN))]


def test_a_walk_that_takes_too_long_is_given_up(monkeypatch):
    """Nine seconds are enough for it if each path takes none, and not if each takes one."""
    assert walked(ours, seconds=9, again=0)
    clock = count()
    monkeypatch.setattr(foreign, "perf_counter", lambda: next(clock))
    assert walked(ours, seconds=9) is None and 9 < next(clock) < 40


def test_the_command_line(monkeypatch, capsys):
    with pytest.raises(SystemExit) as left:
        itself.main(["--help"])
    assert left.value.code == 0 and "--quick" in capsys.readouterr().out
    for argv in (["--junk"], ["--runs", "0"], ["--runs", "x"], ["more"]):
        assert itself.main(argv) == 2
        err = capsys.readouterr().err
        assert err.startswith("itself: ") and err.count("\n") == 1
    monkeypatch.setattr(itself, "judge", lambda *args, **kwargs: (_ for _ in ()).throw(KeyboardInterrupt))
    assert itself.main(["--quick"]) == 130
    assert capsys.readouterr().err.strip().count("\n") == 0


def test_the_table_of_the_command(monkeypatch, capsys):
    kept = [bug for bug in OF_A_CHAIN if bug.name in ("residual-is-target", "logits-as-probabilities")]
    monkeypatch.setattr(itself, "OF_A_CHAIN", kept)
    verdicts = iter([Verdict(False, "", 0.02, 500, 0.1, 0.0)] * 21
                    + [Verdict(True, "", 0.2, 500, 0.1, 0.25, ["residual-is-target"]), IndexError()][::-1])

    def judged(*args, **kwargs):
        verdict = next(verdicts)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    monkeypatch.setattr(itself, "judge", judged)
    assert itself.main(["--quick"]) == 0
    out = capsys.readouterr().out
    assert "20 runs" in out and "20 times below 0.05, 0 times below 0.01" in out
    assert "falls over" in out and "0.25 named" in out and "p = 0.2 missed" in out


# T8: the pair that ships, float32, real dice, one run of 400 tokens; the long one is in `python -m tests.proof`

@pytest.fixture(scope="module")
def real():
    target, draft_model, tokenizer = load_pair()
    return {"target": pack(target), "draft_model": pack(draft_model), "ids": tokenizer.encode("class Queue:\n    def"),
            "new": 50,
            "gamma": 4, "temperature": 0.8}


def test_the_shipped_pair_is_right(real):
    verdict = judge(sampler_with(AS_IT_SHIPS, **real), samples=8, seconds=0, **real)
    assert not verdict.wrong and verdict.samples == 400 and verdict.visible < .25


@pytest.mark.slow
def test_a_long_run_shows_a_bug_on_the_shipped_pair(real):
    assert judge(sampler_with(bugs["accept-everything"], **real), samples=8, seconds=0, **real).wrong


# What is not judged, and what is not walked

def test_probabilities_are_no_logits():
    """Of target and draft model; their logarithms are. What does not add up to 1 is logits."""
    class Of(TableModel):
        def __init__(self, change):
            super().__init__(3, 8, zeros=0.4)       # as TABLE
            self.logits = change(self.logits)

    probabilities = Of(lambda logits: logits.softmax(-1))
    for models in {"target": probabilities}, {"draft_model": probabilities}:
        with pytest.raises(RequestError, match=f"the {[*models][0]} returns probabilities.*logarithm"):
            judge(ours, **TASK | models)
    assert not judge(ours, samples=50, **ALONE | {"target": Of(lambda logits: logits.log_softmax(-1))}).wrong
    judge_file.check_logits(Of(lambda logits: logits.softmax(-1) * 1.1), [1], "target")
    judge_file.check_logits(TABLE, [1], "target")
    single = TableModel(1, 1)
    single.logits = torch.ones_like(single.logits)              # of a single token, 1 is as good a logit as any
    judge_file.check_logits(single, [0], "target")


def test_a_sampler_that_ends_the_program_is_no_verdict():
    for status in 0, 1, None:
        with pytest.raises(RequestError, match="the sampler ends the program: SystemExit"):
            judge(lambda dice: sys.exit(status), samples=20, **ALONE)


def test_a_sampler_that_stops_an_iteration_does_not_stop_the_samples():
    """Else the first ones would be judged, and found right."""
    drawn = iter(range(10))
    with pytest.raises((StopIteration, RuntimeError)):
        judge(lambda dice: next(drawn) and ours(dice) or ours(dice), samples=200, **ALONE)


def test_what_is_no_token_is_wrong():
    for token in 3, -1, .5:
        verdict = judge(lambda dice: [*ours(dice)[:1], token], samples=20, **ALONE)
        assert verdict.wrong and f"it returned {token}, which is no token" in verdict.why
    many = TableModel(40, 1)
    assert "no token" in judge(lambda dice: [0, 0, 40], many, samples=20).why


def binary(tokens):
    """A sampler with 2 ** tokens paths, of which the table below is the truth."""
    def sampler(dice):
        if hasattr(dice, "refill"):
            dice.refill(tokens)
        return [int(dice.pick(torch.tensor([[.5, .5]]))) for _ in range(tokens)]
    return sampler


def test_a_sampler_is_called_from_as_many_threads_as_are_asked_for(monkeypatch):
    """Two calls wait for each other. One alone would wait for ever, and so is given up after a minute."""
    monkeypatch.setattr(judge_file, "walked", lambda sampler, seconds: None)
    both = threading.Barrier(2)

    def sampler(dice):
        both.wait(60)
        return [*generate(TABLE, [1], 2, 0.7, dice=dice)]

    assert not judge(sampler, samples=40, at_once=2, **ALONE).wrong


def test_a_coin_of_its_own_beside_many_paths_is_seen():
    """So many that one walk more is more than the paths that are to be walked a second time."""
    own, few = torch.Generator().manual_seed(7), binary(8)
    assert len(walked(few)) == 256 > foreign.AGAIN
    assert walked(lambda dice: [*few(dice), int(torch.rand((), generator=own) < .5)]) is None


def test_what_has_other_odds_in_every_run_is_not_walked():
    """It keeps a state. That is no error, for samples can judge it."""
    odds = count(1)
    assert walked(lambda dice: [int(dice.pick(torch.tensor([[1.0, next(odds)]])))]) is None


def test_as_many_paths_as_are_allowed_are_walked_twice(monkeypatch):
    for most in 256, 255:
        monkeypatch.setattr(foreign, "MOST_PATHS", most)
        assert (walked(binary(8)) is not None) == (most == 256)


def test_how_many_paths_there_are_is_known_beforehand():
    """After a few runs: a walk of 2 ** 24 paths is not begun, one of 2 ** 10 is."""
    runs = count()
    assert walked(lambda dice: [next(runs), binary(24)(dice)][1], 1e9) is None and next(runs) <= 33
    assert len(walked(binary(10), again=0)) == 1024 and not foreign.too_long(binary(10), 1e9)

    def odd(dice, least=3):
        """3 paths of one decision, and 2 ** least more."""
        first = int(dice.pick(torch.tensor([[.1, .2, .3, .4]])))
        return [first, *([int(dice.pick(torch.tensor([[.5, .5]]))) for _ in range(least)] if first == 3 else [])]

    estimates = []
    for seed in range(400):
        dice = foreign.Descending(seed)
        odd(dice)
        estimates.append(dice.paths)
    assert {*estimates} == {4, 32} and sum(estimates) / 400 == pytest.approx(3 + 8, abs=2)
    # The first run, which by itself would say that there are four times as many paths, does not decide alone.
    assert estimates[0] == 32 and not foreign.too_long(lambda dice: odd(dice, 15), 1e9)


def test_a_walk_that_would_take_too_long_is_not_begun(monkeypatch):
    """A second for each path: 2 ** 10 of them are not begun with 100 seconds, and with 300 they are."""
    clock = count()
    monkeypatch.setattr(foreign, "perf_counter", lambda: next(clock))
    assert foreign.too_long(binary(10), 100) and not foreign.too_long(binary(10), 300)


def test_top_k_counts_in_what_is_walked():
    """In a vocabulary of 200, top-k 2: four texts of two tokens where there would be 40,000, and every path."""
    target, draft_model = TableModel(200, 1), TableModel(200, 1)
    target.logits = target.logits * 300                 # the draft model's favourites, and not evenly
    task = {"target": target, "draft_model": draft_model, "ids": [1], "new": 2, "gamma": 1, "top_k": 2}
    verdict = judge(sampler_with(AS_IT_SHIPS, **task), samples=50, **task)
    assert not verdict.wrong and verdict.distance < 1e-12 and verdict.unit == "total variation"
    wrong = judge(sampler_with(bugs["residual-is-target"], **task), samples=50, **task | {"draft_model": None})
    assert wrong.wrong and wrong.distance > .001


def test_tokens_are_counted_one_by_one_where_outcomes_would_be_too_rare():
    """12 ** 2 texts with top-k, of a vocabulary of 100: with 50 samples tokens, with 720 outcomes."""
    def sampler(dice, seeds=np.random.default_rng(3)):
        ids = [1]
        while len(ids) < 3:
            ids.append(int(seeds.choice(100, p=Sampling(1.0, 12)(model(torch.tensor([ids]))[0, -1:])[0].numpy())))
        return ids[1:]

    model = TableModel(100, 4)
    for samples, unit in (50, "of the tokens moved, in the order of p_target"), (720, "total variation"):
        verdict = judge(sampler, model, ids=[1], new=2, samples=samples, top_k=12)
        assert not verdict.wrong and verdict.distance is None and verdict.unit == unit
