"""A length that is decided on the way: what each rule decides, what it is told, and ragged lengths in a batch."""

import pytest
import torch
import torch.nn.functional as F

from nanospec.dice import Dice
from nanospec.errors import RequestError
from nanospec.methods.lengths.acceptance_rate import Acceptance
from nanospec.methods.lengths.by_load import ByLoad
from nanospec.methods.lengths.by_survival import BySurvival
from nanospec.methods.lengths.dynamic import DynamicDrafter
from nanospec.methods.lengths.stopping import Confidence, Entropy, Goodput, Heuristic, StoppingRule
from nanospec.methods.rules.block import verify_block
from nanospec.methods.stack import Stack
from nanospec.probs import Sampling, probs
from nanospec.proof.tables import TableModel, small_gpt
from nanospec.proof.walk import distance, target_distribution, walk
from nanospec.speculate import ModelDrafter, speculate, tokens_of, verify
from nanospec.text import Text
from nanospec.theory import acceptance, best_gamma, speedup
from tests.proof.compare import ragged

TABLE, DRAFT_MODEL = TableModel(3, 8, zeros=.4), TableModel(3, 58, zeros=.4)
GPT, GPT_DRAFT_MODEL, WARM = small_gpt(11, 2, 1), small_gpt(11, 1, 2), {"temperature": 0.7}
COSTS = .1, {tokens: 1 + .05 * (tokens - 1) for tokens in range(2, 10)}
DEAR = .3, {2: 1.1, 3: 1.2, 4: 1.3}
rules = pytest.mark.parametrize("rule", [verify, verify_block])


@pytest.mark.parametrize("when, rule", [(Heuristic(start=1), verify), (Entropy(.6), verify_block),
                                        (Goodput(*DEAR), verify), (Goodput(*DEAR), verify_block)])
def test_a_later_length_depends_on_earlier_rounds_and_the_text_is_exact(when, rule):
    lengths = set()

    def play(dice):
        done = list(speculate(TABLE, DynamicDrafter(DRAFT_MODEL, when, 2), [1, 0, 1], 3, dice=dice, rule=rule, **WARM))
        lengths.add(tuple(len(each.tokens) - 1 for each in done))
        return tuple(tokens_of(done))
    assert max(distance(walk(play)[0], target_distribution(TABLE, [1, 0, 1], 3, **WARM))) < 1e-12
    seconds = {}
    for first, second, *_ in (rounds for rounds in lengths if len(rounds) > 1):
        seconds.setdefault(first, set()).add(second)
    assert any(len(after) > 1 for after in seconds.values()), "it never decided"


def test_with_a_fixed_length_it_is_the_chain():
    """The same distribution of draft tokens, text and rounds: each is the other's oracle."""
    found = [walk(lambda dice: tuple((*done.tokens, *done.emitted, len(done.path), done.steps) for done in speculate(
        TABLE, drafter, [1, 0], 2, dice=dice, **WARM)))[0]
        for drafter in (DynamicDrafter(DRAFT_MODEL, StoppingRule(), 2), ModelDrafter(DRAFT_MODEL, 2))]
    assert distance(*found)[1] < 1e-12


@pytest.mark.parametrize("when, rule, prompts, ways", [
    (Confidence(.5), verify_block, [[2, 2], [0, 1, 0, 1]], [[0, 0], [0, 1], [1, 0]]),
    (Entropy(.6), verify, [[1], [0, 2, 1]], [[1, 0], [2, 0]]), (Entropy(.66), verify, [[0, 0], [1, 1, 1]], [[2, 0]])])
def test_two_texts_of_a_batch_stop_where_each_of_them_will(when, rule, prompts, ways):
    """Walked together, each with settings of its own: what the shorter draft lacks does no harm."""
    lacking = []

    def watched(draft, p_target, dice):
        lacking.append(draft.parents[:, 1:].lt(0).sum(-1).tolist())
        return rule(draft, p_target, dice)

    _, error, tv = ragged(TABLE, DynamicDrafter(DRAFT_MODEL, when, 2), prompts, 2, watched,
                          [WARM | {"top_k": 2}, {"top_k": 2}])
    assert max(error, tv) < 1e-12 and all(way in lacking for way in ways)


class Until(StoppingRule):
    """Drafts so many tokens, and notes what it is told."""

    def __init__(self, length):
        self.length = length

    def goes_on(self, sure):
        return len(sure) < self.length

    def learn(self, sure, accepted, betas):
        self.told = sure, accepted, betas


