"""A round of two tables, without caches: exercises 5, 6 and 8 put a learner's function into it, 7 and 14 use parts."""

from collections.abc import Callable
from functools import lru_cache

import torch

from lessons.check import seeds
from lessons.check.seen import Seen, look
from nanospec.probs import probs, residual
from nanospec.proof.walk import target_distribution

TARGET, DRAFT_MODEL = seeds.table(3, 5, zeros=0), seeds.table(3, 6, zeros=0)
IDS, GAMMA = (1, 0), 2


@lru_cache(maxsize=None)
def logits_of(model, ids: tuple[int, ...]) -> torch.Tensor:
    return model(torch.tensor([ids]))[0, -1]


@lru_cache(maxsize=None)
def distribution_of(model, ids: tuple[int, ...]) -> torch.Tensor:
    return probs(logits_of(model, ids))


def threshold(x: int, p_target, q_draft) -> float:
    return min(1.0, float(p_target[x] / q_draft[x]))


def next_weights(accepted: int, p_target, q_draft):
    """What exercise 6 asks for."""
    return p_target[accepted] if accepted == len(q_draft) else residual(p_target[accepted], q_draft[accepted])


def count(coins: list[bool]) -> int:
    """What exercise 5 asks for."""
    return [*coins, False].index(False)


def play_round(dice, target=TARGET, draft_model=DRAFT_MODEL, ids=IDS, gamma=GAMMA, accepted_of: Callable = count,
               next_of: Callable = next_weights, warp: Callable | None = None) -> tuple[int, ...]:
    """One round without caches, then the target alone, up to gamma + 1 tokens. warp: makes distributions of logits."""
    def after(model, tokens):
        return warp(logits_of(model, (*ids, *tokens))) if warp else distribution_of(model, (*ids, *tokens))

    drafted, q_draft = [], []
    for _ in range(gamma):
        q_draft.append(after(draft_model, drafted))
        drafted.append(dice.pick(q_draft[-1]))
    p_target = [after(target, drafted[:i]) for i in range(gamma + 1)]
    accepted = accepted_of([dice.flip(threshold(x, p, q)) for x, p, q in zip(drafted, p_target, q_draft)])
    new = (*drafted[:accepted], dice.pick(next_of(accepted, torch.stack(p_target), torch.stack(q_draft))))
    while len(new) < gamma + 1:
        new += (dice.pick(after(target, new)),)
    return new


@lru_cache(maxsize=None)
def right_texts(target, ids: tuple[int, ...], new: int, **settings) -> dict[tuple[int, ...], float]:
    """The target's own distribution. It is the same whoever is checked, so it is walked once."""
    return target_distribution(target, ids, new, **settings)


def walked_round(title: str, **changes) -> list[Seen]:
    expected = right_texts(TARGET, IDS, GAMMA + 1)
    return [look(title, lambda dice: play_round(dice, **changes), expected)]
