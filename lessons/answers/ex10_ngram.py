"""Exercise 10: a draft that costs nothing: copy what came next the last time.

difficulty 3 of 5, about 25 minutes, about 6 lines; after the lesson *Good where it matters*
check: python -m lessons.check 10
"""


def propose(text, gamma, longest):
    """Draft tokens copied from the text itself.

    text: list of ints.  Take its last n tokens, with n = longest first, then shorter, down to 1. If the same n tokens
    occur earlier in the text, propose what followed them there, at most gamma tokens. Of several places take the
    latest. The end of the text itself is not an earlier place.  Returns a list of ints, [] if there is nothing to copy.

    Worked: text [7, 8, 9, 7, 8, 5, 7, 8], gamma 2, longest 2: the latest earlier 7, 8 was followed by [5, 7].
    """
    for n in range(min(longest, len(text) - 1), 0, -1):
        for start in range(len(text) - n - 1, -1, -1):
            if text[start:start + n] == text[-n:]:
                return text[start + n:start + n + gamma]
    return []
