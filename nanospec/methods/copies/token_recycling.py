"""Token recycling: what the target held likely after a token is drafted when it comes again.

Luo et al. 2024, Token Recycling (arXiv 2408.08696). A call of the target says after every token
that it reads which others were likely to follow, and all but one are thrown away. Here the few
likeliest are kept, by the token before them. They make a tree of one shape:

    table   the  -> cat dog         topology [-1, 0, 0, 1, 1, 2]:   the - cat - sat
            cat  -> sat ran                                             |      ran
            dog  -> ran sat                                             dog - ran

So a draft token knows only the token before it, and a draft costs no draft model. The target reads
rejected draft tokens, too, and what it says of them is kept as well.

It is lossless because nothing is drawn: a draft follows from the text and the target's earlier
answers, and every q_draft is one-hot. It needs the logits, since at temperature 0 p_target has no
runner-up.

Left out: a table that is kept from request to request, as in the paper. An earlier request of the
same seed has seen this one's dice (memory.py). And what may follow the tokens of the prompt, of
which no logits are computed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nanospec.draft import Draft
from nanospec.methods.trees.node_rule import verify_tree
from nanospec.methods.trees.shapes import check_topology
from nanospec.methods.trees.tree_draft import CopyingDrafter, Tree
from nanospec.text import Text


class TokenRecycling(CopyingDrafter):
    """Drafts a tree of one shape, less the nodes of which nothing is known.

    topology: as of TreeDrafter; the i-th child of a node is the i-th likeliest token after it.
    likeliest: for every text, token -> the likeliest after it, in this order.
    At the end of a round it waits for the device, since the target's answers become lists.
    """

    takes, learns, per_row = "shape", "tokens", ("likeliest",)
    rule = staticmethod(verify_tree)

    def __init__(self, topology: Sequence[int]):
        self.topology = check_topology(topology)
        self.most = len(self.topology) - 1
        self.width = max(self.topology.count(parent) for parent in self.topology[1:])
        self.likeliest: dict[int, dict[int, list[int]]] = {}

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """New requests: nothing is known."""
        for b in rows:
            self.likeliest[b] = {}

    def tree(self, b: int, ids: list[int]) -> Tree:
        """What is known to follow the last token, and what is known to follow that."""
        tree, nodes = Tree(ids[-1]), {0: 0}         # nodes: of the topology -> of this tree
        for node, parent in enumerate(self.topology[1:], 1):
            rank = self.topology[:node].count(parent)
            known = self.likeliest[b].get(tree.tokens[nodes[parent]], []) if parent in nodes else []
            if rank < len(known):
                nodes[node] = tree.add(nodes[parent], known[rank])
        return tree

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None, logits: Tensor) -> None:
        """Keep what the target holds likely after every token that it has read."""
        likeliest = logits.topk(min(self.width, logits.shape[-1])).indices          # (B, n, width)
        exist = draft.exist
        exist[:, 0] = True
        tokens = torch.where(exist, draft.tokens, -1)
        for b, nodes in enumerate(torch.cat([tokens[:, :, None], likeliest], 2).tolist()):
            self.likeliest[b] |= {token: found for token, *found in nodes if token >= 0}
