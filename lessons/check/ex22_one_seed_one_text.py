"""Exercise 22: the same noise for target and draft model. Every cell of the noise is walked; see lessons/coupled.py."""

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import product

import torch
import torch.nn.functional as F

from lessons.check import seeds
from lessons.check.answered import token, wholes
from lessons.check.engine import Exercise, Functions
from lessons.check.mistakes_with_noise import RIGHT, WRONGS
from lessons.check.pairs import HAIR, distribution, vector
from lessons.check.rounds import distribution_of
from lessons.check.seen import Failure, Row, Seen, look, values
from lessons.coupled import WalkedNoise, cells, draw
from nanospec.proof.walk import walk

IDS = (1, 0)


def of_table(size: int, number: int, zeros: float = 0) -> Callable:
    """A table's distribution after a text, of three tokens: with a table of two, the third has probability 0."""
    table = seeds.table(size, number, zeros=zeros)

    @lru_cache(maxsize=None)
    def padded(ids: tuple[int, ...]) -> torch.Tensor:
        return F.pad(distribution_of(table, ids), (0, 3 - size))
    return lambda ids: padded(tuple(ids))


CASES: dict[str, tuple[Callable, Callable, int]] = {        # target, draft model, gamma
    "three tokens, gamma 1": (of_table(3, 5), of_table(3, 6), 1),
    "three tokens, some forbidden, gamma 1": (of_table(3, 18, .3), of_table(3, 118, .3), 1),
    "two tokens, gamma 2": (of_table(2, 3), of_table(2, 4), 2),
    # The draft model's likeliest token is accepted less often than a drawn one, whatever the variant.
    "two models that are not sure, gamma 1": (lambda ids: vector(.3, .45, .25), lambda ids: vector(.4, .35, .25), 1)}
BY_HAND = dict(enumerate((vector(.1, .4), vector(.5, 0), vector(0, .5), vector(0, .1))))         # noise of the places
TOY = vector(.8, .2), vector(.5, .5).repeat(3, 1)                                                # q_draft, p_target


def drafted_by(f, text: list[int], draft_model: Callable, gamma: int, noise: Callable) -> list[int]:
    found = wholes(f.propose(list(text), draft_model, gamma, noise), "propose")
    if len(found) != gamma:
        raise Failure(f"propose, with gamma {gamma}, must return {gamma} tokens; it returned {found}")
    size = len(noise(len(text)))
    return [token(x, size, "propose, for each place,") for x in found]


def written_by(f, text: list[int], drafted: list[int], p_target: torch.Tensor, noise: Callable) -> list[int]:
    answer = f.judge(list(text), list(drafted), p_target, noise)
    if answer is None:
        token(answer, p_target.shape[1], "judge")               # it says what is missing
    found = wholes(answer, "judge")
    if not 1 <= len(found) <= len(drafted) + 1:
        raise Failure(f"judge of {len(drafted)} draft tokens must return 1 to {len(drafted) + 1} tokens; it returned "
                      f"{found}")
    return [token(x, p_target.shape[1], "judge, for each place,") for x in found]


def toy_round(f, drafted: list[int]) -> tuple[list[int], list[int]]:
    return (drafted_by(f, [0], lambda ids: TOY[0].clone(), 2, lambda place: BY_HAND[place].clone()),
            written_by(f, [0], drafted, TOY[1], lambda place: BY_HAND[place].clone()))


def contract(f) -> None:
    for drafted in [0, 0], [0, 1]:
        toy_round(f, drafted)


def places(title: str, got: Callable[[], list[int]], expected: list[int]) -> Seen:
    return values(title, lambda: {f"token {i}": x for i, x in enumerate(got(), 1)},
                  {f"token {i}": x for i, x in enumerate(expected, 1)})


def worked(f) -> list[Seen]:
    return [places("propose: the worked example", lambda: toy_round(f, [0, 0])[0], [0, 0]),
            *(places(f"judge: the worked example, drafted {drafted}",
                     lambda drafted=drafted: toy_round(f, drafted)[1], written)
              for drafted, written in (([0, 0], [0, 1]), ([0, 1], [0, 1, 1]), ([1, 0], [0])))]


@lru_cache(maxsize=None)
def cells_of(name: str, place: int) -> tuple[list[float], list[torch.Tensor]]:
    """Of the noise of a place: in each, target and draft model draw the same after any text that may stand there. A
    place that no token of the case is drawn for has one.
    """
    target, draft_model, gamma = CASES[name]
    depth, size = place - len(IDS), 2 if name.startswith("two tokens") else 3
    if not 0 <= depth <= gamma:
        return cells([])
    return cells([model((*IDS, *new)) for model in (target, draft_model) for new in product(range(size), repeat=depth)])


def one_round(f, name: str, text: list[int], noise: Callable, other: Callable | None = None) -> list[int]:
    """What a round writes after that text. other: noise for the draft model alone."""
    target, draft_model, gamma = CASES[name]
    drafted = drafted_by(f, text, lambda ids: draft_model(ids).clone(), gamma, other or noise)
    p_target = torch.stack([target((*text, *drafted[:i])) for i in range(gamma + 1)])
    return written_by(f, text, drafted, p_target, noise)


