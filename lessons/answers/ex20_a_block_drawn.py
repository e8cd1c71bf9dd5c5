"""Exercise 20: a block, drawn: each place is told which token was drawn in front of it.

difficulty 2 of 5, about 15 minutes, about 6 lines; after the lesson *A block at once*
check: python -m lessons.check 20
"""


def draw(last, rows, table, dice):
    """Draw the draft tokens of one block from left to right.

    last: the last token of the text, an int. It stands in front of the block.
    rows: (gamma, V) float64 tensor of logits. Row k is what the block drafter says of place k, whatever stands before.
    table: (V, V) float64 tensor. table[a] is added to the logits of the place behind token a.
    dice: dice.pick(weights) -> int.
    Returns the draft tokens, a list of gamma ints, and q_draft: for each place the distribution (V,) that its token was
    drawn from, a list of gamma tensors. A distribution is a softmax of logits.

    Worked: last 0, rows [[0, 0], [0, 0]], table [[0, 1], [0, 0]]. The first place has logits [0, 1], because 0 stands
    in front of it, and q_draft [.27, .73]. If 0 was drawn there, the second place has [.27, .73] again. If 1 was drawn,
    it has [.5, .5].

    What is checked: the text of a whole round has the target's distribution, and the draft tokens are drawn as rows and
    table say.
    """
    tokens, q_draft, before = [], [], last
    for row in rows:
        q_draft.append((row + table[before]).softmax(-1))
        before = dice.pick(q_draft[-1])
        tokens.append(before)
    return tokens, q_draft
