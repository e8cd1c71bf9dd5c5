"""Libraries that only some need: the extra `hf` brings them."""

from importlib import import_module
from types import ModuleType

from nanospec.errors import RequestError


def extra(name: str) -> ModuleType:
    """That module. RequestError, with what to install, where it is not here."""
    try:
        return import_module(name)
    except ImportError as error:
        raise RequestError(f"{name.split('.')[0]} is not installed: pip install -e '.[hf]'") from error
