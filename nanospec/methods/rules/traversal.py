"""Traversal verification: a draft tree is judged from its leaves to its root.

Weng et al. 2025 (arXiv 2505.12398); rebuilt from the idea, not from their code. The node rule
(node_rule.py) judges every draft token alone, from the root on. Here a token with a low ratio
p_target / q_draft can be saved by those after it. On every table walked, no fewer tokens are
expected. On a chain it is block.py. Where no token was drawn it is the node rule.

Each node has two numbers for what is still to come. `chance`: how probable it is that the node
will be accepted. `left`: the distribution of the token after it, if it is. In the beginning the
root's are 1 and p_target. A node's first child x was drawn from q_draft. It gets min(1, chance
left(x) / q_draft(x)), and p_target after it.

Claim: from then on, a node is accepted with probability `chance`, and if so, the next token comes
from `left`.
Proof. Let the claim be true for all nodes after this one, and for this node with a child fewer.
1. Without children, the node flips one coin, and the next token is drawn from `left`. So the claim
   is true.
2. With children: the first is x with q_draft(x). It is accepted with min(1, chance left(x) /
   q_draft(x)).
3. So x comes next, as a draft token, with min(q_draft(x), chance left(x)).
4. Missing is max(0, chance left - q_draft). Let S be its total. Then the total of step 3 is chance
   - S.
5. In the other S + 1 - chance of all cases, this child is rejected, and the rule is back at the
   node.
6. The node gets a new `left`, missing / S, and a new `chance`, S / (S + 1 - chance). It has a child
   fewer.
7. So it is accepted in step 6 with probability S in all, and then x comes next with missing(x).
8. Steps 3 and 7 together: x comes next with chance left(x). That is the claim.
The root's `chance` stays 1, so the text has the target's distribution.

Left out: batches, a branch for every decision. `each_text` runs it text by text.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from nanospec.dice import Dice
from nanospec.draft import Draft, Rule
from nanospec.errors import check_scored
from nanospec.methods.trees.tree_draft import TreeDraft, of_text


OfOneText = Callable[[list[int], list[int], Tensor, Tensor, Dice], tuple[int, Tensor]]


def each_text(rule: OfOneText) -> Rule:
    """A rule for one text, (tokens, parents, q_draft (n, V), p_target (n, V), dice) -> (node,
    what is left (V,)), as a rule for B.

    It waits for the device at every coin, in every text: how a coin falls says which one is next.
    """
    def rule_for_all(draft: Draft, p_target: Tensor, dice: Dice) -> tuple[Tensor, Tensor]:
        check_scored(draft, p_target, Draft, TreeDraft)
        alone = [dice.of_row(b) for b in range(len(p_target))]
        ends = [rule(*of_text(draft, b), p_target[b], die) for b, die in enumerate(alone)]
        accepted = torch.tensor([node for node, _ in ends], device=p_target.device)
        token = torch.cat([die.pick(left[None]) for die, (_, left) in zip(alone, ends)])
        dice.column = max(die.column for die in alone)      # after all that was handed out
        return accepted, token
    return rule_for_all


@each_text
def verify_traversal(tokens: list[int], parents: list[int], q_draft: Tensor, p_target: Tensor,
                     dice: Dice) -> tuple[int, Tensor]:
    """The last node that is accepted, and the distribution of the token that follows it.

    One text: n nodes; q_draft (n, V), p_target (n, V). Asks the dice for at most n - 1 coins; the
    rule for B texts then draws the token.

    Example: a chain of two draft tokens, both token 0; p_target [.5, .5] and q_draft [.8, .2]
    everywhere. The chances are .625 and .39, so both are accepted with .39. If not, [0, .1125] is
    missing after the first: it is accepted with .1125 / (.1125 + .375) = .23, and token 1 follows.
    If not, [0, .3] is missing after the root: token 1 it is.
    """
    left, chance, node = list(p_target), [p_target.new_ones(())] * len(tokens), 0
    untried = [[child for child, parent in enumerate(parents) if parent == old]
               for old in range(len(tokens))]
    while True:
        if untried[node]:                                        # down, to the eldest that is left
            child = untried[node].pop(0)
            x = tokens[child]
            chance[child] = (chance[node] * left[node][x] / q_draft[child][x]).clamp(max=1)
            node = child
        elif node == 0 or dice.flip(chance[node].view(1, 1)):
            return node, left[node]
        else:                                                       # rejected: back to its parent
            rejected, node = node, parents[node]
            missing = (chance[node] * left[node] - q_draft[rejected]).clamp(min=0)
            total = missing.sum()
            if total > 0:                                   # else the chance is 0, or p = q up to
                left[node] = missing / total                # rounding: 0 / 0, and still certain
            chance[node] = (total / (total + (1 - chance[node]))).nan_to_num(1.0)
