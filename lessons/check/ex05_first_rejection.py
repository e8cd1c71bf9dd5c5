"""Exercise 5: how many draft tokens are accepted."""

import re
from collections.abc import Callable

import torch

from lessons.check import seeds
from lessons.check.answered import counts
from lessons.check.engine import Exercise, wrong
from lessons.check.rounds import GAMMA, count, walked_round
from lessons.check.seen import Failure, Seen, values

PATTERNS = torch.tensor([[bool(i & 4), bool(i & 2), bool(i & 1)] for i in range(8)])


def counted(f, coins) -> list[int]:
    """The learner's answer, a number for each row."""
    return counts(f.accepted(coins), "accepted", len(coins))


def contract(f) -> None:
    found = f.accepted(PATTERNS)
    if isinstance(found, torch.Tensor) and found.shape == PATTERNS.shape:
        raise Failure(f"accepted must return one number for each of {len(PATTERNS)} rows; it returned a row of "
                      f"{PATTERNS.shape[1]} for each: add up every row (not-added-up)", "not-added-up")
    counted(f, PATTERNS)


def worked(f) -> list[Seen]:
    rows = torch.tensor([[True, False, True], [False, True, True], [True, True, True]])
    return [values("the three rows of the docstring", lambda: dict(zip(map(str, rows.tolist()), counted(f, rows))),
                   dict(zip(map(str, rows.tolist()), (1, 0, 3))))]


def patterns(f) -> list[Seen]:
    return [values("three coins, True is accept",
                   lambda: dict(zip(map(str, PATTERNS.tolist()), counted(f, PATTERNS))),
                   {str(row): count(row) for row in PATTERNS.tolist()}),
            *(of_a_batch(f, f"{len(coins)} row{'s' * (len(coins) > 1)} of {coins.shape[1]}", coins)
              for coins in batches())]


def batches() -> list[torch.Tensor]:
    """Of one row and of many, of one coin and of more than a byte can count, by a seed."""
    draw = seeds.chance(5)

    def rows(gamma: int, accepted: list[int]) -> torch.Tensor:
        return torch.tensor([[i < k or i > k and draw.random() < .5 for i in range(gamma)] for k in accepted])
    return [rows(1, [1]), rows(1, [0]), rows(1, [0, 1, 1]), rows(3, [3, 1, 0, 3]), rows(5, [3]), rows(5, [5]),
            rows(6, [2, 6, 0, 5, 6, 1]), rows(2, [1] * 9), rows(300, [300, 0, 127, 128, 255, 256, 299, 1])]


def of_a_batch(f, title: str, coins: torch.Tensor) -> Seen:
    return values(f"{title}: how many are accepted", lambda: {
        f"row {b}": n for b, n in enumerate(counted(f, coins))},
        {f"row {b}": count(row) for b, row in enumerate(coins.tolist())})


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


def one_for_all(of_coins: Callable) -> Callable:
    return lambda s: of_coins(s).expand(len(s)).clone()


EXERCISE = Exercise(
    "ex05_first_rejection.py", ("accepted",), contract,
    {"worked number": worked, "values": patterns, "exact distribution": exact},
    [wrong("accept-after-a-rejection", "you count every coin that accepts; what follows a rejection was "
           "drafted for a text that no longer exists", accepted=lambda s: s.long().sum(-1)),
     wrong("rejected-kept", "you accept the whole draft whatever the coins say",
           accepted=lambda s: torch.full((len(s),), s.shape[1])),
     wrong("none-rejected-is-none-accepted", "where no coin rejects you say 0: of a row in which all is the same "
           "`argmin` and `argmax` give the first place", accepted=lambda s: s.long().argmin(-1)),
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
     wrong("counter-not-reset", "you go on counting where the row before ended: every row begins at 0",
           accepted=lambda s: prefix(s).cumsum(0)),
     wrong("batch-flattened", "you take the batch for one long row, and give its count to all: every row is a text of "
           "its own", accepted=one_for_all(lambda s: s.flatten().long().cumprod(0).sum())),
     wrong("first-row-for-all", "you look at the first row alone, and give its count to all: every row is a text of "
           "its "
           "own", accepted=one_for_all(lambda s: prefix(s)[0])),
     wrong("from-the-end", "you count from the end of each row: the draft is read from the front",
           accepted=lambda s: prefix(s.flip(-1))),
     wrong("one-byte", "you count in eight bits, where 128 draft tokens are -128: keep int64",
           accepted=lambda s: s.to(torch.int8).cumprod(-1).sum(-1, dtype=torch.int8)),
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
