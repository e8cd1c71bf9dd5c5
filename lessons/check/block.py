"""Exercises 5 to 8: a block of guesses, the token behind it, the caches, the laws it is judged under."""

from collections.abc import Callable
from functools import lru_cache, partial

import torch

from lessons.check.engine import Exercise, Failure, Row, Seen, law_like, look, token, values, wrong
from nanospec.probs import probs
from nanospec.proof.catchers import expected_kept
from nanospec.proof.exact import TableModel, plain_law, walk

TARGET, DRAFT = TableModel(3, 5, zeros=0), TableModel(3, 6, zeros=0)
TARGET4, DRAFT4 = TableModel(4, 3), TableModel(4, 4)
IDS, GAMMA = (1, 0), 2


@lru_cache(maxsize=None)
def logits_of(model, ids: tuple[int, ...]) -> torch.Tensor:
    return model(torch.tensor([ids]))[0, -1]


@lru_cache(maxsize=None)
def law_of(model, ids: tuple[int, ...]) -> torch.Tensor:
    return probs(logits_of(model, ids))


def coin(x: int, p_target, q_draft) -> float:
    return min(1.0, float(p_target[x] / q_draft[x]))


def next_law(kept: int, p_target, q_draft):
    """What exercise 6 asks for."""
    if kept == len(q_draft):
        return p_target[kept]
    left = (p_target[kept] - q_draft[kept]).clamp(min=0)
    return left if left.sum() > 0 else p_target[kept]


def count(survives: list[bool]) -> int:
    """What exercise 5 asks for."""
    return [*survives, False].index(False)


def block(dice, target=TARGET, draft=DRAFT, ids=IDS, gamma=GAMMA, kept_of: Callable = count,
          next_of: Callable = next_law, law: Callable | None = None) -> tuple[int, ...]:
    """One round without caches, then the target alone, up to gamma + 1 tokens."""
    def behind(model, tokens):
        return law(logits_of(model, (*ids, *tokens))) if law else law_of(model, (*ids, *tokens))

    drafted, q_draft = [], []
    for _ in range(gamma):
        q_draft.append(behind(draft, drafted))
        drafted.append(dice.pick(q_draft[-1]))
    p_target = [behind(target, drafted[:i]) for i in range(gamma + 1)]
    kept = kept_of([dice.flip(coin(x, p, q)) for x, p, q in zip(drafted, p_target, q_draft)])
    new = (*drafted[:kept], dice.pick(next_of(kept, torch.stack(p_target), torch.stack(q_draft))))
    while len(new) < gamma + 1:
        new += (dice.pick(behind(target, new)),)
    return new


def block_law(title: str, **changes) -> list[Seen]:
    return [look(title, lambda dice: block(dice, **changes), plain_law(TARGET, IDS, GAMMA + 1))]


# 5. the first refusal

PATTERNS = torch.tensor([[bool(i & 4), bool(i & 2), bool(i & 1)] for i in range(8)])


def kept_contract(f) -> None:
    found = f.kept(PATTERNS.clone())
    if law_like(found, (8,), "kept").long().ne(found).any():
        raise Failure(f"kept must return whole numbers, got {found.tolist()}")


def kept_values(f) -> list[Seen]:
    return [values("three coins, True where the guess survived",
                   lambda: dict(zip(map(str, PATTERNS.tolist()), f.kept(PATTERNS.clone()).tolist())),
                   {str(row): count(row) for row in PATTERNS.tolist()})]


def kept_law(f) -> list[Seen]:
    def counted(survives: list[bool]) -> int:
        return token(f.kept(torch.tensor([survives]))[0], GAMMA + 1, "kept, for one row,")
    return block_law("a block of two guesses cut where you say: the law of three tokens", kept_of=counted)


