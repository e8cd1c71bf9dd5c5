"""Prompts and texts as they are given to the judge, in files or by a server, and their tokens.
Nothing in them is taken on trust.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

from nanospec.dice import Dice
from nanospec.errors import RequestError, check_ids, one_line, quoted
from nanospec.files.paths import fetched, json_lines
from nanospec.files.tokenizer_json import FolderTokenizer
from nanospec.judge.endpoint import Endpoint, EndpointError
from nanospec.judge.rounding import Read
from nanospec.judge.sequential import drawn_by

MOST_BYTES = 2 ** 24    # of a file
LONGEST_TOKEN = 128     # characters, on average; a longer text is not cut into tokens
NOT_TEXT = "\ufffd"     # stands in a text for bytes that are no character


def given_in(path: Path, names: Sequence[str]) -> list[list[int] | str]:
    """Texts and lists of token ids: of a .jsonl file its lines, which may be objects that have them
    under one of these names, the first that is not empty; else the one text that the file is.
    """
    data = fetched(path, MOST_BYTES).read_bytes()
    if path.suffix != ".jsonl":
        try:
            return [data.decode("utf-8-sig")]
        except UnicodeDecodeError as error:
            raise RequestError(f"{path} is no text in UTF-8: {one_line(error)}") from error
    found: list[list[int] | str] = []
    for number, thing in json_lines(path, data):
        where = f"{path}, line {number}"
        if isinstance(thing, dict):
            had = [thing[name] for name in names if name in thing]
            if not had:
                raise RequestError(f"{where} has no text and no token ids: an object has them as "
                                   f"{' or '.join(names)}, got {quoted(thing)}")
            thing = next(filter(None, had), had[0])
        if not isinstance(thing, str):
            check_ids(where, thing, list)
        found.append(thing)
    if not found:
        raise RequestError(f"{path} is empty")
    return found


def prompt_of(text: str, tokenizer: Any) -> list[int]:
    """The tokens of a prompt, as engines have them: special tokens in it are such, and what begins
    a text is put in front where it is not there.
    """
    special = isinstance(tokenizer, FolderTokenizer)
    ids = tokenizer.encode_special(text) if special else tokenizer.encode(text)
    begin = [*tokenizer.begin]
    return ids if ids[:len(begin)] == begin else begin + ids


def answers(endpoint: Endpoint, prompts: Sequence[str | list[int]]) -> list[list[int] | str]:
    """What a server writes: token ids, or where it does not name them the text."""
    def answer(number: int) -> list[int] | str:
        one = copy(endpoint)
        one.prompt = prompts[number]
        with suppress(EndpointError):
            return one.ids(Dice([0]))
        return one.complete(0)["text"]

    endpoint.instead = "Give its texts in a file"
    endpoint.complete(0)                # finds out what it takes, once for all
    return drawn_by(answer, range(len(prompts)), endpoint.at_once)


def cleaned(text: list[int] | str) -> list[int] | str:
    """A text up to what is no character, and without the blanks at its end: an editor adds some."""
    if not isinstance(text, str):
        return text
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.split(NOT_TEXT)[0].rstrip()


def tokens_of(prompt: list[int], text: list[int] | str, config: Any, tokenizer: Any) -> list[int]:
    if isinstance(text, str) and len(text) > config.context * LONGEST_TOKEN:
        raise RequestError(f"a text of {len(text):,} characters is too long for a context of "
                           f"{config.context} tokens")
    ids = with_special(text, tokenizer) if isinstance(text, str) else text
    wrong = next((one for one in [*prompt, *ids] if not 0 <= one < config.vocab_size), None)
    if wrong is not None:
        raise RequestError(f"token {one_line(wrong)} is not one of the target's, 0 to "
                           f"{config.vocab_size - 1}: another model's?")
    if len(prompt) + len(ids) > config.context:
        raise RequestError(f"{len(prompt)} prompt tokens and {len(ids)} of a text exceed the "
                           f"context of {config.context}")
    return ids


def with_special(text: str, tokenizer: Any) -> list[int]:
    """The tokens of a text in which a special token's name stands for it, as after decoding."""
    special = tokenizer.special
    names = "|".join(map(re.escape, sorted(special, key=len, reverse=True)))
    pieces = re.split(f"({names})", text) if names else [text]
    return [i for piece in filter(None, pieces)
            for i in ([special[piece]] if piece in special else tokenizer.continued(piece))]


def without_half(text: list[int] | str, own: Read, other: Read, spellings: Sequence[bytes | None]
                 ) -> Read:
    """What was read of a text, without its last token where that of the other text only goes on:
    blanks at a text's end are lost, and so may be a part of a character.
    """
    last = len(own.tokens) - 1
    if isinstance(text, str) and 0 < last < len(other.tokens) and (
            own.tokens[:last] == other.tokens[:last]):
        mine, its = (spellings[one.tokens[last]] or b"" for one in (own, other))
        if its.startswith(mine):
            return own.until(last)
    return own


def certain(text: str, found: Read, spellings: Sequence[bytes | None], gap: float,
            names: Mapping[int, str]) -> int:
    """How many of a text's tokens are surely those that a greedy program has written. At the next
    place a likely token is spelled as the text goes on, too, goes on where it ends, or is special.
    names: of special tokens.
    """
    left = text.encode()
    for place, token in enumerate(found.tokens):
        near = found.near(place, gap)
        others = [spellings[one] or b"" for one in near if one != token]
        if not place or found.tokens[place - 1] in names:   # some take the first blanks away
            others += [one.lstrip() for one in others]
        # b"" is a special token, which may be left out of a text, or blanks.
        if len(near) == found.best.shape[1] or any(
                left.startswith(one) or one.startswith(left) for one in others):
            return place
        left = left[len(spellings[token] or names.get(token, "").encode()):]
    return len(found.tokens)
