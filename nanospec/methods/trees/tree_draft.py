"""A draft tree: a node may follow another than the one before it, and several may follow one.

    1 - 2 - 4       parents [-1, 0, 1, 1, 2]: nodes 2 and 3 both follow node 1, and node 4 follows
        3           node 2. Siblings stand in the order in which they were drawn.

The target reads all nodes in one call: a node's position is its depth, its slot is its number, and
it attends to the committed text, its ancestors and itself (Miao et al. 2023, SpecInfer, arXiv
2305.09781, section 4). The accepted path lies scattered in the cache and is moved together.
"""

from collections.abc import Callable, Sequence
from numbers import Integral

import torch
from torch import Tensor

from nanospec.cache import Cache
from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.errors import check_draft, check_numbers
from nanospec.text import Text


class TreeDraft(Draft):
    """As Draft, and parents (B, n) int64: parents[b, i] < i; -1 for node 0 and lacking nodes."""

    def __init__(self, tokens: Tensor, q_draft: Tensor, parents: Tensor, steps: int = 0):
        super().__init__(tokens, q_draft, steps)
        check_draft(tokens, parents)
        self._parents, self.ancestors = parents, ancestors_of(parents)

    @property
    def parents(self) -> Tensor:
        return self._parents

    def placing(self, cache: Cache, kv_length: int) -> dict[str, Tensor]:
        """Positions (B, n) and the attention mask (B, n, kv_length)."""
        return {"positions": cache.length[:, None] + self.ancestors.sum(-1) - 1,
                "attention_mask": tree_mask(cache, cache.length, self.ancestors, kv_length)}

    def path(self, accepted: Tensor) -> tuple[Tensor, Tensor]:
        """The last accepted node and its ancestors, the root first; how many draft tokens."""
        b = torch.arange(len(accepted), device=accepted.device)
        on_path = self.ancestors[b, accepted]                                     # (B, n)
        # A parent stands before its children, so the nodes of a path are in order as they stand.
        return (~on_path).long().argsort(stable=True), on_path.sum(-1) - 1

    def keep(self, cache: Cache, path: Tensor) -> None:
        """Copy slots length + path to length, length + 1, and so on, in every text."""
        b = torch.arange(len(path), device=path.device)[:, None]
        count = torch.arange(path.shape[1], device=path.device)
        to, source = cache.length[:, None] + count, cache.length[:, None] + path
        # Compiled code would copy whatever is written under two names: here kv, elsewhere k and v.
        if torch.compiler.is_compiling():
            for part in (*cache.k, *cache.v):
                part[b, to] = part[b, source]
        else:
            cache.kv[:, :, b, to] = cache.kv[:, :, b, source]


def ancestors_of(parents: Tensor) -> Tensor:
    """parents (B, n) -> (B, n, n) bool: [b, i, j]: node j is node i or an ancestor of it."""
    n, device = parents.shape[1], parents.device
    reach = torch.eye(n, device=device) + (parents[:, :, None] == torch.arange(n, device=device))
    for _ in range((n - 1).bit_length()):
        reach = (reach @ reach).clamp(max=1)                    # ancestors twice as far up
    return reach.bool()


def tree_mask(cache: Cache, start: Tensor, own: Tensor, kv_length: int) -> Tensor:
    """(B, T, kv_length) bool for nodes of a tree, which attend to all slots below `start` (B,).

    From there on, own (B, T, W) says what a node attends to: its column j is slot start + j.
    """
    B, T, W = own.shape
    count = torch.arange(max(W, kv_length), device=own.device)
    slots = (start[:, None] + count[:W])[:, None].expand(B, T, W)
    below = (count[:kv_length] < start[:, None])[:, None].expand(B, T, kv_length)
    return below.scatter(2, slots, own)


def of_text(draft: Draft, b: int) -> tuple[list[int], list[int], Tensor]:
    """Tokens, parents and q_draft (n, V) of text b. Waits for the device."""
    return draft.tokens[b].tolist(), draft.parents[b].tolist(), draft.q_draft[b]


class Tree:
    """The draft of one text while it grows, in plain lists: tokens and parents of its nodes."""

    def __init__(self, root: int):
        self.tokens, self.parents = [root], [-1]

    def add(self, parent: int, token: int) -> int:
        """A draft token after node `parent`; its own node. ValueError for no such node."""
        check_numbers(Integral, parent=parent, token=token)
        if not 0 <= parent < len(self.tokens):
            raise ValueError(f"a tree of {len(self.tokens)} nodes has no node {parent!r} for "
                             f"token {token!r} to follow")
        self.tokens.append(token)
        self.parents.append(parent)
        return len(self.tokens) - 1

    def find(self, parent: int, token: int) -> int | None:
        """The eldest child of node `parent` that is `token`; None if there is none."""
        same = (node for node, above in enumerate(self.parents) if above == parent
                and self.tokens[node] == token)
        return next(same, None)

    def extend(self, node: int, tokens: Sequence[int]) -> int:
        """Let `tokens` follow `node`, one by one; the last one's node. What is there is shared."""
        for token in tokens:
            child = self.find(node, token)
            node = self.add(node, token) if child is None else child
        return node


def drafts_of(trees: Sequence[Tree], text: Text) -> Draft:
    """A tree for each text, padded to one size. All was chosen: q_draft is one-hot."""
    tokens, parents = padded_tensor(text.tokens.device, ([tree.tokens for tree in trees], 0),
                                    ([tree.parents for tree in trees], -1))
    q_draft = torch.zeros(*tokens.shape, text.vocab_size, device=tokens.device)
    # Node 0's are zeros.
    q_draft.scatter_(2, tokens[:, :, None], (parents >= 0)[:, :, None].to(q_draft))
    if all(tree.parents == list(range(-1, len(tree.parents) - 1)) for tree in trees):
        return Draft(tokens, q_draft)
    return TreeDraft(tokens, q_draft, parents)


class CopyingDrafter(Drafter):
    """What drafters share that draw nothing: all follows from a text's tokens."""

    needs_draft_model = False

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        return drafts_of([self.tree(b, ids) for b, ids in enumerate(text.ids())], text)

    def tree(self, b: int, ids: list[int]) -> Tree:
        """What may follow the tokens of row b's text."""
        raise NotImplementedError


def padded_tensor(device: torch.device, *tables: tuple[Sequence[list[int]], int]) -> Tensor:
    """Tables of lists of different lengths, one for each text. The lists of a table are filled up
    with its number -> (tables, B, the longest).

    They go to the device together: each transfer has to wait for all that was asked of the device
    before.
    """
    n = max(len(numbers) for table, _ in tables for numbers in table)
    return torch.tensor([[numbers + [filling] * (n - len(numbers)) for numbers in table]
                         for table, filling in tables],
                        dtype=torch.int64, device=device)