FIRST_REFUSAL = Exercise(
    "ex05_first_refusal.py", ("kept",), kept_contract,
    {"worked number": lambda f: [values("the three rows of the docstring", lambda: dict(zip("abc", f.kept(
        torch.tensor([[True, False, True], [False, True, True], [True, True, True]])).tolist())),
        {"a": 1, "b": 0, "c": 3})],
     "values": kept_values, "exact distribution": kept_law},
    [wrong("keep-after-a-refusal", "you count every survivor; what stands behind a refusal was guessed for a text "
           "that no longer exists", kept=lambda s: s.long().sum(-1)),
     wrong("rejected-kept", "you keep the whole block whatever the coins say",
           kept=lambda s: torch.full((len(s),), s.shape[1])),
     wrong("none-refused-is-none-kept", "where no coin falls you say 0: `argmin` of a row that is all True is its "
           "first "
           "place", kept=lambda s: s.long().argmin(-1)),
     wrong("only-first-test-counts", "you stop after the first coin: 0 or 1",
           kept=lambda s: s[:, 0].long()),
     wrong("up-to-the-last-survivor", "you count up to the last survivor; the first refusal ends the block",
           kept=lambda s: (s.long() * torch.arange(1, s.shape[1] + 1)).amax(-1)),
     wrong("refusals-counted", "you count the refused, not the kept", kept=lambda s: (~s).long().sum(-1)),
     wrong("all-or-nothing", "you keep all or none: the prefix before the first refusal is good",
           kept=lambda s: s.all(-1).long() * s.shape[1])],
    ("Which guesses were made for a text that still exists?",
     "A running product over a row of zeros and ones stays 1 until the first 0.",
     "survives.long().cumprod(-1), then the sum of every row"),
    [("nanospec.speculate", "verify")])


# 6. the bonus token

BLOCKS = {"worked example": (torch.tensor([[.5, .5], [.9, .1]], dtype=torch.float64),
                             torch.tensor([[.8, .2]], dtype=torch.float64))}


def bonus_contract(f) -> None:
    p_target, q_draft = BLOCKS["worked example"]
    for kept in (0, 1):
        law_like(f.next_weights(kept, p_target.clone(), q_draft.clone()), (2,), "next_weights")


def bonus_law(f) -> list[Seen]:
    def weights(kept, p_target, q_draft):
        found = law_like(f.next_weights(kept, p_target, q_draft), (3,), "next_weights")
        return found if found.sum() > 0 or bool((found < 0).any()) else p_target[kept]      # p = q: never refused
    return block_law("a block of two guesses and your token: the law of three tokens", next_of=weights)


def bonus_worked(f) -> list[Seen]:
    p_target, q_draft = BLOCKS["worked example"]
    right = {0: [0, .3], 1: [.9, .1]}

    def shares(kept):
        found = law_like(f.next_weights(kept, p_target.clone(), q_draft.clone()), (2,), "next_weights")
        return [float(one / found.sum()) for one in found]
    return [values(f"kept {kept}, as shares of their total", lambda kept=kept: dict(zip("01", shares(kept))),
                   {name: one / sum(right[kept]) for name, one in zip("01", right[kept])}) for kept in (0, 1)]


def residual_at(row_p: Callable, row_q: Callable) -> Callable:
    def next_weights(kept, p, q):
        return p[kept] if kept == len(q) else (p[row_p(kept)] - q[row_q(kept)]).clamp(min=0)
    return next_weights


