"""Exercise 20: a block, drawn: each place is told which token was drawn before it.

difficulty 2 of 5, about 15 minutes, about 6 lines; after the lesson *A block at once*
check: python -m lessons.check 20
"""


def draw(last, logits, table, dice):
    """Draw the draft tokens of one block from left to right.

    last: the last token of the text, an int. The block follows it.
    logits: (gamma, V) float64 tensor. logits[k] is the block drafter's prediction for place k, whatever precedes.
    table: (V, V) float64 tensor. table[a] is added to the logits of the place after token a.
    dice: dice.pick(weights) -> int.
    Returns the draft tokens, a list of gamma ints, and q_draft: for each place the distribution (V,) that its token was
    drawn from, a list of gamma tensors. A distribution is a softmax of logits.

    Worked: last 0, logits [[0, 0], [0, 0]], table [[0, 1], [0, 0]]. The first place follows 0, so its sum is [0, 1]
    and its q_draft is [.27, .73]. If 0 was drawn there, the second place has [.27, .73] again. If 1 was drawn, it has
    [.5, .5].

    What is checked: the text of a whole round has the target's distribution, and the draft tokens have the
    distributions that follow from logits and table.
    """
    tokens, q_draft, before = [], [], last
    for own in logits:
        q_draft.append((own + table[before]).softmax(-1))
        before = dice.pick(q_draft[-1])
        tokens.append(before)
    return tokens, q_draft
