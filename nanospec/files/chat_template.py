"""A chat template: the messages of a conversation -> the text that the model was trained on,
special tokens and all.

A template is a program in the language of jinja2, and a stranger has written it. transformers runs
it, in a sandbox. Left out: tools and documents.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from nanospec.errors import PairError, RequestError, one_line
from nanospec.files.extra import extra

Message = Mapping[str, str]             # "role": system, user or assistant; "content"


class ChatTemplate:
    """source: the program. special: what it may call special tokens. Example: {"bos_token": "<s>"}.

    PairError if it is no such program.
    """

    def __init__(self, source: str, special: Mapping[str, str]):
        self.source, self.special = source, special
        with suppress(RequestError):                    # it may want other messages
            self([])

    def __call__(self, messages: Sequence[Message], answer: bool = True) -> str:
        """The text of these messages; with `answer`, up to the place where the assistant's answer
        to them begins.

        RequestError where the template does not take them.
        """
        syntax = extra("jinja2").TemplateSyntaxError
        render = extra("transformers.utils.chat_template_utils").render_jinja_template
        try:
            (text,), _ = render([[dict(message) for message in messages]], **self.special,
                                chat_template=self.source, add_generation_prompt=answer)
        except syntax as error:
            raise PairError("the model's chat template cannot be read: "
                            f"{one_line(error)}") from error
        except Exception as error:                      # a program may fail in any way
            raise RequestError("the model's chat template does not take this: "
                               f"{one_line(error)}") from error
        return text
