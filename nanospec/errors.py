"""What can be refused: errors by type, and the checks that raise them before any work is done."""

import math
import sys
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from numbers import Integral, Real
from reprlib import Repr
from typing import Any

LONGEST = 240           # characters of another error
MOST_IDS = 2 ** 24      # of a prompt: a list of more would fill the memory before it is refused
MOST_NODES = 4096       # of a draft; more would need masks of gigabytes
BRIEFLY = Repr()        # a learner's answers, too, are shown so
BRIEFLY.repr_instance = lambda x, level: repr(x)        # type: ignore[method-assign]
BRIEFLY.repr_OrderedDict = BRIEFLY.repr_dict           # type: ignore[attr-defined]
BRIEFLY.maxlevel, BRIEFLY.maxstring, BRIEFLY.maxlong = 3, 2000, 2000
BRIEFLY.maxlist = BRIEFLY.maxtuple = BRIEFLY.maxdict = BRIEFLY.maxset = BRIEFLY.maxdeque = 30
SEEDS = 2 ** 32         # torch's generator on a CPU uses 32 bits: 0 and SEEDS would be one seed


class NanospecError(Exception):
    """Any of the errors below."""


class RequestError(NanospecError, ValueError):
    """A request that cannot be answered."""


class TextError(NanospecError, ValueError):
    """A text that cannot be trained on."""


class PairError(NanospecError, ValueError):
    """A file that is no model or tokenizer, or is damaged; or files that do not belong together."""


class DeviceError(NanospecError, RuntimeError):
    """A device that is not here, or on which nothing can be computed."""


class LogitsError(NanospecError, ArithmeticError):
    """Logits that are not numbers. What was yielded before stands."""


def one_line(error: object, say: Callable = str) -> str:
    """Another error's message, or a file's words, as one short line that no terminal obeys."""
    try:
        words = " ".join(say(error).split())
    except Exception:                   # an int of 5,000 digits, an error that cannot speak
        words = f"a {type(error).__name__}"
    words = words or type(error).__name__ * isinstance(error, BaseException)
    words = "".join(character if character.isprintable() else "\ufffd" for character in words)
    return words if len(words) <= LONGEST else words[:LONGEST] + "..."


def quoted(value: object) -> str:
    """A value as an error shows it: three levels of it, for a list may hold a list twice, often."""
    return one_line(value, BRIEFLY.repr)


def check_numbers(kind: type, **named: Any) -> None:
    """RequestError unless each of these is a number: Integral, a whole one, or Real."""
    for name, value in named.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise RequestError(f"{name} must be a {'whole ' * (kind is Integral)}number, got "
                               f"{quoted(value)}")


def check_ids(name: str, ids: Any, kind: Any = Sequence) -> None:
    """RequestError unless `ids` are whole numbers, in a list or in another collection."""
    listed = isinstance(ids, kind) and not isinstance(ids, str)
    try:
        many = listed and len(ids) > MOST_IDS
    except OverflowError:               # of a range of 10 ** 30
        many = True
    if many:
        raise RequestError(f"{name} has more than {MOST_IDS:,} tokens")
    if not listed or not all(isinstance(token, Integral) for token in ids):
        raise RequestError(f"{name} must be a list of token ids, got {quoted(ids)}")


def check_has(what: str, thing: Any, kind: str, *names: str) -> None:
    """RequestError unless `thing` is an object with these attributes, by which `kind` is known."""
    if isinstance(thing, type) or not all(hasattr(thing, name) for name in names):
        raise RequestError(f"{what} must be {kind}, got {quoted(thing)}")


def check_model(what: str, model: Any) -> None:
    """RequestError unless `model` answers as a GPT does."""
    check_has(what, model, "a language model, as a GPT is", "config", "new_cache")


def check_sampling(temperature: float, top_k: int | None, top_p: float | None,
                   min_p: float | None) -> None:
    """RequestError unless logits can become probabilities with these settings. None: without it."""
    check_numbers(Real, temperature=temperature, top_p=1 if top_p is None else top_p,
                  min_p=0 if min_p is None else min_p)
    check_numbers(Integral, top_k=1 if top_k is None else top_k)
    if not isinstance(temperature, int | Fraction):         # a long double of numpy's, too
        temperature = float(temperature)
    if not 0 <= temperature <= sys.float_info.max:
        raise RequestError(f"temperature must be finite, 0 or more, got {quoted(temperature)}")
    if top_k is not None and top_k < 1:
        raise RequestError(f"top_k must be at least 1, got {quoted(top_k)}")
    if top_p is not None and not 0 < top_p <= 1:
        raise RequestError(f"top_p must lie in (0, 1], got {quoted(top_p)}")
    if min_p is not None and not 0 <= min_p <= 1:
        raise RequestError(f"min_p must lie in [0, 1], got {quoted(min_p)}")