def both_texts(f, name: str, dice) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """gamma + 1 tokens, written round by round and by the target alone, with one noise."""
    noise, (target, _, gamma) = WalkedNoise(dice, lambda place: cells_of(name, place)), CASES[name]
    text, alone = [*IDS], [*IDS]
    while len(text) <= len(IDS) + gamma:
        text += one_round(f, name, text, noise)
    while len(alone) <= len(IDS) + gamma:
        alone.append(draw(target(alone), noise(len(alone))))
    return tuple(text[len(IDS):len(alone)]), tuple(alone[len(IDS):])


@lru_cache(maxsize=None)
def of_the_target(name: str, ids: tuple[int, ...] = IDS) -> dict[tuple[int, ...], float]:
    """The distribution of the next gamma + 1 tokens."""
    target, _, gamma = CASES[name]
    if len(ids) > len(IDS) + gamma:
        return {(): 1.0}
    return {(x, *rest): p * share for x, p in enumerate(target(ids).tolist()) if p
            for rest, share in of_the_target(name, (*ids, x)).items()}


def exact(f) -> list[Seen]:
    return [look(f"{name}: {CASES[name][2] + 1} tokens, and those of the target alone with the same noise",
                 lambda dice, name=name: both_texts(f, name, dice),
                 {(text, text): share for text, share in of_the_target(name).items()}) for name in CASES]


def on_average(f, name: str, apart: bool = False) -> float:
    """Tokens of a round. apart: with noise of its own for the draft model."""
    def play(dice) -> int:
        one, other = (WalkedNoise(Row(dice), lambda place: cells_of(name, place)) for _ in range(2))
        return len(one_round(f, name, [*IDS], one, other if apart else None))

    found, _ = walk(play)
    return sum(count * share for count, share in found.items())


@lru_cache(maxsize=None)
def right_on_average(name: str, apart: bool = False) -> float:
    return on_average(Functions(**RIGHT), name, apart)


def pace(f) -> list[Seen]:
    return [values(f"{name}, on average", lambda name=name: {"tokens of a round": on_average(f, name)},
                   {"tokens of a round": right_on_average(name)}) for name in CASES]


DRAW = seeds.chance(22)
DRAWN = []          # noise of places 0 to 12; q_draft after a text of each length; p_target at each place; drafted
for size, zeros, gamma, before in (2, 0, 3, 1), (3, 1, 4, 5), (5, 2, 2, 3), (6, 0, 5, 4), (8, 3, 1, 2), (4, 1, 6, 6):
    noise = torch.tensor([[DRAW.uniform(-3, 6) for _ in range(size)] for _ in range(13)], dtype=torch.float64)
    q_draft, p_target = (torch.stack([distribution(DRAW, size, zeros) for _ in range(13)]) for _ in range(2))
    if zeros:
        noise += 30 * (p_target == 0)           # noise so large that only a probability of 0 is not drawn with it
    own = [draw(p, g) for p, g in zip(p_target, noise)][before:]
    DRAWN.append((noise, q_draft, p_target, before, gamma, [own[:gamma], [*own[:gamma // 2], *[0] * gamma][:gamma]]))
for less in (1, 0), (0, 1):         # by a hair the first token or the second: a float32 sees a tie, and takes the first
    noise = (HAIR * vector(*less, 0) + vector(0, math.log(2), 0)).repeat(4, 1)
    DRAWN.append((noise, *[vector(.5, .25, .25).repeat(4, 1)] * 2, 1, 2, [[less[1]] * 2, [2, 2]]))


def drawn(f) -> list[Seen]:
    found = []
    for noise, q_draft, p_target, before, gamma, drafts in DRAWN:
        case = (f, [0] * before, lambda ids, q=q_draft: q[len(ids)].clone(), gamma, lambda at, g=noise: g[at].clone())
        right = Functions(**RIGHT)
        found.append(places(f"propose: {noise.shape[1]} tokens, gamma {gamma}, noise by a seed",
                            lambda case=case: drafted_by(*case), drafted_by(right, *case[1:])))
        for drafted in drafts:
            rows, of = p_target[before:before + gamma + 1], (case[1], drafted)
            found.append(places(f"judge: {noise.shape[1]} tokens, drafted {drafted}, noise by a seed",
                                lambda of=of, rows=rows, case=case: written_by(f, *of, rows, case[4]),
                                written_by(right, *of, rows, case[4])))
    return found


def number_to_beat(f) -> str:
    name = next(iter(CASES))
    alone = right_on_average(name, apart=True) - 1
    return (f"{on_average(f, name) - 1:.3f} draft tokens accepted of 1; to beat: {alone:.3f}, where the draft model "
            "has noise of its own")


EXERCISE = Exercise(
    "ex22_one_seed_one_text.py", ("propose", "judge"), contract,
    {"worked number": worked, "exact distribution": exact, "as many tokens as the noise allows": pace,
     "what is drawn": drawn},
    WRONGS,
    ("Which token would the target write at this place if there were no draft? Noise and distribution say it.",
     "The place of a token is its index in the text, whichever round it comes in: range(len(text), len(text) + gamma).",
     "propose: (draft_model([*text, *drafted]).log() + noise(place)).argmax(). judge: the same with p_target, until "
     "the target's token is not the draft token, or no draft token is left."),
    [("lessons.coupled", "draw", "return", "noise).argmax()"),
     ("lessons.coupled", "agreement", "ratio =", "return")],
    {"number to beat": number_to_beat}, speed="as many tokens as the noise allows")