BONUS = Exercise(
    "ex06_bonus.py", ("next_weights",), bonus_contract,
    {"worked number": bonus_worked, "exact distribution": bonus_law},
    [wrong("bonus-from-draft", "where all were kept you still take the draft's last law away; nothing was guessed "
          "there, "
           "so nothing is covered", next_weights=lambda k, p, q: (p[k] - q[min(k, len(q) - 1)]).clamp(min=0)),
     wrong("bonus-is-the-drafts", "the bonus token must come from the target's last row, not from the draft",
           next_weights=lambda k, p, q: q[-1] if k == len(q) else (p[k] - q[k]).clamp(min=0)),
     wrong("residual-is-target", "after a refusal you return the target's own law; what the draft covered must go",
           next_weights=lambda k, p, q: p[k]),
     wrong("resample-from-last-row", "the replacement comes from the target's last row; it belongs to the first "
           "refused "
           "guess", next_weights=lambda k, p, q: p[-1]),
     wrong("row-before", "you look one row too early: row `kept` is the first refused guess",
           next_weights=lambda k, p, q: p[k] if k == len(q) else (p[max(0, k - 1)] - q[max(0, k - 1)]).clamp(min=0)),
     wrong("row-behind", "the target's row is one too late: row `kept` is the first refused guess",
           next_weights=residual_at(lambda k: k + 1, lambda k: k)),
     wrong("bonus-one-row-early", "where all were kept you return the row of the last guess; the bonus stands one "
           "further",
           next_weights=lambda k, p, q: p[k - 1] if k == len(q) else (p[k] - q[k]).clamp(min=0))],
    ("Which place of the text is the new token for, and has the draft had its chance there?",
     "At the first refused guess, the residual. If none was refused there is no guess at the place behind: what has "
     "the "
     "draft covered there?",
     "if kept == gamma: the last row of p_target; else (p_target[kept] - q_draft[kept]).clamp(min=0)"),
    [("nanospec.speculate", "verify")])


# 7. rolling back

NEW = 4


class SlotCache:
    """A cache that holds the tokens themselves: a model answers for what stands in its slots, stale or not."""

    def __init__(self, model):
        self.model, self.slots, self.valid = model, [0] * 40, 0

    def read(self, tokens: list[int]) -> list[torch.Tensor]:
        """Write tokens behind the valid slots; the laws behind each of them."""
        self.slots[self.valid:self.valid + len(tokens)] = tokens
        self.valid += len(tokens)
        return [law_of(self.model, tuple(self.slots[:end + 1])) for end in range(self.valid - len(tokens), self.valid)]


def two_rounds(f, dice) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """Two rounds with caches, cut back as the learner says, and the target alone up to NEW tokens.

    Returns those, the guesses kept in the second round, and what the first one wrote.
    """
    text, first, target, draft = list(IDS), (), SlotCache(TARGET), SlotCache(DRAFT)
    for _ in range(2):
        feed, drafted, q_draft = text[min(draft.valid, len(text) - 1):], [], []
        for _ in range(GAMMA):
            q_draft.append(draft.read(feed)[-1])
            drafted.append(dice.pick(q_draft[-1]))
            feed = drafted[-1:]
        p_target = target.read(text[min(target.valid, len(text) - 1):] + drafted)[-GAMMA - 1:]
        kept = count([dice.flip(coin(x, p, q)) for x, p, q in zip(drafted, p_target, q_draft)])
        target.valid, draft.valid = slots_of(f, len(text), GAMMA, kept)
        text += [*drafted[:kept], dice.pick(next_law(kept, p_target, q_draft))]
        first = first or tuple(text[len(IDS):])
    while len(text) < len(IDS) + NEW:
        text.append(dice.pick(law_of(TARGET, tuple(text))))
    return tuple(text[len(IDS):len(IDS) + NEW]), kept, first


def slots_of(f, length: int, gamma: int, kept: int) -> tuple[int, int]:
    found = f.valid_slots(length, gamma, kept)
    if not isinstance(found, (tuple, list)) or len(found) != 2 or not all(type(n) is int and n >= 0 for n in found):
        raise Failure(f"valid_slots must return two ints, 0 or more; it returned {found!r:.80}")
    return tuple(found)


def rollback_law(f) -> list[Seen]:
    return [look(f"two rounds with caches: the law of {NEW} tokens", lambda dice: two_rounds(f, dice)[0],
                 plain_law(TARGET, IDS, NEW))]


def rollback_pace(f) -> list[Seen]:
    """A draft that reads a stale slot guesses for another text: nothing is wrong but the number of guesses kept."""
    def kept() -> dict:
        law, _ = walk(lambda dice: two_rounds(f, Row(dice))[1:])
        return {"guesses kept": sum(weight * n for (n, _), weight in law.items())}
    return [values("the second round, on average", kept, {"guesses kept": kept_at_best()})]


@lru_cache(maxsize=None)
def kept_at_best() -> float:
    law, _ = walk(lambda dice: first_of(Row(dice)))
    return sum(weight * expected_kept(TARGET, DRAFT, [*IDS, *first], GAMMA) for first, weight in law.items())


