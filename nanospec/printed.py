"""All that is printed, and may come from a stranger: a model's text, a file's words, a name.

A model may write any byte, and so may a user. UNSAFE are those that move the cursor, colour the
screen, turn the direction of writing, or are forbidden in XML: the controls but newline and tab,
overrides of direction, half characters, no characters.
"""

import re

UNSAFE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
                    "\ufffe\uffff]")


def printable(text: str) -> str:
    """What is unsafe becomes its picture if it has one, as ESC has ␛, else U+FFFD."""
    def picture(found: re.Match) -> str:
        return chr(0x2400 + ord(found[0])) if found[0] < " " else "\ufffd"
    return UNSAFE.sub(picture, text)
