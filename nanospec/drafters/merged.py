"""Several drafters behind one text, their drafts joined into one tree: a target pass verifies the tokens of all.

Miao et al. 2023, SpecInfer (arXiv 2305.09781): the merged token tree of several small models. Here any drafters may
join: a draft model and a copier, say, of which one is good at prose and the other at what was said before.

A token that two of them share has one row, with both their subtrees behind it. That is allowed: a row's children are
drawn given its path alone, so whose path it was does not matter. Siblings stand in the order in which they were drawn,
the first drafter's first, and each keeps the q_draft of its own drafter. That is all the node rule asks for, so the
text is lossless.

What two of them have drawn keeps a coin for each. The second coin is a row of its own, with nothing behind it.
Claim: it always falls. The first fell, so p_target(x) < q_draft(x) and nothing is left of x.
Claim: it is needed all the same. When it falls, its q_draft is taken from what is left, as for any other token that its
drafter could have drawn. Without it the text is wrong: whether a draw is counted would depend on what was drawn.
A one-hot q_draft takes away x alone, which is gone, so a token that was not drawn needs no second row.

Left out: drawing from the second q_draft without what the first has drawn, which would spare those rows.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, Drafter, Tree, check_size, padded
from nanospec.errors import RequestError
from nanospec.probs import Sampling
from nanospec.text import Text


class MergedDrafter(Drafter):
    """A drafter made of others, each an object of its own.

    Those that copy stand best behind those that draw: what they share then takes no row. A round may accept what one
    drafted and another did not, so each is told how many of the last tokens may be new to it.
    Example: of a chain 5 6, drawn, and a chain 5 7, copied, the tree is 5, and 6 and 7 behind it. Were 5 7 drawn too,
    it would have a fourth row, the second coin for 5.
    """

    def __init__(self, drafters: Sequence[Drafter]):
        if not drafters or len(set(map(id, drafters))) < len(drafters):
            raise RequestError("a merged drafter needs one drafter or more, and none of them twice: each remembers "
                               "what it has drafted")
        self.drafters = list(drafters)
        self.size = check_size(1 + sum(drafter.size - 1 for drafter in drafters), "the draft tokens of all together")
        self.layers = sorted({layer for drafter in drafters for layer in drafter.layers})
        self.deepest = max(drafter.size for drafter in drafters)        # no path is longer than its drafter's draft

    @property
    def columns(self) -> int:
        return sum(drafter.columns for drafter in self.drafters)

    def begin(self, text: Text, rows: Sequence[int], features: Tensor | None) -> None:
        """New requests, for all of them."""
        for drafter in self.drafters:
            drafter.unread = max(drafter.unread, self.unread, self.deepest)
            drafter.begin(text, rows, self._features_of(drafter, features))

    def propose(self, text: Text, sampling: Sampling, dice: Dice, upto: int) -> Draft:
        """All their draft tokens behind one root."""
        self.drafts = [drafter.propose(text, sampling, dice, upto) for drafter in self.drafters]
        q_draft = torch.cat([draft.q_draft for draft in self.drafts], 1)        # in the widest of their dtypes
        joined = [self._join(b) for b in range(len(q_draft))]
        trees, origins, rows_of = zip(*joined)
        tokens = padded([tree.tokens for tree in trees], 0, q_draft.device)
        parents = padded([tree.parents for tree in trees], -1, q_draft.device)
        q_draft = _rows(q_draft, padded(origins, 0, q_draft.device))
        self.rows = [list(each) for each in zip(*rows_of)]
        return Draft(tokens, q_draft, parents, sum(draft.steps for draft in self.drafts))

    def commit(self, draft: Draft, accepted: Tensor, p_target: Tensor, features: Tensor | None) -> None:
        """Tell each of them how the round ended, as if the draft had been its own.

        Its own rows come first. Behind them stand the accepted tokens that others drafted: it has to know them, too.
        """
        device, paths = p_target.device, draft.path(accepted, draft.ancestors())
        paths = [path[:count + 1] for path, count in zip(paths[0].tolist(), paths[1].tolist())]
        for drafter, own, rows_of in zip(self.drafters, self.drafts, self.rows):
            n, parents, ends = own.tokens.shape[1], [], []
            others = [[row for row in path if row not in rows] for rows, path in zip(rows_of, paths)]
            longest = max(map(len, others))
            for b, (rows, path, more) in enumerate(zip(rows_of, paths, others)):
                last = max((i for i, row in enumerate(rows) if row in path), key=rows.__getitem__)  # its deepest there
                parents.append(own.of_text(b)[1] + [last, *range(n, n + longest - 1)][:len(more)]
                               + [-1] * (longest - len(more)))
                ends.append(n + len(more) - 1 if more else last)
            at = torch.tensor([rows + more + [0] * (longest - len(more)) for rows, more in zip(rows_of, others)],
                              device=device).clamp(min=0)                               # its rows in the joined draft
            its = Draft(draft.tokens.gather(1, at), F.pad(own.q_draft, (0, 0, 0, longest)),
                        torch.tensor(parents, device=device), own.steps)
            its_features = self._features_of(drafter, features)
            drafter.commit(its, torch.tensor(ends, device=device), _rows(p_target, at),
                           None if its_features is None else _rows(its_features, at))

    def _features_of(self, drafter: Drafter, features: Tensor | None) -> Tensor | None:
        """Of all layers' features those that this drafter reads."""
        if features is None or not drafter.layers:
            return None
        return features[:, :, [self.layers.index(layer) for layer in drafter.layers]]

    def _join(self, b: int) -> tuple[Tree, list[int], list[list[int]]]:
        """One text's tree, of each row which of all the drafts' rows it is, and for every drafter at which row of the
        tree each of its own rows stands, -1 for one that the text lacks.
        """
        tree, origin, rows_of, start = Tree(int(self.drafts[0].tokens[b, 0])), [0], [], 0
        for draft in self.drafts:
            its_tokens, its_parents, own = draft.of_text(b)
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