def first_of(dice) -> tuple[int, ...]:
    """What a first round writes; nothing is carried into it."""
    written = ()

    def next_of(kept, p_target, q_draft):
        nonlocal written
        written = kept
        return next_law(kept, p_target, q_draft)
    new = block(dice, next_of=next_of)
    return new[:written + 1]


def rollback_values(f) -> list[Seen]:
    cases = {f"length {length}, gamma {gamma}, kept {kept}": (length, gamma, kept)
             for length, gamma in ((10, 4), (7, 1), (3, 3)) for kept in range(gamma + 1)}
    return [values(f"slots of the {whose}'s cache that need not be read again",
                   lambda side=side: {name: slots_of(f, *case)[side] for name, case in cases.items()},
                   {name: length + min(kept, gamma - side) for name, (length, gamma, kept) in cases.items()})
            for side, whose in enumerate(("target", "draft"))]


ROLLBACK = Exercise(
    "ex07_rollback.py", ("valid_slots",), lambda f: slots_of(f, 10, 4, 2) and None,
    {"worked number": lambda f: [values("length 10, gamma 4, kept 2", lambda: dict(zip(
        ("target", "draft"), slots_of(f, 10, 4, 2))), {"target": 12, "draft": 12})],
     "exact distribution": rollback_law, "guesses kept in the next round": rollback_pace,
     "nothing read twice": rollback_values},
    [wrong("target-not-rolled-back", "the target's cache still holds the refused guesses",
           valid_slots=lambda n, g, k: (n + g, n + min(k, g - 1))),
     wrong("rolled-back-one-too-few", "you count the new token as read; it was drawn after the pass, nobody has read "
           "it",
           valid_slots=lambda n, g, k: (n + k + 1, n + min(k, g - 1))),
     wrong("new-token-counted-in-both", "you count the new token as read, by both; it was drawn after the pass",
           valid_slots=lambda n, g, k: (n + k + 1, n + k + 1)),
     wrong("draft-missing-last-accepted", "where all guesses stood the draft has made the last one and never read it: "
           "its cache lacks a token, the text stays exact, and fewer guesses are kept",
           valid_slots=lambda n, g, k: (n + k, n + k)),
     wrong("draft-not-rolled-back", "the draft's cache still holds refused guesses: it guesses for another text; "
           "nothing "
           "is wrong but the speed", valid_slots=lambda n, g, k: (n + k, n + g - 1)),
     wrong("neither-rolled-back", "both caches still hold refused guesses",
           valid_slots=lambda n, g, k: (n + g, n + g - 1)),
     wrong("everything-again", "you give up all that the round has read, and it must be read again",
           valid_slots=lambda n, g, k: (n - 1, n - 1)),
     wrong("kept-guesses-again", "you give up the kept guesses, which are text and have been read",
           valid_slots=lambda n, g, k: (n, n))],
    ("Write down the text after the round. Which of its tokens has each model seen as input?",
     "The target has read all guesses, of which `kept` are text. The draft has read one guess fewer. Neither has read "
     "the new token.",
     "target: length + kept. draft: the same, but never more than length + gamma - 1"),
    [("nanospec.speculate", "ModelDrafter"), ("nanospec.speculate", "chain_round")])


# 8. temperature and top-k

LOGITS = torch.tensor([[0.0, 1.0, 2.0, 3.0], [2.0, -1.0, float("-inf"), 0.5], [5.0, 4.9, -3.0, 0.0]]).double()
SETTINGS = [(1.0, None), (0.7, None), (2.0, 3), (0.7, 2), (1.0, 1), (0.0, None), (0.0, 2), (1.3, 9)]


def warp_contract(f) -> None:
    law_like(f.law(LOGITS[0].clone(), 1.0, None), (4,), "law")