def check_request(model: Any, ids: Sequence[int], max_new_tokens: int, seed: int, most: int = 0,
                  stop: Collection[int] = (), others: Collection[str] = ()) -> int:
    """max_new_tokens. RequestError unless `model` can answer, with `most` draft tokens a round."""
    check_known(others)
    check_model("the target", model)
    check_ids("the prompt", ids)
    check_ids("stop", stop, Collection)
    check_seed(seed)
    check_numbers(Integral, max_new_tokens=max_new_tokens)
    vocab_size, context = model.config.vocab_size, model.config.context
    if not len(ids):
        raise RequestError("the prompt is empty: give at least one token (end of text will do)")
    if not all(0 <= token < vocab_size for token in ids):
        raise RequestError(f"the prompt has a token outside 0..{vocab_size - 1}: wrong tokenizer?")
    if max_new_tokens < 0:
        raise RequestError(f"max_new_tokens must not be negative, got {quoted(max_new_tokens)}")
    if max_new_tokens > context - len(ids):             # a sum of 8 bits would overflow
        raise RequestError(f"{len(ids)} prompt tokens and {quoted(max_new_tokens)} new ones "
                           f"exceed the context of {context}")
    if most >= context:
        raise RequestError(f"a draft of up to {most} tokens exceeds the context of {context}")
    return int(max_new_tokens)


def check_seed(seed: int) -> int:
    """The seed, which must be one that torch's generator tells from all others; or RequestError."""
    check_numbers(Integral, seed=seed)
    if not 0 <= seed < SEEDS:
        raise RequestError(f"a seed has 32 bits, so it is 0 to {SEEDS - 1}, got {quoted(seed)}")
    return int(seed)


def check_known(others: Collection[str]) -> None:
    """RequestError if there are any: settings of other programs, which no request here has."""
    if others:
        raise RequestError(f"a request has no {', '.join(sorted(others))}: a distribution is made "
                           "of logits by temperature, top_k, top_p and min_p alone")


def check_gamma(gamma: int, what: str) -> int:
    """gamma, the draft tokens of a round. RequestError if there are none, or too many."""
    check_numbers(Integral, **{what: gamma})
    if not 1 <= gamma < MOST_NODES:
        raise RequestError(f"{what} must be at least 1 and at most {MOST_NODES - 1}, got "
                           f"{quoted(gamma)}")
    return int(gamma)


def check_drafter(model: Any, drafter: Any, rule: Any = None, dice: Any = None,
                  compiler: Any = None) -> None:
    """RequestError unless `drafter` can draft for `model`; and the others are None, or fit."""
    check_model("the target", model)
    check_has("the drafter", drafter, "a drafter", "begin", "propose", "commit", "most", "layers")
    for what, thing in ("the rule", rule), ("the compiler", compiler):
        if thing is not None:
            check_has(what, thing, "a function", "__call__")
    if dice is not None:
        check_has("dice", dice, "Dice", "refill", "flip", "pick")
    if not all(0 <= layer < model.config.layers for layer in drafter.layers):
        raise RequestError(f"the drafter reads layers {list(drafter.layers)}, the target has 0 to "
                           f"{model.config.layers - 1}")


def check_vocabulary(draft_model: Any, vocab_size: int) -> None:
    """RequestError unless the draft model predicts the target's `vocab_size` tokens."""
    if draft_model.config.vocab_size != vocab_size:
        raise RequestError(f"the draft model has a vocabulary of {draft_model.config.vocab_size} "
                           f"tokens, the target of {vocab_size}: they must share one tokenizer")


def check_finite(total: float) -> None:
    """LogitsError if `total`, a sum of probabilities, is not a number."""
    if not math.isfinite(total):
        raise LogitsError("a model's logits hold NaN or infinity: bad weights, a narrow data type?")


def check_draft(tokens: Any, *of_nodes: Any) -> None:
    """ValueError unless tokens is (B, n), and what belongs to its nodes begins with these sides."""
    shapes = [tuple(getattr(part, "shape", ())) for part in (tokens, *of_nodes)]
    if len(shapes[0]) != 2 or any(shape[:2] != shapes[0] for shape in shapes):
        raise ValueError(f"tokens (B, n), q_draft (B, n, V) or parents, got {str(shapes)[1:-1]}")


def check_scored(draft: Any, p_target: Any, *kinds: type) -> None:
    """ValueError unless p_target has a distribution for every node of a draft of these kinds."""
    if type(draft) not in kinds or getattr(p_target, "shape", None) != draft.q_draft.shape:
        raise ValueError(f"this rule judges a {kinds[0].__name__} and p_target, both (B, n, V), "
                         f"got a {type(draft).__name__} and {getattr(p_target, 'shape', p_target)}")
