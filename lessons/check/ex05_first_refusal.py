"""Exercise 5: what stands of a block."""

import torch

from lessons.check.block import GAMMA, count, walked_block
from lessons.check.engine import Exercise, wrong
from lessons.check.seen import Failure, Seen, token, values, weights_like

PATTERNS = torch.tensor([[bool(i & 4), bool(i & 2), bool(i & 1)] for i in range(8)])


def contract(f) -> None:
    found = f.kept(PATTERNS.clone())
    if weights_like(found, (8,), "kept").long().ne(found).any():
        raise Failure(f"kept must return whole numbers, got {found.tolist()}")


def worked(f) -> list[Seen]:
    rows = [[True, False, True], [False, True, True], [True, True, True]]
    return [values("the three rows of the docstring", lambda: dict(zip("abc", f.kept(torch.tensor(rows)).tolist())),
                   {"a": 1, "b": 0, "c": 3})]


def patterns(f) -> list[Seen]:
    return [values("three coins, True where the guess survived",
                   lambda: dict(zip(map(str, PATTERNS.tolist()), f.kept(PATTERNS.clone()).tolist())),
                   {str(row): count(row) for row in PATTERNS.tolist()})]


def exact(f) -> list[Seen]:
    def counted(survives: list[bool]) -> int:
        return token(f.kept(torch.tensor([survives]))[0], GAMMA + 1, "kept, for one row,")
    return walked_block("a block of two guesses cut where you say: the law of three tokens", accepted_of=counted)


EXERCISE = Exercise(
    "ex05_first_refusal.py", ("kept",), contract,
    {"worked number": worked, "values": patterns, "exact distribution": exact},
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
    [("nanospec.speculate", "verify", "accepted =", "accepted =")])