def warp_values(f) -> list[Seen]:
    return [values(f"logits {[round(x, 1) for x in logits.tolist()]}, temperature {t:g}, top_k {k}",
                   lambda logits=logits, t=t, k=k: dict(enumerate(
                       law_like(f.law(logits.clone(), t, k), (4,), "law").tolist())),
                   dict(enumerate(probs(logits, t, k).tolist()))) for t, k in SETTINGS for logits in LOGITS]


def warp_worked(f) -> list[Seen]:
    logits = torch.tensor([1.0, 3.0], dtype=torch.float64).log()
    return [values(f"logits [0, log 3], temperature {t:g}, top_k {k}",
                   lambda t=t, k=k: dict(enumerate(law_like(f.law(logits.clone(), t, k), (2,), "law").tolist())),
                   dict(enumerate(right)))
            for t, k, right in ((1, None, (.25, .75)), (.5, None, (.1, .9)), (0, None, (0, 1)), (1, 1, (0, 1)))]


def warp_law(f) -> list[Seen]:
    def law(logits):
        return law_like(f.law(logits.clone(), 0.7, 2), (4,), "law")
    return [look("a block of two guesses, both models through your law: temperature 0.7, top_k 2",
                 lambda dice: block(dice, TARGET4, DRAFT4, law=law),
                 plain_law(TARGET4, IDS, GAMMA + 1, temperature=0.7, top_k=2))]


def warped(logits, temperature, top_k, warm=lambda x, t: x / t, kept=lambda k: k, last=lambda x: x.softmax(-1)):
    if temperature == 0:
        return probs(logits, 0)
    logits = warm(logits, temperature)
    if top_k is not None and kept(top_k) < len(logits):
        logits = logits.masked_fill(logits < logits.topk(kept(top_k)).values[-1], float("-inf"))
    return last(logits)


def not_renormalised(logits, temperature, top_k):
    plain = warped(logits, temperature, None)
    return plain * (warped(logits, temperature, top_k) > 0)


def zero_logits(logits, temperature, top_k):
    kept = warped(logits, temperature, top_k) > 0
    return (logits / temperature).where(kept | (top_k is None), 0.0).softmax(-1) if temperature else probs(logits, 0)


WARP = Exercise(
    "ex08_warp.py", ("law",), warp_contract,
    {"worked number": warp_worked, "values": warp_values, "exact distribution": warp_law},
    [wrong("temperature-multiplied", "you multiply by the temperature; a low one must make the law sharper, so divide",
           law=partial(warped, warm=lambda x, t: x * t)),
     wrong("temperature-forgotten", "the temperature changes nothing: it must divide the logits before the softmax",
           law=partial(warped, warm=lambda x, t: x)),
     wrong("top-k-forgotten", "top_k changes nothing", law=partial(warped, kept=lambda k: 99)),
     wrong("top-k-one-more", "you keep one token too many", law=partial(warped, kept=lambda k: k + 1)),
     wrong("top-k-not-renormalised", "what is left after top-k must add up to 1 again", law=not_renormalised),
     wrong("masked-with-zero", "you set the other logits to 0; a logit of 0 is no small one: -inf is",
           law=zero_logits),
     wrong("zero-temperature-nan", "at temperature 0 you divide by 0: make it a one-hot at the greatest logit",
           law=lambda x, t, k: warped(x / t, 1, k) if t else (x / torch.tensor(0.0)).softmax(-1)),
     wrong("zero-temperature-is-one", "at temperature 0 you leave the law as it is: it must be a one-hot",
           law=lambda x, t, k: warped(x, t or 1, k)),
     wrong("softmax-twice", "you softmax what is a law already: that flattens it",
           law=partial(warped, last=lambda x: x.softmax(-1).softmax(-1)))],
    ("In which order: temperature, top-k, softmax? Which of them must see logits?",
     "Temperature 0 apart, as a one-hot. Otherwise divide; find the k-th greatest logit; what is below becomes -inf, "
     "and "
     "the softmax does the rest.",
     "logits / temperature; smallest = logits.topk(top_k).values[-1]; logits.masked_fill(logits < smallest, -inf); "
     "softmax"),
    [("nanospec.probs", "probs")])
EXERCISES = [FIRST_REFUSAL, BONUS, ROLLBACK, WARP]
