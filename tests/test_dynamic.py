"""A length that is decided on the way: every rule walked over whole requests, so that what it carries along is seen."""

import pytest
import torch

from nanospec import ModelDrafter, load_pair
from nanospec.drafters.dynamic import DynamicDrafter
from nanospec.drafters.stopping import Confidence, Entropy, Fixed, Goodput, Heuristic
from nanospec.errors import LogitsError, RequestError
from nanospec.generate import generate
from nanospec.probs import probs
from nanospec.proof.checks import DRAFT as SPARSE_DRAFT, TABLE as SPARSE, Ledger
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.proof.tables import prompts_of, small_gpt
from nanospec.proof.checks import DRAFT, TABLE, WARM
from nanospec.proof.zoo.wings import STOPPING_BUGS, STOPPING_CONTROLS
from nanospec.proof.zoo import planted
from nanospec.rules.block import verify_block
from nanospec.speculate import speculate, tokens_of, verify
from nanospec.theory import acceptance, best_gamma, expected_tokens, speedup

GPT, GPT_DRAFT = small_gpt(11, 2, 1), small_gpt(11, 1, 2)
COSTS = .1, {tokens: 1 + .05 * (tokens - 1) for tokens in range(2, 10)}
DEAR = .3, {2: 1.1, 3: 1.2, 4: 1.3}
RULES = {"fixed": Fixed(), "heuristic": Heuristic(start=1), "confidence": Confidence(.3), "entropy": Entropy(.6),
         "goodput": Goodput(*DEAR)}
ON_GPTS = RULES | {"confidence": Confidence(.1), "entropy": Entropy(.38)}               # where each decides both ways
rules = pytest.mark.parametrize("when", RULES.values(), ids=RULES)
rules_on_gpts = pytest.mark.parametrize("when", ON_GPTS.values(), ids=ON_GPTS)
judges = pytest.mark.parametrize("judge", [verify, verify_block])


def requests(when, target=TABLE, draft=DRAFT, most=2, new=3, ids=(1, 0), judge=verify, **settings):
    """(total variation of the text's law from the target's, all the ways in which rounds had lengths)."""
    lengths = set()
    settings = settings or WARM

    def play(dice):
        rounds = list(speculate(target, DynamicDrafter(draft, when), ids, most, new, dice=dice, rule=judge,
                                     **settings))
        lengths.add(tuple(len(one.drafted) for one in rounds))
        return tuple(tokens_of(rounds))
    return distance(walk(play)[0], target_distribution(target, ids, new, **settings))[1], lengths


@judges
@rules
def test_whole_requests_have_the_targets_law(when, judge):
    off, lengths = requests(when, judge=judge)
    assert off < 1e-12
    assert any(len(rounds) >= 2 for rounds in lengths)
    assert type(when) is Fixed or len({length for rounds in lengths for length in rounds}) > 1, "it never decided"


@pytest.mark.parametrize("settings", [{"temperature": 1.3, "top_k": 2}, {"top_p": .7}, {"stop": {0}, **WARM}])
def test_what_is_asked_of_it_is_the_law_before_temperature_and_the_text_follows_the_one_behind(settings):
    for when in (Confidence(.3), Goodput(*DEAR)):
        assert requests(when, **settings)[0] < 1e-12


def test_the_length_of_a_later_round_depends_on_the_earlier():
    """That state is carried at all, so that the walks of whole requests had something to see."""
    for when in (Heuristic(start=1), Goodput(*DEAR)):
        lengths = requests(when)[1]
        seconds = {}
        for first, second, *_ in (rounds for rounds in lengths if len(rounds) > 1):
            seconds.setdefault(first, set()).add(second)
        assert any(len(after) > 1 for after in seconds.values())


