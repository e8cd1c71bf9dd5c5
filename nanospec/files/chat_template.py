"""A chat template: the messages of a conversation -> the text that the model was trained on,
special tokens and all.

A template is a program in the language of jinja2, and a stranger has written it. It runs in a
sandbox, in a process of its own (bounded.py). Left out: tools and documents.
"""

from collections.abc import Mapping, Sequence

from nanospec.errors import PairError, RequestError, one_line, quoted
from nanospec.files.bounded import PROCESS
from nanospec.files.extra import extra

Message = Mapping[str, str]             # "role": system, user or assistant; "content"
SAFE = (3, 1, 6)                        # the first jinja2 whose sandbox has no known hole


class ChatTemplate:
    """source: the program. special: what it may call special tokens. Example: {"bos_token": "<s>"}.

    PairError if it is no such program, or one that takes too long or too much memory.
    """

    def __init__(self, source: str, special: Mapping[str, str]):
        self.source, self.special = source, special
        answer = self._asked([], True)                  # it may want other messages
        if "unread" in answer or "ended" in answer:
            raise PairError("the model's chat template cannot be "
                            f"{'read' if 'unread' in answer else 'used'}: "
                            f"{one_line(*answer.values())}")

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
        found = self._asked([dict(message) for message in messages], answer)
        if "text" not in found:
            raise RequestError("the model's chat template does not take this: "
                               f"{one_line(*found.values())}")
        return found["text"]

    def _asked(self, messages: list[dict], answer: bool) -> dict:
        """As bounded.py answers."""
        version = [int(part) for part in extra("jinja2").__version__.split(".")[:3]
                   if part.isdigit()]
        if tuple(version) < SAFE:
            raise RequestError("this jinja2 has holes in its sandbox: pip install -U jinja2")
        given = {"messages": messages, "tools": None, "documents": None,
                 "add_generation_prompt": answer}
        return PROCESS.ask({"source": self.source, "given": {**self.special, **given}})
