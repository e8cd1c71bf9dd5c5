"""Exercises 5 and 6: a block of guesses, and the token behind the kept ones."""

from collections.abc import Callable
from functools import lru_cache

import torch

from lessons.check.engine import Exercise, wrong
from lessons.check.seen import Failure, Seen, law_like, look, token, values
from nanospec.probs import probs
from nanospec.proof.tables import TableModel
from nanospec.proof.walk import target_distribution

TARGET, DRAFT = TableModel(3, 5, zeros=0), TableModel(3, 6, zeros=0)
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
    return [look(title, lambda dice: block(dice, **changes), target_distribution(TARGET, IDS, GAMMA + 1))]


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
           "first place", kept=lambda s: s.long().argmin(-1)),
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
    [("nanospec.speculate", "verify", "kept =", "kept =")])


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
           "there, so nothing is covered", next_weights=lambda k, p, q: (p[k] - q[min(k, len(q) - 1)]).clamp(min=0)),
     wrong("bonus-is-the-drafts", "the bonus token must come from the target's last row, not from the draft",
           next_weights=lambda k, p, q: q[-1] if k == len(q) else (p[k] - q[k]).clamp(min=0)),
     wrong("residual-is-target", "after a refusal you return the target's own law; what the draft covered must go",
           next_weights=lambda k, p, q: p[k]),
     wrong("resample-from-last-row", "the replacement comes from the target's last row; it belongs to the first "
           "refused guess", next_weights=lambda k, p, q: p[-1]),
     wrong("row-before", "you look one row too early: row `kept` is the first refused guess",
           next_weights=lambda k, p, q: p[k] if k == len(q) else (p[max(0, k - 1)] - q[max(0, k - 1)]).clamp(min=0)),
     wrong("replacement-from-the-last-row", "the target's row is the last one; it belongs to the first refused guess",
           next_weights=residual_at(lambda k: -1, lambda k: k)),
     wrong("residual-unclamped", "you left the negative differences in: cut them off at 0",
           next_weights=lambda k, p, q: p[k] if k == len(q) else p[k] - q[k]),
     wrong("row-behind", "the target's row is one too late: row `kept` is the first refused guess",
           next_weights=residual_at(lambda k: k + 1, lambda k: k)),
     wrong("bonus-one-row-early", "where all were kept you return the row of the last guess; the bonus stands one "
           "further",
           next_weights=lambda k, p, q: p[k - 1] if k == len(q) else (p[k] - q[k]).clamp(min=0))],
    ("Which place of the text is the new token for, and has the draft had its chance there?",
     "At the first refused guess, the residual. If none was refused there is no guess at the place behind: what has "
     "the draft covered there?",
     "if kept == gamma: the last row of p_target; else (p_target[kept] - q_draft[kept]).clamp(min=0)"),
    [("nanospec.speculate", "verify", "q_draft = F.pad", "residual =")])
EXERCISES = [FIRST_REFUSAL, BONUS]
