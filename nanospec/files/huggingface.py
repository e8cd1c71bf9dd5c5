"""Llama checkpoints in the Hugging Face layout (a folder with config.json and *.safetensors), read into our GPT.

The two are the same network under other names; here three matrices of attention are stacked into one, and two of the
MLP. Left out: scaled rotary positions, biases, windows, quantised weights, and every architecture but Llama's. Such a
folder is refused, not misread: what config.json asks for, and every tensor, must have its place in this GPT.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from nanospec.errors import PairError, one_line
from nanospec.files.checkpoint import available, ready
from nanospec.model import GPT, Config

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# What config.json may say of things that this GPT does not have. It may always say nothing, or null.
ONLY: dict[str, list] = {
    "model_type": ["llama"], "hidden_act": ["silu", "swish"], "attention_bias": [False], "mlp_bias": [False],
    "rope_type": ["default"], "type": ["default"], "partial_rotary_factor": [1], "use_sliding_window": [False],
    "sliding_window": [], "quantization_config": [], "attn_logit_softcapping": [], "final_logit_softcapping": [],
    "embedding_multiplier": [1], "residual_multiplier": [1], "logits_scaling": [1],
}
ROTARY = ("rope_parameters", "rope_scaling")        # newer and older files say there what they do with positions
BUFFER = ".rotary_emb.inv_freq"                     # in older files; it follows from the config, and nobody reads it


def read_config(path: Path) -> Config:
    """config.json -> Config. FileNotFoundError, or PairError where it asks for something this GPT does not have."""
    try:
        said = json.loads(Path(path).read_bytes())
        tables = [said] + [said[name] for name in ROTARY if said.get(name) is not None]
        asked = unknown(tables)
        if not asked:
            rope_theta = {table["rope_theta"] for table in tables if table.get("rope_theta") is not None}
            heads, kv_heads = said["num_attention_heads"], said.get("num_key_value_heads")
            config = Config(said["vocab_size"], said["max_position_embeddings"], said["num_hidden_layers"],
                            said["hidden_size"], heads, heads if kv_heads is None else kv_heads,
                            said["intermediate_size"], said.get("tie_word_embeddings", False), said["rms_norm_eps"],
                            *rope_theta)
            if said.get("head_dim") not in (None, config.head_size):
                asked = f"{heads} heads of {said['head_dim']}, which do not make {config.channels} channels"
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        missing = "there is no " if isinstance(error, KeyError) else ""
        raise PairError(f"{path} is not the config of a Llama: {missing}{one_line(error)}") from error
    if asked:
        raise PairError(f"{path} asks for what this GPT does not have: {one_line(asked)}")
    return config


def unknown(tables: list[dict]) -> str:
    """What config.json and its tables of rotary positions ask for and this GPT does not have; "" if nothing."""
    for table in tables:
        for key, allowed in ONLY.items():
            if table.get(key) is not None and table[key] not in allowed:
                return f"{key} {table[key]!r}"
    for key in {key for table in tables[1:] for key in table} - {"rope_theta", *ONLY}:
        return f"rotary positions with a {key!r}"
    if set(tables[0].get("layer_types") or ()) - {"full_attention"}:
        return f"layer_types {tables[0]['layer_types']!r}"
    if len({table["rope_theta"] for table in tables if table.get("rope_theta") is not None}) > 1:
        return "more than one rope_theta"
    return ""


def load_llama(folder: Path, device="cpu", dtype: torch.dtype = torch.float32) -> GPT:
    """The model in `folder`, ready to decode. FileNotFoundError or PairError if it is not there or not one of these."""
    device, folder = available(device), Path(folder)
    config, theirs = read_config(folder / "config.json"), read_folder(folder)
    state = {}
    for ours, parts in names(config):                   # stops at the first that is missing, however many there may be
        for name, shape in parts.items():
            if name not in theirs or theirs[name].shape != shape:
                there = f"of shape {tuple(theirs[name].shape)}" if name in theirs else "not there"
                raise PairError(f"{folder} has not the weights its config.json speaks of: {name} is {there}")
        state[ours] = torch.cat([theirs.pop(name) for name in parts])
    if config.tied and "lm_head.weight" in theirs and torch.equal(theirs["lm_head.weight"], state["embedding.weight"]):
        del theirs["lm_head.weight"]
    extra = sorted(name for name in theirs if not name.endswith(BUFFER))
    if extra:
        raise PairError(f"{folder} has weights that its config.json does not speak of: {one_line(', '.join(extra))}")
    try:
        return ready(config, state, device, dtype)
    except (ValueError, RuntimeError) as error:
        raise PairError(f"{folder} is no model that can be used: {one_line(error)}") from error


def read_folder(folder: Path) -> dict[str, Tensor]:
    """The tensors of all *.safetensors in `folder`. PairError if there is none, or one is in two files."""
    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors = read_safetensors(path)
        twice = found.keys() & tensors.keys()
        if twice:
            raise PairError(f"{path}: {one_line(min(twice))} is in another file of this folder too")
        found |= tensors
    if not found:
        raise PairError(f"{folder} has no weights: no tensor in any *.safetensors")
    return found


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Eight bytes of length, so much JSON, then the numbers: {name: tensor}. PairError if the file is not that.

    The tensors lie one behind the other, and fill the file to its end.
    """
    data = bytearray(Path(path).read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:begin], object_pairs_hook=_once)
        header.pop("__metadata__", None)
        out, at = {}, begin
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            dtype, shape, offsets = DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
            end = at + math.prod(shape) * dtype.itemsize
            if list(map(type, offsets)) != [int, int] or offsets != [at - begin, end - begin]:
                raise ValueError(f"{name} lies at {offsets}, and should at {[at - begin, end - begin]}")
            out[name] = torch.frombuffer(data[at:end], dtype=dtype).reshape(shape)      # raises behind the end
            at = end
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes belong to no tensor")
        return out
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise PairError(f"{path} is cut short, or is no safetensors file of floats: {one_line(error)}") from error


def names(config: Config) -> Iterator[tuple[str, dict[str, tuple[int, ...]]]]:
    """Our name of every weight, and theirs with their shapes, to be stacked in this order. A tied head has none."""
    channels, hidden, keys = config.channels, config.hidden, config.kv_heads * config.head_size
    yield "embedding.weight", {"model.embed_tokens.weight": (config.vocab_size, channels)}
    if not config.tied:
        yield "head.weight", {"lm_head.weight": (config.vocab_size, channels)}
    yield "norm.weight", {"model.norm.weight": (channels,)}
    layer: dict[str, dict[str, tuple[int, ...]]] = {
        "attention_norm": {"input_layernorm": (channels,)},
        "attention.qkv": {"self_attn.q_proj": (channels, channels), "self_attn.k_proj": (keys, channels),
                          "self_attn.v_proj": (keys, channels)},
        "attention.out": {"self_attn.o_proj": (channels, channels)},
        "mlp_norm": {"post_attention_layernorm": (channels,)},
        "mlp.gate_up": {"mlp.gate_proj": (hidden, channels), "mlp.up_proj": (hidden, channels)},
        "mlp.down": {"mlp.down_proj": (channels, hidden)}}
    for i in range(config.layers):
        for ours, parts in layer.items():
            yield (f"blocks.{i}.{ours}.weight",
                   {f"model.layers.{i}.{theirs}.weight": shape for theirs, shape in parts.items()})


def _once(pairs: list[tuple]) -> dict:
    """What JSON makes of an object, if no name stands in it twice."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name stands in its header twice")
    return dict(pairs)
