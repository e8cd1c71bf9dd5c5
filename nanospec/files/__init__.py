"""Files: models, tokenizers and text, ours and those of Hugging Face and llama.cpp."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nanospec.files.checkpoint import Pair, load_pair
    from nanospec.files.tokenizer import Tokenizer

__all__ = ["Pair", "Tokenizer", "load_pair"]


def __getattr__(name: str) -> Any:
    """Read when first asked for: a command can be interrupted before torch is imported."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    file = "tokenizer" if name == "Tokenizer" else "checkpoint"
    return getattr(import_module(f"{__name__}.{file}"), name)
