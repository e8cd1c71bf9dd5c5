"""Several drafters for one text: their drafts are joined into one tree, and one target call verifies all of it.

Miao et al. 2023, SpecInfer (arXiv 2305.09781): the merged token tree of several small models. Here any drafters may
join. A draft model may be good at prose, for example, and a copier is good at what stood there before.

A token that two drafters share has one row, and the subtrees of both follow that row.
Siblings stand in the order in which they were drawn, the first drafter's first.
Every row keeps the q_draft of its own drafter.
If both drafters have drawn the shared token, it has a second row, with the second q_draft, and nothing follows it.

Claim: the text is lossless.
Proof.
1. The children of a row are drawn given the path to that row. Which drafter drew the path does not matter.
2. So each row's token was drawn from the row's q_draft, and no draw is missing among the siblings.
3. The node rule of trees/node_rule.py asks for no more than this.

Claim: the second row of a token x is always rejected.
Proof.
1. The second row is tried only when the first was rejected. So less was left of x than the first q_draft(x).
2. That q_draft was then taken away from what was left. Of x this leaves max(0, a negative number) = 0.
3. No later rejection adds to x. So the second row is accepted with probability 0.

Claim: the second row is needed all the same.
Proof.
1. When the second row is rejected, the second q_draft is taken away from what is left, like that of any other draw.
2. Without the row, the second q_draft would be taken away after some draws and not after others.
3. Then it would depend on the drawn token whether the draw is counted, and the text would be wrong.
A one-hot q_draft takes away x alone, and nothing is left of x. So a token that was not drawn needs no second row.

Left out: drawing from the second q_draft without what the first has drawn. This would save the second rows.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter
from nanospec.errors import RequestError, check_gamma
from nanospec.text import Text
from nanospec.trees.draft import Tree, TreeDraft, of_text, padded
from nanospec.trees.node_rule import verify_tree


class MergedDrafter(Drafter):
    """A drafter made of others, each an object of its own.

    Put drafters that copy after drafters that draw: then a shared token takes no second row.
    A round may accept what one drafted and another did not, so each is told that a whole path may be new to it.
    Example: the chain 5 6 was drawn, and the chain 5 7 was copied. The tree is 5, with 6 and 7 after it. If 5 7 was
    drawn too, there is a fourth row, the second one of 5.
    """

    rule, per_row = staticmethod(verify_tree), ("drafters",)

    def __init__(self, drafters: Sequence[Drafter]):
        if not drafters or len(set(map(id, drafters))) < len(drafters):
            raise RequestError("a merged drafter needs one drafter or more, and none of them twice: each remembers "
                               "what it has drafted")
        self.drafters = list(drafters)
        self.size = check_gamma(sum(drafter.size - 1 for drafter in drafters), "the draft tokens of all together")
        self.layers = sorted({layer for drafter in drafters for layer in drafter.layers})
        self.deepest = max(drafter.size for drafter in drafters)        # no path is longer than its drafter's draft

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
        self.drafts = [drafter.propose(text, sampling, dice, kv_length, lag) for drafter in self.drafters]
        q_draft = torch.cat([draft.q_draft for draft in self.drafts], 1)        # in the widest of their dtypes
        trees, origins, rows_of = zip(*[self._join(b) for b in range(len(q_draft))])
        tokens = padded([tree.tokens for tree in trees], 0, q_draft.device)
        parents = padded([tree.parents for tree in trees], -1, q_draft.device)
        q_draft = _rows(q_draft, padded(origins, 0, q_draft.device))            # of padding: the root's, zeros
        self.rows = [list(each) for each in zip(*rows_of)]
        return TreeDraft(tokens, q_draft, parents, sum(draft.steps for draft in self.drafts))

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor, hidden: Tensor | None) -> None:
        """Tell each drafter how the round ended, as if the draft had been its own.

        The drafter's own rows come first. The accepted rows of others, which it has to know too, are put after them.
        """
        paths = [rows[:length + 1] for rows, length in zip(path.tolist(), count.tolist())]
        for drafter, own, rows_of in zip(self.drafters, self.drafts, self.rows):
            others = [[row for row in accepted if row not in rows] for rows, accepted in zip(rows_of, paths)]
            its_rows = [rows + more for rows, more in zip(rows_of, others)]
            its_path = [[rows.index(row) for row in accepted] for rows, accepted in zip(its_rows, paths)]
            at = padded(its_rows, 0, path.device).clamp(min=0)                  # its rows in the joined draft
            q_draft = F.pad(own.q_draft, (0, 0, 0, at.shape[1] - own.q_draft.shape[1]))
            its_hidden = self._hidden_of(drafter, hidden)
            drafter.commit(Draft(draft.tokens.gather(1, at), q_draft, own.steps), padded(its_path, 0, path.device),
                           count, _rows(p_target, at), None if its_hidden is None else _rows(its_hidden, at))

    def _hidden_of(self, drafter: Drafter, hidden: Tensor | None) -> Tensor | None:
        """The hidden states of those layers that this drafter reads."""
        if hidden is None or not drafter.layers:
            return None
        return hidden[:, :, [self.layers.index(layer) for layer in drafter.layers]]

    def _join(self, b: int) -> tuple[Tree, list[int], list[list[int]]]:
        """The tree of text b, and two maps.

        origin: for each row of the tree, its number among the rows of all drafts, one draft after the other.
        rows_of: for each drafter, where in the tree each of its own rows stands; -1 for a row that the text lacks.
        """
        tree, origin, rows_of, start = Tree(int(self.drafts[0].tokens[b, 0])), [0], [], 0
        for draft in self.drafts:
            its_tokens, its_parents, own = of_text(draft, b)
            drawn = (own.gather(1, draft.tokens[b][:, None])[:, 0] < 1).tolist()        # 1: it could be nothing else
            rows = [0]
            for i in range(1, len(its_tokens)):
                if its_parents[i] < 0:
                    rows.append(-1)
                    continue
                parent, token = rows[its_parents[i]], its_tokens[i]
                elder = tree.find(parent, token)
                if elder is None or drawn[i]:
                    row = tree.add(parent, token)
                    origin.append(start + i)
                rows.append(row if elder is None else elder)
            rows_of.append(rows)
            start += len(its_tokens)
        return tree, origin, rows_of


def _rows(of_all: Tensor, at: Tensor) -> Tensor:
    """Rows `at` (B, m) of (B, n, ...)."""
    return of_all[torch.arange(len(at), device=at.device)[:, None], at]
