"""Exercise 21: a cascade with a deferral rule for every token: the mixture, and a round that writes by it."""

from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache

import torch

from lessons.check import seeds
from lessons.check.answered import token, weights_like, wholes
from lessons.check.mistakes_while_mixing import WRONGS, right_mixture
from lessons.check.engine import Exercise, Functions
from lessons.check.pairs import PAIRS, vector
from lessons.check.rounds import DRAFT_MODEL, GAMMA, IDS, TARGET, distribution_of
from lessons.check.seen import Failure, Row, Seen, look, part_of, values
from lessons.oracles import Mixture
from nanospec.proof.walk import target_distribution

WORKED = vector(.2, .7, .1), vector(.6, .3, .1), .2
ROUNDS = (0.05, 2), (0.25, 2), (0.15, 1), (-0.6, 1), (0.2, 3)       # a, gamma; some tokens are deferred, none, all


def pi_of(f, p_target, q_draft, a: float) -> torch.Tensor:
    return weights_like(f.mixture(p_target.clone(), q_draft.clone(), a), tuple(p_target.shape), "mixture")


def written_by(f, drafted: list[int], q_draft, p_target, a: float, dice) -> tuple[int, ...]:
    """The learner's tokens of one round, as ints."""
    found = wholes(f.one_round(list(drafted), q_draft.clone(), p_target.clone(), a, dice), "one_round")
    if not 1 <= len(found) <= len(drafted) + 1:
        raise Failure(f"one_round of {len(drafted)} draft tokens must return 1 to {len(drafted) + 1} tokens; it "
                      f"returned {found}")
    return tuple(token(x, q_draft.shape[1], "one_round, for each place,") for x in found)


def contract(f) -> None:
    pi_of(f, *WORKED)
    for seed in range(3):
        written_by(f, [1, 0], torch.stack([WORKED[1]] * 2), torch.stack([WORKED[0]] * 3), .2, Row(seed=seed))


def weights_of(f, name: str, p, q, a: float) -> Seen:
    return values(f"mixture: {name}, a = {a:g}",
                  lambda: {f"token {i}": weight for i, weight in enumerate(pi_of(f, p, q, a).tolist())},
                  {f"token {i}": weight for i, weight in enumerate(right_mixture(p, q, a).tolist())})


def worked(f) -> list[Seen]:
    p, q, a = WORKED
    found = [weights_of(f, "worked example", p, q, a)]
    for x, right in (0, {(0,): 1.0}), (1, {(1,): .28 / .3, (0,): 1 - .28 / .3}):
        # What is written after an accepted draft token is seen in the distribution of a whole text.
        found.append(look(f"one_round: drafted [{x}], its first token", lambda dice, x=x: written_by(
            f, [x], q[None], torch.stack([p, p]), a, dice)[:1], right))
    return found


def mixtures(f) -> list[Seen]:
    return [*(weights_of(f, name, *pair, a) for name, pair in PAIRS.items() for a in thresholds(name, *pair)),
            *(weights_of(f, f"a tie or nearly so, p_target {p.tolist()}, q_draft {q.tolist()}", p, q, a)
              for p, q, a in TIES)]


# A q_draft exactly at the threshold stays with the draft model. Numbers of few digits, so that no rounding decides.
TIES = [(vector(.5, .25, .25), vector(.25, .5, .25), .25), (vector(.75, .125, .125), vector(.5, .25, .25), .25),
        (vector(.5, .25, .125, .125), vector(.125, .375, .5, 0), .125), (vector(.5, .5), vector(.5, .5), 0.),
        (vector(.5, .5, 0), vector(.5, .25, .25), .5), *(
            (vector(.5, .25, .25), vector(.25 + off, .5 - off, .25), .25)
            for hair in (2.0 ** -9, 2.0 ** -20, 2.0 ** -40) for off in (hair, -hair))]


def thresholds(name: str, p, q) -> tuple[float, ...]:
    """Some below 0, where all may be deferred, some above 1, and by a seed; none so near a tie that rounding counts."""
    draw = seeds.chance(f"21, {name}")
    tried = (-.5, .1, .3, .9, 0., 1.5, draw.uniform(-.2, .2), draw.uniform(0, .6))
    return tuple(a for a in tried if (q - (p.max() - a)).abs().min() > 1e-6)


