"""What a drafter hands over and a rule judges: the page to read before writing a drafter or a rule.

A draft is n rows for each of B texts. Row 0 is the last committed token, which the target has not read yet. Every other
row is a draft token that stands behind its parent's. A chain is the tree in which row i hangs from row i - 1.

    1 - 2 - 4       parents [-1, 0, 1, 1, 2]: two draft tokens, 2 and 3, stand behind row 1, and 4 behind row 2.
        3           Siblings stand in the order in which they were drawn.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from nanospec.cache import Cache, LanguageModel
from nanospec.dice import Dice
from nanospec.errors import RequestError
from nanospec.probs import Sampling
from nanospec.text import Text

MOST_ROWS = 4096        # of a draft; more would need masks of gigabytes


class Draft(NamedTuple):
    """tokens: (B, n) int64, row 0 the last committed token.
    q_draft: (B, n, V), the distribution that each row was drawn from, given its path and its elder siblings. It is
        one-hot where nothing was drawn, and zeros in row 0 and in rows that a text lacks.
    parents: (B, n) int64, parents[b, i] < i, and -1 for row 0 and for rows that text b lacks. None: a chain.
    steps: calls of a draft model that it took.
    there: (N,) int64, the rows that no text lacks, as b n + i: the target reads no others. None: it reads all.
    """

    tokens: Tensor
    q_draft: Tensor
    parents: Tensor | None = None
    steps: int = 0
    there: Tensor | None = None

    def ancestors(self) -> Tensor | None:
        """(B, n, n) bool: [b, i, j] says that row j is row i or an ancestor of it. A target's row sees just these.

        None of a chain, where every row sees all before it.
        """
        if self.parents is None:
            return None
        n, device = self.tokens.shape[1], self.tokens.device
        count = torch.arange(n, device=device)
        reach = torch.eye(n, device=device) + (self.parents[:, :, None] == count)       # itself and its parent
        for _ in range((n - 1).bit_length()):
            reach = (reach @ reach).clamp(max=1)                                        # twice as far
        return reach.bool()

    def path(self, accepted: Tensor, ancestors: Tensor | None) -> tuple[Tensor, Tensor]:
        """accepted (B,), the last row that was accepted -> the rows from the root to it, and how many draft tokens they
        are: (B, n), whose first count + 1 mean something, and count (B,). ancestors: None of a chain.
        """
        if ancestors is None:
            return torch.arange(self.tokens.shape[1], device=accepted.device).expand_as(self.tokens), accepted
        on_path = ancestors[torch.arange(len(accepted), device=accepted.device), accepted]          # (B, n)
        # A parent stands before its child, so the rows of the path, as they stand, go from the root down.
        return (~on_path).long().argsort(dim=-1, stable=True), on_path.sum(-1) - 1

    def of_text(self, b: int) -> tuple[list[int], list[int], Tensor]:
        """Tokens, parents and q_draft (n, V) of one text. Waits for the device."""
        n = self.tokens.shape[1]
        parents = list(range(-1, n - 1)) if self.parents is None else self.parents[b].tolist()
        return self.tokens[b].tolist(), parents, self.q_draft[b]

    @staticmethod
    def nothing(text: Text) -> "Draft":
        """Row 0 alone: the round is a step of plain decoding."""
        return Draft(text.last(1), torch.zeros(len(text.tokens), 1, text.vocab_size, device=text.tokens.device))

    @staticmethod
    def of(trees: Sequence["Tree"], text: Text) -> "Draft":
        """A tree for each text, padded to one size. No token was drawn, each was chosen: every q_draft is one-hot."""
        device = text.tokens.device
        tokens = padded([tree.tokens for tree in trees], 0, device)
        q_draft = torch.zeros(*tokens.shape, text.vocab_size, device=device)
        q_draft.scatter_(2, tokens[:, :, None], 1.0)[:, 0] = 0
        if all(tree.parents == list(range(-1, tokens.shape[1] - 1)) for tree in trees):
            return Draft(tokens, q_draft)
        parents = padded([tree.parents for tree in trees], -1, device)
        q_draft[:, 1:] *= (parents[:, 1:, None] >= 0)
        return Draft(tokens, q_draft, parents, there=rows_there([len(tree.tokens) for tree in trees], device))


class Tree:
    """A draft of one text, built row by row."""

    def __init__(self, token: int):
        self.tokens, self.parents = [token], [-1]

    def add(self, parent: int, token: int) -> int:
        """A draft token behind row `parent`; its own row."""
        self.tokens.append(token)
        self.parents.append(parent)
        return len(self.tokens) - 1

    def find(self, parent: int, token: int) -> int | None:
        """The eldest draft token `token` behind row `parent`; None if there is none."""
        same = (row for row, above in enumerate(self.parents) if above == parent and self.tokens[row] == token)
        return next(same, None)

    def behind(self, row: int, tokens: Sequence[int]) -> int:
        """Put `tokens` one after the other behind `row`, and give back the last row. A row that is there is shared."""
        for token in tokens:
            child = self.find(row, token)
            row = self.add(row, token) if child is None else child
        return row


class Drafter(Protocol):
    """Who proposes. It may keep what it likes from round to round, for every row, but never a random number.

    size: the most rows of a draft, row 0 among them.
    layers: the target's layers whose features it reads; () for none.
    columns: the most uniforms that a proposal takes.
    unread: so many of a text's last tokens may be new to it. After its own rounds these are the replacement or bonus
        token, and the last draft token, which it has drawn but not read. MergedDrafter says more.
    """

    size: int
    layers: Sequence[int] = ()
    unread: int = 2

    @property
    def columns(self) -> int:
        return self.size - 1

    def share(self, target: LanguageModel, cache: Cache) -> Callable:
        """The target of a new text, and its cache: for a drafter made of the target's layers, which may write there
        behind the committed text. What it returns is called in the target's place, and answers as the target would.
        """
        return target

    def begin(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        """These rows of `text` hold new requests, whose prompts have been read but for their last token.

        features: (len(rows), T, len(layers), C), the target's own for every token it has read of them.
        Raises RequestError where it cannot draft for this text.
        """
        return          # said aloud, this is a default: who has nothing to do here may leave the method out

    def move(self, rows: Sequence[int], count: int) -> None:
        """The text has `count` rows from now on: what stood in row rows[i] stands in row i. rows[i] >= i.
        `begin` says what stands in the others. Who keeps nothing for each row has nothing to do.
        """
        return

    def propose(self, text: Text, sampling: Sampling, dice: Dice, upto: int) -> Draft:
        """A draft for every row of `text`. upto: slots of a cache to read, at least length + size - 1 of every row.
        With fewer a draft token would not see itself. Nobody looks, because a look would wait for the device.

        The text may have shrunk since the last round: what is committed is `text`, and nothing else.
        """

    def commit(self, draft: Draft, accepted: Tensor, p_target: Tensor, features: Tensor | None) -> None:
        """How the round ended, in every row. accepted (B,): the last row accepted. p_target (B, n, V).

        features (B, n, len(layers), C): what the target put out for every row of the draft. In a merged drafter, rows
        of others that were accepted stand behind its own, so these may be more than it has proposed.
        """
        return


Rule = Callable[[Draft, Tensor, Dice], tuple[Tensor, Tensor]]
"""(draft, p_target (B, n, V), dice) -> accepted (B,), the last row accepted, and token (B,), which follows it.

