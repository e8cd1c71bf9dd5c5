"""A chat template: the messages of a conversation -> the text that the model was trained on,
special tokens and all.

A template is a program in the language of jinja2, and a stranger has written it. It runs in a
sandbox, in a process of its own (bounded.py). Left out: tools and documents.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from nanospec.errors import PairError, RequestError, one_line, quoted
from nanospec.files.bounded import PROCESS
from nanospec.files.extra import extra

Message = Mapping[str, str]             # "role": system, user or assistant; "content"
SAFE = (3, 1, 6)                        # the first jinja2 whose sandbox has no known hole


ANSWER = "An answer."
USER = {"role": "user", "content": "A question?"}
# What a template is asked when its model is opened: messages, and whether an answer begins.
FIRST = ([], True), ([USER, {"role": "assistant", "content": ANSWER}], False), ([USER], True)


class ChatTemplate:
    """source: the program. special: what it may call special tokens. Example: {"bos_token": "<s>"}.

    written: what it writes for FIRST, where it takes these messages. PairError if it is no such
    program, or one that takes too long or too much memory for them.
    """

    def __init__(self, source: str, special: Mapping[str, str]):
        if not isinstance(source, str):
            raise PairError(f"the model's chat template must be a text, got {quoted(source)}")
        self.source, self.special = source, special
        self.written = first_written(source, tuple(special.items()))

    def __call__(self, messages: Sequence[Message], answer: bool = True) -> str:
        """The text of these messages; with `answer`, up to the place where the assistant's answer
        to them begins.

        RequestError where the template does not take them, or takes too long for them.
        """
        if not isinstance(messages, Sequence) or not all(
                isinstance(message, Mapping) and {"role", "content"} <= message.keys() and all(
                    isinstance(text, str) for text in message.values())
                for message in messages):
            raise RequestError('messages are a list of {"role": ..., "content": ...}, both texts, '
                               f"got {quoted(messages)}")
        found, = PROCESS.ask_all([task(self.source, self.special, [*map(dict, messages)], answer)])
        if "text" not in found:
            raise RequestError("the model's chat template does not take this: "
                               f"{one_line(*found.values())}")
        return found["text"]


@lru_cache(64)                      # a model's files are read more than once
def first_written(source: str, special: tuple[tuple[str, str], ...]) -> list[str]:
    written = []
    for answer in PROCESS.ask_all([task(source, dict(special), *asked) for asked in FIRST]):
        if "unread" in answer or "ended" in answer:
            raise PairError("the model's chat template cannot be "
                            f"{'read' if 'unread' in answer else 'used'}: "
                            f"{one_line(*answer.values())}")
        if "text" in answer:                            # it may want other messages
            written.append(answer["text"])
    return written


def task(source: str, special: Mapping[str, str], messages: list, answer: bool) -> dict:
    """As bounded.py takes it."""
    version = [int(part) for part in extra("jinja2").__version__.split(".")[:3] if part.isdigit()]
    if tuple(version) < SAFE:
        raise RequestError("this jinja2 has holes in its sandbox: pip install -U jinja2")
    given = {"messages": messages, "tools": None, "documents": None,
             "add_generation_prompt": answer}
    return {"source": source, "given": {**special, **given}}