@pytest.mark.parametrize("gamma", [1, 2])
def test_with_a_fixed_length_it_is_speculates_chain(gamma):
    """The same law of text and rounds, and of the guesses: each is the other's oracle."""
    def law_with(drafter):
        return walk(lambda dice: tuple((*one.drafted, None, *one.emitted, None, one.kept, one.steps) for one in
                                       speculate(SPARSE, drafter, [1, 0], gamma, 4, dice=dice, **WARM)))[0]
    laws = [law_with(drafter) for drafter in (DynamicDrafter(SPARSE_DRAFT, Fixed()), ModelDrafter(SPARSE_DRAFT))]
    assert distance(*laws)[1] < 1e-12


# What looks harmless and is not, and what looks like it and is.

@pytest.mark.parametrize("bug", STOPPING_BUGS, ids=lambda bug: bug.name)
def test_a_guess_thrown_away_for_what_it_is_is_caught(bug):
    with planted(bug):
        off, _ = requests(Confidence(.3), new=2)
    assert off > 0.01


@pytest.mark.parametrize("control", STOPPING_CONTROLS, ids=lambda control: control.name)
def test_what_only_looks_like_it_is_exact(control):
    with planted(control):
        off, lengths = requests(Fixed())
    assert off < 1e-12 and any(length < 2 for rounds in lengths for length in rounds)


@pytest.mark.parametrize("thrown_away, off_by", [(True, .232), (False, 0)])
def test_a_coin_may_end_the_draft_but_not_take_its_own_guess_away(thrown_away, off_by):
    """The rule looks at the guess's own coin, which a drafter cannot: one round on four tokens by hand, completed."""
    target, draft = TableModel(4, 3), TableModel(4, 4)

    def laws(text):
        return [probs(model(torch.tensor([text]))[0, -1], **WARM) for model in (target, draft)]

    def play(dice):
        text = [0, 1]
        for _ in range(2):
            p_target, q_draft = laws(text)
            x = int(dice.pick(q_draft[None]))
            if not dice.flip((p_target[x] / q_draft[x]).clamp(max=1).view(1, 1)):
                left = p_target if thrown_away else (p_target - q_draft).clamp(min=0)
                text.append(int(dice.pick(left[None])))
                break
            text.append(x)
        while len(text) < 4:
            text.append(int(dice.pick(laws(text)[0][None])))
        return tuple(text[2:])
    assert distance(walk(play)[0], target_distribution(target, [0, 1], 2, **WARM))[1] == pytest.approx(off_by, abs=1e-3)


# What each rule does.

def test_the_heuristic_adds_two_or_takes_one_away_and_knows_what_was_possible():
    when = Heuristic(start=2)
    when.begin()
    lengths = []
    for stood in (True, True, False, False, False, False, False, True):
        length = sum(1 for n in range(4) if when.goes_on([.5] * n))         # the drafter allows four
        lengths.append(length)
        when.learn([.5] * length, length if stood else 0, [.5])
    assert lengths == [2, 4, 4, 3, 2, 1, 1, 1]
    assert when.goes_on([.5, .5]) and not when.goes_on([.5] * 3)


def test_confidence_keeps_what_it_dislikes_and_entropy_pays_for_what_it_does_not_draw():
    when = Confidence(.3)
    assert [when.goes_on(sure) for sure in ([], [.3], [.29], [.1, .9], [.9, .1])] == [True, True, False, True, False]
    done = [one for seed in range(9) for one in speculate(TABLE, DynamicDrafter(DRAFT, when), [1, 0], 5, 12,
                                                               seed=seed)]
    assert all(one.steps == len(one.drafted) for one in done)
    for one in done:
        sure = [q_draft[x].item() for q_draft, x in zip(one.q_draft, one.drafted)]
        assert all(each >= .3 for each in sure[:-1]) and (len(sure) == 5 or sure[-1] < .3)
    alike = torch.full((4,), .25)
    assert [Entropy(least).draws(alike) for least in (.47, .48)] == [True, False]
    done = list(speculate(TABLE, DynamicDrafter(DRAFT, Entropy(.6)), [1, 0], 3, 40, seed=1))
    assert {one.steps - len(one.drafted) for one in done} == {0, 1}
    assert all(one.steps == len(one.drafted) + (len(one.drafted) < 3) for one in done)


