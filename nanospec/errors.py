"""What can be refused, by type. The message is one line for whoever asked; the scripts print it and exit with 2."""


class NanospecError(Exception):
    """Any of the below."""


class RequestError(NanospecError, ValueError):
    """A request that cannot be answered."""


class TextError(NanospecError, ValueError):
    """A text that cannot be trained on."""


class PairError(NanospecError, ValueError):
    """A file that is no model or tokenizer of ours, or is not whole; or files that do not belong together."""


class DeviceError(NanospecError, RuntimeError):
    """A device that is not here."""


class LogitsError(NanospecError, ArithmeticError):
    """Logits that are not numbers. What was yielded before stands."""


def one_line(error: Exception) -> str:
    """What some other error says, for use in one of these."""
    return (str(error) or type(error).__name__).splitlines()[0]
