"""The tensors of a folder's *.safetensors: numbers under names, which run nothing as they are read.
"""

import json
import os
from pathlib import Path

import torch
from torch import Tensor

from nanospec.errors import PairError, one_line
from nanospec.files.extra import extra
from nanospec.files.paths import TABLE, fetched, read_json

DTYPES = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
INDEX = "model.safetensors.index.json"      # which tensor is in which file, where there are several


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of the files that the index of `folder` names, or of all *.safetensors in it.

    FileNotFoundError where one of the index is not there. PairError if there is none, or one is in
    two files.
    """
    paths = sorted(folder.glob("*.safetensors"))
    if (folder / INDEX).exists():
        named = read_json(folder / INDEX).get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(file, str) for file in named.values()):
            raise PairError(f"{folder / INDEX} is no index of safetensors files: no weight_map")
        paths = [folder / file for file in sorted({*named.values()}) if Path(file).name == file]
    found: dict[str, Tensor] = {}
    for path in paths:
        tensors = read_safetensors(path)
        twice = found.keys() & tensors.keys()
        if twice:
            raise PairError(f"{path}: {one_line(min(twice))} is in another file of this folder too")
        found |= tensors
    if not found:
        others = sorted(path.name for path in folder.glob("*.bin"))
        why = f"; {one_line(', '.join(others))} may hold code, and is not read" if others else ""
        raise PairError(f"{folder} has no weights: no tensor in any *.safetensors{why}")
    return found


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """{name: tensor}. FileNotFoundError; PairError if it is not whole, or not of floats."""
    safetensors = extra("safetensors")
    try:
        os.fsencode(path).decode()
    except UnicodeError as error:
        raise PairError(f"{one_line(path)}: safetensors opens no file whose path is not "
                        "UTF-8") from error
    header_length(path)                                 # before safetensors makes objects of it
    try:
        found = extra("safetensors.torch").load_file(path)
    except safetensors.SafetensorError as error:
        raise PairError(f"{path} is cut short, or is no safetensors file: "
                        f"{one_line(error)}") from error
    for name, tensor in found.items():
        if tensor.dtype not in DTYPES:
            raise PairError(f"{path} is no safetensors file of floats: {one_line(name)} is "
                            f"{tensor.dtype}; quantised weights are not read")
    return found


def header_length(path: Path) -> int:
    """Bytes, after the first eight, in which a safetensors file says what it holds; 0 if it claims
    more than it has. FileNotFoundError; PairError for more than any has.
    """
    with open(fetched(path), "rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length > path.stat().st_size:
        return 0
    if length > TABLE:
        raise PairError(f"{path} says in {length:,} bytes what it holds, and at most {TABLE:,} "
                        "are read here")
    return length


def read_header(path: Path) -> dict:
    """What a safetensors file says before its numbers; {} where that is no table. Errors as of
    header_length.
    """
    length = header_length(path)
    with open(path, "rb") as file:
        head = file.read(8 + length)[8:]
    try:
        table = json.loads(head)
    except (ValueError, RecursionError):
        table = None
    return table if isinstance(table, dict) else {}
