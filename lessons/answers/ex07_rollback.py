"""Exercise 7: roll two caches back.

difficulty 4 of 5, about 25 minutes, about 2 lines; after the lesson *A draft and a bonus*
check: python -m lessons.check 7
"""


def valid_slots(length, gamma, accepted):
    """How many slots of each cache still hold the text, after a round.

    length: committed tokens before the round.  gamma: draft tokens.  accepted: how many of them were accepted. Behind
    these one more token was committed, a replacement or a bonus.  Returns (target_slots, draft_slots), two ints.

    In the round the target read up to the last committed token, then all gamma draft tokens. The draft model read up
    to the last committed token, then each draft token but its last: that one it made and never read. Rejected draft
    tokens are no text. The new token is text, but nobody has read it. As many slots as possible: what you give up must
    be read again.

    Worked: length 10, gamma 4, accepted 2: the text is now 13 long, and both caches hold 12 tokens of it: (12, 12).
    """
    return length + accepted, length + min(accepted, gamma - 1)
