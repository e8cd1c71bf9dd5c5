"""Exercise 22: right solutions as others write them pass, wrong ones never, and the cells of the noise by hand."""

import random
from types import SimpleNamespace

import numpy
import pytest
import torch

from lessons.check.ex22_one_seed_one_text import CASES, IDS, number_to_beat, right_on_average
from lessons.check.engine import Functions
from lessons.check.mistakes_with_noise import RIGHT
from lessons.coupled import WalkedNoise, agreement, cells, draw, gumbel
from nanospec.proof.stats import goodness_of_fit
from tests.classroom import answers_told

RACE = '''
def first(p, noise):
    return (torch.exp(-noise) / p).argmin().item()          # waiting times: the first to come


def propose(text, draft_model, gamma, noise):
    if gamma == 0:
        return []
    x = first(draft_model(text), noise(len(text)))
    return [x, *propose(text + [x], draft_model, gamma - 1, noise)]


def judge(text, drafted, p_target, noise):
    own = first(p_target[0], noise(len(text)))
    if not drafted or own != drafted[0]:
        return [own]
    return [own, *judge(text + [own], drafted[1:], p_target[1:], noise)]
'''
NUMPY = '''
import numpy as np


def propose(text, draft_model, gamma, noise):
    text = list(text)
    for _ in range(gamma):
        text.append(np.argmax(draft_model(text).numpy() * np.exp(noise(len(text)).numpy())))
    return np.array(text[-gamma:])


def judge(text, drafted, p_target, noise):
    scores = p_target.numpy() * np.exp(np.stack([noise(len(text) + i).numpy() for i in range(len(p_target))]))
    own = scores.argmax(1)
    wrong = [i for i, x in enumerate(drafted) if own[i] != x]
    return own[:wrong[0] + 1] if wrong else own
'''
AT_ONCE = '''
def propose(text, draft_model, gamma, noise):
    text = text[:]
    return torch.tensor([text.append(x) or x for _ in range(gamma)
                         for x in [(draft_model(text).log_() + noise(len(text))).max(0).indices.item()]])


def judge(text, drafted, p_target, noise):
    places = torch.arange(len(p_target)) + len(text)
    own = (p_target.log() + torch.stack([noise(int(place)) for place in places])).argmax(-1)
    same = own[:-1] == torch.tensor(drafted)
    return own[:1 + int(same.long().cumprod(0).sum())]
'''
BY_HAND = '''
import math


def propose(text, draft_model, gamma, noise):
    whole = list(text)
    while len(whole) < len(text) + gamma:
        whole.append(best(draft_model(whole).tolist(), noise(len(whole)).tolist()))
    return whole[len(text):]


def judge(text, drafted, p_target, noise):
    k = 0
    while True:
        token = best(p_target[k].tolist(), noise(len(text) + k).tolist())
        if k == len(drafted) or token != drafted[k]:
            return [*drafted[:k], token]
        k += 1


def best(p, g):
    return max((math.log(a) + b, x) for x, (a, b) in enumerate(zip(p, g)) if a > 0)[1]
'''
SOFTMAX = '''
def propose(text, draft_model, gamma, noise):
    drafted = []
    for i in range(gamma):
        g = noise(len(text) + i) - 5                                        # no constant changes an argmax
        drafted.append((draft_model(text + drafted).log() + g).softmax(-1).argmax())
    return torch.stack(drafted)


def judge(text, drafted, p_target, noise):
    written, rows = [], iter(p_target)
    for x in [*drafted, None]:
        written.append((next(rows).log() + noise(len(text) + len(written))).log_softmax(-1).argmax())
        if written[-1] != x:
            break
    return written
'''


@pytest.mark.parametrize("source", [RACE, NUMPY, AT_ONCE, BY_HAND, SOFTMAX],
                         ids=["a race", "numpy", "at once", "by hand", "softmax"])
def test_other_right_solutions_pass(told, source):
    found = told(22, "import torch\n" + source)
    assert found.failure is None, found.failure[1]


def changed(*changes: tuple[str, str]) -> str:
    return "import torch\n" + answers_told.changed(22, *changes)


OWN, DRAFT = "noise(len(text) + i)", "noise(place)"
SLOW = [
    (changed((DRAFT, "noise(place + 1)")), "draft-one-place-off"),
    (changed((DRAFT, "noise(place - len(text))")), "draft-counts-from-the-round"),
    (changed((DRAFT, "noise(len(text))")), "draft-with-one-noise"),
    (changed(("(q_draft.log() + noise(place))", "q_draft")), "draft-greedy"),
    (changed(("[*text, *drafted]", "text")), "draft-does-not-read-itself"),
    (changed(("q_draft.log()", "q_draft")), "drafts-other-sum"),
    (changed(("if i == len(drafted) or written", "if i == len(drafted) - 1 or written")), "bonus-forgotten"),
    (changed(("if i == len(drafted) or written[i] != drafted[i]:\n            return", "return")), "draft-ignored"),
    (changed((DRAFT, "torch.zeros(len(q_draft))")), "draft-greedy")]
