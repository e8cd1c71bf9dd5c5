"""A tree of guesses: several futures of one text, sharing what they have in common.

Row 0 is the last committed token, which the target has not read yet; every other row is a guess behind its parent's.
A chain is a tree in which everybody has one child.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Tree:
    """tokens[i], and parents[i] < i (row 0 has -1). Children of one parent stand in the order in which they were drawn.

    q_draft[i]: (V,), the law that row i was drawn from, given its path and its earlier siblings; None if it was not
    drawn but chosen, with no chance in it: the law is then certain of it. Row 0 has None.
    """

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    q_draft: list[Tensor | None] = field(default_factory=lambda: [None])
    steps: int = 0                      # calls of a draft model that it took

    def add(self, parent: int, token: int, q_draft: Tensor | None = None) -> int:
        """A guess behind row `parent`; its own row."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.q_draft.append(q_draft)
        return len(self.tokens) - 1

    def children(self, row: int) -> list[int]:
        return [i for i, parent in enumerate(self.parents) if parent == row]

    def path(self, row: int) -> list[int]:
        """The rows from the root's child down to `row`; [] for the root."""
        rows = []
        while row > 0:
            rows.insert(0, row)
            row = self.parents[row]
        return rows

    def depth(self, row: int) -> int:
        return len(self.path(row))

    def sees(self) -> Tensor:
        """(n, n) bool: a row sees itself and its ancestors."""
        seen = torch.eye(len(self.tokens), dtype=torch.bool)
        for row, parent in enumerate(self.parents):
            if parent >= 0:
                seen[row] |= seen[parent]
        return seen

    def law_of(self, row: int, like: Tensor) -> Tensor:
        """q_draft[row], or, for a guess that was chosen, certainty; as `like` in size and dtype."""
        if self.q_draft[row] is not None:
            return self.q_draft[row].to(like)
        return torch.zeros_like(like).index_fill_(0, torch.tensor(self.tokens[row], device=like.device), 1.0)
