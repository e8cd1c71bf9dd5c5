"""Traversal verification: a draft tree is judged from its leaves to its root.

Weng et al. 2025 (arXiv 2505.12398); rebuilt from the idea, not from their code. The node rule judges every draft token
alone, from the root on. Here a token without luck can be saved by what stands behind it, and on every table walked no
fewer tokens are expected. On a chain it is block.py. Where no token was drawn it is the node rule.

Every row makes a promise about all that is drawn and flipped behind it: the row stands with probability `chance`, and
then what follows it has the distribution `left`.
Claim: the promise can be kept.
Proof, child by child.
1. The eldest child x, drawn from q_draft, promises in turn to stand with min(1, chance left(x) / q_draft(x)). So x
   follows with min(q_draft(x), chance left(x)).
2. Still missing is (chance left - q_draft)+. Let its total be S. The child falls with probability 1 - (chance - S).
3. When it has fallen, the other children owe what is missing: the distribution (chance left - q_draft)+ / S, with
   the chance S / (S + 1 - chance). That is the same promise with a child less.
4. A row without children keeps its promise by one coin. The root's chance is always 1.

Left out: batches, a branch for every decision. `each_text` runs it text by text.
"""

from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import each_text


@each_text
def verify_traversal(tokens: list[int], parents: list[int], q_draft: Tensor, p_target: Tensor,
                     dice: Dice) -> tuple[int, Tensor]:
    """The last row of the path that stands, and the distribution of what follows it.

    One text: n rows; q_draft (n, V), p_target (n, V). Asks the dice for at most n - 1 coins; the rule for B texts then
    draws the token.

    Example: a chain of two draft tokens, both token 0; p_target [.5, .5] and q_draft [.8, .2] everywhere. The chances
    are .625 and .39, so with .39 both stand. If not, [0, .1125] is left behind the first: it stands with
    .1125 / (.1125 + .375) = .23, and token 1 follows. If not, [0, .3] is left behind the root, and token 1 is all.
    """
    left, chance, row = list(p_target), [p_target.new_ones(())] * len(tokens), 0
    untried = [[child for child, parent in enumerate(parents) if parent == old] for old in range(len(tokens))]
    while True:
        if untried[row]:                                                        # down, to the eldest that is left
            child = untried[row].pop(0)
            x = tokens[child]
            chance[child] = (chance[row] * left[row][x] / q_draft[child][x]).clamp(max=1)
            row = child
        elif row == 0 or dice.flip(chance[row].view(1, 1)):
            return row, left[row]
        else:                                                                   # it fell: back to its parent
            fell, row = row, parents[row]
            missing = (chance[row] * left[row] - q_draft[fell]).clamp(min=0)
            total = missing.sum()
            if total > 0:                                                       # else the chance is 0, or p = q up to
                left[row] = missing / total                                     # rounding: 0 / 0, and still certain
            chance[row] = (total / (total + (1 - chance[row]))).nan_to_num(1.0)