def in_steps(tokens):
    """A machine that takes three tokens for the price of one, and then the next three."""
    return 1 + .4 * ((tokens - 1) // 3)


@pytest.mark.parametrize("v", [lambda tokens: 1., lambda tokens: 1 + .05 * (tokens - 1), in_steps])
@pytest.mark.parametrize("c", [.05, .12, .3])
@pytest.mark.parametrize("alpha", [.2, .45, .7, .85, .95])
def test_where_all_places_are_alike_goodput_is_the_best_fixed_length(alpha, c, v):
    when = Goodput(c, {tokens: v(tokens) for tokens in range(2, 14)})
    when.begin()
    when.judged, when.kept = [100.] * 8, [100 * alpha] * 8
    when.learn([], 0, [])
    length = next((n for n in range(1, 12) if not when.goes_on([.5] * n)), 12)
    best = best_gamma(alpha, c, v, most=12)
    assert speedup(alpha, length, c, v(length + 1)) == pytest.approx(speedup(alpha, best, c, v(best + 1)))


def test_goodput_counts_by_class_and_forgets():
    when = Goodput(*COSTS)
    when.begin()
    assert when.goes_on([.9] * 3) and not when.goes_on([.2] * 3)            # it begins by trusting the sure
    for _ in range(60):
        when.learn([.95, .1], 1, [.1, .9])
    assert when.goes_on([.1] * 3) and not when.goes_on([.95] * 2)           # and learns that here it is the other way
    assert when.kept[7] / when.judged[7] == pytest.approx(.1, abs=.05)
    assert sum(when.judged) < 2 / (1 - Goodput.MEMORY) + 8 * Goodput.TRUST
    when.begin()
    assert when.goes_on([.9] * 3) and not when.goes_on([.2] * 3)


class Told(Fixed):
    """Notes what it is told."""

    def begin(self):
        self.told = []

    def learn(self, sure, kept, betas):
        self.told.append((list(sure), kept, betas))


@judges
def test_a_rule_is_told_what_was_judged_and_no_more(judge):
    when = Told()
    for settings in ({}, WARM, {"temperature": 0}):
        done = list(speculate(GPT, DynamicDrafter(GPT_DRAFT, when), [4, 9], 3, 30, rule=judge, **settings))
        assert len(done) == len(when.told)
        text = [4, 9]
        for one, (sure, kept, betas) in zip(done, when.told):
            judged = min(one.kept + 1, 3)
            assert kept == one.kept
            assert betas == pytest.approx(acceptance(one.p_target[:judged], one.q_draft[:judged]).tolist())
            own = probs(GPT_DRAFT(torch.tensor([text + one.drafted]))[0])
            assert sure == pytest.approx([own[len(text) - 1 + i, x].item() for i, x in enumerate(one.drafted)])
            text += one.emitted


# The contract of a drafter.

@judges
@rules_on_gpts
def test_greedy_is_greedy(when, judge):
    for ids in prompts_of(11, 4, 5):
        fast = tokens_of(speculate(GPT, DynamicDrafter(GPT_DRAFT, when), ids, 5, 40, temperature=0, rule=judge))
        assert fast == list(generate(GPT, ids, 40, temperature=0))


@rules_on_gpts
def test_the_caches_hold_what_was_written(when):
    """Laws of all rows against those recomputed from the text: a cache that misses a token only costs speed."""
    text, seen = [3], 0
    for one in speculate(GPT, DynamicDrafter(GPT_DRAFT, when), text, 3, 40, seed=2, **WARM):
        whole = torch.tensor([text + one.drafted])
        for model, laws in ((GPT, one.p_target), (GPT_DRAFT, one.q_draft)):
            recomputed = probs(model(whole)[0, len(text) - 1:], **WARM)[:len(laws)]
            assert (recomputed - laws).abs().max() < 1e-12 if len(laws) else not one.drafted
        text, seen = text + one.emitted, seen + one.kept
    assert seen > 5


@rules_on_gpts
@pytest.mark.parametrize("settings", [{"temperature": .8, "top_k": 5}, {"top_p": .8}, {"stop": {4, 7}, "seed": 5}])
def test_lengths_stops_and_one_request_after_another(when, settings):
    drafter = DynamicDrafter(GPT_DRAFT, when)
    for new in (1, 2, 7, 30):
        done = list(speculate(GPT, drafter, [2, 3], 4, new, **settings))
        text, stop = tokens_of(done), settings.get("stop", ())
        assert len(text) == new or text[-1] in stop
        assert not set(text[:-1]) & set(stop)
        assert all(len(one.drafted) <= 4 and one.steps >= len(one.drafted) for one in done)
        list(speculate(GPT, drafter, [5, 5, 5], 4, 25, seed=1))           # in between, somebody else's
        assert text == tokens_of(speculate(GPT, drafter, [2, 3], 4, new, **settings))


def test_no_uniform_is_handed_out_twice():
    dice = Ledger([5])
    list(speculate(TABLE, DynamicDrafter(DRAFT, Goodput(*COSTS)), [1, 0], 8, 60, dice=dice, **WARM))
    assert len(dice.handed) == len(set(dice.handed)) > 100


def test_bad_requests():
    for v in ({}, {1: 1.}, {2: 1.1, 4: 1.2}, {3: 1.1}):
        with pytest.raises(RequestError, match="v must say"):
            Goodput(.1, v)
    with pytest.raises(RequestError, match="tokenizer"):
        next(speculate(TableModel(4, 1), DynamicDrafter(DRAFT, Fixed()), [1], 2, 10))
    bad = small_gpt(11, 1, 2)
    bad.embedding.weight.data[3] = float("nan")
    for when in (Fixed(), Confidence(), Goodput(*COSTS)):
        with pytest.raises(LogitsError):
            list(speculate(GPT, DynamicDrafter(bad, when), [3], 4, 10))


# What it is for.

PROMPTS = ["def area(radius):\n", "import os\nfor i in", "class Stack:\n    def __init__(self):\n",
           "    assert square(1) == 1\n" * 3, '"""Read a file and', "try:\n    import"]


def test_goodput_beats_every_fixed_length_on_texts_that_differ():
    """Tokens for their cost at temperature 0, where nothing is left to chance: what a fixed length would have done is
    read off the finished text."""
    target, draft, tokenizer = load_pair()
    c, v = .11, {tokens: 1 + .05 * (tokens - 1) for tokens in range(1, 10)}
    drafter, ours, fixed = DynamicDrafter(draft, Goodput(c, v)), [0, 0.], {gamma: [0, 0.] for gamma in range(1, 9)}
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt)
        done = list(speculate(target, drafter, ids, 8, 64, temperature=0))
        ours[0] += sum(one.kept + 1 for one in done)
        ours[1] += sum(one.steps * c + v[len(one.drafted) + 1] for one in done)
        text = ids + tokens_of(done)
        guessed = draft(torch.tensor([text]))[0].argmax(-1).tolist()
        for gamma, sums in fixed.items():
            at = len(ids)
            while at < len(text):
                kept = next((i for i in range(gamma) if at + i >= len(text) or guessed[at + i - 1] != text[at + i]),
                            gamma)
                at, sums[0], sums[1] = at + kept + 1, sums[0] + kept + 1, sums[1] + gamma * c + v[gamma + 1]
    best = max(tokens / cost for tokens, cost in fixed.values())
    assert ours[0] / ours[1] > 1.02 * best > 1.02 * expected_tokens(.3, 1)