def drafted_of(dice, gamma: int = GAMMA) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """A draft after IDS, and the distributions of both."""
    drafted, q_draft = [], []
    for _ in range(gamma):
        q_draft.append(distribution_of(DRAFT_MODEL, (*IDS, *drafted)))
        drafted.append(dice.pick(q_draft[-1]))
    p_target = [distribution_of(TARGET, (*IDS, *drafted[:i])) for i in range(gamma + 1)]
    return drafted, torch.stack(q_draft), torch.stack(p_target)


@lru_cache(maxsize=None)
def of_the_mixture(a: float, gamma: int = GAMMA) -> dict[tuple[int, ...], float]:
    """Of the gamma + 1 tokens after IDS, where pi writes alone."""
    return target_distribution(Mixture(TARGET, DRAFT_MODEL, lambda q, p: right_mixture(p, q, a)), IDS, gamma + 1)


def continued(found: dict[tuple[int, ...], float], a: float, gamma: int) -> dict[tuple[int, ...], float]:
    """What a round has written, with pi going on after it. What pi never writes stays as it is."""
    whole: dict[tuple[int, ...], float] = defaultdict(float)
    for new, weight in found.items():
        after = {text: share for text, share in of_the_mixture(a, gamma).items() if text[:len(new)] == new}
        for text, share in (after or {new: 1.0}).items():
            whole[text] += weight * share / (sum(after.values()) or 1)
    return dict(whole)


@lru_cache(maxsize=len(ROUNDS))
def walked(one_round: Callable, a: float, gamma: int) -> Seen:
    """What a round writes, and how many of the draft's first tokens that is, for the two parts that follow."""
    def play(dice) -> tuple[tuple[int, ...], int]:
        drafted, *rest = drafted_of(dice, gamma)
        written = written_by(Functions(one_round=one_round), drafted, *rest, a, dice)
        return written, [*(x == y for x, y in zip(written, drafted)), False].index(False)
    return look("", play, {})


def exact(f) -> list[Seen]:
    found = [part_of(walked(f.one_round, a, gamma),
                     f"a = {a:g}, a draft of {gamma} token{'s' * (gamma > 1)}: the distribution of {gamma + 1} tokens",
                     lambda outcome: outcome[0], of_the_mixture(a, gamma)) for a, gamma in ROUNDS]
    for (a, gamma), seen in zip(ROUNDS, found):
        seen.got = seen.got if seen.error else continued(seen.got, a, gamma)
    return found


def accepted_on_average(f, a: float, gamma: int) -> float:
    """So many of the draft's first tokens are what the round writes."""
    found = walked(f.one_round, a, gamma)
    if found.error is not None:
        raise found.error
    return sum(count * weight for (_, count), weight in found.got.items())


@lru_cache(maxsize=None)
def most_accepted(a: float, ids: tuple[int, ...] = IDS, left: int = GAMMA) -> float:
    """The mean of sum min(pi, q_draft) over what is drafted, at the first place and after what is accepted there."""
    if not left:
        return 0.0
    p, q = (distribution_of(model, ids) for model in (TARGET, DRAFT_MODEL))
    both = torch.minimum(right_mixture(p, q, a), q).tolist()
    return sum(weight * (1 + most_accepted(a, (*ids, x), left - 1)) for x, weight in enumerate(both) if weight)


def pace(f) -> list[Seen]:
    return [values(f"a = {a:g}, gamma {gamma}, on average",
                   lambda a=a, gamma=gamma: {"accepted": accepted_on_average(f, a, gamma)},
                   {"accepted": most_accepted(a, left=gamma)}) for a, gamma in ROUNDS]


EXERCISE = Exercise(
    "ex21_a_deferral_rule.py", ("mixture", "one_round"), contract,
    {"worked number": worked, "mixture": mixtures, "exact distribution": exact,
     "accepted as often as it can be": pace},
    WRONGS,
    ("How much weight has the draft model on deferred tokens, all together? The target shares out just this much.",
     "Accept or replace turns a draw from q_draft into one from any distribution. Put pi in the place of p_target: "
     "in the threshold, and in the residual.",
     "deferred = where(q_draft < p_target.max() - a, q_draft, 0); pi = q_draft - deferred + p_target * deferred.sum(). "
     "In a round zip(drafted, q_draft, p_target) stops by itself after the last draft token: there is no bonus."),
    [("lessons.cascade", "_mixture", "def mixture", "return mixture"),
     ("lessons.cascade", "cascade", "pi = torch", "return accepted[:, 0]")],
    speed="accepted as often as it can be")
