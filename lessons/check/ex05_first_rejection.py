"""Exercise 5: how many draft tokens are accepted."""

import re

import torch

from lessons.check.answered import counts
from lessons.check.engine import Exercise, wrong
from lessons.check.rounds import GAMMA, count, walked_round
from lessons.check.seen import Failure, Seen, values

PATTERNS = torch.tensor([[bool(i & 4), bool(i & 2), bool(i & 1)] for i in range(8)])


def counted(f, coins) -> list[int]:
    """The learner's answer, a number for each row."""
    return counts(f.accepted(coins), "accepted", len(coins))


def contract(f) -> None:
    counted(f, PATTERNS)


def worked(f) -> list[Seen]:
    rows = torch.tensor([[True, False, True], [False, True, True], [True, True, True]])
    return [values("the three rows of the docstring", lambda: dict(zip("abc", counted(f, rows))),
                   {"a": 1, "b": 0, "c": 3})]


def patterns(f) -> list[Seen]:
    return [values("three coins, True is accept",
                   lambda: dict(zip(map(str, PATTERNS.tolist()), counted(f, PATTERNS))),
                   {str(row): count(row) for row in PATTERNS.tolist()})]


def exact(f) -> list[Seen]:
    def of_one_row(coins: list[bool]) -> int:
        found = counted(f, torch.tensor([coins]))[0]
        if not 0 <= found <= GAMMA:
            raise Failure(f"accepted, for one row of {GAMMA} coins, must return a number in 0..{GAMMA}, not {found}")
        return found
    return walked_round("a draft of two tokens, cut where you say: the distribution of three tokens",
                        accepted_of=of_one_row)


def prefix(coins) -> torch.Tensor:
    return coins.long().cumprod(-1).sum(-1)


EXERCISE = Exercise(
    "ex05_first_rejection.py", ("accepted",), contract,
    {"worked number": worked, "values": patterns, "exact distribution": exact},
    [wrong("accept-after-a-rejection", "you count every coin that accepts; what follows a rejection was "
           "drafted for a text that no longer exists", accepted=lambda s: s.long().sum(-1)),
     wrong("rejected-kept", "you accept the whole draft whatever the coins say",
           accepted=lambda s: torch.full((len(s),), s.shape[1])),
     wrong("none-rejected-is-none-accepted", "where no coin rejects you say 0: `argmin` of a row that is all True is "
           "its first place", accepted=lambda s: s.long().argmin(-1)),
     wrong("last-index-where-none-is-rejected", "where no coin rejects you say gamma - 1, the last index: all gamma "
           "draft tokens are accepted there", accepted=lambda s: prefix(s).clamp(max=s.shape[1] - 1)),
     wrong("new-token-counted", "you count one too many: the replacement or bonus token is no draft token, and at the "
           "first rejection the index is the count", accepted=lambda s: prefix(s) + 1),
     wrong("one-too-few", "you count one too few: the index of the first rejection is already how many came before it",
           accepted=lambda s: prefix(s) - 1),
     wrong("wrong-dimension", "you multiply down the rows: these are different texts; multiply along each row, the "
           "last dimension", accepted=lambda s: s.long().cumprod(0).sum(-1)),
     wrong("lockstep", "you give all rows the count of the worst: every text has its own",
           accepted=lambda s: prefix(s).min().expand(len(s))),
     wrong("longest-run", "you count the longest run of accepting coins; only the one at the beginning counts",
           accepted=lambda s: torch.tensor([max(map(len, re.findall("1*", "".join(map(str, row)))))
                                            for row in s.long().tolist()])),
     wrong("last-product-only", "you take the last of the running products, which says whether all were accepted: add "
           "them up", accepted=lambda s: s.all(-1).long()),
     wrong("only-first-test-counts", "you stop after the first coin: 0 or 1",
           accepted=lambda s: s[:, 0].long()),
     wrong("up-to-the-last-accept", "you count up to the last coin that says accept; the first rejection ends the "
           "draft", accepted=lambda s: (s.long() * torch.arange(1, s.shape[1] + 1)).amax(-1)),
     wrong("rejections-counted", "you count the rejected, not the accepted", accepted=lambda s: (~s).long().sum(-1)),
     wrong("all-or-nothing", "you accept all or none: the prefix before the first rejection is good",
           accepted=lambda s: s.all(-1).long() * s.shape[1])],
    ("Which draft tokens were made for a text that still exists?",
     "A running product over a row of zeros and ones stays 1 until the first 0.",
     "coins.long().cumprod(-1), then the sum of every row"),
    [("nanospec.speculate", "verify", "accepted =", "accepted =")])
