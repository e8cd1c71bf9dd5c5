"""The checks that the zoo is held against: small, fast settings of the layers, and what the walk cannot see.

Each returns (paths or samples, greatest error, total variation) and counts as having caught something when the error
exceeds 1e-12, or when the walk fell over. For the checks of identities the error counts violations.
"""

from collections import defaultdict
from functools import partial
from itertools import islice

import torch

from nanospec.dice import Dice
from nanospec.generate import generate
from nanospec.probs import probs
from nanospec.proof.walk import TableModel, walk
from nanospec.proof.layers import caches, chain, greedy, node, one_round, prompts_of, ragged, rounds, small_gpt
from nanospec.proof.trees import TREE_CATCHERS
from nanospec.speculate import ModelDrafter, speculate, tokens_of, verify

TABLE, DRAFT = TableModel(3, 8, zeros=0.4), TableModel(3, 58, zeros=0.4)
TABLE4, DRAFT4 = TableModel(4, 3), TableModel(4, 4)
GPT4, GPT_DRAFT4 = small_gpt(4, 2, 3), small_gpt(4, 1, 4)
WARM = {"temperature": 0.7}


def support() -> tuple[int, float, float]:
    """At the smallest uniform there is, 0.0, no token comes out that the target forbids."""
    p_target = torch.tensor([[[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]])
    q_draft = torch.tensor([[[0.5, 0.5, 0.0]]])
    wrong = 0
    for drafted in (0, 1):
        dice = Dice([0])
        dice.u = torch.zeros(1, 2, dtype=torch.float64)
        kept, token = verify(torch.tensor([[drafted]]), q_draft, p_target, dice)
        first = drafted if kept else int(token)
        wrong += int(p_target[0, 0, first] == 0)
    return 2, float(wrong), float(wrong)


class Ledger(Dice):
    """Dice that write down every uniform they hand out."""

    def __init__(self, seeds):
        super().__init__(seeds)
        self.handed: list[float] = []

    def _take(self, n):
        taken = super()._take(n)
        self.handed += taken.flatten().tolist()
        return taken


def ledger() -> tuple[int, float, float]:
    """Every decision takes one uniform, and none is handed out twice, within a round or across rounds."""
    dice, gamma = Ledger([5]), 3
    count = sum(1 for _ in speculate(TABLE, ModelDrafter(DRAFT), [1, 0], gamma, 40, dice=dice, **WARM))
    wrong = abs(len(dice.handed) - count * (2 * gamma + 1)) + len(dice.handed) - len(set(dice.handed))
    return len(dice.handed), float(wrong), float(wrong)


def reports() -> tuple[int, float, float]:
    """The lengths asked for, every round's identities, the same text from the same seed, another from another."""
    wrong = seen = 0
    for seed in range(12):
        new = 5 + seed
        all_rounds = list(speculate(TABLE, ModelDrafter(DRAFT), [1, 2], 3, new, seed=seed))
        again = tokens_of(speculate(TABLE, ModelDrafter(DRAFT), [1, 2], 3, new, seed=seed))
        wrong += (len(tokens_of(all_rounds)) != new) + (tokens_of(all_rounds) != again)
        for one in all_rounds:
            whole = one.drafted[:one.kept] + [one.token]
            wrong += one.emitted != whole[:len(one.emitted)] or not 0 <= one.kept <= len(one.drafted)
            wrong += one is not all_rounds[-1] and len(one.emitted) != one.kept + 1
            seen += 1
    wrong += len({tuple(generate(TABLE, [1], 30, seed=seed)) for seed in range(5)}) != 5
    return seen, float(wrong), float(wrong)


def expected_kept(target, draft, prefix, gamma: int, **settings) -> float:
    """How many of gamma guesses stand on average behind `prefix`, from laws recomputed without a cache."""
    law = partial(probs, **settings)
    if gamma == 0:
        return 0.0
    p_target, q_draft = (law(model(torch.tensor([prefix]))[0, -1]) for model in (target, draft))
    both = p_target.minimum(q_draft).tolist()
    return sum(weight * (1 + expected_kept(target, draft, [*prefix, x], gamma - 1, **settings))
               for x, weight in enumerate(both) if weight > 0)


def speed(target=TABLE, draft=DRAFT, ids=(1, 0), gamma=2, **settings) -> tuple[int, float, float]:
    """T5. Guesses kept in the second round, behind every text the first can leave, against their exact expectation."""
    settings = settings or WARM

    def play(dice):
        first, second = islice(speculate(target, ModelDrafter(draft), ids, gamma, 4 * gamma, dice=dice, **settings), 2)
        return tuple(first.emitted), second.kept

    law, paths = walk(play)
    weight, kept = defaultdict(float), defaultdict(float)
    for (text, n), probability in law.items():
        weight[text] += probability
        kept[text] += probability * n
    error = max(abs(kept[text] / weight[text] - expected_kept(target, draft, [*ids, *text], gamma, **settings))
                for text in weight)
    return paths, error, error


# Every control must pass these; T5 is not among them, since a control may well be slower.
OF_THE_LAW = ("T0", "T1", "T2", "T6 greedy", "dynamic")
CATCHERS = {
    "T0": node,
    "T1": lambda: one_round(TABLE4, DRAFT4, [1, 3, 0], 2, **WARM),
    "T2": lambda: rounds(TABLE, chain(TABLE, DRAFT, 2), [1, 0], 4, **WARM),
    "T2 settings": lambda: rounds(TABLE4, chain(TABLE4, DRAFT4, 2), [0, 1], 4, temperature=1.3, top_k=2),
    "T2 stop": lambda: rounds(TABLE, chain(TABLE, DRAFT, 2), [1, 2], 4, stop={0}, **WARM),
    "T2 rows": lambda: ragged(TABLE, DRAFT, [[1], [0, 2, 1, 1]], 1, 2, **WARM),
    "T3 cache": lambda: caches(GPT4, GPT_DRAFT4, prompts_of(4, 3, 5), 3, 40, **WARM),
    "T5 speed": speed,
    "T6 greedy": lambda: greedy(GPT4, [chain(GPT4, GPT_DRAFT4, gamma) for gamma in (1, 2, 4, 7)],
                                prompts_of(4, 10, 5), 30),
    "support": support,
    "ledger": ledger,
    "reports": reports,
} | TREE_CATCHERS
