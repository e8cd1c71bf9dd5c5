"""Exercise 20: a block drawn from left to right, with a table of which token follows which. In a round, and alone."""

from collections.abc import Callable
from functools import lru_cache
from itertools import product

import torch

from lessons.check import seeds
from lessons.check.answered import pair, token, weights_like
from lessons.check.mistakes_while_drawing import WRONGS, NO_TABLE, drawing_by
from lessons.check.engine import Exercise, Functions
from lessons.check.pairs import vector
from lessons.check.rounds import IDS, TARGET, count, distribution_of, next_weights, right_texts, threshold
from lessons.check.seen import Failure, Row, Seen, look, values
from nanospec.proof.walk import walk

V = 3
WORKED = 0, torch.zeros(2, 2, dtype=torch.float64), torch.tensor([[0., 1], [0, 0]], dtype=torch.float64)


def fork() -> tuple[int, torch.Tensor, torch.Tensor]:
    """The best block for the target after IDS: the logits of both marginals, and what follows what at the second place.
    What the table adds at the first place is taken from its line, as a trained block would have it.
    """
    first = distribution_of(TARGET, IDS)
    after = torch.stack([distribution_of(TARGET, (*IDS, x)) for x in range(V)])
    second = first @ after
    table = after.log() - second.log()
    return IDS[-1], torch.stack([first.log() - table[IDS[-1]], second.log()]), table


CASES = {       # last, logits, table
    "worked example": WORKED,
    "two places": (1, torch.stack([vector(.5, .3, .2), vector(.2, .2, .6)]).log(),
                   torch.tensor([[0., 1, 2], [2, 0, 1], [-1, 1, 0]], dtype=torch.float64)),
    "three places": (1, torch.stack([vector(.6, .4), vector(.3, .7), vector(.5, .5)]).log(),
                     torch.tensor([[.5, -2], [1, 0]], dtype=torch.float64)),
    "an empty table": (0, torch.stack([vector(.5, .3, .2), vector(.1, .1, .8)]).log(),
                       torch.zeros(3, 3, dtype=torch.float64)),
}


def case_of(draw, gamma: int, size: int, spread: float, shift: float = 0) -> tuple:
    def random(lines: int) -> torch.Tensor:
        return torch.tensor([[shift + draw.uniform(-spread, spread) for _ in range(size)] for _ in range(lines)],
                            dtype=torch.float64)
    return draw.randrange(size), random(gamma), random(size)


DRAW = seeds.chance(20)
CASES |= {f"{gamma} place{'s' * (gamma > 1)} by a seed, {size} token{'s' * (size > 1)}": case_of(
    DRAW, gamma, size, spread, shift) for gamma, size, spread, shift in (
        (1, 4, 2, 0), (4, 2, 1, 0), (3, 3, 3, 0), (2, 5, 2, 20), (2, 4, 6, -20), (2, 1, 1, 0))}


def drawn(f, case: tuple, dice) -> tuple[tuple[int, ...], list[torch.Tensor]]:
    last, logits, table = case
    found = pair(f.draw(last, logits.clone(), table.clone(), dice), "draw must return two things, tokens and q_draft")
    parts = []
    for what, part in zip(("tokens", "distributions"), found):
        is_a_list = isinstance(part, (list, tuple)) or getattr(part, "ndim", 0)
        if not is_a_list or len(part) != len(logits):
            raise Failure(f"draw must return {len(logits)} {what}, one for each place; it returned {part!r:.80}")
        parts.append(list(part))
    size = logits.shape[1]
    return (tuple(token(x, size, "draw, for each place,") for x in parts[0]),
            [weights_like(q, (size,), "draw, for each place, second,") for q in parts[1]])


def contract(f) -> None:
    drawn(f, WORKED, Row(seed=0))


def right_blocks(case: tuple) -> dict[tuple[int, ...], float]:
    """Every block, and how often it is drawn."""
    last, logits, table = case
    found = {}
    for block in product(range(logits.shape[1]), repeat=len(logits)):
        q = [(own + table[before]).softmax(-1)[x] for own, before, x in zip(logits, (last, *block), block)]
        found[block] = float(torch.stack(q).prod())
    return found


