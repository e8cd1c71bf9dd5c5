"""What comes from files and goes to files: models, tokenizers and text, ours and those of Hugging Face."""

from nanospec.files.checkpoint import Pair, load_pair
from nanospec.files.tokenizer import Tokenizer

__all__ = ["Pair", "Tokenizer", "load_pair"]
