"""Exercise 7: roll two caches back.

difficulty 4 of 5, about 25 minutes, about 2 lines; after the lesson *A draft and a bonus*
check: python -m lessons.check 7
"""

import torch


def valid_slots(length, gamma, accepted):
    """How many slots of each cache still hold the text, after a round.

    length: committed tokens before the round.  gamma: draft tokens.  accepted: how many of them were accepted. One more
    token was committed after these, a replacement or a bonus token.  Returns (target_slots, draft_slots), two ints.

    In the round the target read the text up to the last committed token, and then all gamma draft tokens. The draft
    model read the text and each draft token except the last, which it drew and never read. Rejected draft tokens are
    not part of the text. The new token is part of the text, but neither model has read it. Keep as many slots as
    possible, because everything that is given up must be read again.

    Worked: length 10, gamma 4, accepted 2: the text is now 13 long, and both caches hold 12 tokens of it: (12, 12).
    """
    raise NotImplementedError
