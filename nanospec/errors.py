"""What can be refused: the errors by type, and the checks that raise them before any work is done.

The message of each is one line for the person who asked. The scripts print it and exit with 2.
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

LARGEST = 2 ** 31 - 1   # of any size of a model
LONGEST = 240           # characters of another error
MOST_ROWS = 4096        # of a draft; more would need masks of gigabytes


class NanospecError(Exception):
    """Any of the below."""


class RequestError(NanospecError, ValueError):
    """A request that cannot be answered."""


class TextError(NanospecError, ValueError):
    """A text that cannot be trained on."""


class PairError(NanospecError, ValueError):
    """A file that is no model or tokenizer, or is damaged; or files that do not belong together."""


class DeviceError(NanospecError, RuntimeError):
    """A device that is not here, or on which nothing can be computed."""


class EndpointError(NanospecError, OSError):
    """A server that does not answer, or not in a way that can be judged."""


class LogitsError(NanospecError, ArithmeticError):
    """Logits that are not numbers. What was yielded before stands."""


def one_line(error: object) -> str:
    """Another error's message, or a file's words, for use in one of the above: one line of bounded
    length, without anything that a terminal would obey.

    Example: "a\\nb\\x1b[2J" becomes "a b\ufffd[2J".
    """
    words = " ".join(str(error).split()) or type(error).__name__
    words = "".join(character if character.isprintable() else "\ufffd" for character in words)
    return words if len(words) <= LONGEST else words[:LONGEST] + "..."


def check_request(model: Any, ids: Sequence[int], max_new_tokens: int, temperature: float,
                  top_k: int | None, top_p: float | None, seed: int, rows: int = 1) -> None:
    """RequestError unless `model` can answer this request with drafts of at most `rows` rows."""
    vocab_size, context = model.config.vocab_size, model.config.context
    if not len(ids):
        raise RequestError("the prompt is empty: give at least one token (end of text will do)")
    if not all(0 <= token < vocab_size for token in ids):
        raise RequestError(f"the prompt has a token outside 0..{vocab_size - 1}: is this the "
                           "model's own tokenizer?")
    if max_new_tokens < 0:
        raise RequestError(f"max_new_tokens must not be negative, got {max_new_tokens}")
    if len(ids) + max_new_tokens > context:
        raise RequestError(f"{len(ids)} prompt tokens and {max_new_tokens} new ones exceed the "
                           f"context of {context}")
    if rows > context:
        raise RequestError(f"a draft of up to {rows - 1} tokens is longer than the context of "
                           f"{context}")
    if not (temperature >= 0 and math.isfinite(temperature)):
        raise RequestError(f"temperature must be 0 or more, got {temperature}")
    if top_k is not None and top_k < 1:
        raise RequestError(f"top_k must be at least 1, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise RequestError(f"top_p must lie in (0, 1], got {top_p}")
    if not -2 ** 63 <= seed < 2 ** 64:
        raise RequestError(f"a seed has 64 bits, got {seed}")


def check_rows(rows: int, what: str) -> int:
    """The rows of a draft; RequestError if it has no draft token, or more than can be verified."""
    if rows < 2:
        raise RequestError(f"{what} must be at least 1, got {rows - 1}")
    if rows > MOST_ROWS:
        raise RequestError(f"{what}: a draft has at most {MOST_ROWS - 1} tokens, asked for "
                           f"{rows - 1}")
    return rows


def check_layers(model: Any, layers: Sequence[int]) -> None:
    """RequestError for a drafter that reads hidden states of layers that the target lacks."""
    if not all(0 <= layer < model.config.layers for layer in layers):
        raise RequestError(f"the drafter reads layers {list(layers)}, the target has 0 to "
                           f"{model.config.layers - 1}")


def check_vocabulary(draft: Any, vocab_size: int) -> None:
    """RequestError unless `draft`, a language model, predicts the target's `vocab_size` tokens."""
    if draft.config.vocab_size != vocab_size:
        raise RequestError(f"the draft has a vocabulary of {draft.config.vocab_size} tokens, the "
                           f"target of {vocab_size}: they must share one tokenizer")


def check_finite(total: float) -> None:
    """LogitsError if `total`, a sum of probabilities, is not a number."""
    if not math.isfinite(total):
        raise LogitsError("a model's logits hold NaN or infinity: are its weights whole, is its "
                          "data type wide enough?")


def check_sizes(config: Any) -> None:
    """ValueError, with what is wrong, unless `config`, a Config, describes a possible GPT."""
    sizes = ["vocab_size", "context", "layers", "channels", "heads", "kv_heads", "hidden"]
    for name in sizes + ["head_dim"] * (config.head_dim is not None):
        size = getattr(config, name)
        if type(size) is not int or not 0 < size <= LARGEST:            # a bool is no int here
            raise ValueError(f"{name} must be a whole number from 1 to {LARGEST}, got {size!r}")
    scaled = [("rope_llama3", value) for value in config.rope_llama3]
    for name, value in [("eps", config.eps), ("rope_theta", config.rope_theta), *scaled]:
        if type(value) not in (int, float) or not 0 < value <= sys.float_info.max:
            raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    if scaled and (len(scaled) != 4 or config.rope_llama3[1] >= config.rope_llama3[2]):
        raise ValueError("rope_llama3 must be (factor, low, high, context), low below high: "
                         f"{config.rope_llama3!r}")
    for name in ("tied", "qkv_bias", "qk_norm"):
        if type(getattr(config, name)) is not bool:
            raise ValueError(f"{name} must be True or False, got {getattr(config, name)!r}")
    if not config.head_dim and config.channels % config.heads or config.heads % config.kv_heads:
        raise ValueError(f"{config.channels} channels, {config.heads} heads, {config.kv_heads} "
                         "heads of keys and values: each must be a multiple of the next")
    if config.head_size % 2:
        raise ValueError(f"rotary positions turn pairs: heads of {config.head_size} channels "
                         "cannot be paired")
