"""A tree of one shape whose tokens are not drawn: every row is followed by its likeliest tokens,
the best one first.

Medusa (Cai et al. 2024, arXiv 2401.10774) drafts so, with a tree made from measured accuracies
(shapes.py). Blockwise parallel decoding (Stern et al. 2018, arXiv 1811.03115) does so with a chain:
at temperature 0, the longest prefix of best guesses that the target would have written.

No token is drawn, so every q_draft is one-hot, and a draft token x is accepted with what is left of
p_target(x). That is lossless for any choice of tokens. At temperature 0 drawing gives the best
child and then any others; here they are the next best.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from nanospec.dice import Dice
from nanospec.methods.trees.drawn import TreeDrafter


class TopTree(TreeDrafter):
    """Example: topology [-1, 0, 0, 1] proposes the two best, and the best one's best."""

    uniforms = 0                                            # no uniform is taken

    def odds(self, logits: Tensor, sampling: Callable[[Tensor], Tensor]) -> Tensor:
        """The draft model's own: at temperature 0, too, there is a second-best token."""
        return logits.softmax(-1)

    def _draw(self, left: Tensor, whose: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
        """The best that is left for some rows of a level, as TreeDrafter draws it."""
        best, token = left[:, whose].max(-1)
        left[:, whose] = left[:, whose].scatter(2, token[:, :, None], 0.0)
        return token, F.one_hot(token, left.shape[2]) * (best > 0)[:, :, None].to(left)