WRONG = [
    (changed((OWN, "noise(i)")), "place-of-the-round"),
    (changed((OWN, "noise(len(text) + i + 1)")), "target-one-place-off"),
    (changed(("range(len(text), len(text) + gamma)", "range(gamma)"), (OWN, "noise(i)")), "place-of-the-round"),
    (changed((OWN, "noise(len(text))")), "one-noise-for-all"),
    (changed(("(p.log() + noise(len(text) + i))", "p")), "target-greedy"),
    (changed(("p.log()", "p")), "noise-added-to-probabilities"),
    (changed(("p.log() +", "p.log() -")), "noise-taken-away"),
    (changed(("p.log() +", "p.log() -"), ("q_draft.log() +", "q_draft.log() -")), "noise-taken-away"),
    (changed(("p.log()", "(p + 1e-10).log()")), "epsilon-in-the-log"),
    (changed(("            return written", "            return [*written[:-1], drafted[i]] if i < len(drafted) else "
              "written")), "mismatch-kept"),
    (changed((" or written[i] != drafted[i]", "")), "goes-on-after-a-mismatch"),
    (changed(("enumerate(p_target)", "enumerate(p_target[1:])"), ("if i == len(drafted)", "if i == len(drafted) - 1")),
     ""),
    (changed(("p_target):", "p_target):\n        p = p.softmax(-1)")), ""),
    (changed((f"(p.log() + {OWN}).argmax()", "p.multinomial(1)")), ""),
    (changed((OWN, "torch.zeros(len(p)).exponential_().log().neg()")), ""),
    (changed((OWN, "noise(len(text) + i).round()")), ""),
    *((changed(("p.log()", "p.float().log()"), (OWN, f"{OWN}.{kind}()")), "") for kind in ("half", "float"))]


@pytest.mark.parametrize("source, name", SLOW + WRONG)
def test_wrong_solutions_never_pass_and_what_is_only_slow_is_told(told, source, name):
    found = told(22, source)
    assert found.failure is not None
    assert not name or found.named == [name] and name in found.failure[1], found
    assert ("speed, not truth" in found.failure[1]) == found.slow == ((source, name) in SLOW), found


@pytest.mark.parametrize("chance", ["-torch.rand(len(q_draft)).log()",
                                    "torch.tensor([__import__('random').random() for _ in q_draft])",
                                    "torch.tensor(__import__('numpy').random.rand(len(q_draft)))"])
def test_noise_of_its_own_for_the_draft_model_is_told_the_same_each_time(told, chance):
    """Where such an answer fails depends on what it draws, and so on the seed. The text is the target's."""
    source = changed((DRAFT, chance))
    found = []
    for seed in 5, 6:
        for of in torch.manual_seed, random.seed, numpy.random.seed:
            of(seed)
        found.append(told(22, source))
    assert found[0].failure is not None and found[0].named == [] and found[1] == found[0]
    assert (random.random(), numpy.random.rand()) == (random.Random(6).random(), numpy.random.RandomState(6).rand())


def test_cells_of_the_noise_by_hand():
    """p [1/2, 1/3, 1/6] draws token 0 in half of the triangle, and so on; two distributions share their parts."""
    p, q = (torch.tensor(weights, dtype=torch.float64) / 6 for weights in ([3, 2, 1], [1, 2, 3]))
    shares, noises = cells([p])
    assert sorted(shares) == pytest.approx([1 / 6, 1 / 3, 1 / 2], abs=1e-14)
    assert [p[draw(p, g)].item() for g in noises] == pytest.approx(shares, abs=1e-14)
    shares, noises = cells([p, q])
    # both draw 0: 1 / (1 + 2 + 3) = 1/6; both 1: 1 / (3/2 + 1 + 3/2) = 1/4; both 2: as 0
    same = [(draw(p, g), share) for share, g in zip(shares, noises) if draw(p, g) == draw(q, g)]
    assert dict(same) == pytest.approx({0: 1 / 6, 1: 1 / 4, 2: 1 / 6}, abs=1e-14)
    assert agreement(p, q).item() == pytest.approx(7 / 12, abs=1e-14)
    # only token 0 is ever drawn by both: 1 / (1 + 1 + 1/4), where .8, 0 and .2 are met by .5, .5 and 0
    one, other = (torch.tensor(weights, dtype=torch.float64) for weights in ([.5, .5, 0], [.8, 0, .2]))
    assert agreement(one, other).item() == agreement(other, one).item() == pytest.approx(4 / 9, abs=1e-14)
    assert cells([])[0] == [1.0]


def test_noise_of_a_place_is_a_function_of_seed_and_place_and_draws_from_p():
    assert gumbel(3, 5, 4)[:2].equal(gumbel(3, 2, 4)) and not gumbel(3, 2, 4).equal(gumbel(4, 2, 4))
    assert gumbel(1, 3_000, 4).mean().item() == pytest.approx(.577, abs=.05)       # Euler's constant
    p, counts = torch.tensor([.5, .3, .2, 0]), {}
    for g in gumbel(1, 3_000, 4):
        counts[draw(p, g)] = counts.get(draw(p, g), 0) + 1
    assert goodness_of_fit(counts, {0: .5, 1: .3, 2: .2}).p_value > 1e-4        # fails for 1 seed in 10,000; this is 1


def test_the_number_to_beat_is_the_overlap_of_independent_draws():
    name = next(iter(CASES))
    p, q = (CASES[name][i](IDS) for i in (0, 1))
    assert right_on_average(name) == pytest.approx(1 + agreement(p, q).item(), abs=1e-12)
    assert right_on_average(name, apart=True) == pytest.approx(1 + (p * q).sum().item(), abs=1e-12)
    said = number_to_beat(Functions(**RIGHT))
    assert said.startswith(f"{agreement(p, q):.3f} draft tokens") and f"to beat: {(p * q).sum():.3f}" in said


def test_what_a_learner_adds_to_the_noise_stays_with_the_learner():
    """A place that is asked for again has the noise that it had, and so has the next path."""
    noises = [torch.tensor([1.0, 2, 3]), torch.tensor([4.0, 5, 6])]
    noise = WalkedNoise(SimpleNamespace(pick=lambda shares: 1), lambda place: ([.25, .75], noises))
    noise(7).add_(100)
    assert noise(7).tolist() == [4, 5, 6] == noises[1].tolist()
