"""A chat template: the messages of a conversation -> the text that the model was trained on,
special tokens and all.

A template is a program in the language of jinja2, and a stranger has written it. So it runs in
jinja2's sandbox, with what transformers gives it (utils/chat_template_utils.py there) and nothing
more. Left out: tools and documents.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from nanospec.errors import PairError, RequestError, one_line

Message = Mapping[str, str]             # "role": system, user or assistant; "content"


class Generation(Extension):
    """The block {% generation %}, which marks an assistant's words. It changes no text."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        line = next(parser.stream).lineno
        inside = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(inside, lineno=line)


class ChatTemplate:
    """source: the program. special: what it may call special tokens. Example: {"bos_token": "<s>"}.

    PairError if it is no such program.
    """

    def __init__(self, source: str, special: Mapping[str, str]):
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                    extensions=[Generation, loopcontrols])
        environment.filters["tojson"] = to_json
        environment.globals |= {"raise_exception": give_up, "strftime_now": now}
        try:
            self.template = environment.from_string(source)
        except (TemplateError, RecursionError, TypeError) as error:
            raise PairError("the model's chat template cannot be read: "
                            f"{one_line(error)}") from error
        self.special = dict(special)

    def __call__(self, messages: Sequence[Message], answer: bool = True) -> str:
        """The text of these messages; with `answer`, up to the place where the assistant's answer
        to them begins.

        RequestError where the template does not take them.
        """
        variables: dict[str, Any] = {"messages": [dict(message) for message in messages],
                                     "tools": None,
                                     "documents": None, "add_generation_prompt": answer}
        try:
            return self.template.render(self.special | variables)
        except Exception as error:                      # a program may fail in any way
            raise RequestError("the model's chat template does not take this: "
                               f"{one_line(error)}") from error


def to_json(x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
            sort_keys: bool = False) -> str:
    """jinja2's own writes for HTML."""
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def give_up(message: str) -> None:
    raise TemplateError(message)


def now(form: str) -> str:
    """Today, as strftime writes it."""
    return datetime.now().strftime(form)
