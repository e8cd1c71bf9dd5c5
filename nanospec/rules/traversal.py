"""Traversal verification: a tree of guesses, judged from its leaves to its root.

Weng et al. 2025 (arXiv 2505.12398); rebuilt from the idea, not from their code. The node rule judges every guess for
its own sake, from the root on; here a guess without luck can be saved by what stands behind it, and on every table
walked no fewer tokens are expected. On a chain it is block.py; where all guesses are chosen it is the node rule.

Why it is lossless. Every row makes a promise about all that is drawn and flipped behind it: the row stands with
probability `chance`, and then what follows it has the law `law`. Its eldest child x, drawn from q_draft, promises in
turn to stand with probability min(1, chance law(x) / q_draft(x)): so x follows with min(q_draft(x), chance law(x)).
Still missing is (chance law - q_draft)+, of the total S, and when the child has fallen, which it does with probability
1 - (chance - S), the others owe it: the law (chance law - q_draft)+ / S, with the chance S / (S + 1 - chance). That is
the same promise with a child less. A row without children keeps its own by a coin; the root's chance is always 1.

Left out: batches. One tree at a time, and a branch for every decision.
"""

from torch import Tensor

from nanospec.dice import Dice
from nanospec.drafters.guesses import Tree


def verify_traversal(tree: Tree, p_target: Tensor, dice: Dice) -> tuple[list[int], int]:
    """Which path of the tree stands, and which token follows it.

    p_target (n, V), the target's law behind every row -> path, the rows kept, from the root's child down; token, the
    replacement or the bonus. Asks the dice at most n times: a coin for every row but the root, and one draw.

    Example: a chain of two guesses, both token 0; p_target [.5, .5] and q_draft [.8, .2] everywhere. The chances are
    .625 and .39, so with .39 both stand. If not, [0, .1125] is left behind the first: it stands with
    .1125 / (.1125 + .375) = .23, and token 1 follows. If not, [0, .3] is left behind the root, and token 1 is all.
    """
    law, laws = list(p_target), tree.laws(p_target)
    chance = [p_target.new_ones(())] * len(law)
    untried = [tree.children(row) for row in range(len(law))]
    row = 0
    while True:
        if untried[row]:                                                        # down, to the eldest left
            child = untried[row].pop(0)
            x, q_draft = tree.tokens[child], laws[child]
            chance[child] = (chance[row] * law[row][x] / q_draft[x]).clamp(max=1)
            row = child
        elif row == 0 or dice.flip(chance[row].view(1, 1)):
            return tree.path(row), int(dice.pick(law[row][None]))
        else:                                                                   # it fell: back to its parent
            q_draft, row = laws[row], tree.parents[row]
            residual = (chance[row] * law[row] - q_draft).clamp(min=0)
            total = residual.sum()
            if total > 0:                                                       # else the chance is 0, or p = q up to
                law[row] = residual / total                                     # rounding: 0 / 0, and still certain
            chance[row] = (total / (total + (1 - chance[row]))).nan_to_num(1.0)
