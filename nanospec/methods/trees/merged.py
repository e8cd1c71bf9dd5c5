"""Several drafters for one text: their drafts are one tree, which one target call verifies.

Miao et al. 2023, SpecInfer (arXiv 2305.09781): the merged token tree of several small models. Here
any drafters may join. A draft model may be good at prose, for example, and a copier is good at what
stood there before.

A token that two drafters share has one row, and the subtrees of both follow that row.
Siblings stand in the order in which they were drawn, the first drafter's first.
Every row keeps the q_draft of its own drafter.
If both drafters have drawn the shared token, it has a second row, with the second q_draft, and
nothing follows it.

Claim: the text is lossless.
Proof.
1. The children of a row are drawn given the path to that row. Which drafter drew the path does not
   matter.
2. So each row's token was drawn from the row's q_draft, and no draw is missing among the siblings.
3. The node rule of methods/trees/node_rule.py asks for no more than this.

Claim: the second row of a token x is always rejected.
Proof.
1. The second row is tried only when the first was rejected. So less was left of x than the first
   q_draft(x).
2. That q_draft was then taken away from what was left. Of x this leaves max(0, a negative number) =
   0.
3. No later rejection adds to x. So the second row is accepted with probability 0.

Claim: the second row is needed all the same.
Proof.
1. When the second row is rejected, the second q_draft is taken away from what is left, like that of
   any other draw.
2. Without the row, the second q_draft would be taken away after some draws and not after others.
3. Then it would depend on the drawn token whether the draw is counted, and the text would be wrong.
A one-hot q_draft takes away x alone, and nothing is left of x. So a token that was not drawn needs
no second row.

Left out: drawing from the second q_draft without what the first has drawn. This would save the
second rows.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.errors import RequestError, check_gamma, check_has
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.tree_draft import Tree, TreeDraft, sent
from nanospec.text import Text


class MergedDrafter(Drafter):
    """A drafter made of others, each an object of its own.

    Put drafters that copy after drafters that draw: then a shared token takes no second row. (The
    last one is asked first: what copies reads the text, which costs least while the device has
    nothing to do.) It waits for the device once more than its drafters do: to join their drafts
    they are read, all together. A round may accept what one drafted and another did not, so each is
    told that a whole path may be new to it.
    Example: the chain 5 6 was drawn, and the chain 5 7 was copied. The tree is 5, with 6 and 7
    after it. If 5 7 was drawn too, there is a fourth row, the second one of 5.
    """

    rule, per_row = staticmethod(verify_tree), ("drafters",)

    def __init__(self, drafters: Sequence[Drafter]):
        for drafter in drafters if isinstance(drafters, Sequence) else [drafters]:
            check_has("each of the merged drafters", drafter, "a drafter", "propose",
                      "size", "layers")
        if not drafters or len(set(map(id, drafters))) < len(drafters):
            raise RequestError("a merged drafter needs one drafter or more, and none of them "
                               "twice: each remembers what it has drafted")
        self.drafters = list(drafters)
        self.size = check_gamma(sum(drafter.size - 1 for drafter in drafters),
                                "the draft tokens of all together")
        self.layers = sorted({layer for drafter in drafters for layer in drafter.layers})
        # No path is longer than its drafter's draft.
        self.deepest = max(drafter.size for drafter in drafters)

    @property
    def uniforms(self) -> int:
        return sum(drafter.uniforms for drafter in self.drafters)

    def begin(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """New requests, for all of them."""
        for drafter in self.drafters:
            drafter.begin(text, rows, self._hidden_of(drafter, hidden))

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> TreeDraft:
        """All their draft tokens after one root."""
        lag = max(lag, self.deepest)
        drafts = [drafter.propose(text, sampling, dice, kv_length, lag)
                  for drafter in self.drafters[::-1]]
        self.drafts = drafts[::-1]
        # In the widest of their dtypes.
        q_draft = torch.cat([draft.q_draft for draft in self.drafts], 1)
        trees, origins, rows_of = zip(*[self._join(*numbers) for numbers in self._read(q_draft)])
        tokens, parents, origin, *places = sent(
            q_draft.device, ([tree.tokens for tree in trees], 0),
            ([tree.parents for tree in trees], -1), (origins, 0),
            *((rows, 0) for rows in zip(*rows_of)))
        # Of every drafter, where its rows are in the joined draft.
        self.rows = [rows[:, :own.tokens.shape[1]] for rows, own in zip(places, self.drafts)]
        n = max(len(tree.tokens) for tree in trees)
        # Of padding: the root's.
        return TreeDraft(tokens[:, :n], _rows(q_draft, origin[:, :n]), parents[:, :n],
                         sum(draft.steps for draft in self.drafts))

    def _read(self, q_draft: Tensor) -> list[list[list[int]]]:
        """Of every text, of all rows of all drafts: tokens, parents, and which were drawn."""
        tokens = torch.cat([draft.tokens for draft in self.drafts], 1)
        parents = torch.cat([draft.parents for draft in self.drafts], 1)
        drawn = q_draft.gather(2, tokens[:, :, None])[:, :, 0] < 1  # 1: it could be nothing else
        return torch.stack([tokens, parents, drawn], 1).tolist()                # waits

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None) -> None:
        """Tell each drafter how the round ended, as if the draft had been its own.

        The drafter's own rows come first. The path is put after them, for the sake of those rows of
        it which others drafted: it has to know them, too.
        """
        for drafter, own, rows in zip(self.drafters, self.drafts, self.rows):
            n = path.shape[1]
            at = torch.cat([rows.clamp(min=0), path], 1)            # its rows in the joined draft
            is_own = path[:, :, None] == rows[:, None]              # (B, n, its rows)
            after = rows.shape[1] + torch.arange(n, device=path.device)
            own_path = torch.where(is_own.any(-1), is_own.long().argmax(-1), after)
            q_draft, own_hidden = F.pad(own.q_draft, (0, 0, 0, n)), self._hidden_of(drafter, hidden)
            drafter.commit(Draft(draft.tokens.gather(1, at), q_draft, own.steps), own_path, count,
                           _rows(p_target, at),
                           None if own_hidden is None else _rows(own_hidden, at))

    def _hidden_of(self, drafter: Drafter, hidden: Tensor | None) -> Tensor | None:
        """The hidden states of those layers that this drafter reads."""
        if hidden is None or not drafter.layers:
            return None
        return torch.stack([hidden[:, :, self.layers.index(layer)] for layer in drafter.layers], 2)

    def _join(self, tokens: list[int], parents: list[int],
              drawn: list[int]) -> tuple[Tree, list[int], list[list[int]]]:
        """The tree of one text, and two maps. tokens, parents, drawn: of all rows of all drafts, as
        `_read` has them.

        origin: for each row of the tree, its number among the rows of all drafts, one draft after
        the other.
        rows_of: for each drafter, where in the tree each of its own rows stands; -1 for a row that
        the text lacks.
        """
        tree, origin, rows_of, start = Tree(tokens[0]), [0], [], 0
        for draft in self.drafts:
            rows = [0]
            for i in range(start + 1, start + draft.tokens.shape[1]):
                if parents[i] < 0:
                    rows.append(-1)
                    continue
                parent, token = rows[parents[i]], tokens[i]
                elder = tree.find(parent, token)
                if elder is None or drawn[i]:
                    row = tree.add(parent, token)
                    origin.append(i)
                rows.append(row if elder is None else elder)
            rows_of.append(rows)
            start += draft.tokens.shape[1]
        return tree, origin, rows_of


def _rows(of_all: Tensor, at: Tensor) -> Tensor:
    """Rows `at` (B, m) of (B, n, ...)."""
    return of_all[torch.arange(len(at), device=at.device)[:, None], at]
