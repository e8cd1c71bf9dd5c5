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

    def find(self, parent: int, token: int) -> int | None:
        """The eldest guess of `token` behind row `parent`; None if there is none."""
        return next((row for row in self.children(parent) if self.tokens[row] == token), None)

    def path(self, row: int) -> list[int]:
        """The rows from the root's child down to `row`; [] for the root."""
        rows = []
        while row > 0:
            rows.insert(0, row)
            row = self.parents[row]
        return rows

    def depths(self) -> list[int]:
        """How far each row is from the root."""
        found = [0]
        for parent in self.parents[1:]:
            found.append(found[parent] + 1)
        return found

    def sees(self) -> Tensor:
        """(n, n) bool: a row sees itself and its ancestors."""
        seen = torch.eye(len(self.tokens), dtype=torch.bool)
        for row, parent in enumerate(self.parents):
            if parent >= 0:
                seen[row] |= seen[parent]
        return seen

    def laws(self, like: Tensor) -> Tensor:
        """(n, V), as `like` in size and dtype: what every row was drawn from; for one that was chosen, certainty; for
        the root nothing.
        """
        laws, chosen = torch.zeros_like(like), [row for row, law in enumerate(self.q_draft) if row and law is None]
        drawn = {row: law for row, law in enumerate(self.q_draft) if law is not None}
        if drawn:
            laws[list(drawn)] = torch.stack(list(drawn.values())).to(like)
        laws[chosen, [self.tokens[row] for row in chosen]] = 1.0
        return laws
