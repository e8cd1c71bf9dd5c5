"""Libraries that only some need: the extra `hf` brings them."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

from nanospec.errors import RequestError

ROOT = Path(__file__).parents[2]        # of a clone; an installation has no pyproject.toml there


def extra(name: str) -> ModuleType:
    """That module. RequestError, with what to install, where it is not here."""
    try:
        return import_module(name)
    except ImportError as error:
        how = "-e '.[hf]'" if (ROOT / "pyproject.toml").exists() else "'nanospec[hf]'"
        raise RequestError(f"{name.split('.')[0]} is not installed: pip install {how}") from error
