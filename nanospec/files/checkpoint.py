"""The files a pair is kept in: target.pt and draft.pt, config and weights, and ranks.tiktoken, the tokenizer's.

Written whole or not at all, read with `weights_only`: a checkpoint from a stranger cannot run code.
"""

import os
import pickle
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import torch

from nanospec.errors import DeviceError, PairError, one_line
from nanospec.model import GPT, Config
from nanospec.files.tokenizer import Tokenizer

WEIGHTS = Path(__file__).parent.parent / "weights"


class Pair(NamedTuple):
    target: GPT
    draft: GPT
    tokenizer: Tokenizer


def save_model(model: GPT, path: Path, tokenizer: Tokenizer) -> None:
    """Write config, weights in bfloat16, and which tokenizer they are for; the file is whole or not there at all."""
    state = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    if model.config.tied:
        del state["head.weight"]
    save_atomically({"config": asdict(model.config), "state": state, "tokenizer": tokenizer.fingerprint()}, path)


def save_atomically(what: dict, path: Path) -> None:
    """torch.save beside `path`, flushed to the disk, then renamed over it: killed or out of space at any moment, the
    file that was there is still there. OSError when it cannot be written.
    """
    beside = Path(path).with_suffix(".partial")
    try:
        with open(beside, "wb") as file:
            torch.save(what, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except (OSError, RuntimeError) as error:            # torch wraps what the file says
        beside.unlink(missing_ok=True)
        raise OSError(f"{path} could not be written, what was there before still is: {one_line(error)}") from error


def load_saved(path: Path) -> dict:
    """What `save_atomically` wrote there. OSError if it cannot be read, PairError if it is anything else."""
    file = BytesIO(Path(path).read_bytes())
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except (RuntimeError, OSError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise PairError(f"{path} is cut short, or is no checkpoint: {one_line(error)}") from error


def available(device) -> torch.device:
    """That device, if torch can use it here. DeviceError if not."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        raise DeviceError(f"no device {str(device)!r} here: {one_line(error)}") from error


def load_model(path: Path, device="cpu", dtype: torch.dtype = torch.float32, tokenizer: Tokenizer | None = None) -> GPT:
    """A model as `save_model` wrote it, ready to decode (no gradients).

    FileNotFoundError, or PairError if the file holds anything else, or a model made for another tokenizer.
    """
    device, saved = available(device), load_saved(path)
    try:
        if tokenizer and saved["tokenizer"] != tokenizer.fingerprint():
            raise PairError(f"{path} was trained with another tokenizer than the one beside it")
        model = GPT(Config(**saved["config"]))
        if model.config.tied:
            saved["state"]["head.weight"] = saved["state"]["embedding.weight"]
        model.load_state_dict(saved["state"])
    except (TypeError, KeyError, RuntimeError, AttributeError) as error:
        raise PairError(f"{path} is a checkpoint, but not of this GPT: {one_line(error)}") from error
    return model.to(device=device, dtype=dtype).requires_grad_(False).eval()


def load_pair(folder: Path = WEIGHTS, device="cpu", dtype: torch.dtype = torch.float32) -> Pair:
    """The target, the draft and their tokenizer: the shipped pair, or one that train_tiny.py wrote into `folder`.

    FileNotFoundError or PairError if they are not there, not whole, or not made for one another.
    """
    folder = Path(folder)
    tokenizer = Tokenizer.load(folder / "ranks.tiktoken")
    return Pair(load_model(folder / "target.pt", device, dtype, tokenizer),
                load_model(folder / "draft.pt", device, dtype, tokenizer), tokenizer)
