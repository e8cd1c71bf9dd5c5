"""Exercise 7: two caches, rolled back after a round."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import torch

from lessons.check import seeds
from lessons.check.answered import pair, whole
from lessons.check.engine import Exercise, wrong
from lessons.check.rounds import GAMMA, IDS, count, distribution_of, next_weights, play_round, right_texts, threshold
from lessons.check.seen import Failure, Row, Seen, values
from lessons.oracles import expected_accepted
from nanospec.proof.walk import walk

# Two tokens are enough: what is at stake is which slots are read, and every text has distributions of its own.
TARGET, DRAFT_MODEL = seeds.table(2, 3, zeros=0), seeds.table(2, 7, zeros=0)
NEW = 4
LAST = "the text's last token was read in this round, too, and a cache of n tokens has n slots"


class SlotCache:
    """A cache that holds the tokens themselves: a model answers for what stands in its slots, stale or not."""

    def __init__(self, model):
        self.model, self.slots, self.valid = model, [0] * 40, 0

    def read(self, tokens: list[int]) -> list[torch.Tensor]:
        """Write tokens after the valid slots; the distributions after each of them."""
        self.slots[self.valid:self.valid + len(tokens)] = tokens
        self.valid += len(tokens)
        ends = range(self.valid - len(tokens) + 1, self.valid + 1)
        return [distribution_of(self.model, tuple(self.slots[:end])) for end in ends]


def two_rounds(valid_slots: Callable, dice) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """Two rounds with caches, cut back as the learner says, and the target alone up to NEW tokens.

    Returns those, how many draft tokens the second round accepted, and what the first one wrote.
    """
    text, first, target, draft_model = list(IDS), (), SlotCache(TARGET), SlotCache(DRAFT_MODEL)
    for _ in range(2):
        feed, drafted, q_draft = text[min(draft_model.valid, len(text) - 1):], [], []
        for _ in range(GAMMA):
            q_draft.append(draft_model.read(feed)[-1])
            drafted.append(dice.pick(q_draft[-1]))
            feed = drafted[-1:]
        p_target = target.read(text[min(target.valid, len(text) - 1):] + drafted)[-GAMMA - 1:]
        accepted = count([dice.flip(threshold(x, p, q)) for x, p, q in zip(drafted, p_target, q_draft)])
        target.valid, draft_model.valid = slots_of(valid_slots, len(text), GAMMA, accepted)
        text += [*drafted[:accepted], dice.pick(next_weights(accepted, p_target, q_draft))]
        first = first or tuple(text[len(IDS):])
    while len(text) < len(IDS) + NEW:
        text.append(dice.pick(distribution_of(TARGET, tuple(text))))
    return tuple(text[len(IDS):len(IDS) + NEW]), accepted, first


def slots_of(valid_slots: Callable, length: int, gamma: int, accepted: int) -> tuple[int, int]:
    returns = "two ints, 0 or more"
    found = valid_slots(length, gamma, accepted)
    both = pair(found, f"valid_slots must return {returns}")
    target, draft_model = (whole(n, f"valid_slots, as its {place},") for n, place in zip(both, ("first", "second")))
    if min(target, draft_model) < 0:
        raise Failure(f"valid_slots must return {returns}; it returned {found!r:.80}")
    return target, draft_model


def contract(f) -> None:
    slots_of(f.valid_slots, 10, 4, 2)


def worked(f) -> list[Seen]:
    def slots() -> dict:
        return dict(zip(("target", "draft model"), slots_of(f.valid_slots, 10, 4, 2)))
    return [values("length 10, gamma 4, accepted 2", slots, {"target": 12, "draft model": 12})]


@lru_cache(maxsize=1)
def walked(valid_slots: Callable) -> tuple[dict, int]:
    """Two rounds in every way the dice can fall, for the two parts that follow."""
    return walk(lambda dice: two_rounds(valid_slots, Row(dice)))


def exact(f) -> list[Seen]:
    def texts() -> dict:
        found: dict = {}
        for (tokens, _, _), weight in walked(f.valid_slots)[0].items():
            found[tokens] = found.get(tokens, 0.0) + weight
        return found
    right = right_texts(TARGET, IDS, NEW)
    seen = values(f"two rounds with caches: the distribution of {NEW} tokens", texts, right)
    return [seen if seen.error else replace(seen, paths=walked(f.valid_slots)[1])]


def pace(f) -> list[Seen]:
    """A draft model that reads a stale slot drafts for another text: only how many tokens are accepted is wrong."""
    def accepted() -> dict:
        return {"draft tokens accepted": sum(weight * n for (_, n, _), weight in walked(f.valid_slots)[0].items())}
    return [values("the second round, on average", accepted, {"draft tokens accepted": accepted_at_best()})]


@lru_cache(maxsize=None)
def accepted_at_best() -> float:
    found, _ = walk(lambda dice: first_of(Row(dice)))
    return sum(weight * expected_accepted(TARGET, DRAFT_MODEL, [*IDS, *first], GAMMA)
               for first, weight in found.items())


def first_of(dice) -> tuple[int, ...]:
    """What a first round writes; nothing is carried into it."""
    accepted = []

    def next_of(count, p_target, q_draft):
        accepted.append(count)
        return next_weights(count, p_target, q_draft)
    new = play_round(dice, TARGET, DRAFT_MODEL, next_of=next_of)
    return new[:accepted[0] + 1]


def nothing_twice(f) -> list[Seen]:
    draw = seeds.chance(7)
    sizes = [(10, 4), (7, 1), (3, 3), (1, 1), (1, 5), (draw.randint(100, 1000), 2), (draw.randint(5_000, 9_000), 8),
             (draw.randint(10 ** 5, 10 ** 6), draw.randint(20, 90))]
    cases = {f"length {length}, gamma {gamma}, accepted {k}": (length, gamma, k)
             for length, gamma in sizes for k in sorted({*range(min(gamma, 5)), gamma - 1, gamma})}
    return [values(f"slots of the {whose}'s cache that need not be read again",
                   lambda side=side: {name: slots_of(f.valid_slots, *case)[side] for name, case in cases.items()},
                   {name: length + min(k, gamma - side) for name, (length, gamma, k) in cases.items()})
            for side, whose in enumerate(("target", "draft model"))]


EXERCISE = Exercise(
    "ex07_rollback.py", ("valid_slots",), contract,
    {"worked number": worked, "exact distribution": exact, "accepted in the next round": pace,
     "nothing read twice": nothing_twice},
    [wrong("target-not-rolled-back", "the target's cache still holds rejected draft tokens",
           valid_slots=lambda n, g, k: (n + g, n + min(k, g - 1))),
     wrong("rolled-back-one-too-few", "you count the new token as read; it was drawn after the pass and has not "
           "been read",
           valid_slots=lambda n, g, k: (n + k + 1, n + min(k, g - 1))),
     wrong("new-token-counted-in-both", "you count the new token as read, by both; it was drawn after the pass",
           valid_slots=lambda n, g, k: (n + k + 1, n + k + 1)),
     *(wrong("new-token-counted-once", "you count the new token as read, by " + whose + ", and have lost the draft "
             "model's last draft token: neither has been read", valid_slots=slots) for whose, slots in (
           ("the target", lambda n, g, k: (n + k + 1, n + k)),
           ("the draft model", lambda n, g, k: (n + k, n + k + 1)))),
     wrong("draft-missing-last-accepted", "where all draft tokens were accepted the draft model has made the last one "
           "and never read it: its cache lacks a token, the text stays exact, and fewer draft tokens are accepted",
           valid_slots=lambda n, g, k: (n + k, n + k)),
     wrong("draft-not-rolled-back", "the draft model's cache still holds rejected draft tokens: it drafts for another "
           "text; nothing is wrong but the speed", valid_slots=lambda n, g, k: (n + k, n + g - 1)),
     *(wrong("neither-rolled-back", "both caches still hold rejected draft tokens",
             valid_slots=lambda n, g, k, more=more: (n + g, n + g - 1 + more)) for more in (0, 1)),
     *(wrong("one-slot-too-few", "you give up a slot that still holds text, of " + whose + ": " + why,
               valid_slots=slots) for whose, why, slots in (
           ("the draft model", "its last draft token is missing only where all were accepted",
            lambda n, g, k: (n + k, n + k - 1)),
           ("the draft model", LAST, lambda n, g, k: (n + k, n + min(k, g - 1) - 1)),
           ("the target", LAST, lambda n, g, k: (n + k - 1, n + min(k, g - 1))),
           ("both", LAST, lambda n, g, k: (n + k - 1, n + k - 1)),
           ("both", LAST, lambda n, g, k: (n + k - 1, n + min(k, g - 1) - 1)))),
     wrong("both-cut-to-the-shorter", "where all were accepted you cut the target's cache to the draft model's: the "
           "target "
           "has read the last draft token, so it reads it again for nothing",
           valid_slots=lambda n, g, k: (n + min(k, g - 1), n + min(k, g - 1))),
     wrong("caches-swapped", "you have the two the wrong way round: it is the draft model that has not read the last "
           "draft token", valid_slots=lambda n, g, k: (n + min(k, g - 1), n + k)),
     wrong("everything-again", "you give up all that the round has read, and it must be read again",
           valid_slots=lambda n, g, k: (n - 1, n - 1)),
     wrong("accepted-again", "you give up the accepted draft tokens, which are text and have been read",
           valid_slots=lambda n, g, k: (n, n)),
     wrong("accepted-again", "you give up the draft model's accepted draft tokens, which are text and have been read",
           valid_slots=lambda n, g, k: (n + k, n))],
    ("Write down the text after the round. Which of its tokens has each model seen as input?",
     "The target has read all draft tokens, of which `accepted` are text. The draft model has read one fewer. Neither "
     "has read the new token.",
     "target: length + accepted. draft model: the same, but never more than length + gamma - 1"),
    [("nanospec.reader", "GPTReader.start", "self.cache.length", "self.cache.length"),
     ("nanospec.speculate", "one_round", "cache.length = text", "cache.length = text")],
    speed="accepted in the next round")
