"""A verdict on a sampler that somebody wrote: is its law the target's, how sure is that, and which bug is it?

    judge(lambda dice: tokens_of(speculate(target, ModelDrafter(draft), [1], 2, 3, dice=dice)), target, draft, [1], 3)

Two witnesses. If the sampler leaves all chance to the dice it is given, it is walked: its law is then known, and no
luck is in the verdict. And it is run with real dice, many times: that also sees chance used twice, and does for
samplers that bring their own.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

import torch

from nanospec.files.checkpoint import Pair, load_pair
from nanospec.dice import Dice
from nanospec.errors import LogitsError
from nanospec.probs import probs
from nanospec.proof.checks import DRAFT, TABLE
from nanospec.proof.walk import Distribution, WalkingDice, distance, target_distribution, walk
from nanospec.proof.checks import TOLERANCE
from nanospec.proof.stats import Fit, goodness_of_fit, pit
from nanospec.proof.zoo import BUGS, Bug, changed

Sampler = Callable[[Dice], Sequence[int]]
FALSE_ALARM, MISS = 0.001, 0.01
LARGEST_LAW = 5_000     # outcomes; beyond that tokens are judged one by one
MOST_PATHS = 20_000     # a sampler that takes more is not walked
ANOTHER_SEED = 10 ** 9  # the transform's own uniforms must not be those that the sampler drew with
BINS = 16               # of the probability integral transform
AS_IT_SHIPS = Bug("as it ships", "", "", "", "speculate", ())


@dataclass
class Verdict:
    """print() it, or read it.

    wrong: the verdict.  why: its reason, in a sentence.  distance: total variation from the target's law, exact, if
    the sampler could be walked.  bugs: those of the zoo that make this very law.
    p_value, samples: of the runs with real dice.  A right sampler is called wrong with probability `false_alarm`; a
    law further off than `visible`, in `unit`, is missed with probability `miss` at most.
    """

    wrong: bool
    why: str
    p_value: float
    samples: int
    visible: float
    distance: float | None = None
    bugs: list[str] = field(default_factory=list)
    false_alarm: float = FALSE_ALARM
    miss: float = MISS
    unit: str = "total variation"

    def __str__(self) -> str:
        lines = [("WRONG: " if self.wrong else "Right, as far as can be seen: ") + self.why]
        if self.bugs:
            lines.append("It has the law of " + ", or ".join(self.bugs) + ".")
        lines.append(f"{self.samples:,} samples, p = {self.p_value:.2g}. A right sampler is called wrong once in "
                     f"{1 / self.false_alarm:,.0f} times; one that is more than {self.visible:.2g} off ({self.unit}) "
                     f"is missed once in {1 / self.miss:,.0f} times at most.")
        return "\n".join(lines)


def judge(sampler: Sampler, target, draft=None, ids: Sequence[int] = (0,), new: int = 3, gamma: int = 2,
          samples: int = 2_000, seed: int = 0, **settings) -> Verdict:
    """Is `sampler(dice)`, which returns `new` tokens, distributed as `target` continues `ids`?

    dice: with pick and flip, see nanospec.dice; a sampler that brings its own randomness may ignore it.
    target: a model, or the law itself, {tuple of tokens: probability}.  settings: temperature, top_k, top_p.
    draft, gamma: what the sampler speculates with. Given them, a wrong law is looked up among the zoo's; and tokens
    too many for an exact law are judged in the order of q_draft - p_target.
    """
    law = target if isinstance(target, Mapping) else None
    if law is None and target.config.vocab_size ** new <= LARGEST_LAW:
        law = target_distribution(target, ids, new, **settings)
    drawn = [tuple(sampler(Dice([seed + i]))) for i in range(samples)]
    if any(len(tokens) != new for tokens in drawn):
        return Verdict(True, f"it returned {min(map(len, drawn))} to {max(map(len, drawn))} tokens where {new} were "
                             "asked for", 0.0, samples, 0.0)
    if law is None:
        verdict = _verdict(transformed(drawn, target, draft, ids, seed, **settings), "token by token, its samples fit")
        verdict.unit = "of the tokens moved, in the order of " + ("p_target" if draft is None else "q_draft - p_target")
        return verdict
    theirs = walked(sampler)
    fit = goodness_of_fit(Counter(drawn), law)
    if theirs is None:
        verdict = _verdict(fit, "its samples fit the target's law (it could not be walked)")
    else:
        verdict = _verdict(fit, "every path walked, its law is the target's, and its samples fit it",
                           distance(theirs, law)[1])
    if verdict.wrong and draft is not None and not isinstance(target, Mapping):
        for name, bugs_law in laws_of_the_zoo(target, draft, tuple(ids), new, gamma, **settings):
            known = (distance(theirs, bugs_law)[1] <= TOLERANCE if theirs is not None
                     else goodness_of_fit(Counter(drawn), bugs_law).p_value > MISS)
            verdict.bugs += [name] * known
    return verdict


def _verdict(fit: Fit, right: str, off: float | None = None) -> Verdict:
    if off is not None and off > TOLERANCE:
        wrong, why = True, f"its law, walked, is {off:.3g} from the target's in total variation"
    elif fit.p_value < FALSE_ALARM:
        wrong, why = True, "its samples do not fit the target's law"
        if off is not None:
            why += ", although its walked law is: is chance used twice, or a state kept between runs?"
    else:
        wrong, why = False, right
    return Verdict(wrong, why, fit.p_value, fit.samples, fit.visible(FALSE_ALARM, MISS), off)


class _Unwalkable(Exception):
    """It brings its own chance, or would take too long."""


def walked(sampler: Sampler) -> Distribution | None:
    """The sampler's exact law, if all of its chance goes through the dice it is given."""
    runs = 0

    def play(dice: WalkingDice) -> tuple[int, ...]:
        nonlocal runs
        runs += 1
        tokens = tuple(sampler(dice))
        if not dice.choices or runs > MOST_PATHS:
            raise _Unwalkable
        return tokens

    try:
        return walk(play)[0]
    except (_Unwalkable, AttributeError, AssertionError):       # no such method of dice; other odds when replayed
        return None