def worked(f) -> list[Seen]:
    return [blocks(f, "worked example")]


def blocks(f, name: str) -> Seen:
    return look(f"{name}: how often each block is drawn", lambda dice: drawn(f, CASES[name], dice)[0],
                right_blocks(CASES[name]))


def reports(f, name: str) -> Seen:
    """For each block that can be drawn: what is reported of each place, beside what was drawn from."""
    last, logits, table = CASES[name]

    def reported() -> dict:
        found, _ = walk(play)
        return {f"block {block}, place {place}, token {x}": share for (block, qs) in found
                for place, q in enumerate(qs, 1) for x, share in enumerate(q)}

    def play(dice) -> tuple:
        block, q_draft = drawn(f, CASES[name], Row(dice))
        return block, tuple(tuple(q.tolist()) for q in q_draft)

    right = {f"block {block}, place {place}, token {x}": share for block in right_blocks(CASES[name])
             for place, (own, before) in enumerate(zip(logits, (last, *block)), 1)
             for x, share in enumerate((own + table[before]).softmax(-1).tolist())}
    return values(f"{name}: q_draft", reported, right)


def drawing(f) -> list[Seen]:
    return [blocks(f, name) for name in CASES]


def reporting(f) -> list[Seen]:
    return [reports(f, name) for name in CASES]


def play_round(f, dice, case: Callable = fork) -> tuple[tuple[int, ...], int]:
    """A round on the target: three tokens of text, and how many draft tokens were accepted."""
    drafted, q_draft = drawn(f, case(), dice)
    p_target = [distribution_of(TARGET, (*IDS, *drafted[:i])) for i in range(3)]
    accepted = count([dice.flip(threshold(x, p, q)) for x, p, q in zip(drafted, p_target, q_draft)])
    new = (*drafted[:accepted], dice.pick(next_weights(accepted, p_target, q_draft)))
    while len(new) < 3:
        new += (dice.pick(distribution_of(TARGET, (*IDS, *new))),)
    return new, accepted


def exact(f) -> list[Seen]:
    """Of the best block, which is accepted whatever is said of it, and of others: there q_draft matters."""
    return [look(f"a round with {name}: the distribution of three tokens",
                 lambda dice, case=case: play_round(f, dice, case)[0], right_texts(TARGET, IDS, 3))
            for name, case in (("the best block for this target", fork),
                               ("another block", lambda: CASES["two places"]))]


def pace(f) -> list[Seen]:
    return [values("the best block for this target, on average", lambda: {"draft tokens accepted": accepted_by(f.draw)},
                   {"draft tokens accepted": 2.0})]


@lru_cache(maxsize=None)
def accepted_by(draw: Callable) -> float:
    found, _ = walk(lambda dice: play_round(Functions(draw=draw), Row(dice))[1])
    return sum(weight * accepted for accepted, weight in found.items())


def number_to_reach(f) -> str:
    return (f"{accepted_by(f.draw):.2f} of 2 draft tokens accepted; to reach: {accepted_by(drawing_by()['draw']):.2f}. "
            f"Without the table: {accepted_by(NO_TABLE['draw']):.2f}, and the same distribution of the text")


EXERCISE = Exercise(
    "ex20_a_block_drawn.py", ("draw",), contract,
    {"worked number": worked, "exact distribution": exact, "accepted as often as it can be": pace,
     "what is drawn": drawing, "what is reported": reporting},
    WRONGS,
    ("Which token stands in front of the first place? And in front of the second?",
     "Keep a variable for the token in front. At every place: add its line of the table, softmax, draw, and then this "
     "token is the one in front.",
     "q = (own + table[before]).softmax(-1); before = dice.pick(q); append before to the tokens and q to q_draft"),
    [("nanospec.methods.draft_models.dflash", "DSpark.after_token", "return", "return"),
     ("nanospec.speculate", "ModelDrafter.propose", "q_draft.append", "tokens.append")],
    {"number to reach": number_to_reach}, speed="accepted as often as it can be")