In a tree the last row determines the path; in a chain it is the number of accepted draft tokens."""


def padded(rows: Sequence[list[int]], filling: int, device) -> Tensor:
    """Rows of different lengths -> (B, the longest)."""
    n = max(map(len, rows))
    return torch.tensor([row + [filling] * (n - len(row)) for row in rows], device=device)


def rows_there(counts: Sequence[int], device) -> Tensor | None:
    """`there` of drafts in which text b has the first counts[b] rows of as many as the longest."""
    n = max(counts)
    return None if n == min(counts) else torch.tensor(
        [b * n + i for b, count in enumerate(counts) for i in range(count)], device=device)


def chain_parents(counts: Sequence[int], device) -> Tensor | None:
    """`parents` of the same drafts, if they are chains."""
    return None if max(counts) == min(counts) else padded([[*range(-1, count - 1)] for count in counts], -1, device)


def check_size(rows: int, what: str) -> int:
    """The rows of a draft; RequestError if there are no draft tokens, or more than anyone could verify."""
    if rows < 2:
        raise RequestError(f"{what} must be at least 1, got {rows - 1}")
    if rows > MOST_ROWS:
        raise RequestError(f"{what}: a draft has at most {MOST_ROWS - 1} tokens, asked for {rows - 1}")
    return rows