def sampler_with(bug: Bug, target, draft, ids: Sequence[int], new: int, gamma: int, **settings) -> Sampler:
    """A sampler that speculates by a copy of speculate.py with the bug in it."""
    theirs = changed(bug)
    return lambda dice: theirs["tokens_of"](theirs["speculate"](target, theirs["ModelDrafter"](draft), ids, gamma, new,
                                                                dice=dice, **settings))


@lru_cache(maxsize=8)       # a class hands in the same exercise many times
def laws_of_the_zoo(target, draft, ids: tuple[int, ...], new: int, gamma: int, **settings) -> list[tuple[str, Distribution]]:
    """(name, law) of every bug of speculate.py that changes what it writes here."""
    truth, laws = target_distribution(target, ids, new, **settings), []
    for bug in BUGS:
        if bug.file == "speculate":
            try:
                law = walked(sampler_with(bug, target, draft, ids, new, gamma, **settings))
            except (IndexError, RuntimeError, LogitsError):     # some write past the cache, or make NaN
                continue
            if law is not None and distance(law, truth)[1] > TOLERANCE:
                laws.append((bug.name, law))
    return laws


@torch.inference_mode()
def transformed(drawn: Sequence[Sequence[int]], target, draft, ids: Sequence[int], seed: int = 0, **settings) -> Fit:
    """The fit of every token's probability integral transform to the uniform law; tokens ordered by
    q_draft - p_target, both recomputed over the finished text without a cache, or by p_target where there is no draft.
    """
    law, values = partial(probs, **settings), []
    for number, tokens in enumerate(drawn):
        text = torch.tensor([[*ids, *tokens]], device=target.device)
        p_target = law(target(text)[0, len(ids) - 1:-1])
        score = p_target if draft is None else law(draft(text)[0, len(ids) - 1:-1]) - p_target
        dice = Dice([ANOTHER_SEED + seed + number], target.device)
        dice.refill(len(tokens))
        values.append(pit(text[0, len(ids):], p_target, score, dice.u[0]))
    bins = (torch.cat(values) * BINS).long().clamp(max=BINS - 1)
    return goodness_of_fit(Counter(bins.tolist()), {i: 1 / BINS for i in range(BINS)})


def long_run(pair: Pair, bug: Bug = AS_IT_SHIPS, temperature: float = 0.8, samples: int = 60) -> Verdict:
    """T8. Real dice on a trained pair: `samples` texts of 50 tokens, every token judged under the target's own law."""
    task = {"target": pair.target, "draft": pair.draft, "ids": pair.tokenizer.encode("class Queue:\n    def"),
            "new": 50, "gamma": 4, "temperature": temperature}
    return judge(sampler_with(bug, **task), samples=samples, **task)


def main() -> int:
    """python -m nanospec.proof.judge: how often it accuses the correct sampler, and what it misses of the zoo."""
    parser = argparse.ArgumentParser(prog="python -m nanospec.proof.judge", description=main.__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="of the correct sampler, with other seeds each time")
    runs = parser.parse_args().runs
    torch.set_num_threads(1)            # small tensors gain nothing from more
    small = {"target": TABLE, "draft": DRAFT, "ids": [1], "new": 3, "gamma": 2, "temperature": 0.7}
    pair = load_pair()

    p_values = [judge(sampler_with(AS_IT_SHIPS, **small), samples=500, seed=500 * run, **small).p_value
                for run in range(runs)]
    below = ", ".join(f"{sum(p < bar for p in p_values)} times below {bar:g}" for bar in (.05, .01, FALSE_ALARM))
    print(f"{runs:,} runs of the correct sampler, 500 samples each: p {below}; below that it is called wrong")

    print(f"\n{'':24} {'walked: TV, named':>24} {'2,000 samples of 3 tokens':>26} {'3,000 tokens, real pair':>24}")
    for bug in [AS_IT_SHIPS, *BUGS]:
        if bug.file == "speculate":
            walk_says, samples_say = _tried(bug, lambda: judge(sampler_with(bug, **small), **small))
            _, long_says = _tried(bug, lambda: long_run(pair, bug, temperature=0.7))
            print(f"{bug.name:24} {walk_says:>24} {samples_say:>26} {long_says:>24}", flush=True)
    return 0


def _tried(bug: Bug, verdict_on: Callable[[], Verdict]) -> tuple[str, str]:
    """What the walk and what the samples say of a bug, in a few words each."""
    try:
        verdict = verdict_on()
    except (IndexError, RuntimeError, LogitsError):         # it writes past the cache, or makes NaN
        return "falls over", "falls over"
    named = "" if not verdict.bugs else "named" if verdict.bugs == [bug.name] else "two names"
    missed = " missed" * (verdict.p_value >= FALSE_ALARM and bug is not AS_IT_SHIPS)
    return ("not walked" if verdict.distance is None else f"{verdict.distance:.2g} {named}",
            f"p = {verdict.p_value:.2g}{missed}")


if __name__ == "__main__":
    sys.exit(main())
