"""What a drafter hands over and a rule verifies: the page to read before you write one of either.

A draft is n nodes for each of B texts. Node 0 is the text's last token, which the target has not
read yet. Every other node is a draft token that follows an earlier node, its parent. In a chain
node i follows node i - 1; in a `TreeDraft` (trees/) it may follow any earlier node.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from nanospec.cache import Cache
from nanospec.dice import Dice
from nanospec.errors import check_draft
from nanospec.text import Text


@dataclass
class Draft:
    """A chain for each of B texts.

    tokens: (B, n) int64, node 0 the text's last token; a node that a text lacks has any id but -1.
    q_draft: (B, n, V), the distribution that each node's token was drawn from, given all nodes
        before it; one-hot where a token was chosen and not drawn. Zeros at node 0, and at the last
        nodes of a text whose chain is shorter than n: the text lacks these nodes.
    steps: how many calls of a draft model it took.
    ValueError for other shapes. The numbers are not looked at, which would wait for the device.
    """

    tokens: Tensor
    q_draft: Tensor
    steps: int = 0

    def __post_init__(self):
        check_draft(self.tokens, self.q_draft)

    @property
    def parents(self) -> Tensor:
        """(B, n): the node that each follows; -1 for node 0 and for nodes that a text lacks."""
        above = torch.arange(-1, self.tokens.shape[1] - 1, device=self.tokens.device)
        return torch.where(self.exist, above, -1)

    @property
    def exist(self) -> Tensor:
        """(B, n) bool: which nodes a text has but node 0, which every text has."""
        return self.q_draft.sum(-1) > 0

    def placing(self, cache: Cache, kv_length: int) -> dict[str, Tensor]:
        """What the target's call is told of the nodes' places. Of a chain nothing: one by one."""
        return {}

    def path(self, accepted: Tensor) -> tuple[Tensor, Tensor]:
        """accepted (B,), the last node that was accepted -> path (B, n), the accepted nodes from
        node 0 on, of which only the first count + 1 are meant; and count (B,), how many of them
        are draft tokens, as node 0 is not.
        """
        nodes = torch.arange(self.tokens.shape[1], device=accepted.device)
        return nodes.expand_as(self.tokens), accepted

    def keep(self, cache: Cache, path: Tensor) -> None:
        """Bring the accepted nodes to the slots from the cache's length on. A chain's are there."""


Rule = Callable[[Draft, Tensor, Dice], tuple[Tensor, Tensor]]
"""(draft, p_target (B, n, V), dice) -> accepted (B,), the last node accepted, 0 for none, and token
(B,), which follows it. In a chain the last node is the number of accepted draft tokens."""


class Drafter(Protocol):
    """What proposes. It may keep anything from round to round, for each text, but no random number.

    most: how many tokens it drafts at most; a draft has most + 1 nodes at most.
    layers: the target's layers whose hidden states it reads; () for none.
    rule: what verifies its drafts where nothing else is asked for; None: `verify` of speculate.py.
    fixed: every draft has the same shape, so that a round can be compiled.
    What else it may say of itself: methods/index.py, and serving/rows.py.
    """

    most: int
    layers: Sequence[int] = ()
    rule: Rule | None = None
    fixed: bool = False

    @property
    def uniforms(self) -> int:
        """The most uniforms that a proposal takes, for each text."""
        return self.most

    def begin(self, text: Text) -> None:
        """A new batch: forget the one before. RequestError for a vocabulary that is not its own."""
        return          # a subclass with nothing to do here may leave it out

    def read(self, text: Text, rows: Sequence[int], hidden: Tensor | None) -> None:
        """These texts of the batch are new; their prompts were read, but for the last token.

        hidden: (len(rows), T, len(layers), C), the target's hidden states of every token it read.
        Raises RequestError where it cannot draft for this text.
        """
        return

    def propose(self, text: Text, sampling: Callable[[Tensor], Tensor], dice: Dice, kv_length: int,
                lag: int = 0) -> Draft:
        """A draft for every text.

        text: what is committed; it may even have shrunk since the last round.
        sampling: logits (B, ..., V) -> probabilities. kv_length: slots of a cache to read, at least
        length + most of every text. (Nobody checks that, since it would wait for the device.)
        lag: the most trailing tokens that its cache may lack, if other rounds left more.
        """

    def commit(self, draft: Draft, path: Tensor, count: Tensor, p_target: Tensor,
               hidden: Tensor | None, logits: Tensor) -> None:
        """How the round ended. path (B, n), count (B,): the accepted nodes, as Draft.path says.

        p_target and logits (B, n, V), hidden (B, n, len(layers), C): the target's, of every node.
        """
        return
