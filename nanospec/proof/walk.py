"""Walk every decision: run the very code that ships, with dice that try each outcome in turn, and add up the law.

Depth first, by replay: each run follows the choices noted so far, takes the first outcome at every new one, and at its
end the last choice that has another outcome moves on. What comes out is not an estimate. (Pyro's
`iter_discrete_traces` does the same for probabilistic programs.)

Left out: what has no outcome to walk, such as re-used randomness (a Dice cannot hand out a column twice, and
tests/test_dice.py says so) and speed.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import product

import torch
from torch import Tensor

from nanospec.cache import Cache
from nanospec.generate import generate
from nanospec.model import Config

Outcome = Hashable
LawOf = dict[Outcome, float]


class WalkingDice:
    """Stands in for `Dice`: the same three methods, but every outcome of every decision gets its turn."""

    def __init__(self):
        self.choices: list[list] = []       # [possible outcomes, their probabilities, which one is being followed]
        self.rewind()

    def rewind(self) -> None:
        """Before each run."""
        self.at, self.weight = 0, 1.0

    def advance(self) -> bool:
        """After each run: on to the next path. False when there is none."""
        while self.choices and self.choices[-1][2] == len(self.choices[-1][0]) - 1:
            self.choices.pop()
        if self.choices:
            self.choices[-1][2] += 1
        return bool(self.choices)

    def refill(self, columns: int) -> None:
        """Nothing to lay out."""

    def flip(self, prob: Tensor) -> Tensor:
        """prob (B, n) -> (B, n) bool; what exceeds 1 counts as 1, as it does for a uniform below 1."""
        heads = [self._choose([1 - p, p]) for p in prob.clamp(max=1).flatten().tolist()]
        return torch.tensor(heads, device=prob.device).view(prob.shape).bool()

    def pick(self, weights: Tensor) -> Tensor:
        """weights (B, V) -> (B,)."""
        return torch.tensor([self._choose(row) for row in weights.tolist()], device=weights.device)

    def _choose(self, weights: list[float]) -> int:
        total = sum(weights)
        if not total > 0 or min(weights) < 0:
            raise AssertionError(f"a choice needs weights of a positive total, none negative: {weights}")
        possible = [i for i, w in enumerate(weights) if w > 0]
        probabilities = [weights[i] / total for i in possible]
        if self.at == len(self.choices):
            self.choices.append([possible, probabilities, 0])
        known, before, which = self.choices[self.at]
        if (known, before) != (possible, probabilities):
            raise AssertionError(f"replayed, decision {self.at} has other odds: {before}, now {probabilities}. "
                                 "Something outside the dice is random or keeps state between runs.")
        self.at += 1
        self.weight *= probabilities[which]
        return possible[which]


def walk(play: Callable[[WalkingDice], Outcome]) -> tuple[LawOf, int]:
    """The exact law of what `play(dice)` returns, and how many paths there are."""
    dice, law, paths = WalkingDice(), defaultdict(float), 0
    while True:
        dice.rewind()
        law[play(dice)] += dice.weight
        paths += 1
        if not dice.advance():
            break
    if abs(sum(law.values()) - 1) > 1e-9:
        raise AssertionError(f"the paths' probabilities add up to {sum(law.values())}")
    return dict(law), paths


def walk_by_prefix(play: Callable[[tuple, int, WalkingDice], tuple], new: int) -> tuple[LawOf, int]:
    """The exact law of `new` tokens written round by round, by dynamic programming over what is committed so far.

    play(prefix, left, dice) -> the 1 to `left` tokens one fresh round adds behind `prefix`. Far fewer paths than
    `walk`, and blind to whatever is carried from one round to the next: both are used.
    """
    law, paths = {(): 1.0}, 0
    while any(len(prefix) < new for prefix in law):
        longer = defaultdict(float)
        for prefix, weight in law.items():
            if len(prefix) == new:
                longer[prefix] += weight
                continue
            added, walked = walk(lambda dice: play(prefix, new - len(prefix), dice))
            paths += walked
            for tokens, probability in added.items():
                longer[prefix + tokens] += weight * probability
        law = dict(longer)
    return law, paths


def plain_law(target, ids: Sequence[int], new: int, **settings) -> LawOf:
    """The law of the next `new` tokens as `generate` draws them: what everything is compared with."""
    return walk(lambda dice: tuple(generate(target, ids, max_new_tokens=new, dice=dice, **settings)))[0]


def completed(law: LawOf, target, ids: Sequence[int], new: int, **settings) -> LawOf:
    """Every shorter outcome in `law` continued to `new` tokens by the target itself."""
    whole = defaultdict(float)
    for tokens, weight in law.items():
        rest = plain_law(target, [*ids, *tokens], new - len(tokens), **settings) if len(tokens) < new else {(): 1.0}
        for more, probability in rest.items():
            whole[tokens + more] += weight * probability
    return dict(whole)


def product_law(*laws: LawOf) -> LawOf:
    """The joint law of independent outcomes."""
    joint = {}
    for outcomes in product(*(law.items() for law in laws)):
        weight = 1.0
        for _, probability in outcomes:
            weight *= probability
        joint[tuple(outcome for outcome, _ in outcomes)] = weight
    return joint


def distance(law: LawOf, truth: LawOf) -> tuple[float, float]:
    """(greatest error of any outcome's probability, total variation)."""
    errors = [abs(law.get(outcome, 0.0) - truth.get(outcome, 0.0)) for outcome in law.keys() | truth.keys()]
    return max(errors), sum(errors) / 2


class TableModel:
    """A language model that is a table: every context, whole and in order, has a law of its own.

    It stands where a GPT stands and keeps its context in a real `Cache`: its keys are the tokens themselves. Feed it
    from a cache that was not rolled back, or that misses a token, and it answers for another context. Thousands of
    paths a second; about one probability in four is zero.
    """

    CONTEXTS = 9973     # rows of the table; a context is hashed to one

    def __init__(self, vocab_size: int, seed: int, zeros: float = 0.25):
        self.config = Config(vocab_size, context=64, layers=1, channels=1, heads=1, kv_heads=1, hidden=1)
        self.device, self.dtype = torch.device("cpu"), torch.float64
        made = torch.Generator().manual_seed(seed)
        table = torch.rand(self.CONTEXTS, vocab_size, generator=made, dtype=self.dtype)
        gone = torch.rand(self.CONTEXTS, vocab_size, generator=made) < zeros
        gone[torch.arange(self.CONTEXTS), table.argmax(-1)] = False                        # somebody must be left
        self.logits = table.log().masked_fill(gone, float("-inf"))

    def new_cache(self, rows: int, slots: int) -> Cache:
        return Cache(rows, layers=1, kv_heads=1, rope=torch.zeros(2, slots, 1, dtype=self.dtype))

    def __call__(self, tokens: Tensor, cache: Cache | None = None, upto: int | None = None,
                 positions: Tensor | None = None, sees: Tensor | None = None) -> Tensor:
        """tokens (B, T) -> logits (B, T, V), by the contract of GPT.forward; it has no use for positions."""
        rows, T = tokens.shape
        cache = cache or self.new_cache(rows, T)
        slots = cache.next_slots(T)
        key = tokens.to(self.dtype)[:, None, :, None]
        kept, _ = cache.write(0, slots, key, key, int(slots.max()) + 1 if upto is None else upto)
        kept = kept[:, 0, :, 0].long().tolist()
        if sees is not None:                # a token's context is what it sees, in the order of the slots
            return torch.stack([self.logits[[self._hash([row[slot] for slot in seen.nonzero()[:, 0].tolist()])
                                             for seen in rows]] for row, rows in zip(kept, sees)])
        return torch.stack([self.logits[[self._hash(row[:slot + 1]) for slot in at]]
                            for row, at in zip(kept, slots.tolist())])

    def _hash(self, context: list[int]) -> int:
        h = 1
        for token in context:
            h = (h * 31 + token + 1) % self.CONTEXTS
        return h
