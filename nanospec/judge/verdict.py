"""A verdict on somebody's sampler: is its distribution the target's, how sure is that, which bug?

    judge(lambda dice: tokens_of(speculate(target, ModelDrafter(draft_model, 2), [1], 3,
                                           dice=dice)), target, draft_model, [1], 3)

Two witnesses. If the sampler leaves all chance to the dice it is given, it is walked: its
distribution is then known, and no luck is in the verdict. And it is run with real dice, many times:
that also sees chance used twice, and does for samplers that bring their own.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.errors import (RequestError, check_gamma, check_request, check_sampling, check_seed,
                             one_line)
from nanospec.fast.announce import announced
from nanospec.probs import Sampling
from nanospec.judge.sampler import MOST_SECONDS, Sampler, one_sample, truth_walked, walked
from nanospec.judge.sequential import FALSE_ALARM, MISS, sequential
from nanospec.proof.stats import FEWEST, Fit, Off, goodness_of_fit, pit
from nanospec.proof.walk import TOLERANCE, Distribution, distance
from nanospec.judge.known_bugs import OF_A_CHAIN, beginnings, named

MOST_OUTCOMES = 5_000   # of an exact distribution; beyond that tokens are judged one by one
NO_VERDICT = 0.5        # where what is further off than this can be missed, nothing is known
MOST_NUMBERS = 5 * 10 ** 7      # in the model's answers on the way to an exact distribution
OWN = 63                # of the transform's uniforms, which no sampler must have drawn with
BINS = 16               # of the probability integral transform
SETTINGS = {"temperature": 1.0, "top_k": None, "top_p": None, "min_p": None}


@dataclass
class Verdict:
    """print() it, or read it.

    wrong: the verdict.  why: its reason, and in a second line what else there is to say.
    distance: total variation from the target's distribution, exact, if the sampler could be walked.
    bugs: those of the zoo that make this very distribution.
    p_value, samples: of the runs with real dice. A right sampler is called wrong with probability
    FALSE_ALARM; one further off than `visible`, in `unit`, is missed with probability MISS at most.
    most_off: the outcome that is most off, from the walk if that is what decides.
    """

    wrong: bool
    why: str
    p_value: float
    samples: int
    visible: float
    distance: float | None = None
    bugs: list[str] = field(default_factory=list)
    unit: str = "total variation"
    most_off: Off | None = None

    @property
    def decided(self) -> bool:
        """False where so few samples, and no walk, say nothing."""
        return self.wrong or self.distance is not None or self.visible <= NO_VERDICT

    def __str__(self) -> str:
        right = ("Right, as far as can be seen: " if self.decided
                 else "No verdict, there are too few samples: ")
        lines = [("WRONG: " if self.wrong else right) + self.why]
        if self.bugs:
            lines.append("It has the distribution of " + ", or ".join(self.bugs) + ".")
        lines.append(f"{self.samples:,} samples, p = {self.p_value:.2g}. A right sampler is called "
                     f"wrong once in {1 / FALSE_ALARM:,.0f} times; one that is more than "
                     f"{self.visible:.2g} off ({self.unit}) is missed once in {1 / MISS:,.0f} "
                     "times at most.")
        return "\n".join(lines)


def judge(sampler: Sampler, target, draft_model=None, ids: Sequence[int] = (0,), new: int = 3,
          gamma: int = 2, samples: int = 2_000, seed: int = 0, tolerance: float = TOLERANCE,
          seconds: float = MOST_SECONDS, looks: int = 1, at_once: int = 1, **settings) -> Verdict:
    """Is `sampler(dice)`, which returns `new` tokens, distributed as `target` continues `ids`?

    dice: with pick and flip, see nanospec.dice; a sampler that brings its own randomness may ignore
    it.
    target: a model, or the distribution itself, {tuple of tokens: probability}.
    settings: temperature, top_k, top_p, min_p.
    draft_model, gamma: what the sampler speculates with. Given them, a wrong distribution is looked
    up among the zoo's; and tokens too many for an exact distribution are judged in the order of
    q_draft - p_target.
    tolerance: what a walked distribution may be off, in total variation; of a sampler in single
    precision, 1e-5.
    seconds: for the walk.
    looks: how often the samples are looked at, to stop early (sequential.py).
    at_once: from how many threads the sampler is called.
    RequestError for what cannot be judged. While one waits, stderr says what is being done.
    """
    truth, new = _truth(target, ids, new, gamma, samples, seed, settings)
    if draft_model is not None:
        check_logits(draft_model, ids, "draft_model")
    size = None if isinstance(target, Mapping) else target.config.vocab_size
    # Outcomes are counted where enough samples are expected of each; or else tokens are.
    counted = truth is not None and (size is None or size ** min(new, 64) <= MOST_OUTCOMES
                                     or len(truth) * FEWEST <= samples)

    def fit_of(drawn: list[tuple]) -> Fit:
        if any(len(tokens) != new or _outside(tokens, size) for tokens in drawn):
            return Fit(0.0, 0, 0.0, len(drawn))
        if truth is None or not counted:
            return transformed(drawn, target, draft_model, ids, seed, **settings)
        return goodness_of_fit(Counter(drawn), truth)

    drawn, fit, bar = sequential(lambda i: one_sample(sampler, Dice([seed + i])), samples, fit_of,
                                 looks, at_once)
    for tokens in drawn:
        if len(tokens) != new:
            prompt = ": the prompt in front of them?" * (tokens[:-new] == tuple(ids))
            why = f"it returned {len(tokens)} tokens where {new} were asked for{prompt}"
            return Verdict(True, why, 0.0, len(drawn), 0.0)
        if _outside(tokens, size):
            why = (f"it returned {one_line(_outside(tokens, size)[0])}, which is no token of the "
                   "target's vocabulary")
            return Verdict(True, why, 0.0, len(drawn), 0.0)
    order = "p_target" if draft_model is None else "q_draft - p_target"
    unit = "total variation" if counted else f"of the tokens moved, in the order of {order}"
    if truth is None:
        return verdict_of(fit, bar, "token by token, its samples fit", unit=unit)
    with announced(f"walking every path, for at most {seconds:.0f} s", at_once=False):
        exact = walked(sampler, seconds)
    if (exact is not None and distance(exact, truth)[1] > tolerance
            and goodness_of_fit(Counter(drawn), exact).p_value < FALSE_ALARM):
        exact = None                # with real dice it does something else than what was walked
    if exact is None and not counted:
        return verdict_of(fit, bar, "token by token, its samples fit (it could not be walked: it "
                          "has too many paths, takes too long or has chance of its own)", unit=unit)
    if exact is None:
        verdict = verdict_of(fit, bar, "its samples fit the target's distribution (it could not be "
                             "walked: it has too many paths, takes too long or has chance of its "
                             "own)")
        if verdict.wrong:
            verdict.why += "\n" + _where(drawn, truth)
    else:
        verdict = verdict_of(fit, bar, "every path walked, its distribution is the target's, and "
                             "its samples fit it", unit=unit)
        if verdict.wrong:
            verdict.why += (", although its walked distribution does: is chance used twice, or a "
                            "state kept between runs?")
        verdict.distance = distance(exact, truth)[1]
        if verdict.distance > tolerance:
            verdict.wrong = True
            verdict.why = (f"its distribution, walked, is {verdict.distance:.3g} from the target's "
                           "in total variation")
            verdict.most_off = max((Off(tokens, truth.get(tokens, 0.0), exact.get(tokens, 0.0))
                                    for tokens in {**truth, **exact}),
                                   key=lambda off: abs(off.found - off.expected))
    if verdict.wrong and draft_model is not None and not isinstance(target, Mapping):
        _name(verdict, drawn, exact, truth, tolerance, target=target, draft_model=draft_model,
              ids=ids,
              new=new, gamma=gamma, **settings)
    return verdict


def check_task(new: int, gamma: int, samples: int, seed: int, settings: dict) -> None:
    """RequestError for what cannot be judged, whatever the target is."""
    for name, number in ("samples", samples), ("new", new):
        if not isinstance(number, int) or number < 1:
            raise RequestError(f"{name} must be a whole number, 1 or more, got {number!r}")
    check_gamma(gamma, "gamma")
    check_sampling(**SETTINGS | settings)
    for one in seed, seed + 2 * samples:
        check_seed(one)


def _truth(target, ids, new: int, gamma: int, samples: int, seed: int,
           settings: dict) -> tuple[Distribution | None, int]:
    """What is compared with, None where it has too many outcomes, and of how many tokens;
    RequestError if it cannot.
    """
    check_task(new, gamma, samples, seed, settings)
    if isinstance(target, Mapping):
        lengths = {len(tokens) if isinstance(tokens, tuple) else -1 for tokens in target}
        weights = target.values()
        if (len(lengths) != 1 or min(lengths) < 1 or min(weights) < 0
                or not abs(sum(weights) - 1) < 1e-6):
            raise RequestError("a distribution is {tuple of tokens: probability}: tuples of one "
                               "length, 1 or more, probabilities that add up to 1")
        if SETTINGS | settings != SETTINGS:
            raise RequestError("a distribution is judged as it is: temperature, top_k, top_p "
                               "and min_p are of a model")
        return dict(target), lengths.pop()
    check_request(target, ids, new, seed)
    check_logits(target, ids, "target")
    few = outcomes(target.config.vocab_size, new, **settings) <= MOST_OUTCOMES
    return truth_walked(target, ids, new, **settings) if few else None, new


def outcomes(vocab_size: int, new: int, temperature: float = 1.0, top_k: int | None = None,
             top_p: float | None = None, min_p: float | None = None) -> float:
    """How many texts of `new` tokens there can be; infinity where the way to their distribution
    has more than MOST_NUMBERS numbers. Example: 4, of 2 tokens with top_k 2, in any vocabulary.
    """
    each = 1 if temperature == 0 else min(vocab_size, top_k or vocab_size)
    count = each ** min(new, 64)
    return count if count // each * vocab_size <= MOST_NUMBERS else math.inf


@torch.inference_mode()
def check_logits(model, ids: Sequence[int], what: str) -> None:
    """RequestError where a model's answer to `ids` is probabilities: rows from 0 to 1 that add up
    to 1 are no logits. (The logarithms of probabilities are.)
    """
    rows = model(torch.tensor([[*ids]], device=model.device))[0]
    if (rows.shape[-1] > 1 and bool(((rows >= 0) & (rows <= 1)).all())
            and bool(((rows.double().sum(-1) - 1).abs() < 1e-3).all())):
        raise RequestError(f"the {what} returns probabilities, rows from 0 to 1 that add up to 1: "
                           "logits are asked for, so let it return their logarithm")


def _outside(tokens: tuple, size: int | None) -> list:
    """Those that are no tokens of a vocabulary of this size; none if it is not known."""
    return [] if size is None else [token for token in tokens
                                    if token not in range(size)]


def verdict_of(fit: Fit, bar: float, right: str,
               wrong: str = "its samples do not fit the target's distribution",
               unit: str = "total variation") -> Verdict:
    """What follows from a fit: it is wrong below a p-value of `bar`. right, wrong: the reasons."""
    is_wrong = fit.p_value < bar
    return Verdict(is_wrong, wrong if is_wrong else right, fit.p_value, round(fit.samples),
                   fit.visible(bar, MISS), unit=unit, most_off=fit.worst)


def _where(drawn: list[tuple], truth: Distribution) -> str:
    """What can be said of a wrong sampler that cannot be walked."""
    if len(set(drawn)) == 1 < len(drawn):
        return f"All {len(drawn):,} samples are the same: is it seeded anew in every run?"
    if goodness_of_fit(Counter(tokens[:1] for tokens in drawn),
                       beginnings(truth, 1)).p_value < MISS:
        return "Its first token is off already."
    return ("Its first token fits, what follows does not: is chance used twice, or a wrong row or "
            "text looked at?")


def _name(verdict: Verdict, drawn: list[tuple], exact: Distribution | None, truth: Distribution,
          tolerance: float, **task) -> None:
    """Look for the bugs that make this very distribution, for a limited time."""
    def fits(known: Distribution) -> bool:
        if exact is not None:
            return distance(exact, known)[1] <= tolerance
        return (distance(known, truth)[1] > tolerance
                and goodness_of_fit(Counter(drawn), known).p_value > MISS)

    number = 0
    with announced("WRONG. Which bug of the zoo is it? Looking for "
                   f"{MOST_SECONDS:.0f} seconds at most", at_once=False,
                   steps=len(OF_A_CHAIN)) as step:
        for number, (name, same) in enumerate(named(fits, exact, MOST_SECONDS, tolerance,
                                                    **task), 1):
            verdict.bugs += [name] * same
            step()
    if number < len(OF_A_CHAIN):
        verdict.why += f"\nThere was time for {number} of the zoo's {len(OF_A_CHAIN)} bugs."


@torch.inference_mode()
def transformed(drawn: Sequence[Sequence[int]], target, draft_model, ids: Sequence[int],
                seed: int = 0,
                **settings) -> Fit:
    """The fit of every token's probability integral transform; tokens ordered by q_draft -
    p_target, both recomputed over the finished text without a cache, or by p_target where there is
    no draft model.
    """
    sampling, values = Sampling(**settings), []
    for number, tokens in enumerate(drawn):
        text = torch.tensor([[*ids, *tokens]], device=target.device)
        p_target = sampling(target(text)[0, len(ids) - 1:-1])
        score = p_target if draft_model is None else (
            sampling(draft_model(text)[0, len(ids) - 1:-1]) - p_target)
        u = own_uniforms(seed, number, len(tokens)).to(target.device)
        values.append(pit(text[0, len(ids):], p_target, score, u))
    return uniform(values)


def own_uniforms(seed: int, number: int, count: int) -> Tensor:
    """(count,) uniforms for sample `number`. They come from another generator than torch's, so
    that whoever draws with torch and the sample's own seed, as servers do, has others.
    """
    return torch.from_numpy(np.random.default_rng([OWN, seed, number]).random(count))


def uniform(values: list[Tensor]) -> Fit:
    """The fit of probability integral transforms to the uniform distribution, in BINS parts."""
    bins = (torch.cat(values) * BINS).long().clamp(max=BINS - 1)
    return goodness_of_fit(Counter(bins.tolist()), {i: 1 / BINS for i in range(BINS)})