def test_the_shorter_draft_of_two_lacks_the_rest():
    text, dice = Text([[1, 2], [3, 1, 4], [7]], 9, 11), Dice([0, 1, 2])
    drafter = DynamicDrafter(GPT_DRAFT_MODEL, StoppingRule(), 5)
    drafter.begin(text)
    drafter.read(text, [0, 1, 2], None)
    assert len(set(map(id, drafter.rules.values()))) == 3
    for b, length in enumerate((3, 1, 0)):
        drafter.rules[b] = Until(length)
    dice.refill(5)
    draft = drafter.propose(text, Sampling(), dice, 10)
    assert draft.parents.tolist() == [[-1, 0, 1, 2], [-1, 0, -1, -1], [-1] * 4] and draft.steps == 3
    assert draft.q_draft.sum(-1).round().tolist() == [[0, 1, 1, 1], [0, 1, 0, 0], [0] * 4]
    p_target = torch.full((3, 4, 11), 1 / 11)
    drafter.commit(draft, *draft.path(torch.tensor([1, 1, 0])), p_target, None, p_target.log())
    betas = acceptance(p_target[:, :-1], draft.q_draft[:, 1:]).tolist()
    for b, (length, accepted, judged) in enumerate(((3, 1, 2), (1, 1, 1), (0, 0, 0))):
        sure, *told = drafter.rules[b].told
        assert len(sure) == length and told == [accepted, betas[b][:judged]]
    drafter.rules[1] = Until(3)
    drafter.rules[2] = Until(3)
    dice.refill(5)
    assert drafter.propose(text, Sampling(), dice, 10).parents.tolist() == [[-1, 0, 1, 2]] * 3        # all as long
    drafter.read(text, [1], None)
    assert type(drafter.rules[1]) is StoppingRule and type(drafter.rules[0]) is Until  # a new request begins anew


# What each rule decides.

def test_the_heuristic_adds_two_or_takes_one_away_and_knows_what_was_possible():
    when = Heuristic(start=2)
    when.begin()
    lengths = []
    for all_accepted in (True, True, True, False, False, False, False, True):
        length = sum(1 for n in range(4) if when.goes_on([.5] * n))         # the drafter allows four
        lengths.append(length)
        when.learn([.5] * length, length if all_accepted else 0, [.5])
    assert lengths == [2, 4, 4, 4, 3, 2, 1, 1]
    assert when.goes_on([.5, .5]) and not when.goes_on([.5] * 3)


def test_what_is_made_where_no_number_is_given():
    """How many tokens it drafts, and how sure it has to be."""
    made = [ModelDrafter(DRAFT_MODEL), DynamicDrafter(DRAFT_MODEL, Confidence()), BySurvival(DRAFT_MODEL),
            ByLoad(DRAFT_MODEL, lambda rows, gamma: 1.), Stack(DRAFT_MODEL, ModelDrafter(DRAFT_MODEL, 2))]
    assert [drafter.most for drafter in made] == [4, 8, 8, 8, 4]
    assert (Heuristic().start, Confidence().least, Entropy().least) == (4, .2, .1)


@pytest.mark.parametrize("start, words", [("4", "start must be a whole number"), (0, "start must be at least 1")])
def test_a_length_that_cannot_be_is_refused(start, words):
    with pytest.raises(RequestError, match=words):
        Heuristic(start)


def test_confidence_keeps_what_it_dislikes_and_entropy_pays_for_what_it_does_not_draw():
    when = Confidence(.3)
    assert [when.goes_on(sure) for sure in ([], [.3], [.29], [.1, .9], [.9, .1])] == [True, True, False, True, False]
    for done in speculate(TABLE, DynamicDrafter(DRAFT_MODEL, when, 5), [1, 0], 60):
        sure = done.q_draft.gather(1, torch.tensor(done.tokens)[:, None])[1:, 0].tolist()
        assert done.steps == len(sure) and all(each >= .3 for each in sure[:-1]) and (len(sure) == 5 or sure[-1] < .3)
    alike = torch.full((4,), .25)
    assert [Entropy(least).draws(alike) for least in (.47, .48)] == [True, False]
    rounds = list(speculate(TABLE, DynamicDrafter(DRAFT_MODEL, Entropy(.6), 3), [1, 0], 40, seed=1))
    assert all(done.steps == len(done.tokens) - (len(done.tokens) == 4) for done in rounds)
    assert {len(done.tokens) for done in rounds} > {2, 4}


