"""Exercise 5: how many draft tokens are accepted."""

import torch

from lessons.check.answered import whole, wholes
from lessons.check.engine import Exercise, wrong
from lessons.check.rounds import GAMMA, count, walked_round
from lessons.check.seen import Failure, Seen, values

PATTERNS = torch.tensor([[bool(i & 4), bool(i & 2), bool(i & 1)] for i in range(8)])


def counts(f, coins) -> list[int]:
    """The learner's answer, a number for each row."""
    found = wholes(f.accepted(coins), "accepted")
    if len(found) != len(coins):
        raise Failure(f"accepted must return a number for each of {len(coins)} rows; it returned {len(found)}")
    return found


def contract(f) -> None:
    counts(f, PATTERNS)


def worked(f) -> list[Seen]:
    rows = torch.tensor([[True, False, True], [False, True, True], [True, True, True]])
    return [values("the three rows of the docstring", lambda: dict(zip("abc", counts(f, rows))),
                   {"a": 1, "b": 0, "c": 3})]


def patterns(f) -> list[Seen]:
    return [values("three coins, True is accept",
                   lambda: dict(zip(map(str, PATTERNS.tolist()), counts(f, PATTERNS))),
                   {str(row): count(row) for row in PATTERNS.tolist()})]


def exact(f) -> list[Seen]:
    def counted(coins: list[bool]) -> int:
        found = whole(counts(f, torch.tensor([coins]))[0], "accepted")
        if not 0 <= found <= GAMMA:
            raise Failure(f"accepted, for one row of {GAMMA} coins, must return a number in 0..{GAMMA}, not {found}")
        return found
    return walked_round("a draft of two tokens, cut where you say: the distribution of three tokens",
                        accepted_of=counted)


EXERCISE = Exercise(
    "ex05_first_rejection.py", ("accepted",), contract,
    {"worked number": worked, "values": patterns, "exact distribution": exact},
    [wrong("accept-after-a-rejection", "you count every coin that accepts; what follows a rejection was "
           "drafted for a text that no longer exists", accepted=lambda s: s.long().sum(-1)),
     wrong("rejected-kept", "you accept the whole draft whatever the coins say",
           accepted=lambda s: torch.full((len(s),), s.shape[1])),
     wrong("none-rejected-is-none-accepted", "where no coin rejects you say 0: `argmin` of a row that is all True is "
           "its first place", accepted=lambda s: s.long().argmin(-1)),
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
