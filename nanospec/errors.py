"""What can be refused, by type. The message is one line for whoever asked; the scripts print it and exit with 2."""

LONGEST = 240       # characters of another error


class NanospecError(Exception):
    """Any of the below."""


class RequestError(NanospecError, ValueError):
    """A request that cannot be answered."""


class TextError(NanospecError, ValueError):
    """A text that cannot be trained on."""


class PairError(NanospecError, ValueError):
    """A file that is no model or tokenizer of ours, or is not whole; or files that do not belong together."""


class DeviceError(NanospecError, RuntimeError):
    """A device that is not here, or on which nothing can be computed."""


class EndpointError(NanospecError, OSError):
    """A server that does not answer, or not so that it can be judged."""


class LogitsError(NanospecError, ArithmeticError):
    """Logits that are not numbers. What was yielded before stands."""


def one_line(said: object) -> str:
    """What another error or a file says, for use in one of these: one line, not too long, and harmless to a terminal.

    Example: "a\\nb\\x1b[2J" becomes "a b\ufffd[2J".
    """
    words = " ".join(str(said).split()) or type(said).__name__
    words = "".join(character if character.isprintable() else "\ufffd" for character in words)
    return words if len(words) <= LONGEST else words[:LONGEST] + "..."
