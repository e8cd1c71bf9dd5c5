"""Exercise 19: ragged commit: every text of a batch advances as far as its own draft was accepted.

difficulty 3 of 5, about 20 minutes, about 6 lines; after the lesson *Many requests*
check: python -m lessons.check 19
"""

import torch


def commit(tokens, length, draft, accepted, token):
    """Commit a round of B texts, each at its own pace.

    All are tensors of int64.  tokens (B, N): the texts, with room for gamma + 1 more tokens.  length (B,): how many
    tokens of each text are committed. What follows them in `tokens` has no meaning.
    draft (B, gamma + 1): column 0 is each text's last committed token, the others are its gamma draft tokens. gamma may
    be 0.
    accepted (B,): how many of these were accepted, 0 to gamma.  token (B,): the replacement or bonus token, which comes
    after the accepted ones.
    Returns the new tokens (B, N) and the new length (B,). Anything may follow each text's new length.

    Can you do it without a loop over the texts? A loop is correct, but it waits for a GPU B times.

    Worked: the texts 5 6 and 7 8 9, so length is [2, 3]. draft [[6, 1, 2], [9, 3, 4]], accepted [2, 0], token [11, 12].
    The texts are now 5 6 1 2 11 and 7 8 9 12, and the new length is [5, 4].
    """
    written = torch.cat([draft[:, 1:], token[:, None]], 1)              # (B, gamma + 1), whole drafts at first
    written = written.scatter(1, accepted[:, None], token[:, None])     # what follows it has no meaning
    places = length[:, None] + torch.arange(written.shape[1])
    return tokens.scatter(1, places, written), length + accepted + 1


def slots(length, n):
    """The cache slots that the next target call writes to, when it reads n tokens of each text: (B, n).

    length (B,): committed tokens of each text, including the newest one, which was drawn after the call and has not
    been read. The next call begins with it. Token i of a text belongs in slot i, counted from 0. The last call left
    rejected tokens in the slots from there on, and they are overwritten.

    Worked: length [5, 4], n 3: [[4, 5, 6], [3, 4, 5]].
    """
    return length[:, None] - 1 + torch.arange(n)
