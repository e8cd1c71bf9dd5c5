"""From a config and weights, from any source, to a model that is ready to decode."""

from typing import Any

import torch
from torch import Tensor

from nanospec.errors import DeviceError, RequestError, one_line, quoted
from nanospec.methods.draft_models.learned import Learned
from nanospec.model import GPT, Config

# The largest models have some hundred. For twice as many torch takes four times as long.
MOST_LAYERS = 512


def available(device, dtype: Any = torch.float32) -> torch.device:
    """That device. DeviceError if torch cannot compute there; RequestError for such a dtype."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise RequestError("dtype must be one of torch's for floats, as torch.bfloat16, got "
                           f"{quoted(dtype)}")
    try:
        one = torch.ones(1, device=device)
        one.add(1).item()                               # a "meta" tensor holds no number
        return one.device
    except (RuntimeError, AssertionError, ImportError, TypeError) as error:
        raise DeviceError(f"no device {str(device)!r} to compute on here: "
                          f"{one_line(error)}") from error


def ready(config: Config, state: dict[str, Tensor], device: torch.device,
          dtype: torch.dtype) -> GPT:
    """A GPT with the weights in `state`, where head.weight is left out if it is tied; ready to
    decode.

    ValueError or RuntimeError if they are not the weights of such a GPT, or not all finite in
    `dtype`.
    """
    if not isinstance(state, dict) or not all(isinstance(name, str) and isinstance(weight, Tensor)
                                              and weight.is_floating_point()
                                              for name, weight in state.items()):
        raise ValueError("its state is no dict of names and tensors of floats")
    if config.layers > min(MOST_LAYERS, len(state)):    # refused before that many layers are made
        raise ValueError(f"{len(state)} weights are not those of {config.layers} layers, of which "
                         f"at most {MOST_LAYERS:,} are read")
    with torch.device("meta"):                          # nothing is drawn that would be thrown away
        model = GPT(config)
    if config.tied:
        if "head.weight" in state:
            raise ValueError("it is tied, and has a head.weight all the same")
        state = state | {"head.weight": state.get("embedding.weight", torch.empty(0, device="cpu"))}
    model.load_state_dict(state, assign=True)
    if config.tied:
        model.head.weight = model.embedding.weight
    model = model.to(device=device, dtype=dtype).requires_grad_(False).eval()
    check_weights(model)
    return model


def check_weights(model: GPT | Learned) -> None:
    """ValueError if a weight is NaN or infinite."""
    for name, weight in model.named_parameters():
        # One that is NaN makes both of these NaN. To ask each weight takes sixteen times as long.
        if weight.numel() and not all(edge.isfinite() for edge in weight.aminmax()):
            raise ValueError(f"{name} is not finite everywhere in {model.dtype}")
