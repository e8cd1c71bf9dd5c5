"""Prompts and texts as they are given to the judge: in files, or by a server. Nothing in them is
taken on trust.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path

from nanospec.dice import Dice
from nanospec.errors import RequestError, check_ids, one_line
from nanospec.files.paths import fetched
from nanospec.judge.endpoint import Endpoint, EndpointError
from nanospec.judge.sequential import drawn_by

MOST_BYTES = 2 ** 24    # of a file


def given_in(path: Path, names: Sequence[str]) -> list[list[int] | str]:
    """Texts and lists of token ids: of a .jsonl file its lines, which may be objects that have them
    under one of these names; else the one text that the file is.
    """
    try:
        text = fetched(path, MOST_BYTES).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is no text in UTF-8: {one_line(error)}") from error
    if path.suffix != ".jsonl":
        return [text]
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                thing = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise RequestError(f"{path}, line {number} is no JSON: {one_line(error)}") from error
            if isinstance(thing, dict):
                thing = next((thing[name] for name in names if name in thing), None)
            if not isinstance(thing, str):
                check_ids(f"{path}, line {number}", thing, list)
            found.append(thing)
    if not found:
        raise RequestError(f"{path} is empty")
    return found


def answers(endpoint: Endpoint, prompts: Sequence[str | list[int]]) -> list[list[int] | str]:
    """What a server writes: token ids, or where it does not name them the text."""
    def answer(prompt: str | list[int]) -> list[int] | str:
        one = copy(endpoint)
        one.prompt = prompt
        with suppress(EndpointError):
            return one.ids(Dice([0]))
        return one.complete(0)["text"]

    endpoint.complete(0)                # finds out what it takes, once for all
    return drawn_by(answer, prompts, endpoint.at_once)
