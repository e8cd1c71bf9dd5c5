"""What a round is made of, on this machine: its draft steps, its target call, and what else it takes.

Clocks stand around the calls within the rounds. Alone, a draft step is often faster: a pass of the target drives the
draft model's weights out of the processor's caches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from statistics import mean, median, stdev
from typing import Any, NamedTuple

from nanospec.cli.bench.measure import measure_costs
from nanospec.cli.quantities import alphas_of, is_busy, spread
from nanospec.methods.draft_models.early_exit import target_for
from nanospec.errors import SEEDS
from nanospec.fast.clock import Clocked, clocked, timed
from nanospec.generate import generate
from nanospec.methods.index import RULES, Method
from nanospec.methods.trees.tree_reader import longest_chain
from nanospec.speculate import Round, speculate
from nanospec.theory import break_even, needed, speedup

TRIED = 8               # draft lengths of a chain that are compared: up to this, and its own


@dataclass(frozen=True)
class Parts:
    """What a round brings and takes, on average, in target steps.

    tokens: what it brings; most: if all its draft tokens, of a tree those of its longest path, were accepted. steps: of
    drafting. rows: tokens of the target's call. overhead: what else it takes. gamma, v_of: of a chain its draft
    tokens, and {gamma: v(gamma + 1)} of the lengths to compare it with.
    """

    tokens: float
    most: float
    steps: float
    c: float
    v: float
    overhead: float
    rows: float
    gamma: int = 0
    v_of: dict[int, float] = field(default_factory=dict)

    @property
    def gain(self) -> float:
        """The speed-up that follows."""
        return self.tokens / (self.steps * self.c + self.v + self.overhead)

    @property
    def alpha(self) -> float:
        """Of a chain: the one alpha that brings these tokens by Eq. 1."""
        return break_even(min(self.tokens, self.gamma + 1), self.gamma, 0)

    def needed(self, gain: float) -> dict[str, float | None]:
        """As theory's; of a chain with "alpha"."""
        found = needed(gain, self.tokens, self.most, self.steps, self.c, self.v, self.overhead)
        if self.gamma:
            alpha = break_even(gain, self.gamma, self.c, self.v + self.overhead)
            found["alpha"] = None if alpha == inf else alpha
        return found

    def of_gammas(self) -> dict[int, float]:
        """gamma -> the speed-up by the formula, with this alpha, c and overhead."""
        return {gamma: speedup(self.alpha, gamma, self.c, v + self.overhead) for gamma, v in self.v_of.items()}

    def ideal(self) -> dict[str, float]:
        """Part -> the speed-up if it were as good as can be, and the others as they are."""
        return {"tokens": replace(self, tokens=self.most).gain, "c": replace(self, c=0.0).gain,
                "v": replace(self, v=min(self.v, 1.0)).gain,
                "overhead": replace(self, overhead=min(self.overhead, 0.0)).gain}


class Turn(NamedTuple):
    """One text. step, whole: seconds of a plain step, and of a round without clocks in it; the rest as in Parts."""

    step: float
    whole: float
    c: float
    v: float
    overhead: float
    steps: float


@dataclass(frozen=True)
class Found:
    """parts: of all turns. alphas: by position. expected, measured: each turn's speed-up.

    luck: how far, as a part of it, the coins may have moved the measured one. busy: as in `measure`.
    """

    parts: Parts
    alphas: list[float]
    expected: list[float]
    measured: list[float]
    luck: float = 0.0
    busy: bool = False

    @property
    def apart(self) -> float:
        """How far apart the two speed-ups are, as a part of the measured one."""
        return abs(self.parts.gain / median(self.measured) - 1)

    @property
    def noise(self) -> float:
        """How far apart they may be."""
        return self.luck + spread(self.expected) + spread(self.measured)


def turn(target: Any, method: Method, ids: Sequence[int], **request) -> tuple[Turn, list[Round]]:
    """One text: by the target alone; in rounds with clocks around their calls; and in the same rounds without. A text's
    first step and first round read the prompt and do not count.
    """
    alone, drafter = Clocked(target), Clocked(method.make())
    plain = [(seconds, alone.taken()) for _, seconds in clocked(generate(alone, ids, **request))]
    verifier = Clocked(target_for(target, drafter))
    watched = [(seconds, verifier.taken(), drafter.taken(), done.steps) for done, seconds in clocked(
        speculate(verifier, drafter, ids, rule=RULES[method.rule], **request))]
    rounds, seconds = timed(method.run(ids, **request))
    step, call = map(mean, zip(*plain[1:]))
    whole, verifying, drafting, steps = map(mean, zip(*watched[1:]))
    c, v = drafting / steps / step if steps else 0.0, verifying / call
    return Turn(step, mean(seconds[1:]), c, v, whole / step - steps * c - v, steps), rounds[1:]


def parts_of(target: Any, draft: Any, method: Method, ids: Sequence[int], seed: int, turns: int, **request) -> Found:
    """What a round of this method is made of, on `turns` texts that continue `ids`. request: as of `speculate`."""
    taken, rounds = [], []
    for text in range(seed, seed + turns):
        one, done = turn(target, method, ids, seed=text % SEEDS, **request)
        taken.append(one)
        rounds += done
    counts, rows = [len(done.path) + 1 for done in rounds], [len(done.tokens) for done in rounds]
    alphas = alphas_of(rounds)
    parts = Parts(mean(counts), mean(longest(done.parents) for done in rounds), mean(done.steps for done in rounds),
                  median(one.c for one in taken), median(one.v for one in taken),
                  median(one.overhead for one in taken), mean(rows))
    luck = 0.0
    if method.drafter == "chain":
        parts = replace(parts, tokens=1 + sum(prod(alphas[:i + 1]) for i in range(len(alphas))),
                        **lengths(target, draft, method.gamma, parts.v, len(ids), request))
        luck = 2 * stdev(counts) / len(counts) ** 0.5 / mean(counts)
    expected = [replace(parts, c=one.c, v=one.v, overhead=one.overhead, steps=one.steps).gain for one in taken]
    return Found(parts, alphas, expected, [mean(counts) * one.step / one.whole for one in taken], luck,
                 is_busy([one.step for one in taken]))


def longest(parents: Sequence[int]) -> int:
    """Rows of the longest path of a draft. parents: of each row, which stand before it. [-1, 0, 0, 2] gives 3."""
    rows: list[int] = []
    for parent in parents:
        rows.append(1 + (rows[parent] if parent >= 0 else 0))
    return max(rows)


def lengths(target: Any, draft: Any, gamma: int, v: float, context: int, request: dict) -> dict:
    """gamma, and v_of: v of each draft length, measured alone, and in proportion to what v is in the rounds."""
    sampling = {name: value for name, value in request.items() if name != "max_new_tokens"}
    compared = sorted({*range(1, 1 + longest_chain(draft, TRIED)), gamma})
    alone = measure_costs(target, None, [length + 1 for length in compared], context, **sampling).v
    return {"gamma": gamma, "v_of": {length: v * alone[length + 1] / alone[gamma + 1] for length in compared}}
