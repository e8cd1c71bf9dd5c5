"""A draft model that guesses a tree: several tokens behind each of several guesses, a whole level in one pass.

Children drawn independently, as in SpecInfer (Miao et al. 2023, arXiv 2305.09781), or without replacement, as in
Sequoia (Chen et al. 2024, arXiv 2402.12374, section 4.2): no token is tried twice behind the same text.
Left out: several texts at once; joining the subtrees of siblings that drew the same token, as merged.py does.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.drafters.guesses import Tree
from nanospec.errors import RequestError
from nanospec.generate import Law, Text, check_vocabulary, prefill
from nanospec.model import GPT


class TreeDrafter:
    """A drafter of trees has these three methods, and `size`, the most rows that a tree of its can have.

    topology: parents of the rows, -1 for the root, which stands first; level by level, siblings in drawing order.

    independent: draw siblings each from the same law; else without replacement, each from what the earlier ones left.
    Example: topology [-1, 0, 0, 1] guesses two tokens, and one more behind the first of them.
    """

    def __init__(self, draft: GPT, topology: Sequence[int], independent: bool = False):
        if not topology or topology[0] != -1 or any(not 0 <= parent < row
                                                    for row, parent in enumerate(topology) if row):
            raise RequestError(f"a topology has -1 for its root and an earlier row for every other, got {topology}")
        self.draft, self.independent, self.size = draft, independent, len(topology)
        self.children = [[row for row, parent in enumerate(topology) if parent == old] for old in range(len(topology))]

    def begin(self, text: Text, vocab_size: int) -> None:
        """A new request, of one text, for a target of that vocabulary: forget the last one, read the prompt."""
        check_vocabulary(self.draft, vocab_size)
        self.cache, self.valid = prefill(self.draft, text), int(text.length) - 1

    def propose(self, text: Text, law: Law, dice: Dice) -> Tree:
        """Guesses behind the committed text, with the law that each was drawn from."""
        n, device = int(text.length), text.tokens.device
        tree = Tree([int(text.tokens[0, n - 1])], steps=1)
        self.cache.length = torch.tensor([self.valid], device=device)       # takes back what was not committed
        laws = {0: law(self.draft(text.tokens[:, self.valid:n], self.cache, n)[0, -1])}
        rows, level = {0: 0}, [0]                                           # rows: of the topology -> of the tree
        self.first, self.slots = n, {}                                      # slots: where a row of the tree was read
        while level:
            level = [row for old in level for row in self._draw(tree, old, rows, laws[rows[old]], dice)]
            level = [row for row in level if self.children[row]]            # a leaf's law is the target's business
            if level:
                here = [rows[row] for row in level]
                self.cache.length = torch.tensor([n + len(self.slots)], device=device)
                sees = self._sees(tree, here)
                depths = tree.depths()
                positions = torch.tensor([[n - 1 + depths[row] for row in here]], device=device)
                logits = self.draft(torch.tensor([[tree.tokens[row] for row in here]], device=device), self.cache,
                                    sees.shape[1], positions, sees[None].to(device))
                laws |= dict(zip(here, law(logits[0])))
                tree.steps += 1
        return tree

    def commit(self, path: Sequence[int], p_target: Tensor) -> None:
        """Rows `path` of the tree are text now; p_target (n, V) is what the target thought behind every row.

        What was read of the path stays in the cache; the replacement was never read.
        """
        read = [self.slots[row] for row in path if row in self.slots]
        self.valid = self.first + len(read)
        self.cache.length = torch.full_like(self.cache.length, self.first)
        if read != [*range(self.first, self.valid)]:                        # else it stands there already
            self.cache.keep(torch.tensor([read], device=self.cache.length.device))

    def _draw(self, tree: Tree, old: int, rows: dict[int, int], q_draft: Tensor, dice: Dice) -> list[int]:
        """Draw the children of one row of the topology; which of its rows they are."""
        drawn = []
        for row in self.children[old]:
            if q_draft.sum() == 0:
                break                                                       # all that it can guess is guessed
            token = int(dice.pick(q_draft[None]))
            rows[row] = tree.add(rows[old], token, q_draft)
            drawn.append(row)
            if not self.independent:
                q_draft = q_draft.index_fill(0, torch.tensor(token, device=q_draft.device), 0.0)
                q_draft = q_draft / q_draft.sum().clamp(min=torch.finfo(q_draft.dtype).tiny)
        return drawn

    def _sees(self, tree: Tree, here: list[int]) -> Tensor:
        """A slot for each of these rows, and what it sees, (rows, slots) bool: the text, its ancestors, itself."""
        for row in here:
            self.slots[row] = self.first + len(self.slots)
        sees = torch.zeros(len(here), self.first + len(self.slots), dtype=torch.bool)
        sees[:, :self.first] = True
        for i, row in enumerate(here):
            sees[i, [self.slots[ancestor] for ancestor in tree.path(row)]] = True
        return sees