def in_steps(tokens):
    """A machine that takes three tokens for the price of one, and then the next three."""
    return 1 + .4 * ((tokens - 1) // 3)


@pytest.mark.parametrize("v", [lambda tokens: 1., lambda tokens: 1 + .05 * (tokens - 1), in_steps])
@pytest.mark.parametrize("c", [.05, .12, .3])
@pytest.mark.parametrize("alpha", [.2, .45, .7, .85, .95])
def test_where_all_places_are_alike_goodput_is_the_best_fixed_length(alpha, c, v):
    when = Goodput(c, {tokens: v(tokens) for tokens in range(2, 14)})
    when.begin()
    when.acceptance = Acceptance(torch.full((8,), alpha, dtype=torch.float64))
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
    assert when.chances[7] == pytest.approx(.1, abs=.05)
    when.begin()
    assert when.goes_on([.9] * 3) and not when.goes_on([.2] * 3)


def test_where_drafts_are_dear_goodput_compares_with_the_shortest():
    """And not with a call on one token: without a draft there is nothing to learn from."""
    when = Goodput(3., {1: 1., 2: 1.1, 3: 1.2})
    when.begin()
    assert when.rate == speedup(when.alpha, 1, 3., 1.1) < 1


def test_costs_with_a_gap_are_refused():
    for v in ({}, {1: 1.}, {2: 1.1, 4: 1.2}, {3: 1.1}):
        with pytest.raises(RequestError, match="v must say"):
            Goodput(.1, v)
    with pytest.raises(RequestError, match="c must be"):
        Goodput("dear", {2: 1.1})
    with pytest.raises(RequestError, match="least must be a number"):
        Entropy("low")


# What a rule is told.

class Told(StoppingRule):
    """Notes what it is told, and stops behind an odd number of tokens at times."""

    def begin(self):
        self.told = []

    def goes_on(self, sure):
        return len(self.told) % 3 or len(sure) < 1

    def learn(self, sure, accepted, betas):
        self.told.append((list(sure), accepted, betas))


@rules
def test_a_rule_is_told_what_was_judged_and_no_more(rule):
    for settings in ({}, WARM, {"temperature": 0}):
        drafter, text = DynamicDrafter(GPT_DRAFT_MODEL, Told(), 3), [4, 9]
        rounds = list(speculate(GPT, drafter, text, 20, rule=rule, **settings))
        assert len(rounds) == len(drafter.rules[0].told)
        for done, (sure, accepted, betas) in zip(rounds, drafter.rules[0].told):
            judged = min(len(done.path) + 1, len(done.tokens) - 1)
            assert accepted == len(done.path)
            assert betas == pytest.approx(acceptance(done.p_target[:judged], done.q_draft[1:judged + 1]).tolist())
            own = probs(GPT_DRAFT_MODEL(torch.tensor([text + done.tokens[1:]]))[0])        # before temperature
            assert sure == pytest.approx([own[len(text) - 1 + i, x].item() for i, x in enumerate(done.tokens[1:])])
            text = text + done.emitted


# What it is for.

def test_goodput_beats_every_fixed_length_where_the_draft_model_knows_what_it_knows():
    """Tokens for their cost at temperature 0, where nothing is left to chance: what a fixed length would have rounds is
    read off the finished text. In seven contexts of ten the draft model has the target's token, and is sure of it."""
    target, draft_model = TableModel(8, 3, zeros=0), TableModel(8, 53, zeros=0)
    knows = torch.rand(TableModel.CONTEXTS, 1, generator=torch.Generator().manual_seed(5)) < .7
    draft_model.logits = torch.where(knows, 6 * F.one_hot(target.logits.argmax(-1), 8).double(), draft_model.logits)
    c, v = .11, {tokens: 1 + .05 * (tokens - 1) for tokens in range(1, 10)}
    drafter, ours = DynamicDrafter(draft_model, Goodput(c, v), 8), [0, 0.]
    fixed = {gamma: [0, 0.] for gamma in range(1, 9)}
    for ids in [1, 2], [3, 0, 5], [7], [6, 6, 4, 2]:
        rounds = list(speculate(target, drafter, ids, 64, temperature=0))
        ours[0] += sum(len(done.path) + 1 for done in rounds)
        ours[1] += sum(done.steps * c + v[len(done.tokens)] for done in rounds)
        text = ids + tokens_of(rounds)
        likeliest = draft_model(torch.tensor([text]))[0].argmax(-1).tolist()
        for gamma, sums in fixed.items():
            at = len(ids)
            while at < len(text):
                accepted = next((i for i in range(gamma) if at + i >= len(text)
                                 or likeliest[at + i - 1] != text[at + i]), gamma)
                at, sums[0], sums[1] = at + accepted + 1, sums[0] + accepted + 1, sums[1] + gamma * c + v[gamma + 1]
    best = max(tokens / cost for tokens, cost in fixed.values())
    assert ours[0] / ours[1] > best > 1.2
