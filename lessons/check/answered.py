"""What a learner's function returned, as plain numbers. An int, a numpy number and a tensor of one number are the same;
so are a list, a tuple, an array and a tensor. Only what is no such thing is told to the learner.
"""

import numbers

import torch

from lessons.check.seen import Failure


def number(value, what: str) -> float:
    """Any one number as a float."""
    value = _plain(value)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise Failure(f"{what} must return a number; it returned {value!r:.80}")
    return float(value)


def whole(value, what: str, returns: str = "an int") -> int:
    """One whole number. 2 is one, and so are np.int64(2) and torch.tensor(2); 2.0 is none, nor is True."""
    found = _int(value)
    if found is None:
        raise Failure(f"{what} must return {returns}; it returned {value!r:.80}")
    return found


def token(value, vocab_size: int, what: str) -> int:
    """One token, an int in 0..vocab_size - 1."""
    returns = f"a token, an int in 0..{vocab_size - 1}"
    if value is None:
        raise Failure(f"{what} must return {returns}; it returned None: is a return missing? (return-forgotten)",
                      "return-forgotten")
    plain = _plain(value)
    if isinstance(plain, list) and len(plain) == vocab_size > 1 and any(isinstance(weight, float) for weight in plain):
        raise Failure(f"{what} must return {returns}; it returned {vocab_size} weights: draw a token from them "
                      "(weights-returned)", "weights-returned")
    found = whole(value, what, returns)
    if not 0 <= found < vocab_size:
        raise Failure(f"{what} must return {returns}; it returned {found}")
    return found


def wholes(value, what: str) -> list[int]:
    """Several whole numbers: a list, a tuple, an array or a tensor of one dimension."""
    plain = _plain(value)
    if not isinstance(plain, list):
        raise Failure(f"{what} must return a list of ints; it returned {value!r:.80}")
    found = [*map(_int, plain)]
    if None in found:
        raise Failure(f"{what} must return a list of ints; in it is {plain[found.index(None)]!r:.80}")
    return found


def counts(value, what: str, rows: int) -> list[int]:
    """How many, for each row: whole numbers, whether or not they are of an integer type."""
    plain = _plain(value)
    if not isinstance(plain, list) or len(plain) != rows:
        got = f"{len(plain)} of them" if isinstance(plain, list) else f"{value!r:.80}"
        raise Failure(f"{what} must return a number for each of {rows} row{'s' * (rows > 1)}; it returned {got}")
    parts = [row[0] if isinstance(row, list) and len(row) == 1 else row for row in plain]
    found = [_int(int(part) if isinstance(part, float) and part.is_integer() else part) for part in parts]
    if None in found:
        raise Failure(f"{what} must return whole numbers; among them is {parts[found.index(None)]!r:.80}")
    return found


def truth(value, what: str) -> bool:
    """True or False, from Python, numpy or torch."""
    plain = _plain(value)
    if not isinstance(plain, bool):
        raise Failure(f"{what} must return True or False; it returned {value!r:.80}")
    return plain


def pair(value, what: str) -> tuple:
    """Two things: a tuple, a list, an array or a tensor of length 2."""
    if isinstance(value, torch.Tensor) or hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise Failure(f"{what}; it returned {value!r:.80}")
    return tuple(value)


def weights_like(value, shape: tuple[int, ...], what: str) -> torch.Tensor:
    """Weights of that shape, float64: a tensor, an array, or lists of numbers."""
    try:
        is_tensor = isinstance(value, torch.Tensor)
        found = value.detach().double() if is_tensor else torch.tensor(_plain(value), dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        found = None
    if found is None or tuple(found.shape) != shape:
        got = f"a tensor {tuple(found.shape)}" if found is not None and found.dim() else f"{value!r:.80}"
        raise Failure(f"{what} must return a tensor {shape}; it returned {got}")
    return found


def _plain(value):
    """Tensors and numpy's things as Python's; a tuple as a list; what stands in them as well."""
    if type(value) is int:                              # as most are, and it is asked thousands of times
        return value
    if isinstance(value, torch.Tensor) or type(value).__module__ == "numpy":
        return value.tolist()
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def _int(value) -> int | None:
    """A whole number, alone or alone in a list, as Python's; None if it is no such thing."""
    if type(value) is int:
        return value
    plain = _plain(value)
    if isinstance(plain, list) and len(plain) == 1:
        plain = plain[0]
    return int(plain) if isinstance(plain, numbers.Integral) and not isinstance(plain, bool) else None
